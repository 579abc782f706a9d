"""Fourier transforms, windows and complex numbers of PyTorch, against torch."""

from __future__ import annotations

import io
from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import pytest
import torch
from torch import fft, nn
from torch_cases import Function, assert_as_torch

import veilgraph
from veilgraph.frontend.torch.importer import import_torch
from veilgraph.ir.errors import UnsupportedError, UsageError
from veilgraph.ir.graph.program import Graph, kind_of

WAVE, BLOCK = (2, 41), (2, 5, 8)


def stft(x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    return torch.stft(x, *args, return_complex=True, **kwargs)


def there_and_back(x: torch.Tensor, n_fft: int, hop: int, **kwargs: Any) -> torch.Tensor:
    """Frames of twice the signal, put together again."""
    length = kwargs.pop("length", None)
    return torch.istft(2 * stft(x, n_fft, hop, **kwargs), n_fft, hop, length=length, **kwargs)


CASES: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "short_window": (
        lambda x: torch.view_as_real(
            stft(x, 9, 5, 7, torch.hann_window(7), center=False, onesided=False)
        ),
        WAVE,
    ),
    "boxes": (lambda x: stft(x[0], 8, 3, win_length=6).abs() + 1, WAVE),
    "two_parts": (lambda x: torch.stft(x, 8, 3, return_complex=False), WAVE),
    "of_complex_numbers": (
        lambda x: torch.view_as_real(stft(torch.complex(x, x.flip(0)), 8, 3)),
        WAVE,
    ),
    "window_of_data": (lambda x: stft(x, 4, window=x[0, :4].abs() + 1).abs(), WAVE),
    "back": (lambda x: there_and_back(x, 8, 3, length=41), WAVE),
    "back_from_all": (lambda x: there_and_back(x, 8, 3, onesided=False), WAVE),
    "back_by_windows": (
        lambda x: there_and_back(x, 16, 4, window=torch.hann_window(16), normalized=True),
        WAVE,
    ),
    "back_uncentred": (
        lambda x: there_and_back(
            x[0], 8, 4, win_length=8, window=torch.hamming_window(8), center=False, length=50
        ),
        WAVE,
    ),
    "mixed_tokens": (lambda x: fft.fft(fft.fft(x, dim=-1), dim=-2).real, BLOCK),
    "lengths": (
        lambda x: fft.rfft(x, 11, 1, "forward").abs() + fft.rfft(x, 3, 1).imag.sum(),
        BLOCK,
    ),
    "inverses": (
        lambda x: (
            fft.ifft(x, norm="ortho").real
            + fft.irfft(fft.rfft(x), 8)
            + fft.irfft(fft.rfft(x), 7)[..., :1]
            + fft.hfft(fft.ihfft(x))
            + fft.hfft(x, 8, norm="forward")
            + fft.irfft(x, 8)
        ),
        BLOCK,
    ),
    "planes": (
        lambda x: (
            fft.fft2(x, norm="ortho").imag
            + fft.ifft2(x).real
            + fft.fftn(x).real
            + fft.ifftn(fft.rfftn(x)).imag[..., :1]
        ),
        BLOCK,
    ),
    "planes_back": (
        lambda x: (
            fft.irfftn(fft.rfftn(x, s=(3, 7)), s=(3, 7))
            + fft.irfft2(fft.rfft2(x[:, :3, :7]), s=(3, 7))
        ),
        BLOCK,
    ),
    "frequencies": (
        lambda x: fft.irfft(1j * fft.rfftfreq(8) * fft.rfft(x)) + fft.fftfreq(8, 0.5),
        BLOCK,
    ),
    "conjugates": (
        lambda x: (
            (fft.fft(x) * fft.fft(x).conj()).real
            + fft.fft(x).conj().imag
            + fft.fftshift(fft.fft(x)).conj().real
        ),
        BLOCK,
    ),
    "products": (
        lambda x: (fft.fft(x) @ fft.fft(x).mH).abs() + (x.to(torch.complex64) @ fft.fft(x).mT).imag,
        BLOCK,
    ),
    "sums": (
        lambda x: (
            torch.einsum("bij,bkj->bik", fft.fft(x), torch.complex(x, 2 * x) - 1j).imag.mean(
                1, keepdim=True
            )
            + fft.fft(x).mean(1).real.sum()
            + fft.fft(x).sum((1, 2), dtype=torch.complex128).imag[:, None, None]
        ),
        BLOCK,
    ),
    "quotients": (
        lambda x: torch.view_as_real(fft.fft(x) / (3 + x.abs() + 1j * x) - x / 2j),
        BLOCK,
    ),
    "exponentials": (
        lambda x: (
            (torch.exp(1j * x) * 2 + torch.tensor(1j) - x).imag
            + torch.polar(x.abs(), x).square().real
        ),
        BLOCK,
    ),
    "angles": (lambda x: fft.fft(x + torch.arange(8.0)).angle()[..., 1:3], BLOCK),
    "moves": (
        lambda x: (
            fft.fft(x).chunk(2, -1)[1].real
            + fft.fft(x).unbind(0)[0].imag[..., :4]
            + torch.roll(fft.fft(x), 1, -1).real[..., :4]
            + fft.fft(x).flip(1).imag[..., :4]
            + torch.view_as_complex(x.reshape(2, 5, 4, 2)).transpose(0, 1).reshape(2, 5, 4).real
        ),
        BLOCK,
    ),
    "choices": (
        lambda x: (
            (
                torch.where(x > 0, fft.fft(x), 2j)
                + fft.fft(x).masked_fill(x > 0, 1 + 2j)
                + torch.cat([fft.fft(x)[:1], x[1:].to(torch.complex64)])
            ).imag
        ),
        BLOCK,
    ),
    "fillings": (
        lambda x: (
            (
                fft.fft(x)
                + torch.zeros(8, dtype=torch.cfloat)
                + torch.ones_like(fft.fft(x)) * torch.full((8,), 2 + 1j)
                + fft.fft(x).new_zeros(8)
            ).imag
        ),
        BLOCK,
    ),
    "padded": (
        lambda x: (
            nn.functional.pad(fft.fft(x), (1, 2), value=3).imag
            + nn.functional.pad(fft.fft(x), (1, 2), value=3).real
            + nn.functional.pad(fft.fft(x), (1, 2), "reflect").real
        ),
        BLOCK,
    ),
    "written_over": (
        lambda x: torch.view_as_real(
            torch.zeros(2, 5, 8, dtype=torch.cfloat).slice_scatter(fft.fft(x[..., :3]), 2, 0, 3)
        ),
        BLOCK,
    ),
    "double": (lambda x: fft.fft(x.double()).to(torch.complex64).real.float(), BLOCK),
    "windows": (
        lambda x: (
            x * torch.hann_window(8)
            + torch.hamming_window(8, periodic=False)
            + torch.blackman_window(8)
            + torch.kaiser_window(8, True, 10.0)
            + torch.bartlett_window(8)
        ),
        BLOCK,
    ),
}


