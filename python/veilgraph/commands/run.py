"""`veilgraph run`: one party's part in a session with the others."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from veilgraph.commands import arguments, outputs
from veilgraph.commands.files import check_destination, read_batches, replacing
from veilgraph.ir.errors import UsageError
from veilgraph.ir.plan.tables import Phase
from veilgraph.measuring.lateness import LinkSeconds
from veilgraph.measuring.spread import Spread
from veilgraph.plans import Plan
from veilgraph.reports import units
from veilgraph.reports.tables import Table, progress, remark, show, show_json
from veilgraph.reports.tracing import party_trace
from veilgraph.runtime.batches import Batches
from veilgraph.runtime.party import encoded_inputs
from veilgraph.runtime.simulate import entry_of
from veilgraph.session import Session
from veilgraph.training.checkpoints import Progress
from veilgraph.verification.signatures import signature_file

EPILOG = """\b
Example, three hosts, each with its own parties.yaml and key:
  alice$ veilgraph run digits.plan --party alice --config alice.yaml \\
             --input image=@image.npy --output logits=@logits.npy
  bob$   veilgraph run digits.plan --party bob --config bob.yaml \\
             --weights digits.weights
  carol$ veilgraph run digits.plan --party carol --config carol.yaml
"""


@click.command("run", epilog=EPILOG)
@click.argument("plan_file", metavar="PLAN", type=arguments.PATH)
@arguments.party_option
@arguments.config_option
@click.option(
    "--weights",
    "weights_file",
    type=arguments.PATH,
    metavar="FILE",
    help="model.weights at their owner's, or model.PARTY.shares where no party has them.",
)
@arguments.input_option
@arguments.output_option
@click.option(
    "--iterations",
    type=click.IntRange(1, 1_000_000),
    default=1,
    show_default=True,
    help="Inferences in this session, all on the same input; the same number at every party.",
)
@click.option(
    "--rows",
    type=click.IntRange(1),
    metavar="N",
    help="Rows of the whole table, at a party that gives none of it: as many inferences are run as "
    "batches of the plan hold them. A party with a table in a file counts them itself.",
)
@arguments.timeout_option
@click.option(
    "--store",
    type=arguments.PATH,
    metavar="DIR",
    help="What `prepare` filled: weights and offline phases come from there, each used once.",
)
@click.option(
    "--entry",
    metavar="NAME",
    help="Which of the plan's entries to run, the same at every party.  [default: the first]",
)
@click.option(
    "--state-file",
    type=arguments.PATH,
    metavar="FILE",
    help="Where this party's parts of the plan's states are saved, encrypted, when all is run; "
    "what is there becomes FILE.before. An entry that replaces no state saves nothing.",
)
@click.option(
    "--resume",
    "resumes",
    is_flag=True,
    help="Begin with the states of --state-file, and not with zero; every party from the same run.",
)
@click.option(
    "--receipt",
    "receipt_file",
    type=arguments.PATH,
    metavar="FILE",
    help="Where this party writes what it did, signed with its certificate's key: digests, names, "
    "times and counts, and no value. `verify --receipt` checks it.",
)
@click.option(
    "--trace",
    "trace_file",
    type=arguments.PATH,
    metavar="FILE.json",
    help="Write when each step of the last inference ran here; `veilgraph trace` puts the files of "
    "all parties on one time line.",
)
@arguments.plaintext_option
@arguments.trust_author_option
@arguments.device_option
@arguments.cubins_option
@arguments.threads_option
@arguments.isa_option
@arguments.json_option
def command(
    plan_file: Path,
    party: str,
    config_file: Path,
    weights_file: Path | None,
    sources: arguments.Files,
    destinations: arguments.Files,
    iterations: int,
    rows: int | None,
    entry: str | None,
    state_file: Path | None,
    resumes: bool,
    receipt_file: Path | None,
    trace_file: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Take part in a session of PLAN as one party, together with those on the other hosts.

    Before that PLAN is verified, as `veilgraph verify` does, unless this party has done so already.
    All parties start this within the timeout, in any order. They first make sure that they run the
    same plan; then the weights are shared, once, and each inference is run. A table in a file may
    have any number of rows: it is run in batches of as many rows as the plan takes at once.
    """
    plan = Plan.load(plan_file)
    resume = _resumed(plan, party, state_file, resumes)
    inputs = arguments.by_name("--input", sources)
    read = (plan_file, config_file, weights_file, *inputs.values())
    paths = _destinations(plan, party, destinations, read)
    for file in (receipt_file, trace_file):
        if file is not None:
            check_destination(file, *read, *paths.values())
    number = entry_of(plan, entry)
    batches = _batches(plan, party, inputs, number, rows)
    if batches.rows is not None:
        iterations = _inferences(batches, iterations)
    peers = ", ".join(name for name in plan.manifest.parties if name != party)
    with (
        progress(f"waiting for {peers}") as tell,
        Session(
            plan,
            party,
            config_file,
            weights=weights_file,
            inferences=iterations,
            resume=resume,
            signature=signature_file(plan_file),
            **options,
        ) as session,
    ):
        if state_file is not None:
            _require_no_training(session, number, state_file)
        answers: list[outputs.Outputs] = []
        if trace_file is not None:
            session.trace()
        try:
            for run in range(iterations):
                tell(f"inference {run + 1} of {iterations} with {peers}")
                answers.append(session.run(batches.inputs[run % len(batches.inputs)], entry))
                if batches.rows is None:
                    del answers[:-1]
            if state_file is not None and number in session.replacing:
                session.save_state(state_file)
        except BaseException:
            done = batches.joined(answers) if answers else {}
            _keep(plan, done, paths, len(session.transcripts), iterations)
            raise
        finally:
            if receipt_file is not None:
                session.write_receipt(receipt_file)
    if trace_file is not None:
        _write_trace(trace_file, session, party)
    found = batches.joined(answers)
    links = LinkSeconds.of(plan, session.transcripts, number)
    if links.is_late:
        remark(links.sentence)
    if as_json:
        answer = {"party": party, "outputs": outputs.values(found, paths, plan)}
        show_json({**answer, **_values(session, party), "online_links": vars(links)})
        return
    shown = outputs.lines(found, paths, plan) or [f"{party} receives no output."]
    show(*shown, _table(session, party))


