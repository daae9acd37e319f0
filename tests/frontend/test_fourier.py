"""Fourier transforms and rarer kernels of torch.nn: FLOPs by hand, no more work for a GPU among replicas."""

from __future__ import annotations

from collections.abc import Callable
from math import log2

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the field's name for it

import slipstick
from slipstick.backends.machine.load import load_system
from slipstick.driver.estimate import estimate
from slipstick.ir.graph import Graph, LengthBound, Node, Phase
from slipstick.ir.ops import work_of
from slipstick.ir.ops.tensors.images import WindowAttrs
from slipstick.ir.plan import Family, make_plan
from slipstick.ir.sizes.expr import total

from .sums import flops

BATCH, CHANNELS, SIDE = 2, 3, 16


class Filter(nn.Module):
    """A learned filter of frequencies, as GFNet has it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(SIDE, SIDE)
        self.weight = nn.Parameter(torch.randn(CHANNELS, SIDE, SIDE // 2 + 1, 2))

    def forward(self, x: Tensor) -> Tensor:
        found = torch.fft.rfft2(self.layer(x), norm="ortho") * torch.view_as_complex(self.weight)
        made: Tensor = torch.fft.irfft2(found, s=(SIDE, SIDE), norm="ortho")
        return made


class Mixer(nn.Module):
    """Tokens mixed by a transform of two dims whose real part is kept, as FNet has it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(SIDE, SIDE)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = torch.fft.fft2(self.layer(x)).real
        return made


class Vit(nn.Module):
    """Patches, one block of attention, a head."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(CHANNELS, 32, 4, stride=4)
        self.block = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        self.head = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.head(self.block(self.patches(x).flatten(2).transpose(1, 2)).mean(1))
        return made


def traced(
    module: nn.Module, phase: str = "train", words: tuple[str | None, ...] = ("batch", None, None, None)
) -> Graph:
    def summed(out: object) -> Tensor:
        assert isinstance(out, Tensor)
        return out.sum()

    (name,) = ("input",) if isinstance(module, nn.Sequential) else ("x",)
    picture = torch.zeros(BATCH, CHANNELS, SIDE, SIDE)
    return slipstick.trace(module, {name: picture}, {name: words}, phase, loss=summed if phase == "train" else None)


def transforms(graph: Graph, phase: Phase) -> float:
    """FLOPs of all Fourier transforms."""

    def is_one(node: Node) -> bool:
        return isinstance(node.attrs, WindowAttrs) and node.attrs.fn == "fft" and node.phase is phase

    found = (work_of(r, n).vector_flops for r in graph.regions for n in r.nodes if is_one(n))
    return float(total(found).evaluate({"batch": BATCH}))


def test_flops_of_real_transforms_are_half_of_complex_ones() -> None:
    """One way and back: 2.5 N log2 N each for N = 16 x 16 points; the gradient of the first is a complex one."""
    points = SIDE * SIDE
    real = 2.5 * points * log2(points) * BATCH * CHANNELS
    graph = traced(Filter())
    assert transforms(graph, Phase.FORWARD) == pytest.approx(2 * real)
    assert transforms(graph, Phase.BACKWARD) == pytest.approx(real + 2 * real)
    assert transforms(traced(Filter(), "prefill"), Phase.FORWARD) == pytest.approx(2 * real)
    assert not any("batch is fixed" in note for note in graph.notes)


class Spectrum(nn.Module):
    """What a function makes of the transform of rows: complex numbers into real ones, and among them."""

    def __init__(self, of: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.layer, self.of = nn.Linear(SIDE, SIDE), of

    def forward(self, x: Tensor) -> Tensor:
        return self.of(torch.fft.rfft(self.layer(x), dim=-1))


@pytest.mark.parametrize(
    "of",
    [
        torch.abs,
        torch.angle,
        lambda z: (z * z.conj()).real,
        lambda z: z.real + z.imag,
        lambda z: torch.fft.irfft(z * z.abs() + z.real),
        lambda z: torch.log1p(z.abs() ** 2) * (z == 0),
    ],
    ids=["length", "angle", "power", "parts", "among real numbers", "compared"],
)
def test_complex_numbers_meet_real_ones(of: Callable[[Tensor], Tensor]) -> None:
    """A pair holds both parts of a number: real results have no dim for them, real operands count for both."""
    graph = traced(Spectrum(of))
    assert any(node.op == "reduce" for region in graph.regions for node in region.nodes)
    system, family = load_system("dgx-h100"), Family()
    plans = [make_plan(num_gpus=n, micro_batch=4, seq_len=1, family=family) for n in (1, 64)]
    one, many = (estimate(graph, system, plan) for plan in plans)
    for kind in (k for k in one.breakdown_s if k.startswith("compute")):
        assert many.breakdown_s[kind] <= 1.1 * one.breakdown_s[kind], kind


class Spectrogram(nn.Module):
    """Lengths of the frequencies of windows, as front ends of speech take them."""

    def __init__(self, n_fft: int, center: bool) -> None:
        super().__init__()
        self.layer, self.n_fft, self.center = nn.Linear(1, 1), n_fft, center

    def forward(self, x: Tensor) -> Tensor:
        wave = self.layer(x.flatten(1).unsqueeze(-1)).squeeze(-1)
        window = torch.hann_window(self.n_fft)
        return torch.stft(wave, self.n_fft, window=window, center=self.center, return_complex=True).abs()


@pytest.mark.parametrize("center", [True, False])
def test_a_spectrogram_is_windows_and_their_transforms(center: bool) -> None:
    """1 + L // hop frames where the ends are padded, else 1 + (L - n) // hop, of 2.5 n log2 n each."""
    size, samples = 64, CHANNELS * SIDE * SIDE
    frames = 1 + (samples if center else samples - size) // (size // 4)
    graph = traced(Spectrogram(size, center), "prefill")
    assert transforms(graph, Phase.FORWARD) == pytest.approx(2.5 * size * log2(size) * frames * BATCH)
    assert transforms(traced(Spectrogram(size, center)), Phase.BACKWARD) > 0