def imported(case: Callable[..., Any], shape: tuple[int, ...]) -> Graph:
    torch.manual_seed(2)
    return assert_as_torch(Function(case).eval(), [torch.randn(shape)], 2e-5)


@pytest.mark.parametrize("name", CASES)
def test_as_torch_computes_it(name: str) -> None:
    imported(*CASES[name])


@pytest.mark.parametrize("n_fft", [8, 9])
@pytest.mark.parametrize("hop", [3, 4])
@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize(("normalized", "onesided"), [(True, False), (False, True), (True, True)])
def test_short_transforms(
    n_fft: int, hop: int, center: bool, normalized: bool, onesided: bool
) -> None:
    def frames(x: torch.Tensor) -> torch.Tensor:
        window = torch.hann_window(n_fft)
        kinds = {"center": center, "normalized": normalized, "onesided": onesided}
        return torch.view_as_real(stft(x, n_fft, hop, window=window, **kinds))

    graph = imported(frames, WAVE)
    assert graph.weights == {}
    kinds = kinds_of(graph)
    assert kinds.count("conv") == 1
    assert "matmul" not in kinds


def kinds_of(graph: Graph) -> list[str]:
    return [kind_of(op) for op in graph.operations]


@pytest.mark.parametrize("name", ["windows", "frequencies", "planes", "back_by_windows"])
def test_what_extents_alone_decide_is_public(name: str) -> None:
    assert imported(*CASES[name]).weights == {}


