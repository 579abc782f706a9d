"""What a service and its client write and print holds no input, weight, answer, share or key.

All is searched in several encodings. Chance finds none that is long. Six digits it finds in one
run of 100, among durations and counts: those are a secret told where a second run finds one too.
"""

from __future__ import annotations

import base64
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import yaml
from serving import SAMPLES, Hospital, W, answer_to, compiled, members, until

from veilgraph.ir.plan.tables import Phase
from veilgraph.measuring.processes import free_ports
from veilgraph.runtime.session.private_keys import load_private_key, secret_of

LEAST_BYTES, LEAST_DIGITS = 6, 5
LONG_DIGITS = 9  # chance finds so many in one run of 10,000


def texts(value: float, frac_bits: int) -> Iterator[bytes]:
    """A number as logs might have it: decimal, exact and rounded, and in fixed point."""
    for text in (repr(value), f"{value:.6g}", f"{value:.5f}", f"{np.float32(value)}"):
        significant = text.lstrip("-0.")
        if sum(map(str.isdigit, significant)) >= LEAST_DIGITS + 1:
            yield significant.encode()
    fixed = round(value * (1 << frac_bits))
    if abs(fixed) >= 10**LEAST_DIGITS:
        yield str(abs(fixed)).encode()


def encoded(content: bytes) -> Iterator[bytes]:
    """Bytes as they are, in hexadecimal, and in base64 wherever they begin in a text of it."""
    assert len(content) >= LEAST_BYTES
    yield content
    yield content.hex().encode()
    yield content.hex().upper().encode()
    for shift in range(3):
        text = base64.b64encode(bytes(shift) + content)
        yield text[4 if shift else 0 : -4]


def forms(array: npt.NDArray[np.float32], frac_bits: int) -> set[bytes]:
    """A tensor's neighbouring numbers as bytes of several types, and each number as text."""
    flat = array.ravel()
    found: set[bytes] = set()
    for order in "<>":
        for kind in ("f4", "f8", "i4", "i8"):
            numbers = np.round(flat * (1 << frac_bits)) if kind[0] == "i" else flat
            raw = numbers.astype(f"{order}{kind}").tobytes()
            size = 2 * int(kind[1])
            for start in range(0, len(raw) - size + 1, size):
                piece = raw[start : start + size]
                if len(set(piece)) >= LEAST_BYTES:
                    found |= set(encoded(piece))
    for value in flat.tolist():
        found |= set(texts(value, frac_bits))
    return {each for each in found if len(each) >= LEAST_DIGITS}


def holds(content: bytes, form: bytes) -> bool:
    """Whether a form is there; a number as text has to begin where a number does."""
    if re.fullmatch(rb"[\d.]+", form):
        return re.search(rb"(?<![\d.])[0.]*" + re.escape(form), content) is not None
    return form in content


def holding(content: bytes, wanted: dict[str, set[bytes]]) -> list[tuple[str, bytes]]:
    return [(what, each) for what, all_ in wanted.items() for each in all_ if holds(content, each)]


def is_long(form: bytes) -> bool:
    return len(form) >= LONG_DIGITS or not form.replace(b".", b"").isdigit()


def test_the_search_finds_what_is_there() -> None:
    x = np.array([0.73218412, -0.51829731], np.float32)
    wanted = {"x": forms(x, 20)}
    hidden = [
        b".." + x.tobytes(), b"AB" + base64.b64encode(b"." + x.astype(">f8").tobytes()),
        f"x = {x[1]:.6g}".encode(), x.tobytes().hex().encode(),
        str(round(float(x[0]) * (1 << 20))).encode(), repr(x.tolist()).encode(),
    ]  # fmt: skip
    assert all(holding(each, wanted) for each in hidden)
    assert not holding(b"inference 7 of small/1 took 0.0123 s", wanted)
    assert not holding(b"at 1732841.732184, 9732184 of 2732184", wanted)


