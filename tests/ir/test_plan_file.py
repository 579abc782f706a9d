"""Plans on disk: the same bytes each time; a file that is none is a user's error and no other."""

from __future__ import annotations

import copy
import io
import json
import random
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from interpreters import plan_of

import veilgraph
from veilgraph.ir.errors import SecurityAbort, UsageError
from veilgraph.ir.party import ops
from veilgraph.ir.party.program import Program, apply
from veilgraph.ir.plan import file as plan_file
from veilgraph.ir.plan.checks import check
from veilgraph.ir.plan.plan import Plan
from veilgraph.ir.plan.tables import Direction, Disclosure, Layer, PartyPlan, Phase, Share
from veilgraph.ir.types import words
from veilgraph.passes.party.expand_protocols import Expanded

Entries = dict[str, bytes]


@pytest.fixture(scope="module")
def plan() -> Plan:
    """Three parties, all phases, all kinds of tensors, a constant, IR text, odd names."""
    program = Program(("alice", "bob", "carol"))
    expanded = Expanded(program, [np.arange(5)], [32])
    x = program.source("input", "x: 'ü'\n", 0, (2, 5), words(32))
    w = program.source("weight", "w", 1, (5,), words(32))
    with program.in_phase(Phase.SETUP):
        key = program.draw((0, 1), (5,), words(32))
    masked = program.send((w + key).only(1), 1, 0)
    r = program.draw((0, 2), (2, 5), words(32))
    sent = program.send(
        (x * (masked - key) + program.constant(0, (5,), words(32)) + r).only(0), 0, 2
    )
    part = program.share("v", (1, 3), (0, 2), (5,), words(32))
    total = apply(ops.REDUCE_SUM, (sent - r + part,), (2, 1), words(32), axes=(1,))
    program.output(total, 2, "y", 3)
    made = plan_of(expanded)
    disclosed = (Disclosure("scale of conv1", "all", "a power of two"),)
    manifest = replace(made.manifest, disclosures=disclosed, options={"ring": 32, "avgpool": True})
    layers = (*made.layers, Layer("fc1", "matmul", range_low=-1.5, range_source="calibrated"))
    return replace(made, manifest=manifest, layers=layers, ir={"party": "%0\n" * 99, "graph": "ü"})


@pytest.fixture
def file(plan: Plan, tmp_path: Path) -> Path:
    path = tmp_path / "model.plan"
    plan_file.save(plan, path)
    return path


def entries(file: Path) -> Entries:
    with zipfile.ZipFile(file) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write(file: Path, contents: Entries, compression: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, content in contents.items():
            archive.writestr(name, content)


def refused(file: Path, match: str = "is no plan, or a damaged one") -> None:
    with pytest.raises(UsageError, match=match) as caught:
        plan_file.load(file)
    assert caught.value.hint
    assert len(str(caught.value).splitlines()) == 2


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("net.onnx", "`veilgraph compile` makes a plan of it"),
        ("net.pt2", "`veilgraph compile` makes a plan of it"),
        ("net.weights", "the plan is the .plan beside them"),
        ("net.plan", "Compile the model again"),
    ],
)
def test_another_file_is_told_for_what_it_is(tmp_path: Path, name: str, hint: str) -> None:
    (tmp_path / name).write_bytes(b"no plan")
    with pytest.raises(UsageError) as caught:
        plan_file.load(tmp_path / name)
    assert hint in caught.value.hint


# Writing and reading


def test_round_trip(plan: Plan, file: Path) -> None:
    read = plan_file.load(file)
    assert (read.manifest, read.layers, read.constants) == (
        plan.manifest, plan.layers, plan.constants
    )  # fmt: skip
    assert read.ir == plan.ir
    assert read.digest == plan.digest
    for name, program in plan.programs.items():
        own = read.party(name)
        for table in ("steps", "buffers", "messages", "params", "kept"):
            np.testing.assert_array_equal(getattr(own, table), getattr(program, table))
        for fact in ("arena_bytes", "keys", "inputs", "weights", "outputs"):
            assert getattr(own, fact) == getattr(program, fact)


