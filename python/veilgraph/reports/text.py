"""What `compile` and `inspect` say of a plan: its cost, its layers, and who learns what.

Each part comes twice: as plain values, for JSON, and as tables, for people. Measured and predicted
figures have the same names in all JSON: `online_seconds`, `rounds`, `sent_bytes`, ...
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import zip_longest
from typing import Any

from veilgraph.ir.errors import SecurityAbort
from veilgraph.ir.plan.tables import PUBLIC, SHARED, WEIGHTS, Disclosure, Layer, Phase, Tensor
from veilgraph.ir.roles import CLIENT, DEALER
from veilgraph.ir.secret.facts import FACTS, LINEAR, Compares, Rounding
from veilgraph.measuring.pricing import LayerPrice, Prediction
from veilgraph.plans import Plan
from veilgraph.reports import units
from veilgraph.reports.headroom import bounds
from veilgraph.reports.layer_graph import LayerGraph
from veilgraph.reports.tables import Table
from veilgraph.runtime.session.public_keys import text_of
from veilgraph.targets.machines import MACHINE
from veilgraph.verification.findings import Verified
from veilgraph.verification.receipts import Receipt
from veilgraph.verification.verify import verify

MOST_NAMED = 2  # ops or functions of a layer, in a narrow column
MOST_LETTERS = 60  # of all ops of a layer, in a table
ROUNDING = Disclosure(
    "how values were rounded",
    "parties that truncate",
    "a truncation gives floor((z + tau) / 2^f), tau uniform and independent of z; some parties "
    "know the threshold in their own view, and one that also receives the output learns from it "
    "what exact rounding at a random offset would tell",
)


# Plain values


def plan_values(plan: Plan, predicted: Prediction, entry: int = 0) -> dict[str, Any]:
    """A plan's target, its tensors and the predicted cost of an entry."""
    manifest = plan.manifest
    return {
        "digest": plan.digest,
        "veilgraph_version": manifest.veilgraph_version,
        "suite": manifest.suite,
        "security": manifest.security,
        "parties": list(manifest.parties),
        "dealer": next(iter(manifest.named(DEALER)), None),
        "clients": list(manifest.named(CLIENT)),
        "inputs": [_tensor_values(tensor, "owner") for tensor in plan_inputs(plan)],
        "weights_owner": manifest.owners.get(WEIGHTS),
        "outputs": [_tensor_values(tensor, "receivers") for tensor in plan_outputs(plan)],
        "ring_bits": manifest.ring_bits,
        "encoding": manifest.encoding,
        "exact_ranges": bool(plan.ranges),
        "options": dict(manifest.options),
        "entries": list(manifest.entries),
        "entry": manifest.entries[entry],
        **cost_values(plan, predicted, entry),
    }


def plan_inputs(plan: Plan, entry: int | None = None) -> list[Tensor]:
    """Every input of an entry, or of all where None, whoever owns it."""
    tensors = [tensor for program in plan.programs.values() for tensor in program.inputs]
    return [tensor for tensor in tensors if entry in (None, tensor.entry)]


def plan_outputs(plan: Plan, entry: int | None = None) -> list[Tensor]:
    """Every output of an entry, or of all where None, once, however many receive it."""
    tensors = (tensor for program in plan.programs.values() for tensor in program.outputs)
    return list({t.name: t for t in tensors if entry in (None, t.entry)}.values())


def weights_holder(plan: Plan) -> str:
    """Who holds the weights, in a few words."""
    owner = plan.manifest.owners.get(WEIGHTS)
    nobody = {PUBLIC: "public, in the plan", SHARED: "no party's, shared from files"}
    return nobody.get(str(owner), f"{owner}'s")


def cost_values(plan: Plan, predicted: Prediction, entry: int = 0) -> dict[str, Any]:
    """Predicted cost under the names that `bench --json` has for what it measures."""
    return {
        "network": asdict(predicted.network),
        "compute": asdict(MACHINE),
        "setup_seconds": predicted.setup_seconds,
        "offline_seconds": predicted.offline_seconds,
        "online_seconds": predicted.online_seconds,
        "total_seconds": predicted.total_seconds,
        "rounds": predicted.cost.online.rounds,
        "sent_bytes": planned_bytes(plan, entry),
        "peak_memory_bytes": dict(predicted.cost.peak_memory_bytes),
        "multiply_adds": predicted.cost.online.multiply_adds,
    }


