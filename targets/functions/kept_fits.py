"""Fits of real functions, each found once: within a process, and on request from run to run.

A folder that a user names has a file a fit, `DIGEST.json`, named after what was fitted: function,
interval, periods, error, and the version of what fits. A file that is damaged, or of another fit,
is passed over with a warning, and written anew. Numbers are decimal, so a fit comes back as it was.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

from veilgraph.ir.errors import UsageError
from veilgraph.ir.files.whole_files import placed_whole
from veilgraph.targets.functions.fourier_fit import Fit

LOG = logging.getLogger("veilgraph.fits")
MOST_BYTES = 1 << 20  # of a file; a fit of 48 terms takes 4 kB
_SOURCES = ("fourier_fit.py", "catalogue.py", "kept_fits.py")
_FOLDER: ContextVar[Path | None] = ContextVar("folder of fits", default=None)
# What json and decimal raise on a file that is no fit.
DAMAGES = (
    *(OSError, ValueError, ArithmeticError, LookupError),
    *(TypeError, AttributeError, RecursionError),
)
Content = dict[str, Any]


@contextmanager
def fits_kept_in(folder: Path | None) -> Iterator[None]:
    """Within the block fits are read from a folder, and new ones written to it; None keeps none.

    Raises:
        UsageError: a folder that can't be made.
    """
    if folder is not None:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"{folder} can't keep fits of functions: {error.strerror}.",
                "Name a folder that is yours.",
            ) from error
    token = _FOLDER.set(folder)
    try:
        yield
    finally:
        _FOLDER.reset(token)


def kept(
    name: str,
    interval: tuple[Decimal, Decimal],
    periods: Sequence[Decimal],
    goal: Decimal,
    find: Callable[[], Fit | None],
) -> Fit | None:
    """What `find` finds, or what it found before; None where no fit is close enough.

    Args:
        name: of the function in the catalogue.
        interval, periods, goal: as `fourier_fit.fit` takes them.
    """
    folder = _FOLDER.get()
    if folder is None:
        return find()
    key = {
        "version": _version(),
        "function": name,
        "interval": [*map(str, interval)],
        "periods": [*map(str, periods)],
        "goal": str(goal),
    }
    file = folder / f"{_digest(key)}.json"
    try:
        return _read(file, key)
    except FileNotFoundError:
        pass
    except DAMAGES as error:
        LOG.warning("%s is damaged, and its function is fitted again: %s", file, error)
    found = find()
    _write(file, key, found)
    return found


@cache
def _version() -> str:
    """Of what fits: the digest of its sources."""
    found = hashlib.sha256()
    for name in _SOURCES:
        found.update(Path(__file__).with_name(name).read_bytes())
    return found.hexdigest()


def _digest(content: Content) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _read(file: Path, key: Content) -> Fit | None:
    with file.open("rb") as opened:
        content = opened.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise ValueError("it is larger than any fit")
    stated = json.loads(content)
    digest = stated.pop("digest")
    if digest != _digest(stated) or stated["key"] != key:
        raise ValueError("its digest is another")
    terms = stated["fit"]
    if terms is None:
        return None
    cosines, sines = (tuple(map(Decimal, terms[each])) for each in ("cosines", "sines"))
    period, constant, error = (Decimal(terms[each]) for each in ("period", "constant", "error"))
    return Fit(period, constant, cosines, sines, error)


def _write(file: Path, key: Content, fit: Fit | None) -> None:
    """Whole or not at all; a compilation does without what can't be written."""
    terms = None
    if fit is not None:
        numbers = {name: str(getattr(fit, name)) for name in ("period", "constant", "error")}
        lists = {name: [*map(str, getattr(fit, name))] for name in ("cosines", "sines")}
        terms = {**numbers, **lists}
    content: Content = {"key": key, "fit": terms}
    try:
        with placed_whole(file) as written:
            written.write(json.dumps({**content, "digest": _digest(content)}).encode())
    except OSError as error:
        LOG.warning("%s can't be written, and its fit is not kept: %s", file, error.strerror)
