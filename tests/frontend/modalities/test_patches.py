"""Pictures as patches: rows and strips of as many as a picture has, with the sizes that are said beside them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest
from torch import Tensor, nn

from slipstick.frontend.huggingface.configs.architectures import ModelConfig
from slipstick.frontend.modalities.feeding import all_feeds
from slipstick.frontend.modalities.kinds import ASIDE, COLUMNS, KINDS, columns
from slipstick.frontend.modalities.sizes import ConfigSizes
from slipstick.ir.errors import NotBuiltError
from slipstick.ir.graph import Workload

SIDE, PATCH, LARGE, CHANNELS = 28, 4, 8, 3


def sizes(**fields: int) -> ConfigSizes:
    given = {"image_size": SIDE, "patch_size": PATCH, "num_channels": CHANNELS, **fields}
    return ConfigSizes((cast(ModelConfig, SimpleNamespace(**given)),))


class Tasked(nn.Linear):
    """Reads beside pictures what no config says the size of."""

    config = SimpleNamespace()

    def forward(self, pixel_values: Tensor, task_ids: Tensor) -> Tensor:  # type: ignore[override]
        return pixel_values + task_ids


def test_an_argument_of_no_known_size_is_named_with_what_to_write() -> None:
    told = (
        r"Tasked reads 'task_ids', whose size .* --input 'task_ids:int64\[batch,\.\.\]', in Python .*'task_ids': tensor"
    )
    with pytest.raises(NotBuiltError, match=told):
        next(all_feeds(Tasked(2, 2), Workload.PREFILL))


def test_all_patches_of_a_picture_are_rows_of_it() -> None:
    # 28 / 4 = 7 a side; what merges and pools patches needs 12, the fewest that 2, 3 and 4 divide.
    rows = ("images", 7 * 7, CHANNELS * PATCH**2)
    found = KINDS["pixel_values"].layouts(sizes())
    assert found.index(("images", 12 * 12, CHANNELS * PATCH**2)) < found.index(rows)
    assert ASIDE["target_sizes"].row(rows, sizes()) == (7, 7)


def test_patches_that_a_model_makes_of_several_have_sides_of_their_own() -> None:
    rows = ("images", 3 * 3, CHANNELS * LARGE**2)
    assert rows in KINDS["pixel_values"].layouts(sizes(model_patch_size=LARGE))
    assert ASIDE["target_sizes"].row(rows, sizes(model_patch_size=LARGE)) == (3, 3)


def test_a_strip_has_the_patches_of_all_pictures_side_by_side() -> None:
    strip = (1, CHANNELS, PATCH, COLUMNS)
    assert strip in KINDS["pixel_values"].layouts(sizes())
    assert columns(sizes()) == 12 * 12 * PATCH
    assert ASIDE["target_sizes"].dims(strip, sizes()) == ("images", 2)
    assert ASIDE["target_sizes"].row(strip, sizes()) == (12, 12)


def test_sound_has_a_length_that_frames_divide() -> None:
    # Frames of 5, 10, 20 and 40 ms at 16 kHz, and the strides 320 and 640 of encoders.
    assert all(KINDS["input_values"].whole % frame == 0 for frame in (80, 160, 320, 640))


def test_a_mask_of_sound_is_of_frames_and_not_of_the_numbers_of_one() -> None:
    spectrum = sizes(feature_size=640, hop_length=160)
    for dims in (("batch", 496, 640), ("batch", 640, 496)):
        assert ASIDE["input_features_mask"].dims(dims, spectrum) == ("batch", 496)
        assert ASIDE["chunk_sample_lengths"].row(dims, spectrum) == [496 * 160]
    assert ASIDE["input_features_mask"].dims(("batch", "seq", 640), spectrum) == ("batch", "seq")