def test_a_transform_over_an_open_size_is_recorded_at_its_length_and_says_so() -> None:
    """N log N is no polynomial of an open N."""
    graph = traced(Mixer(), words=("batch", None, "seq", None))
    assert graph.bounds == (LengthBound("seq", SIDE, SIDE),)
    assert any(note.startswith(f"seq is fixed at {SIDE}") and "--fixed" in note for note in graph.notes)


class Product(nn.Module):
    """A bilinear form of a row with itself."""

    def __init__(self) -> None:
        super().__init__()
        self.form = nn.Bilinear(SIDE, SIDE, 5)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.form(x, x)
        return made


class Diagonal(nn.Module):
    """A diagonal of what a layer makes."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(SIDE, SIDE)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.layer(x).diagonal(dim1=-2, dim2=-1))


def test_a_bilinear_form_is_two_products() -> None:
    """Of rows with the form, 2 r o i j, and of the outcome with the second rows, 2 r o j."""
    rows = BATCH * CHANNELS * SIDE
    assert float(flops(traced(Product(), "prefill")).evaluate({"batch": BATCH})) == 2 * rows * 5 * SIDE * (SIDE + 1)


NETS: dict[str, Callable[[], nn.Module]] = {
    "filter": Filter,
    "mixer": Mixer,
    "vit": Vit,
    "diagonal": Diagonal,
    "product": Product,
    "rrelu": lambda: nn.Sequential(nn.Conv2d(CHANNELS, 8, 1), nn.RReLU()),
    "fractional": lambda: nn.Sequential(nn.Conv2d(CHANNELS, 8, 1), nn.FractionalMaxPool2d(2, 4)),
}


@pytest.mark.parametrize("name", NETS)
def test_a_gpu_works_no_more_among_64_than_alone(name: str) -> None:
    graph = traced(NETS[name]())

    def compute_s(dp: int) -> float:
        plan = make_plan(num_gpus=dp, dp=dp, seq_len=1, global_batch=8 * dp, micro_batch=8, family=Family())
        found = estimate(graph, load_system("dgx-h100"), plan).breakdown_s
        return sum(s for kind, s in found.items() if kind.startswith("compute") and kind != "compute.lent_sms")

    assert compute_s(64) <= compute_s(1) * 1.10