def test_a_plan_that_was_read_knows_its_digest(plan: Plan, file: Path) -> None:
    """It is compared once, of what was read; counted again, it is the same."""
    read = plan_file.load(file)
    assert vars(read)["digest"] == replace(read).digest == plan.digest
    held = veilgraph.Plan.load(file)
    assert vars(held)["digest"] == plan.digest
    assert "digest" not in vars(replace(held, constants=b""))
    assert veilgraph.Plan.of(replace(held, constants=b"")).digest != plan.digest


def test_pieces_of_a_message_are_compared_in_their_order(plan: Plan) -> None:
    """Two pieces of one message, whose lengths one side has the other way round."""

    def cut(name: str, direction: Direction, sizes: tuple[int, int]) -> PartyPlan:
        program = plan.party(name)
        rows = program.messages
        row = np.flatnonzero((rows["direction"] == direction) & (rows["bytes"] == 40))[0]
        pieces = np.repeat(rows[row : row + 1], 2)
        pieces["bytes"] = sizes
        return replace(program, messages=np.concatenate([rows[:row], pieces, rows[row + 1 :]]))

    sender, rows = cut("alice", Direction.SEND, (8, 32)), plan.party("alice").messages
    whole = rows[(rows["direction"] == Direction.SEND) & (rows["bytes"] == 40)][0]
    peer = plan.manifest.parties[int(whole["peer"])]
    for sizes in ((8, 32), (32, 8)):
        programs = {**plan.programs, "alice": sender, peer: cut(peer, Direction.RECEIVE, sizes)}
        changed = replace(plan, programs=programs)
        if sizes == (8, 32):
            check(changed)
        else:
            with pytest.raises(ValueError, match="do not agree on their messages"):
                check(changed)


def test_the_same_bytes_each_time(plan: Plan, file: Path, tmp_path: Path) -> None:
    plan_file.save(plan, tmp_path / "again.plan")
    plan_file.save(plan_file.load(file), tmp_path / "read.plan")
    expected = file.read_bytes()
    assert (tmp_path / "again.plan").read_bytes() == expected
    assert (tmp_path / "read.plan").read_bytes() == expected


def test_tables_are_stored_so_that_they_can_be_mapped(file: Path) -> None:
    with zipfile.ZipFile(file) as archive:
        for entry in archive.infolist():
            compressed = entry.filename.startswith("ir/")
            assert entry.compress_type == (zipfile.ZIP_DEFLATED if compressed else 0)
            assert entry.date_time == (1980, 1, 1, 0, 0, 0)


def test_the_digest_is_of_everything(plan: Plan) -> None:
    first = plan.party("alice")
    others = [
        replace(plan, constants=plan.constants + b"\0"),
        replace(plan, layers=plan.layers[:-1]),
        replace(plan, ir={**plan.ir, "graph": "u"}),
        replace(plan, manifest=replace(plan.manifest, security="none")),
        replace(plan, programs={**plan.programs, "alice": replace(first, arena_bytes=1 << 20)}),
        replace(
            plan, programs={**plan.programs, "alice": replace(first, params=first.params[:-1])}
        ),
    ]
    assert len({plan.digest, *(other.digest for other in others)}) == 1 + len(others)


def test_a_plan_that_can_not_be_written_leaves_nothing(plan: Plan, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="can't be written"):
        plan_file.save(plan, tmp_path / "nowhere" / "model.plan")
    (tmp_path / "taken.plan").mkdir()
    with pytest.raises(UsageError, match="can't be written"):
        plan_file.save(plan, tmp_path / "taken.plan")
    assert [path.name for path in tmp_path.iterdir()] == ["taken.plan"]


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="There is no plan"):
        plan_file.load(tmp_path / "model.plan")
    refused(tmp_path, "is a directory, and no plan")


# Damage