def _write_trace(file: Path, session: Session, party: str) -> None:
    runs = session.transcripts
    trace = party_trace(session.plan, party, session.id, len(runs), runs[-1])
    with replacing(file) as content:
        content.write(json.dumps(trace).encode())


def _batches(
    plan: Plan, party: str, files: Mapping[str, Path], entry: int, rows: int | None
) -> Batches:
    """What this party gives to each inference, known to fit before any peer is called."""
    program = plan.programs.get(party)
    own = [tensor for tensor in program.inputs if tensor.entry == entry] if program else []
    received = [tensor for tensor in program.outputs if tensor.entry == entry] if program else []
    inputs = [tensor for each in plan.programs.values() for tensor in each.inputs]
    taken = [tensor for tensor in inputs if tensor.entry == entry]
    batches = read_batches(files, own, taken, received, rows)
    if program:  # Session refuses others
        for arrays in batches.inputs:
            encoded_inputs(program, arrays, entry)
    return batches


def _inferences(batches: Batches, iterations: int) -> int:
    """How many a table takes; UsageError where another number was asked for."""
    count = len(batches.inputs)
    if iterations not in (1, count):
        raise UsageError(
            f"{batches.rows} rows are {units.counted(count, 'inference')}, and --iterations asks "
            f"for {iterations}.",
            "Leave out --iterations.",
        )
    return count


