"""Vision and diffusion models: torchvision, timm, vit-pytorch, diffusers."""

from __future__ import annotations

from functools import partial
from importlib import import_module

from torch import nn

from ..case import Case, image


def _torchvision(name: str) -> nn.Module:
    model: nn.Module = import_module("torchvision.models").get_model(name)
    return model


_TORCHVISION = ("resnet50", "vit_b_16")

CASES: tuple[Case, ...] = tuple(
    Case("torchvision", name, partial(_torchvision, name), (image(),)) for name in _TORCHVISION
)