@pytest.mark.parametrize("seed", range(4))
def test_flipped_bits(plan: Plan, file: Path, seed: int) -> None:
    """Anywhere in the file: refused, or (a date, a flag of the zip) no difference at all."""
    whole, choices = file.read_bytes(), random.Random(seed)
    for _ in range(400):
        damaged = bytearray(whole)
        damaged[choices.randrange(len(whole))] ^= 1 << choices.randrange(8)
        check_refused_or_same(plan, file, bytes(damaged))


def test_flipped_bits_behind_the_checksum(plan: Plan, file: Path) -> None:
    """The zip's own checksum set right: the digest, or a check before it, sees each of them."""
    contents, choices = entries(file), random.Random(5)
    for name, content in contents.items():
        for _ in range(25 if content else 0):
            damaged = bytearray(content)
            damaged[choices.randrange(len(content))] ^= 1 << choices.randrange(8)
            write(file, {**contents, name: bytes(damaged)})
            check_refused_or_same(plan, file)


def test_cut_files(plan: Plan, file: Path) -> None:
    whole, contents = file.read_bytes(), entries(file)
    for length in [0, 1, 21, 22, *range(30, len(whole), len(whole) // 60)]:
        check_refused_or_same(plan, file, whole[:length])
    for name, content in contents.items():
        for length in {0, 1, len(content) // 2, len(content) - 1}:
            write(file, {**contents, name: content[:length]})
            check_refused_or_same(plan, file)


def check_refused_or_same(plan: Plan, file: Path, content: bytes | None = None) -> None:
    if content is not None:
        file.write_bytes(content)
    try:
        read = plan_file.load(file)
    except (UsageError, SecurityAbort):
        return
    assert replace(read).digest == read.digest == plan.digest


@pytest.mark.parametrize("content", [b"", b"PK", b"\x7fELF" * 99, b"PK\x05\x06" + bytes(18)])
def test_what_is_no_zip_or_an_empty_one(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    refused(file, "no plan")


# Edits


def test_an_edited_plan_is_noticed(plan: Plan, file: Path) -> None:
    contents = entries(file)
    path = "parties/bob/params.bin"
    edited = bytearray(contents[path])
    edited[0] ^= 1
    write(file, {**contents, path: bytes(edited)})
    with pytest.raises(SecurityAbort, match="was changed after it was compiled") as caught:
        plan_file.load(file)
    assert caught.value.exit_code == 6


EDITS: tuple[tuple[str, str, str], ...] = (
    ("security: ''", "security: fine", "digest differs"),
    ("rounds: 1", "rounds: 0", "says what its tables do not"),
    ("format: 7", "format: 5", "a plan of format 5, and this Veilgraph reads format 7"),
    ("format: 7", "note: 1\nformat: 7", "says what its tables do not"),
    ("- bob\n", "- bob\n- bob\n", "named alike"),
    ("- alice\n", "- ../x\n", "not a plain word"),
    ("arena_bytes: ", "arena_bytes: -", "of no sane size"),
    ("arena_bytes: ", "arena_bytes: 99999999999", "of no sane size"),
    ("arena_bytes: ", "arena_bytes: 1 #", "outside its party's memory"),
    ("ring_bits: 32", "ring_bits: 65", "outside its party's memory"),
    ("ring_bits: 64", "ring_bits: 65", "no ring of 65 bits"),
    ("frac_bits: 0", "frac_bits: 99999", "outside its party's memory"),
    ("column_exponents: []", "column_exponents: [1, 1, 1, 1, 1, 1, 1]", "not as many columns"),
    ("columns: []", "columns: [a, b, c, d, e, f, g]", "not as many columns"),
    ("column_exponents: []", "column_exponents: 4", "not what it should be"),
    ("- 5\n", "- 5.0\n", "not what it should be"),
    ("owner: alice", "owner: [alice]", "not what it should be"),
    ("name: w\n", "label: w\n", "not the fields"),
    ("bytes_per_second: 1250000000.0", "bytes_per_second: 0", "no sane figures"),
    ("part: 1\n", "part: 3\n", "a share that no weight has"),
    ("part: 1\n", "part: -1\n", "a share that no weight has"),
    ("shares: []", "parts: []", "not the fields"),
)


@pytest.mark.parametrize(("old", "new", "reason"), EDITS, ids=lambda text: text.strip()[:30])
def test_edits_of_the_manifest(file: Path, old: str, new: str, reason: str) -> None:
    contents = entries(file)
    text = contents["manifest.yaml"].decode()
    assert old in text
    write(file, {**contents, "manifest.yaml": text.replace(old, new, 1).encode()})
    with pytest.raises((UsageError, SecurityAbort)) as caught:
        plan_file.load(file)
    assert reason in str(caught.value)


JUNK: tuple[Any, ...] = (
    *(None, -1, 0, 1, 2**70, 3.5, float("inf"), float("nan"), True),
    *("", "x", "alice", [], [1], [[]], {}, {"a": 1}, {1: "a"}),
)


def test_anything_in_place_of_anything(plan: Plan, file: Path) -> None:
    """Nodes of the manifest and of the layers replaced by all kinds of junk; one pair in seven."""
    contents, choices = entries(file), random.Random(1)
    for name, parsed, write_back in (
        ("manifest.yaml", yaml.safe_load(contents["manifest.yaml"]), yaml_bytes),
        ("layers.json", json.loads(contents["layers.json"]), lambda v: json.dumps(v).encode()),
    ):
        for place in places(parsed):
            for junk in JUNK:
                if choices.random() < 0.15:
                    changed = {**contents, name: write_back(replaced(parsed, place, junk))}
                    write(file, changed)
                    check_refused_or_same(plan, file)


def yaml_bytes(value: Any) -> bytes:
    text: str = yaml.safe_dump(value, sort_keys=False)
    return text.encode()


def places(value: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths to all that a tree holds, its root included; of long lists the first three."""
    yield before
    keys = (
        value
        if isinstance(value, dict)
        else range(min(len(value), 3))
        if isinstance(value, list)
        else ()
    )
    for key in keys:
        yield from places(value[key], (*before, key))


def replaced(tree: Any, place: tuple[Any, ...], value: Any) -> Any:
    if not place:
        return value
    tree = copy.copy(tree)
    tree[place[0]] = replaced(tree[place[0]], place[1:], value)
    return tree


def test_shares_that_do_not_fit(plan: Plan) -> None:
    bob, carol = plan.party("bob"), plan.party("carol")
    (part,) = carol.shares

    def with_bobs(*shares: Share) -> Plan:
        return replace(plan, programs={**plan.programs, "bob": replace(bob, shares=shares)})

    check(with_bobs(replace(part, offset=0, part=0)))
    for changed in ({"parts": 2}, {"ring_bits": 24}, {"frac_bits": 1}, {"shape": (1, 5)}):
        with pytest.raises(ValueError, match="do not agree on the weight 'v'"):
            check(with_bobs(replace(part, offset=0, **changed)))
    with pytest.raises(ValueError, match="bob has one share twice"):
        check(with_bobs(replace(part, offset=0), replace(part, offset=0)))
    with pytest.raises(ValueError, match="tensor 'v' lies outside its party's memory"):
        check(with_bobs(replace(part, offset=bob.arena_bytes)))


# Hostile archives


def changed_table(file: Path, party: str, table: str, change: Callable[[Any], Any]) -> None:
    contents, path = entries(file), f"parties/{party}/{table}.bin"
    rows = np.frombuffer(contents[path], plan_file.TABLES[f"{table}.bin"]).copy()
    write(file, {**contents, path: change(rows).tobytes()})


def put(field: str, row: int, value: int) -> Callable[[Any], Any]:
    def change(rows: Any) -> Any:
        rows[field][row] = value
        return rows

    return change


TABLES: tuple[tuple[str, Callable[[Any], Any], str], ...] = (
    ("messages", put("offset", 0, 1 << 40), "a message lies outside"),
    ("messages", put("offset", 0, (1 << 64) - 8), "a message lies outside"),
    ("messages", put("offset", 0, 4), "a message lies outside"),
    ("messages", put("bytes", 0, (1 << 64) - 8), "a message lies outside"),
    ("messages", put("peer", 0, 7), "a message lies outside"),
    ("messages", put("peer", 0, 0), "a message lies outside"),
    ("messages", put("direction", 0, 2), "a message lies outside"),
    ("messages", put("phase", 0, 3), "a message lies outside"),
    ("messages", put("round", 0, 9), "rounds are not those of its messages"),
    ("messages", put("bytes", 0, 8), "do not agree on their messages"),
    ("messages", lambda rows: np.concatenate([rows, rows[:1]]), "do not agree on their messages"),
    ("messages", put("step", 0, 1 << 20), "made by a step that is not there"),
    ("messages", put("elements", 0, 1 << 40), "made by elements that are not there"),
    ("messages", lambda rows: rows[:0], "rounds are not those of its messages"),
    ("steps", lambda rows: rows[::-1].copy(), "phases are not one after another"),
    ("steps", put("phase", -1, 9), "phases are not one after another"),
    ("steps", lambda rows: rows[rows["kernel"] != 0xFFFF], "rounds are not those"),
    ("steps", lambda rows: np.repeat(rows, 2), "rounds are not those"),
    ("kept", put("offset", 0, (1 << 64) - 8), "what it keeps lies outside"),
    ("kept", put("bytes", 0, 1 << 50), "what it keeps lies outside"),
    ("kept", put("phase", 0, 3), "what it keeps lies outside"),
    ("kept", put("phase", 0, 2), "what it keeps from run to run is not its states"),
    ("kept", lambda rows: np.repeat(rows, 4096), "what it keeps lies outside"),
)


@pytest.mark.parametrize("case", range(len(TABLES)))
def test_tables_that_do_not_fit(file: Path, case: int) -> None:
    table, change, reason = TABLES[case]
    changed_table(file, "alice", table, change)
    refused(file, reason)


def test_tables_cut_within_a_row(file: Path) -> None:
    changed_table(file, "carol", "steps", lambda rows: rows.view(np.uint8)[:-1])
    refused(file, "carol's steps.bin is cut short")


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "/etc/passwd", "parties/alice/extra.bin", "x", "a\\b", "irx"]
)
def test_entries_that_no_plan_has(file: Path, name: str) -> None:
    write(file, {**entries(file), name: b"x"})
    refused(file, "an entry that no plan has|damaged one")


def test_missing_entries(file: Path) -> None:
    contents = entries(file)
    for name in contents:
        write(file, {k: v for k, v in contents.items() if k != name})
        if name.startswith("ir/"):
            with pytest.raises(SecurityAbort):
                plan_file.load(file)
        else:
            refused(file)


def test_entries_that_are_repeated(file: Path) -> None:
    with (
        pytest.warns(UserWarning, match="Duplicate"),
        zipfile.ZipFile(file, "a") as archive,
    ):
        archive.writestr("constants.bin", b"")
    refused(file, "repeated")


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_compressed_tables(file: Path, method: int) -> None:
    """A few bytes must not become gigabytes."""
    write(file, {**entries(file), "constants.bin": bytes(1 << 20)}, method)
    refused(file, "is compressed")


def test_text_that_is_a_bomb(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_file, "MOST_TEXT", 1 << 20)
    contents = entries(file)
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in contents.items():
            archive.writestr(name, content)
        for number in range(3):
            archive.writestr(f"ir/{number}", b" " * (1 << 19), zipfile.ZIP_DEFLATED)
    refused(file, "its text is too large")


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_text_compressed_as_no_plan_is(file: Path, method: int) -> None:
    """These are inflated as a whole, however long they say they are."""
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("ir/more", b" " * (1 << 19), method)
    refused(file, "ir/more is compressed in a way that no plan is")


@pytest.mark.parametrize("more", [-1, 1])
def test_text_that_is_not_as_long_as_it_says(file: Path, more: int) -> None:
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("ir/more", b" " * 5000, zipfile.ZIP_DEFLATED)
    whole = bytearray(file.read_bytes())
    at = whole.rindex(b"ir/more") - 46 + 24
    assert int.from_bytes(whole[at : at + 4], "little") == 5000
    whole[at : at + 4] = (5000 + more).to_bytes(4, "little")
    file.write_bytes(whole)
    refused(file)


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_text_with_another_checksum(file: Path, method: int) -> None:
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("ir/more", b" " * 5000, method)
    whole = bytearray(file.read_bytes())
    whole[whole.rindex(b"ir/more") - 46 + 16] ^= 1
    file.write_bytes(whole)
    refused(file)


@pytest.mark.parametrize(
    ("said", "written", "why"),
    [
        ("round_trip_seconds: 0.0002", "round_trip_seconds: 2001-01-01", "network is"),
        ("round_trip_seconds: 0.0002", "round_trip_seconds: {1: a}", "network is"),
        ("ring: 32", "ring: .inf", "options is"),
        ("ring_bits: 64", "ring_bits: 64.0", ""),
        ("frac_bits: 3", "frac_bits: true", ""),
    ],
)
def test_numbers_that_are_written_otherwise(file: Path, said: str, written: str, why: str) -> None:
    """A digest is of what is written; a plan has one way to write it."""
    contents = entries(file)
    text = contents["manifest.yaml"].decode()
    assert said in text
    contents["manifest.yaml"] = text.replace(said, written).encode()
    write(file, contents)
    refused(file, why or "is no plan, or a damaged one")


def test_no_plan_is_written_that_nobody_reads(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_file.load(file)
    size = sum(map(len, plan.ir.values()))
    monkeypatch.setattr(plan_file, "MOST_TEXT", size - 1)
    with pytest.raises(UsageError, match=r"MiB of text, and a party reads no more"):
        plan_file.save(plan, tmp_path / "large.plan")
    assert not (tmp_path / "large.plan").exists()


def test_sizes_larger_than_the_file(file: Path) -> None:
    whole = file.read_bytes()
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        size = archive.getinfo("constants.bin").file_size
    directory = whole.index(b"PK\x01\x02")
    at = whole.index(b"constants.bin", directory) - 46 + 20
    assert whole[at : at + 4] == size.to_bytes(4, "little")
    huge = (0xF0000000).to_bytes(4, "little")
    file.write_bytes(whole[:at] + 2 * huge + whole[at + 8 :])
    refused(file, "larger than the file")


def test_encrypted_entries(file: Path) -> None:
    whole = bytearray(file.read_bytes())
    for mark, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        whole[whole.index(mark) + flags] |= 1
    file.write_bytes(whole)
    refused(file)


@pytest.mark.parametrize(
    "text",
    [
        b"a: &a [1, 1]\nb: &b [*a, *a, *a]\nparties: [*b, *b]\n",
        b"[" * 100_000,
        b"{a: " * 100_000,
        b"- " * 50_000,
        b"!!python/object/apply:os.system [true]",
        b"!!binary '@@@'",
        b"2020-99-99",
        b"\xff\xfe\x00",
        b"a: b: c",
        b"%TAG ! tag:\n--- 1",
        b"0x" + b"f" * 100_000,
        b"9" * 100_000,
    ],
    ids=lambda text: repr(text[:12]),
)
def test_hostile_yaml(file: Path, text: bytes) -> None:
    """Aliases that multiply, nesting without end, objects of Python, numbers without end."""
    write(file, {**entries(file), "manifest.yaml": text})
    refused(file)


@pytest.mark.parametrize(
    "line", ["1: x", "~: 1", "true: 1", "1.5: 1", "2020-01-01: 1", "more: 2020-01-01", "more: .nan"]
)
def test_a_manifest_with_more_than_json_says(file: Path, line: str) -> None:
    found = entries(file)
    write(file, {**found, "manifest.yaml": line.encode() + b"\n" + found["manifest.yaml"]})
    refused(file, "manifest is .*, not what it should be")


@pytest.mark.parametrize("text", [b"[" * 100_000, b"{}", b"[1]", b"\xff", b"[NaN]", b'[{"a": 1}]'])
def test_hostile_json(file: Path, text: bytes) -> None:
    write(file, {**entries(file), "layers.json": text})
    refused(file)