@pytest.mark.parametrize("power", [lambda x: x.abs() ** 2, lambda x: x.abs().square()])
def test_a_squared_magnitude_takes_no_root(power: Any) -> None:
    assert "sqrt" not in kinds_of(imported(lambda x: power(fft.rfft(x)), BLOCK))
    assert "sqrt" in kinds_of(imported(lambda x: power(fft.rfft(x)) + fft.rfft(x).abs(), BLOCK))


class Mel(nn.Module):
    """Logarithms of mel energies, as torchaudio's MelSpectrogram holds what they take."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(256))
        edges, bins = torch.linspace(3, 100, 22), torch.arange(129.0)
        up = (bins[:, None] - edges[:-2]) / (edges[1:-1] - edges[:-2])
        down = (edges[2:] - bins[:, None]) / (edges[2:] - edges[1:-1])
        self.register_buffer("filters", torch.minimum(up, down).clamp(min=0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        power = stft(x, 256, 128, window=self.window).abs().pow(2)
        return torch.log(power.transpose(-1, -2) @ self.filters + 0.5)  # type: ignore[operator]


def tones(seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    t, (low, high) = torch.arange(1024) / 8000, torch.rand(2, generator=generator)
    wave = 0.5 * torch.sin(6.28 * (200 + 700 * low) * t)
    wave += 0.3 * torch.sin(6.28 * (1200 + 1800 * high) * t)
    return (wave + 0.05 * torch.randn(1024, generator=generator))[None]


@pytest.mark.parametrize(
    ("public", "suite"),
    [((), {"suite": "rep3"}), (("window", "filters"), {"suite": "additive", "dealer": "dave"})],
)
def test_a_front_end_of_speech(public: Collection[str], suite: dict[str, Any]) -> None:
    """A window and filters that a model holds are its owner's, unless they are named public."""
    model, samples = Mel().eval(), np.stack([tones(i).numpy() for i in range(8)])
    plan, weights = veilgraph.compile(
        model, example_inputs=tones(0), calibrate={"x": samples}, public=public, **suite
    )
    assert len(weights) == (0 if public else 2)
    found = veilgraph.simulate(plan, weights, {"x": tones(20).numpy()}).outputs["output"]
    np.testing.assert_allclose(found, model(tones(20)).numpy(), atol=0.03)


class Turned(nn.Module):
    """Rotary positions by complex numbers, which the model holds."""

    def __init__(self) -> None:
        super().__init__()
        angles = torch.outer(torch.arange(6.0), torch.tensor([1.0, 0.1, 0.01, 0.001]))
        self.register_buffer("turns", torch.polar(torch.ones(6, 4), angles))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pairs = torch.view_as_complex(x.reshape(2, 6, 4, 2))
        return torch.view_as_real(pairs * self.turns).flatten(2)  # type: ignore[operator]


