"""Models with what they must give: the onnx package's node tests and stored models, and models inside of wheels."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper

# Folders of stored models inside of the onnx package; those of `real` are downloaded and so none.
STORED = ("light", "pytorch-converted", "pytorch-operator", "simple")
# Packages that ship models, and the sizes that a user of each would say; `sr` is the sample rate of the audio.
SHIPPED: Mapping[str, Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        "silero_vad": {
            "silero_vad": {"input.0": "batch", "input.1": "576", "state.1": "batch", "sr[0]": "16000"},
            "silero_vad_16k_op15": {"sequence": "576"},
            "silero_vad_16k_sequence": {"sequence_length": "batch"},
            "silero_vad_half": {"sequence": "576"},
            "silero_vad_op18_ifless": {"sequence": "576", "sr[0]": "16000"},
            "silero_vad_openvino_16k": {},
        },
        "rapidocr": {
            "PP-OCRv6_det_small": {"x.0": "batch", "x.2": "736", "x.3": "736"},
            "PP-OCRv6_rec_small": {"x.0": "batch", "x.3": "320"},
            "ch_ppocr_mobile_v2.0_cls_mobile": {"x.0": "batch", "x.2": "48", "x.3": "192"},
        },
        "rapidocr_onnxruntime": {
            "ch_PP-OCRv4_det_infer": {"x.0": "batch", "x.2": "736", "x.3": "736"},
            "ch_PP-OCRv4_rec_infer": {"x.0": "batch", "x.2": "48", "x.3": "320"},
            "ch_ppocr_mobile_v2.0_cls_infer": {"x.0": "batch", "x.2": "48", "x.3": "192"},
        },
        "magika": {"model": {"unk__214": "batch"}},
    }
)


@dataclass(frozen=True)
class Made:
    """A tensor of a test: its shape, its element type as ONNX numbers it, and its numbers where they are few integers.

    Attributes:
        dims: None for what is no tensor of numbers.
    """

    dims: tuple[int, ...] | None
    element: int = 0
    numbers: tuple[int, ...] = ()


@dataclass(frozen=True)
class Case:
    """A model, in a file or as bytes, with the inputs and results of a run; `dims` is what a user says of its sizes."""

    name: str
    family: str
    path: Path | None = None
    data: bytes = b""
    inputs: tuple[Made, ...] = ()
    outputs: tuple[Made, ...] | None = None
    dims: Mapping[str, str] = field(default_factory=dict)

    def model(self) -> onnx.ModelProto:
        """Return the whole model."""
        found = onnx.ModelProto()
        found.ParseFromString(self.path.read_bytes() if self.path else self.data)
        return found


def cases() -> dict[str, Case]:
    """Return every case by name."""
    found = [*_node_tests(), *_stored(), *_shipped()]
    return {case.name: case for case in found}


def _node_tests() -> Iterator[Case]:
    """The node tests as the package makes them: each a model of one node, or the function that it stands for."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the package computes what must come out, overflows included
        tests = collect_testcases(None)
    for test in tests:
        if test.model is None or not test.data_sets:
            continue
        given, made = test.data_sets[0]
        yield Case(
            f"node/{test.name.removeprefix('test_')}",
            "node",
            data=test.model.SerializeToString(),
            inputs=tuple(map(_made, given)),
            outputs=tuple(map(_made, made)),
        )


def _stored() -> Iterator[Case]:
    """Models stored with the package, with the results that lie beside them."""
    root = Path(onnx.__file__).parent / "backend/test/data"
    for path in sorted((root / "light").glob("*.onnx")):
        yield Case(f"light/{path.stem}", "light", path, outputs=_kept([path.with_name(f"{path.stem}_output_0.pb")]))
    for family in STORED[1:]:
        for path in sorted((root / family).glob("*/model.onnx")):
            kept = path.parent / "test_data_set_0"
            yield Case(
                f"{family}/{path.parent.name.removeprefix('test_')}",
                family,
                path,
                inputs=_kept(_in_order(kept, "input")) or (),
                outputs=_kept(_in_order(kept, "output")),
            )


def _in_order(folder: Path, what: str) -> list[Path]:
    return sorted(folder.glob(f"{what}_*.pb"), key=lambda p: int(p.stem.rpartition("_")[2]))


def _kept(paths: Sequence[Path]) -> tuple[Made, ...] | None:
    found: list[Made] = []
    for path in paths:
        tensor = TensorProto()
        try:
            tensor.ParseFromString(path.read_bytes())
            found.append(_made(tensor))
        except Exception:  # a sequence, whose message has other fields
            found.append(Made(None))
    return tuple(found) or None


def _shipped() -> Iterator[Case]:
    """Models that packages ship, where they are installed."""
    for package, models in SHIPPED.items():
        spec = importlib.util.find_spec(package)
        for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
            for path in sorted(Path(folder).rglob("*.onnx")):
                yield Case(f"{package}/{path.stem}", "shipped", path, dims=models.get(path.stem, {}))


def missing() -> tuple[str, ...]:
    """Return the packages that ship models and are not installed."""
    return tuple(package for package in SHIPPED if importlib.util.find_spec(package) is None)


def _made(value: object) -> Made:
    if isinstance(value, TensorProto):
        numbers = numpy_helper.to_array(value) if value.data_type in (TensorProto.INT64, TensorProto.INT32) else None
        is_text = value.data_type == TensorProto.STRING
        return Made(None if is_text else tuple(value.dims), value.data_type, _few(numbers))
    if not isinstance(value, np.ndarray | np.generic):
        return Made(None)
    array = np.asarray(value)
    if array.dtype.kind in "OUS":
        return Made(None)
    return Made(array.shape, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), _few(array))


def _few(array: NDArray[np.generic] | None) -> tuple[int, ...]:
    if array is None or array.dtype.kind not in "iu" or array.size > 64:
        return ()
    return tuple(int(n) for n in array.reshape(-1).tolist())