def planned_bytes(plan: Plan, entry: int = 0) -> dict[str, dict[str, int]]:
    """Payload by phase and link: {"online": {"alice->bob": 1200, ...}, ...}."""
    return {phase.name.lower(): plan.sent_bytes(phase, entry) for phase in Phase}


def layer_values(price: LayerPrice, graph: LayerGraph) -> dict[str, Any]:
    """One row of `inspect --layers`, and the headroom of its values."""
    last, bounded = price.last, bounds(price, graph)
    return {
        "name": price.name,
        "ops": list(price.ops),
        "protocols": list(price.protocols),
        "next_best": list(price.next_best),
        "next_best_seconds": list(price.next_best_seconds),
        "ring_bits": last.ring_bits,
        "frac_bits": last.frac_bits,
        "range": [units.finite(last.range_low), units.finite(last.range_high)],
        "range_source": last.range_source,
        "rounds": price.rounds,
        "online_bytes": price.online_bytes,
        "offline_bytes": price.offline_bytes,
        "multiply_adds": price.multiply_adds,
        "seconds": price.seconds,
        "share_of_seconds": price.share,
        "headroom_bits": None if bounded is None else bounded.headroom_bits,
    }


def _tensor_values(tensor: Tensor, role: str) -> dict[str, Any]:
    who = tensor.owner if role == "owner" else tensor.owner.split(",")
    return {
        "name": tensor.name,
        role: who,
        "shape": list(tensor.shape),
        "ring_bits": tensor.ring_bits,
        "frac_bits": tensor.frac_bits,
        "range": [units.finite(tensor.low), units.finite(tensor.high)],
        "columns": list(tensor.columns),
        "column_exponents": list(tensor.column_exponents),
        "given": asdict(tensor.given),
    }


# Tables


def summary(
    plan: Plan, predicted: Prediction, entry: int = 0, signed_by: bytes | None = None
) -> list[Table | str]:
    """What a plan is, and what an entry of it costs, on a page."""
    manifest = plan.manifest
    computing = manifest.computing
    rows = [
        ("suite", f"{manifest.suite}, {manifest.security}"),
        ("parties", ", ".join(manifest.parties)),
        *((manifest.roles[name], name) for name in manifest.parties if name not in computing),
        *((f"input {t.name}", f"{units.shape(t.shape)}, {t.owner}'s") for t in plan_inputs(plan)),
        ("weights", weights_holder(plan)),
        *(
            (f"output {t.name}", f"{units.shape(t.shape)}, to {t.owner.replace(',', ' and ')}")
            for t in plan_outputs(plan)
        ),
        *(("entries", ", ".join(names)) for names in (manifest.entries,) if len(names) > 1),
        ("encoding", manifest.encoding),
        ("digest", plan.digest),
        *(("signed by", signer(key)) for key in (signed_by,) if key is not None),
    ]
    told = [f"Entry {manifest.entries[entry]}:"] if len(manifest.entries) > 1 else []
    return [Table.of("plan|", rows), *told, costs(predicted)]


def costs(predicted: Prediction) -> Table:
    """Rounds, bytes and seconds by phase."""
    cost = predicted.cost
    rows = [
        (name, phase.rounds, units.size(phase.total_bytes), units.seconds(predicted_seconds))
        for name, phase, predicted_seconds in (
            ("setup, once a session", cost.setup, predicted.setup_seconds),
            ("offline", cost.offline, predicted.offline_seconds),
            ("online", cost.online, predicted.online_seconds),
        )
    ]
    seconds = f"#predicted on {predicted.network.name}"
    return Table.of(f"phase|#rounds|#sent by all|{seconds}", rows)


