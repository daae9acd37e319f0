"""Models whose layers are no single list: towers, stages, skips, shared weights, lists in step, attributes."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import torch
from torch import Tensor, nn

VOCAB, HIDDEN = 80, 32


class Block(nn.Module):
    def __init__(self, size: int = HIDDEN, out: int | None = None) -> None:
        super().__init__()
        self.norm, self.up = nn.LayerNorm(size), nn.Linear(size, 2 * size)
        self.down = nn.Linear(2 * size, out or size)

    def forward(self, x: Tensor) -> Tensor:
        y = self.down(self.up(self.norm(x)).relu())
        return x + y if y.shape[-1] == x.shape[-1] else y


def blocks(number: int, size: int = HIDDEN, out: int | None = None) -> nn.ModuleList:
    return nn.ModuleList(Block(size, out) for _ in range(number))


class Model(nn.Module):
    """An embedding, what a model does between, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.emb, self.head = nn.Embedding(VOCAB, HIDDEN), nn.Linear(HIDDEN, VOCAB)
        self.build()

    def build(self) -> None:
        raise NotImplementedError

    def body(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.body(self.emb(ids)))


class Towers(Model):
    """The second tower reads in each layer what the first one made in the end."""

    def build(self) -> None:
        self.first, self.second = blocks(4), blocks(5)

    def body(self, x: Tensor) -> Tensor:
        for layer in self.first:
            x = layer(x)
        y = x
        for layer in self.second:
            y = layer(y) + x
        return y


class UNet(Model):
    """What goes down is read again on the way up."""

    def build(self) -> None:
        self.down, self.middle, self.up = blocks(3), blocks(5), blocks(3, 2 * HIDDEN, HIDDEN)

    def body(self, x: Tensor) -> Tensor:
        kept: list[Tensor] = []
        for layer in self.down:
            x = layer(x)
            kept.append(x)
        for layer in self.middle:
            x = layer(x)
        for layer in self.up:
            x = layer(torch.cat([x, kept.pop()], -1))
        return x


class Stage(nn.Module):
    def __init__(self, size: int, number: int, out: int | None) -> None:
        super().__init__()
        self.blocks, self.merge = blocks(number, size), nn.Linear(size, out) if out else None

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x if self.merge is None else self.merge(x)


class Stages(Model):
    def build(self) -> None:
        sizes = [HIDDEN << k for k in range(3)]
        ends = [*sizes[1:], HIDDEN]
        self.stages = nn.ModuleList(Stage(*given) for given in zip(sizes, (2, 6, 3), ends, strict=True))

    def body(self, x: Tensor) -> Tensor:
        for stage in self.stages:
            x = stage(x)
        return x


class OneLayer(Model):
    """One layer runs over and over."""

    def build(self) -> None:
        self.layer = Block()

    def body(self, x: Tensor) -> Tensor:
        for _ in range(8):
            x = self.layer(x)
        return x


class Attributes(Model):
    """Layers are attributes with numbers, and run from the last to the first."""

    def build(self) -> None:
        for k in range(6):
            setattr(self, f"layer{k}", Block())

    def body(self, x: Tensor) -> Tensor:
        for k in reversed(range(6)):
            x = getattr(self, f"layer{k}")(x)
        return x


class FourLists(Model):
    """A layer is a member of each of three lists of modules and one of parameters."""

    def build(self) -> None:
        self.norms, self.mixers = nn.ModuleList(nn.LayerNorm(HIDDEN) for _ in range(5)), blocks(5)
        self.wide = nn.ModuleList(nn.Linear(HIDDEN, HIDDEN) for _ in range(5))
        self.scales = nn.ParameterList(nn.Parameter(torch.ones(HIDDEN)) for _ in range(5))

    def body(self, x: Tensor) -> Tensor:
        for norm, mixer, wide, scale in zip(self.norms, self.mixers, self.wide, self.scales, strict=True):
            x = x + mixer(norm(x))
            x = x + wide(x) * scale
        return x


class EveryThird(Model):
    """The layers at places 2, 5 and 8 go on with a function that no module shows."""

    def build(self) -> None:
        self.layers = blocks(9)

    def body(self, x: Tensor) -> Tensor:
        for k, layer in enumerate(self.layers):
            x = layer(x).tanh() if k % 3 == 2 else layer(x)
        return x


class Tied(Model):
    """All layers share one of their matrices."""

    def build(self) -> None:
        self.layers = blocks(6)
        for layer in self.layers[1:]:
            layer.up = self.layers[0].up

    def body(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class Grouped(Model):
    """Layers stand in groups, and behind each group runs one more module."""

    def build(self) -> None:
        self.groups = nn.ModuleList(Stage(HIDDEN, 5, HIDDEN) for _ in range(3))

    def body(self, x: Tensor) -> Tensor:
        for group in self.groups:
            x = group(x) + x
        return x


class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.router, self.experts, self.out = nn.Linear(HIDDEN, 3), blocks(3), nn.Linear(HIDDEN, HIDDEN)

    def forward(self, x: Tensor) -> Tensor:
        share = self.router(x).softmax(-1)
        return self.out(sum(share[..., k : k + 1] * expert(x) for k, expert in enumerate(self.experts)))


class Routed(Model):
    """Layers hold lists of experts, which are no layers."""

    def build(self) -> None:
        self.layers = nn.ModuleList(Experts() for _ in range(4))

    def body(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + layer(x)
        return x


class TwoNorms(Model):
    """Two members of one list a layer."""

    def build(self) -> None:
        self.norms = nn.ModuleList(nn.LayerNorm(HIDDEN) for _ in range(10))
        self.mixers, self.wide = blocks(5), blocks(5)

    def body(self, x: Tensor) -> Tensor:
        for k, (mixer, wide) in enumerate(zip(self.mixers, self.wide, strict=True)):
            x = x + mixer(self.norms[2 * k](x))
            x = x + wide(self.norms[2 * k + 1](x))
        return x