def found_of_a_service(tmp_path: Path, suite: str) -> list[tuple[str, bytes]]:
    """What is found of the secrets of a service that answers two questions and refuses one."""
    plan, weights = compiled(suite)
    hospital = Hospital(tmp_path, members(plan))
    hospital.put("small/1", plan, weights)
    kept = {path for path in tmp_path.rglob("*") if path.is_file()}
    # Every number is in a file before; these names and lines are all that comes after.
    np.save(tmp_path / "x.npy", SAMPLES[0])
    np.save(tmp_path / "far.npy", 1000 * SAMPLES[0])
    kept |= {tmp_path / "x.npy", tmp_path / "far.npy", tmp_path / "y.npy"}
    verb = [sys.executable, "-m", "veilgraph", "--log-json", "-vv", "--traceback"]
    told: list[bytes] = []
    with ExitStack() as stack:
        (watch_port,) = stack.enter_context(free_ports(1))
        stack.close()
        parties = [
            subprocess.Popen(
                [*verb, "serve", "--party", party, "--config", hospital.folder / f"{party}.yaml",
                 "--models", hospital.models(party), "--trace", tmp_path / f"{party}.traces",
                 *(["--watch-port", str(watch_port)] if party == "alice" else [])],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )
            for party in hospital.parties
        ]  # fmt: skip
        ask = [*verb, "infer", "small", "--config", hospital.client]
        answer = ["--input", f"x=@{tmp_path / 'x.npy'}", "--output", f"y=@{tmp_path / 'y.npy'}"]
        try:
            until(lambda: subprocess.run([*ask, *answer], capture_output=True).returncode == 0)
            for given in (answer, ["--input", f"x=@{tmp_path / 'far.npy'}"]):
                done = subprocess.run([*ask, *given], capture_output=True)
                told += [done.stdout, done.stderr, repr(done.args).encode()]
            told += [Path(f"/proc/{each.pid}/cmdline").read_bytes() for each in parties]
            told += [Path(f"/proc/{each.pid}/environ").read_bytes() for each in parties]
            page = f"http://127.0.0.1:{watch_port}/metrics"
            told.append(urllib.request.urlopen(page, timeout=10).read())
        finally:
            for process in parties:
                process.terminate()
            for process in parties:
                told += process.communicate(timeout=60)
    written = [path for path in tmp_path.rglob("*") if path.is_file() and path not in kept]
    assert {path.name.partition("-")[0] for path in written} >= {"asked", "trace"}
    content = b"\n".join([*told, *(path.read_bytes() for path in written)])
    assert content.count(b"small/1") >= 3  # it is the log, and says what was run
    (frac_bits,) = {tensor.frac_bits for tensor in plan.party("patient").inputs}
    wanted = {
        "input": forms(SAMPLES[0], frac_bits),
        "input out of range": forms(1000 * SAMPLES[0], frac_bits),
        "weight": forms(W, frac_bits),
        "answer": forms(np.load(tmp_path / "y.npy"), frac_bits) | forms(answer_to(SAMPLES[0]), 16),
    }
    for name in [*hospital.parties, "patient"]:
        me = yaml.safe_load((tmp_path / f"{name}.yaml").read_text())["me"]
        key = load_private_key(tmp_path / me["key"])
        raw = key.private_bytes_raw()  # type: ignore[union-attr]
        wanted[f"key of {name}"] = {
            form for part in (raw[:12], raw[12:24], secret_of(tmp_path / me["key"])[:12])
            for form in encoded(part)
        }  # fmt: skip
    assert plan.rounds(Phase.ONLINE)
    return holding(content, wanted)


@pytest.mark.parametrize("suite", ["rep3", "additive"])
def test_nothing_that_is_written_or_printed_tells_a_secret(tmp_path: Path, suite: str) -> None:
    runs = (tmp_path / "one", tmp_path / "two")
    for folder in runs:
        folder.mkdir()
    found = found_of_a_service(runs[0], suite)
    assert not [each for each in found if is_long(each[1])]
    if found:
        again = {what for what, _ in found_of_a_service(runs[1], suite)}
        assert not [each for each in found if each[0] in again]