def assumptions(predicted: Prediction) -> str:
    """Under which figures seconds are predicted."""
    network = predicted.network
    rates = ", ".join(
        f"{units.amount(rate)} up to {ring_bits} bits"
        for ring_bits, rate in MACHINE.multiply_adds_per_second.items()
    )
    return (
        f"Seconds assume {network.name}: {units.size(network.bytes_per_second)}/s a link, "
        f"{units.seconds(network.round_trip_seconds)} round trip; and {MACHINE.name} a party: "
        f"multiply-adds a second {rates}; {units.size(MACHINE.memory_bytes_per_second)}/s of "
        f"memory, {units.size(MACHINE.drawn_bytes_per_second)}/s drawn, and "
        f"{units.amount(MACHINE.words_per_second)} words a second by other instructions."
    )


def layers(predicted: Prediction, whole: bool = False) -> Table:
    """One row a layer of the model: what became of it, and what it costs all parties together.

    Args:
        whole: name all ops of a layer, however many there are.
    """
    rows = [
        (
            price.name,
            protocols(price) if whole else brief(price.ops, price.protocols),
            next_best(price),
            price.last.ring_bits,
            price.last.frac_bits,
            _range(price.last),
            price.rounds,
            units.size(price.online_bytes),
            units.size(price.offline_bytes),
            units.amount(price.multiply_adds),
            units.percent(price.share),
        )
        for price in predicted.layers
    ]
    headings = (
        "layer|protocols|next best|#ring|#frac|range|#rounds|#online|#offline|#multiply-adds|"
        f"#time on {predicted.network.name}"
    )
    return Table.of(headings, rows)


def protocols(price: LayerPrice) -> str:
    """The ops of a layer, each with what was chosen of its protocols."""
    pairs = zip(price.ops, price.protocols, strict=True)
    return "+".join(f"{op} ({chosen})" if chosen else op for op, chosen in pairs)


def short_protocols(price: LayerPrice, functions: Sequence[str]) -> str:
    """The same in a few words: `functions` of a layer and how much it compares, or its first ops.

    Local rearrangements are left out where there is anything else.
    """
    compared = sum(op in FACTS and FACTS[op].compares is not Compares.NOTHING for op in price.ops)
    if functions:
        told = " and ".join(functions[:MOST_NAMED])
        return f"{told} ({units.counted(compared, 'comparison')})" if compared else told
    weighty = _weighty(price.ops)
    rest = len(weighty) - MOST_NAMED
    return " + ".join(weighty[:MOST_NAMED]) + (f" and {rest} more" if rest > 0 else "")


def brief(ops: Sequence[str], chosen: Sequence[str] = ()) -> str:
    """A layer's ops as a table has room for them: all, or the first that are more than local sums.

    Args:
        chosen: of each op, what was chosen of its protocols; may be empty.
    """
    named = [f"{op} ({own})" if own else op for op, own in zip_longest(ops, chosen, fillvalue="")]
    if len(whole := "+".join(named)) <= MOST_LETTERS:
        return whole
    weighty = _weighty(ops)
    first = dict(zip(reversed(ops), reversed(named), strict=True))
    told = "+".join(first[op] for op in weighty[:MOST_NAMED])
    return f"{told} and {len(ops) - len(weighty[:MOST_NAMED])} more"


def _weighty(ops: Sequence[str]) -> list[str]:
    """Each op once, local rearrangements left out where there is anything else."""
    names = list(dict.fromkeys(ops))
    return [op for op in names if op not in FACTS or FACTS[op] is not LINEAR] or names


def next_best(price: LayerPrice) -> str:
    """What a layer's ops would have taken else, and how much longer the program then takes."""
    pairs = zip(price.next_best, price.next_best_seconds, strict=True)
    told = (
        f"{name} {'+' if more >= 0 else '-'}{units.seconds(abs(more))}"
        for name, more in pairs
        if name
    )
    return ", ".join(told)


def ranges(plan: Plan) -> str:
    """Whether ranges are those that were found, or the plan's own."""
    if plan.ranges:
        return "Ranges are exact: they were kept beside the plan where it was compiled."
    return "Ranges are rounded to powers of two: the exact ones stay where the plan was compiled."


def _range(layer: Layer) -> str:
    if not layer.range_source:
        return ""
    low, high = units.real(layer.range_low), units.real(layer.range_high)
    return f"[{low}, {high}] {layer.range_source}"


# Who learns what