def _keep(
    plan: Plan, found: outputs.Outputs, paths: Mapping[str, Path], done: int, wanted: int
) -> None:
    """Before an error ends a session: the answer of the last inference that was whole."""
    if not found:
        return
    remark(
        f"{done} of {units.counted(wanted, 'inference')} ended; this is the last one's answer.",
        is_result=True,
    )
    for line in outputs.lines(found, paths, plan):
        remark(line, is_result=True)


def _resumed(plan: Plan, party: str, file: Path | None, resumes: bool) -> Path | None:
    """The file to begin from; UsageError for one that is not named, or that no state goes to."""
    if resumes and file is None:
        raise UsageError("--resume goes on from a file, and none is named.", "Give --state-file.")
    if file is not None:
        check_destination(file)
        if party in plan.programs and not plan.programs[party].states:
            raise UsageError(f"{party} keeps no state in this plan.", "Leave out --state-file.")
    return file if resumes else None


def _require_no_training(session: Session, entry: int, file: Path) -> None:
    """UsageError where a run would leave a checkpoint of training without its step."""
    progress = Progress.found(session.note)
    if progress is not None and entry in session.replacing:
        name = session.plan.manifest.entries[entry]
        raise UsageError(
            f"{file} is a checkpoint of training after step {progress.step}, and a run of `{name}` "
            "would save other states in its place.",
            "Go on with `train --resume`; `run` reads what entries that keep no state tell.",
        )


def _destinations(
    plan: Plan, party: str, given: arguments.Files, read: Sequence[Path | None]
) -> dict[str, Path]:
    """Where this party's outputs go, known to be its own and writable before anything is run.

    Args:
        read: files that no output may take the place of.
    """
    paths = arguments.by_name("--output", given)
    own = plan.programs[party].outputs if party in plan.programs else ()
    arguments.require_known("--output", paths, [tensor.name for tensor in own])
    for path in paths.values():
        check_destination(path, *read, is_printed=True)
    return paths


def _spreads(session: Session) -> dict[str, Spread]:
    """Seconds of this party by phase."""
    runs = [transcript.phases for transcript in session.transcripts]
    return {
        "setup": Spread.of([session.setup_seconds]),
        "offline": Spread.of([run[Phase.OFFLINE].seconds for run in runs]),
        "online": Spread.of([run[Phase.ONLINE].seconds for run in runs]),
    }


def _done(session: Session, party: str) -> dict[str, tuple[int, dict[str, int]]]:
    """By phase, its rounds and what this party sent by link; nothing of what a store gave."""
    names = session.plan.manifest.parties
    last = session.transcripts[-1].phases
    rounds, sent = session.plan.rounds(Phase.SETUP), session.plan.sent_bytes(Phase.SETUP)
    own = {link: count for link, count in sent.items() if link.startswith(f"{party}->")}
    done = {"setup": (rounds, own) if session.setup_seconds else (0, {})}
    for phase in (Phase.OFFLINE, Phase.ONLINE):
        record = last[phase]
        by_link = {f"{party}->{names[p]}": n for p, n in sorted(record.sent_bytes.items())}
        done[phase.name.lower()] = record.rounds, by_link
    return done


def _values(session: Session, party: str) -> dict[str, Any]:
    spreads, done = _spreads(session), _done(session, party)
    return {
        **{f"{phase}_seconds": vars(spread) for phase, spread in spreads.items()},
        "rounds": session.transcripts[-1].phases[Phase.ONLINE].rounds,
        "sent_bytes": {phase: sent for phase, (_, sent) in done.items()},
    }


def _table(session: Session, party: str) -> Table:
    spreads = _spreads(session)
    rows = [
        (
            phase,
            units.seconds(spreads[phase].median),
            rounds,
            ", ".join(f"{units.size(count)} {link}" for link, count in sent.items()),
        )
        for phase, (rounds, sent) in _done(session, party).items()
    ]
    return Table.of("phase|#seconds|#rounds|sent", rows)
