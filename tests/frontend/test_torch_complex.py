"""Each operator that complex numbers of PyTorch may go through, against torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fft
from torch_cases import Function, assert_as_torch

CASES: dict[str, Callable[[torch.Tensor], Any]] = {
    "gather": lambda x: fft.fft(x).gather(2, torch.tensor([[[0, 2]]]).expand(2, 5, 2)).real,
    "index": lambda x: fft.fft(x)[:, [0, 2]].imag,
    "index2": lambda x: fft.fft(x)[[0, 1], [2, 3]].imag,
    "movedim": lambda x: fft.fft(x).movedim(0, 1).imag,
    "diag": lambda x: fft.fft(x).diagonal(0, 1, 2).real,
    "tril": lambda x: fft.fft(x).tril().imag + fft.fft(x).triu().real,
    "cumsum": lambda x: fft.fft(x).cumsum(1).imag,
    "mv": lambda x: (fft.fft(x)[0] @ fft.fft(x)[0, 0]).imag,
    "dot": lambda x: torch.dot(fft.fft(x)[0, 0], fft.fft(x)[0, 1]).imag,
    "vdot": lambda x: torch.vdot(fft.fft(x)[0, 0], fft.fft(x)[0, 1]).imag,
    "outer": lambda x: torch.outer(fft.fft(x)[0, 0], fft.fft(x)[0, 1]).imag,
    "bmm": lambda x: torch.bmm(fft.fft(x), fft.fft(x).mT).imag,
    "mm": lambda x: torch.mm(fft.fft(x)[0], fft.fft(x)[0].mT).imag,
    "narrow": lambda x: fft.fft(x).narrow(1, 0, 2).imag,
    "permute": lambda x: fft.fft(x).permute(2, 0, 1).imag,
    "expand": lambda x: fft.fft(x)[:, :1].expand(2, 5, 8).imag + fft.fft(x)[0].T.real.sum(),
    "repeat": lambda x: fft.fft(x).repeat(1, 2, 1).imag,
    "squeeze": lambda x: (
        fft.fft(x)[:, :1].squeeze().imag.sum()
        + fft.fft(x)[:, :1].squeeze(1).imag
        + fft.fft(x)[:1, :1].squeeze((0, 1)).imag
    ),
    "stack": lambda x: torch.stack([fft.fft(x), fft.fft(x)]).imag,
    "flatten": lambda x: fft.fft(x).flatten(1).unflatten(1, (5, 8)).imag,
    "physical": lambda x: torch.conj_physical(fft.fft(x)).imag,
    "mulscalar": lambda x: (
        torch.ops.aten.mul.Scalar(fft.fft(x), 2j).imag
        + torch.ops.aten.add.Scalar(fft.fft(x), 2j).imag
        + torch.ops.aten.sub.Scalar(fft.fft(x), 2j).imag
        + torch.ops.aten.div.Scalar(fft.fft(x), 2j).imag
    ),
    "addalpha": lambda x: (
        torch.add(fft.fft(x), fft.fft(x), alpha=2).imag
        + torch.sub(x, fft.fft(x), alpha=2).imag
        + torch.add(x, 1j).imag
    ),
    "pow": lambda x: (fft.fft(x) ** 2).imag + (fft.fft(x) ** 1).real,
    "neg": lambda x: (-fft.fft(x)).imag + (1 - fft.fft(x)).real,
    "selectscatter": lambda x: torch.select_scatter(fft.fft(x), fft.fft(x)[0], 0, 1).real,
    "whereself": lambda x: (
        torch.where(x > 0, fft.fft(x), fft.fft(x) * 2).real
        + torch.where(x > 0, 0.5, fft.fft(x)).imag
    ),
    "ifftshift": lambda x: fft.ifftshift(fft.fft(x)).real,
    "splits": lambda x: fft.fft(x).split([3, 5], -1)[1].real,
    "ones": lambda x: (
        (
            fft.fft(x) * torch.ones(8, dtype=torch.cfloat)
            + torch.zeros_like(fft.fft(x))
            + torch.full_like(fft.fft(x), 1j)
        ).imag
    ),
    "tensormask": lambda x: fft.fft(x).masked_fill(x > 0, torch.tensor(1j)).imag,
    "constpad": lambda x: torch.ops.aten.constant_pad_nd(fft.fft(x), [1, 1], 0).real,
    "rest": lambda x: (
        fft.fft(x).index_select(1, torch.tensor([2, 0])).imag
        + fft.fft(x).mean().real
        + fft.fft(x).sum().imag
        + torch.mv(fft.fft(x)[0], fft.fft(x)[0, 0]).real.sum()
        + fft.fft(x)[:, :2].unsqueeze(1).imag[:, 0]
    ),
    "real_squeeze": lambda x: x[:1, :, :1].squeeze((0, 2)),
    "rsub": lambda x: torch.rsub(fft.fft(x), fft.fft(x) * 2, alpha=3).imag,
    "catbool": lambda x: torch.cat([fft.fft(x), x > 0]).imag + torch.cat([x > 0, fft.fft(x)]).real,
    "realmatmul": lambda x: (
        torch.einsum("bij,jk->bik", x.to(torch.cfloat), torch.full((8, 8), 1 + 1j)).imag
    ),
    "clone": lambda x: (
        fft.fft(x).clone().real + fft.fft(x).detach().imag + fft.fft(x).contiguous().real
    ),
    "copy": lambda x: torch.empty(2, 5, 8, dtype=torch.cfloat).copy_(fft.fft(x)).real,
    "reshape": lambda x: torch.ops.aten.reshape(fft.fft(x), [10, 8]).real,
    "realcast": lambda x: fft.fft(x).to(torch.float32) * 2,
    "tocplx": lambda x: (
        (x > 0).to(torch.complex64).real + fft.fft(x).to(torch.complex128).imag.float()
    ),
    "isreal": lambda x: torch.real(x) + torch.view_as_complex(torch.stack([x, x], -1)).imag,
    "boolmul": lambda x: (fft.fft(x) * (x > 0)).real,
    "intmul": lambda x: (fft.fft(x) * torch.arange(8)).real + (fft.fft(x) + torch.arange(8)).real,
    "intcat": lambda x: torch.cat([fft.fft(x), torch.ones(2, 5, 8, dtype=torch.long)]).imag,
    "double_fillings": lambda x: (
        torch.zeros(2, 5, 5, dtype=torch.complex128)
        + fft.fft(x.double()) @ torch.ones_like(fft.fft(x.double()).mT)
    ).real.float(),
}


@pytest.mark.parametrize("name", CASES)
def test_as_torch_computes_it(name: str) -> None:
    torch.manual_seed(5)
    assert_as_torch(Function(CASES[name]).eval(), [torch.randn(2, 5, 8)], 3e-5)
