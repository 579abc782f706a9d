"""Writes kernels/declared.h below a folder, for CMake; prints the names of the kernels.

    python kernels/build_header.py FOLDER   ->   fused;matmul;...

The package is not installed yet when this runs, so `veilgraph` is made of the checkout here.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType


def _checkout() -> None:
    package = ModuleType("veilgraph")
    package.__path__ = [str(Path(__file__).resolve().parents[1])]
    sys.modules["veilgraph"] = package


def main(folder: Path) -> None:
    _checkout()
    from veilgraph.kernels import KERNELS
    from veilgraph.kernels.cpp import header

    path, text = folder / "kernels" / "declared.h", header()
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text() != text:  # what is unchanged is not compiled again
        path.write_text(text)
    print(";".join(KERNELS), end="")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
