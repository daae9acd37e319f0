"""Vision and diffusion models: torchvision, timm, vit-pytorch, diffusers."""

from __future__ import annotations

from functools import partial

from torch import nn

from ..case import Case, image


def _torchvision(name: str) -> nn.Module:
    from torchvision.models import get_model

    model: nn.Module = get_model(name)
    return model


_TORCHVISION = ("resnet50", "vit_b_16")

CASES: tuple[Case, ...] = tuple(
    Case("torchvision", name, partial(_torchvision, name), (image(),)) for name in _TORCHVISION
)