def disclosures(plan: Plan) -> list[Disclosure]:
    """All that any party learns: what the plan declares, and how its truncations round."""
    facts = [FACTS[layer.op] for layer in plan.layers if layer.op in FACTS]
    rounded = any(f.rounding is Rounding.AT_RANDOM and not f.is_function for f in facts)
    caveat = [ROUNDING] if rounded and len(plan.manifest.parties) > 1 else []
    return [*plan.manifest.disclosures, *caveat]


def signer(signed_by: bytes | None, authors: Mapping[str, bytes] | None = None) -> str:
    """Who signed a plan: the public key, and its name among `authors`."""
    if signed_by is None:
        return "nobody"
    named = [f"{name}, " for name, key in (authors or {}).items() if key == signed_by]
    return f"{''.join(named)}the key {text_of(signed_by)}"


def verified(
    found: Verified, signed_by: bytes | None, authors: Mapping[str, bytes]
) -> list[Table | str]:
    """What was checked of a plan, and against what; who signed it."""
    against = "; ".join(" and ".join(group) for group in found.coalitions) or "nobody"
    rows = [
        ("suite", f"{found.suite}, {found.security}"),
        (
            "program",
            f"{units.amount(found.nodes)} nodes, {units.amount(found.draws)} draws",
        ),
        (
            "masks",
            f"{units.amount(found.messages)} tensors sent, hidden from {against}",
        ),
        ("owners, receivers", "as the program has them"),
        ("tables", f"as lowering {found.lowering} makes them of the program, of every party"),
        ("layers", f"{found.layers}, with their costs"),
        ("digest", found.digest),
        ("signed by", signer(signed_by, authors)),
    ]
    return [Table.of("verified|", rows)]


def receipt(found: Receipt) -> Table:
    """What a party signed of a session."""
    phases = [
        (
            phase,
            f"{units.counted(rounds, 'round')}, {found.sent_bytes[phase]} bytes sent, "
            f"{found.received_bytes[phase]} received",
        )
        for phase, rounds in found.rounds.items()
    ]
    rows = [
        ("party", found.party),
        ("parties", ", ".join(found.parties)),
        ("plan", found.plan),
        ("session", found.session),
        *([("request", found.request)] if found.request else []),
        ("inferences", found.inferences),
        ("began", found.began),
        ("ended", found.ended),
        *phases,
    ]
    return Table.of("receipt|", rows)


def revealed(found: Verified) -> list[Table | str]:
    """What stays with whom, and who learns what, as computed from a plan's program."""
    whose = {SHARED: "no party: who compiled"}
    kept = [
        (
            s.name if s.name == WEIGHTS else f"input {s.name}",
            whose.get(s.owner, s.owner),
            _numbers(s.numbers),
        )
        for s in found.secrets
    ]
    learnt = [
        (
            r.what,
            _numbers(r.numbers),
            ", ".join(r.depends),
            ", ".join(r.to),
        )
        for r in found.revealed
    ]
    return [
        Table.of("secret|owner|size", kept, "What stays with its owner"),
        Table.of("what|size|computed from|who learns it", learnt, "What is learnt, as verified"),
    ]


def _numbers(count: int) -> str:
    return "1 number" if count == 1 else f"{units.amount(count)} numbers"


def verified_or_why(plan: Plan) -> Verified | SecurityAbort:
    """What holds of a plan, or why it is refused."""
    try:
        return verify(plan)
    except SecurityAbort as error:
        return error


def reveals(plan: Plan, found: Verified | SecurityAbort) -> list[Table | str]:
    """The trust model, who owns and who learns what, and what the plan's author says besides.

    What can be computed is, from the program; of a plan that is refused, why it is comes first.
    """
    if isinstance(found, Verified):
        trust = (
            f"Suite {found.suite}, {found.security}. Whoever is outside the parties sees sizes "
            "and times of messages."
        )
        holds = [trust, *revealed(found)]
    else:
        holds = [f"NOT VERIFIED. {found.message} {found.hint}"]
    said = [(d.what, d.to, d.why) for d in disclosures(plan)]
    title = "What its author says is learnt besides: words that nothing verifies"
    return [*holds, Table.of("what|who learns it|why", said, title)]
