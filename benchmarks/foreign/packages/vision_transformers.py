"""Vision transformers of vit-pytorch, each with the sizes of its README."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from importlib import import_module

from torch import nn

from ..case import Case, Feed, image

_COMMON = {"num_classes": 1000, "dim": 256, "heads": 8, "mlp_dim": 512}
_PLAIN = {"image_size": 224, "patch_size": 16, "depth": 4, **_COMMON}
# Class, module, keywords, side of the pictures.
_Spec = tuple[str, str, Mapping[str, object], int]
_IMAGES: tuple[_Spec, ...] = (
    ("ViT", "vit", _PLAIN, 224),
    ("SimpleViT", "simple_vit", _PLAIN, 224),
    ("SimpleViTRegisters", "simple_vit_with_register_tokens", _PLAIN, 224),
    ("DeepViT", "deepvit", _PLAIN, 224),
    ("ParallelViT", "parallel_vit", {**_PLAIN, "num_parallel_branches": 2}, 224),
    ("SmallDatasetViT", "vit_for_small_dataset", _PLAIN, 224),
    ("CaiT", "cait", {**_PLAIN, "cls_depth": 2, "layer_dropout": 0.0}, 224),
    ("XCiT", "xcit", {**_PLAIN, "cls_depth": 2}, 224),
    ("RvT", "rvt", _PLAIN, 224),
    ("T2TViT", "t2t", {"image_size": 224, "depth": 4, "t2t_layers": ((7, 4), (3, 2), (3, 2)), **_COMMON}, 224),
    ("CCT", "cct", {"img_size": (224, 224), "embedding_dim": 192, "n_conv_layers": 2, "num_layers": 4,
                    "num_heads": 6, "num_classes": 1000, "positional_embedding": "learnable"}, 224),
    ("PiT", "pit", {**_PLAIN, "patch_size": 14, "depth": (2, 2, 2)}, 224),
    ("LeViT", "levit", {"image_size": 224, "num_classes": 1000, "stages": 3, "dim": (256, 384, 512), "depth": 2,
                        "heads": (4, 6, 8), "mlp_mult": 2}, 224),
    ("CvT", "cvt", {"num_classes": 1000}, 224),
    ("TwinsSVT", "twins_svt", {"num_classes": 1000}, 224),
    ("CrossViT", "cross_vit", {"image_size": 240, "num_classes": 1000, "sm_dim": 128, "lg_dim": 256, "depth": 2}, 240),
    ("CrossFormer", "crossformer", {"depth": (1, 1, 2, 1)}, 224),
    ("RegionViT", "regionvit", {"depth": (1, 1, 2, 1)}, 224),
    ("ScalableViT", "scalable_vit", {"num_classes": 1000, "dim": 64, "heads": (2, 4, 8, 16), "depth": (1, 1, 2, 1),
                                     "ssa_dim_key": (40, 40, 40, 32), "reduction_factor": (8, 4, 2, 1),
                                     "window_size": (64, 32, None, None)}, 256),
    ("SepViT", "sep_vit", {"num_classes": 1000, "dim": 32, "dim_head": 32, "heads": (1, 2, 4, 8),
                           "depth": (1, 2, 2, 1), "window_size": 7}, 224),
    ("MaxViT", "max_vit", {"num_classes": 1000, "dim": 64, "depth": (1, 1, 2, 1), "dim_conv_stem": 64,
                           "window_size": 7}, 224),
    ("MobileViT", "mobile_vit", {"image_size": (256, 256), "dims": [96, 120, 144], "num_classes": 1000,
                                 "channels": [16, 32, 48, 48, 64, 64, 80, 80, 96, 96, 384]}, 256),
    ("NesT", "nest", {"image_size": 224, "patch_size": 4, "dim": 96, "heads": 3, "num_hierarchies": 3,
                      "block_repeats": (2, 2, 4), "num_classes": 1000}, 224),
)  # fmt: skip
_CLASSES = {"SimpleViTRegisters": "SimpleViT", "SmallDatasetViT": "ViT", "ParallelViT": "ViT", "RvT": "RvT"}


def _built(name: str, module: str, keywords: Mapping[str, object]) -> nn.Module:
    found = import_module(f"vit_pytorch.{module}")
    model: nn.Module = getattr(found, _CLASSES.get(name, name))(**keywords)
    return model


def _case(name: str, module: str, keywords: Mapping[str, object], size: int) -> Case:
    return Case("vit-pytorch", name, partial(_built, name, module, keywords), (image(size),))


_VIVIT = {"image_size": 128, "frames": 16, "image_patch_size": 16, "frame_patch_size": 2, "num_classes": 1000,
          "dim": 256, "spatial_depth": 2, "temporal_depth": 2, "heads": 4, "mlp_dim": 512}  # fmt: skip
_VIDEO = Feed(("batch", 3, 16, 128, 128))

CASES: tuple[Case, ...] = (
    *(_case(*spec) for spec in _IMAGES),
    Case("vit-pytorch", "ViViT", partial(_built, "ViViT", "vivit", _VIVIT), (_VIDEO,)),
)
