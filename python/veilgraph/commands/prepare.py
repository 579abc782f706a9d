"""`veilgraph prepare`: what an inference needs ahead of time: its offline phase, or kernels."""

from __future__ import annotations

from pathlib import Path

import click

from veilgraph.commands import arguments
from veilgraph.ir.errors import UsageError
from veilgraph.ir.plan.tables import Phase
from veilgraph.kernels.cuda import Source
from veilgraph.plans import Plan
from veilgraph.reports.tables import progress, remark, show, show_json
from veilgraph.reports.units import counted, seconds, size
from veilgraph.runtime.devices.cuda import cubins as machine_code
from veilgraph.runtime.devices.cuda.nvcc import find_nvcc
from veilgraph.runtime.devices.cuda.program import sources
from veilgraph.runtime.session.setup import require_store
from veilgraph.runtime.simulate import entry_of
from veilgraph.session import Session
from veilgraph.verification.signatures import signature_file

EPILOG = """\b
Example, on bob's host while alice and carol do the same on theirs:
  veilgraph prepare digits.plan --party bob --config parties.yaml \\
      --weights digits.weights --store bob.store --count 100
  veilgraph run digits.plan --party bob --config parties.yaml --store bob.store
\b
Example, kernels for hosts with an A100 or an H100 and no compiler:
  veilgraph prepare digits.plan --gpu-arch sm_80,sm_90 --cubins cubins
  veilgraph run digits.plan --party bob --config parties.yaml --device cuda \\
      --cubins cubins --weights digits.weights
"""


@click.command("prepare", epilog=EPILOG)
@click.argument("plan_file", metavar="PLAN", type=arguments.PATH)
@click.option("--party", metavar="NAME", help="The party that this host is.")
@click.option("--config", type=arguments.PATH, metavar="FILE", help="This party's parties.yaml.")
@click.option(
    "--weights",
    type=arguments.PATH,
    metavar="FILE",
    help="model.weights at their owner's, or model.PARTY.shares.",
)
@click.option(
    "--store",
    type=arguments.PATH,
    metavar="DIR",
    help="A new folder to fill; none at a party that takes no part online, and keeps nothing.",
)
@click.option("--count", type=click.IntRange(1, 1_000_000), metavar="N", help="Inferences.")
@click.option(
    "--entry", metavar="NAME", help="Which of the plan's entries they run.  [default: the first]"
)
@click.option("--threads", type=click.IntRange(1), default=1, help="Threads of the kernels.")
@arguments.trust_author_option
@arguments.device_option
@arguments.cubins_option
@click.option(
    "--gpu-arch",
    "archs",
    type=arguments.architectures,
    metavar="sm_NN,...",
    help="Compile the plan's kernels for these GPUs into --cubins, or else PLAN's name with "
    ".cubins; nothing is run.",
)
@arguments.json_option
def command(
    plan_file: Path,
    party: str | None,
    config: Path | None,
    weights: Path | None,
    store: Path | None,
    count: int | None,
    entry: str | None,
    threads: int,
    trust_author: bool,
    device: str | None,
    cubins: Path | None,
    archs: tuple[str, ...] | None,
    as_json: bool,
) -> None:
    """Run the offline phase of inferences to come, together with all parties of PLAN.

    What it leaves is stored in this party's folder, encrypted under its private key. `run --store`
    uses each prepared inference once, in a run of the entry that it was prepared for. Who takes no
    part in that has no store.

    With --gpu-arch it compiles the kernels that PLAN needs on a GPU instead, for hosts of your own
    that have no compiler: a plan itself never brings machine code.
    """
    plan = Plan.load(plan_file)
    if archs is not None:
        _compile(plan, archs, cubins or plan_file.with_suffix(".cubins"), as_json)
        return
    if party is None or config is None or count is None:
        raise UsageError(
            "The offline phase needs --party, --config and --count.",
            "To compile kernels for GPUs, give --gpu-arch.",
        )
    require_store(plan, party, store)
    entry_of(plan, entry)  # refused before any peer is called
    peers = ", ".join(name for name in plan.manifest.parties if name != party)
    with (
        progress(f"waiting for {peers}") as tell,
        Session(
            plan,
            party,
            config,
            weights=weights,
            inferences=count,
            device=device,
            threads=threads,
            cubins=cubins,
            trust_author=trust_author,
            signature=signature_file(plan_file),
        ) as session,
    ):
        session.prepare(store, count, entry, tell)
        spent = sum(t.phases[Phase.OFFLINE].seconds for t in session.transcripts)
    used = 0 if store is None else sum(file.stat().st_size for file in store.iterdir())
    if as_json:
        show_json({"prepared": count, "offline_seconds": spent, "store_bytes": used})
        return
    done = counted(count, "inference")
    if store is None:
        show(f"dealt {done} in {seconds(spent)}; the {plan.manifest.role(party)} keeps nothing.")
        return
    show(f"{done} prepared in {seconds(spent)}; {store} holds {size(used)}.")
    remark("Don't copy the store: each of its inferences can be used once.")


def _compile(plan: Plan, archs: tuple[str, ...], folder: Path, as_json: bool) -> None:
    """All kernels of all parties for these architectures, as files in a folder."""
    nvcc = find_nvcc()
    if nvcc is None:
        raise UsageError(
            "There is no nvcc on this machine.", "Install CUDA's compiler, or prepare elsewhere."
        )
    found = {arch: _sources(plan, arch) for arch in archs}
    count = len({digest for each in found.values() for digest in each})
    with progress(f"compiling {counted(count, 'kernel')}"):
        files = sum(
            machine_code.prepare(each.values(), [arch], folder, nvcc)
            for arch, each in found.items()
        )
    if as_json:
        show_json({"kernels": count, "architectures": archs, "files": files})
        return
    show(f"{counted(count, 'kernel')} for {', '.join(archs)}: {files} files in {folder}.")


def _sources(plan: Plan, arch: str) -> dict[str, Source]:
    """What all parties need on GPUs of an architecture, by digest."""
    return {
        source.digest: source
        for program in plan.programs.values()
        for source in sources(program, len(plan.constants), arch)
    }