class Spectral(nn.Module):
    """A layer of a Fourier neural operator: some low frequencies, each times a matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 4, 5, dtype=torch.cfloat))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        spectrum = fft.rfft(x)
        kept = torch.zeros(2, 4, spectrum.shape[-1], dtype=torch.cfloat)
        kept[:, :, :5] = torch.einsum("bix,iox->box", spectrum[:, :, :5], self.weight)
        return torch.relu(fft.irfft(kept, n=x.shape[-1]))


HOLDERS = [(Turned, (2, 6, 8)), (Spectral, (2, 3, 12))]


@pytest.mark.parametrize(("made", "shape"), HOLDERS)
def test_complex_numbers_that_a_model_holds(made: Any, shape: tuple[int, ...]) -> None:
    torch.manual_seed(3)
    model, x = made().eval(), torch.randn(shape)
    graph = assert_as_torch(model, [x], 2e-5)
    assert [array.shape[-1] for array in graph.weights.values()] == [2]
    plan, weights = veilgraph.compile(model, example_inputs=x)
    found = veilgraph.simulate(plan, weights, {"x": x.numpy()}).outputs["output"]
    np.testing.assert_allclose(found, model(x).detach().numpy(), atol=2e-2)


@pytest.mark.parametrize(
    ("made", "shape"),
    [
        *HOLDERS,
        (lambda: Function(lambda x: (fft.fft(x) * 1j * fft.fft(x).conj()).imag), BLOCK),
    ],
)
def test_an_archive_with_complex_numbers(made: Any, shape: tuple[int, ...]) -> None:
    model, x, archive = made().eval(), torch.randn(shape), io.BytesIO()
    torch.export.save(torch.export.export(model, (x,)), archive)
    graph, direct = import_torch(archive.getvalue()), import_torch(model, x)
    assert kinds_of(graph) == kinds_of(direct)
    for name, array in direct.weights.items():
        np.testing.assert_array_equal(graph.weights[name], array)


UNCOVERED = "It computes with complex numbers, in a form that isn't covered."


@pytest.mark.parametrize(
    ("made", "named", "reason"),
    [
        (lambda x: fft.fft(x), "aten.fft_fft.default", "The model returns it, and it is complex."),
        (lambda x: fft.fft(x).sqrt().real, "aten.sqrt.default", UNCOVERED),
        (lambda x: fft.fft(x).var(), "aten.var.correction", UNCOVERED),
        (lambda x: (fft.fft(x) ** 3).real, "aten.pow.Tensor_Scalar", UNCOVERED),
        (lambda x: fft.fft(x).prod().real, "aten.prod.default", UNCOVERED),
        (lambda x: torch.linalg.vector_norm(fft.fft(x)), "aten.linalg_vector_norm.default",
            UNCOVERED),
        (lambda x: (fft.fft(x) == 0).float(), "aten.eq.Scalar", UNCOVERED),
        (lambda x: fft.fft(x.repeat(1, 1, 1024)).real, "aten.fft_fft.default",
            "It would take a public matrix of 134217728 elements."),
    ],
)  # fmt: skip
def test_what_is_not_covered_is_refused_by_its_name(made: Any, named: str, reason: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        import_torch(Function(made).eval(), torch.randn(BLOCK))
    (told,) = caught.value.offenders
    assert (told.operator, told.reason) == (named, reason)


def test_all_uncovered_ones_are_told_at_once() -> None:
    with pytest.raises(UnsupportedError) as caught:
        import_torch(
            Function(lambda x: fft.fft(x).sqrt().real + fft.fft(x).sgn().imag).eval(),
            torch.randn(BLOCK),
        )
    named = [entry.operator for entry in caught.value.offenders]
    assert named == ["aten.sqrt.default", "aten.sgn.default"]


def test_windows_that_leave_a_gap_are_refused() -> None:
    """Nothing is known of a signal where all windows are zero: torch refuses it when it runs."""
    case = Function(
        lambda x: there_and_back(x, 4, 2, window=torch.hann_window(4), center=False)
    ).eval()
    with pytest.raises(UsageError, match="windows of an istft leave gaps"):
        import_torch(case, torch.randn(WAVE))


class Filtered(nn.Module):
    """A filter of frequencies, to be learnt, before a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.filter = nn.Parameter(torch.randn(5, dtype=torch.cfloat))
        self.last = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.last(fft.irfft(fft.rfft(x) * self.filter, n=8))
        return y


def test_complex_parameters_are_trained_as_torch_does() -> None:
    torch.manual_seed(4)
    model, x, labels = Filtered().train(), torch.randn(20, 8), torch.eye(3)[torch.arange(20) % 3]
    rows = {"x": x.numpy(), "labels": labels.numpy()}
    plan, weights = veilgraph.compile_training(
        model, rows, loss="cross_entropy", batch=20, rate=0.5, steps=3,
        reveal={"parameters": "alice"},
    )  # fmt: skip
    found = veilgraph.simulate_training(plan, weights, rows, rate=0.5, epochs=3).parameters
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(3):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), labels).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    wanted = torch.view_as_real(model.filter.detach()).numpy()
    np.testing.assert_allclose(found["filter"], wanted, atol=2e-2)
    np.testing.assert_allclose(found["last.weight"], model.last.weight.detach(), atol=2e-2)
