"""Small vision models as their packages write them: pools, norms over channels, windows, stochastic depth."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the field's name for it

CHANNELS, CLASSES, SIDE = 8, 10, 16


class Bottleneck(nn.Module):
    """Two convolutions with batch norms beside a shortcut, as ResNet has them."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1, self.conv2 = (nn.Conv2d(channels, channels, 3, padding=1, bias=False) for _ in range(2))
        self.bn1, self.bn2 = (nn.BatchNorm2d(channels) for _ in range(2))
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(out)).add_(x))


class ResNet(nn.Module):
    """A stem with a pool, a residual block, and a mean over positions."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, CHANNELS, 3, padding=1)
        self.block = Bottleneck(CHANNELS)
        self.head = nn.Linear(CHANNELS, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(self.conv(x), 2)
        x = F.adaptive_avg_pool2d(self.block(x), 1)
        return self.head(torch.flatten(x, 1))


class Decoder(nn.Module):
    """Group norm, resampling, a transposed convolution, shuffled pixels: how a picture is made."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(2, CHANNELS)
        self.conv = nn.Conv2d(3, CHANNELS, 3, padding=1)
        self.turned = nn.ConvTranspose2d(CHANNELS, CHANNELS, 2, stride=2)
        self.out = nn.Conv2d(CHANNELS // 4, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = F.interpolate(F.silu(self.norm(self.conv(x))), scale_factor=2.0, mode="bilinear")
        x = F.pixel_shuffle(self.turned(x), 2)
        return self.out(F.interpolate(x, size=(SIDE, SIDE), mode="nearest"))


class Windows(nn.Module):
    """Windows that are shifted and cut out, and a path that is dropped at random."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, CHANNELS, 1)
        self.qkv = nn.Linear(CHANNELS, 3 * CHANNELS)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.roll(self.conv(x), (-2, -2), (2, 3)).permute(0, 2, 3, 1)
        b, h, w, c = x.shape
        x = x.view(b, h // 4, 4, w // 4, 4, c).transpose(2, 3).reshape(-1, 16, c)
        q, k, v = self.qkv(x).chunk(3, -1)
        x = F.scaled_dot_product_attention(q.unsqueeze(1), k.unsqueeze(1), v.unsqueeze(1)).squeeze(1)
        x = x.view(b, h // 4, w // 4, 4, 4, c).transpose(2, 3).reshape(b, h * w, c)
        kept = x.new_empty(b, 1, 1).bernoulli_(0.9).div_(0.9) if self.training else 1.0
        folded = F.fold(F.unfold((x * kept).transpose(1, 2).reshape(b, c, h, w), 2, stride=2), (h, w), 2, stride=2)
        return folded


class Pointwise(nn.Module):
    """One activation behind a convolution."""

    def __init__(self, act: nn.Module) -> None:
        super().__init__()
        self.conv, self.act = nn.Conv2d(3, CHANNELS, 1), act

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.conv(x))
