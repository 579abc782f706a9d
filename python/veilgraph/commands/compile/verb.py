"""`veilgraph compile`: a model in, a plan and its weights out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

import veilgraph
from veilgraph.checks.kept_ranges import ranges_file, save_ranges
from veilgraph.commands import arguments
from veilgraph.commands.compile import comparing, training
from veilgraph.commands.compile.files import (
    certificates_by_party,
    check_files,
    models_to_read,
    plan_beside,
    read_names,
    refuse_models,
)
from veilgraph.commands.compile.profile import profiled
from veilgraph.commands.compile.report import left_unprotected, ownership, report, uncalibrated
from veilgraph.ir.errors import UsageError
from veilgraph.ir.graph.table_options import Categories, Trees
from veilgraph.ir.plan.tables import CLIPS
from veilgraph.reports.tables import progress, remark
from veilgraph.runtime.store.share_files import shares_file
from veilgraph.runtime.store.weights import save_weights
from veilgraph.targets.variants import Goal, Roles

EPILOG = """\b
Example, a classifier of the bank's on a client's image:
  veilgraph compile digits.onnx -o digits.plan --shape image=1x1x28x28 \\
      --calibrate calibration.npz --owner image=alice --owner weights=bob \\
      --reveal logits=alice
"""

REPEATED = (
    ("--owner", "owners"),
    ("--reveal", "receivers"),
    ("--shape", "shapes"),
    ("--columns", "columns"),
    ("--protocol", "protocols"),
    ("--state", "state"),
    ("--state-range", "state_range"),
)


@click.command("compile", epilog=EPILOG)
@click.argument("model", type=arguments.PATH, required=False)
@click.option(
    "--entry",
    "entries",
    type=arguments.named,
    multiple=True,
    metavar="NAME=MODEL",
    help="One of several models in place of MODEL, over the same weights and states; `run --entry` "
    "says which is run. May be repeated.",
)
@click.option(
    "-o",
    "--output",
    "destination",
    type=arguments.PATH,
    help="The plan to write, over what is there; its weights go beside it: NAME.plan, "
    "NAME.weights.  [default: MODEL's name with .plan, beside it]",
)
@click.option(
    "--force", is_flag=True, help="Without -o: write over the files of an earlier compile."
)
@click.option(
    "--suite",
    default="rep3",
    show_default=True,
    help="Protocols, hence security: rep3, additive, or cleartext for tests (it hides nothing).",
)
@click.option(
    "--compare-suites",
    "side_by_side",
    is_flag=True,
    help="Write nothing; show what the model costs in each suite, and who is trusted there.",
)
@click.option(
    "--compare-owners",
    "by_owner",
    is_flag=True,
    help="Write nothing; show what the model costs with weights of one party, shared and public.",
)
@click.option(
    "--compare-errors",
    "errors",
    type=arguments.errors,
    metavar="E,E,...",
    help="Write nothing; show what the model costs with each of these as --max-error.",
)
@click.option(
    "--compare-protections",
    "by_protection",
    is_flag=True,
    help="Write nothing; show what the model costs with each of --protect-weights.",
)
@click.option(
    "--compare-protocols",
    "by_protocol",
    is_flag=True,
    help="Write nothing; show what protocols are chosen for each network, for the least bytes and "
    "the fewest rounds, and what each choice takes on each network.",
)
@click.option(
    "--network",
    default="lan",
    show_default=True,
    metavar="lan|metro|wan|FILE",
    help="Network to choose protocols and to predict costs for; comparisons show several unless "
    "one is named.",
)
@click.option(
    "--shape",
    "shapes",
    type=arguments.named_shape,
    metavar="NAME=1x3x224x224",
    multiple=True,
    help="Shape of an input that the model leaves open, batch included.",
)
@click.option(
    "--columns",
    "columns",
    type=arguments.named,
    multiple=True,
    metavar="NAME=FILE",
    help="Names of the columns of an input [rows, columns], a name a line in the model's order; "
    "the plan shows them. Then --owner and CSV files go by them.",
)
@click.option(
    "--public",
    metavar="NAME",
    multiple=True,
    help="A parameter of the model that every party may know, whatever its size; all others are "
    "the owner's, single numbers included. May be repeated.",
)
@click.option(
    "--trees",
    type=click.Choice([trees.value for trees in Trees]),
    default=Trees.PUBLIC.value,
    show_default=True,
    help="Whether every party may know which column each node of a decision tree asks about, and "
    "where the leaves are. Where that is secret, it costs more; how many trees there are, and how "
    "deep the deepest is, stays public.",
)
@click.option(
    "--categories",
    type=click.Choice([categories.value for categories in Categories]),
    default=Categories.PUBLIC.value,
    show_default=True,
    help="Whether every party may know the text that the model tells apart. Where that is secret, "
    "it costs more, and text that is no category is not refused; how many there are stays public.",
)
@click.option(
    "--calibrate",
    type=arguments.PATH,
    metavar="FILE.npz",
    help="Samples to find ranges with: one array an input, samples on a new first axis; or a CSV "
    "file, for tables whose columns have names.",
)
@click.option(
    "--ring",
    type=arguments.ring_bits,
    metavar="auto|BITS",
    default="auto",
    show_default=True,
    help="Width of one ring for all values, a multiple of 8 up to 64; auto chooses layer by layer.",
)
@click.option(
    "--max-error",
    type=arguments.error,
    metavar="E",
    help="Mean error of the outputs that is allowed on the samples, as a share of their mean "
    "size; approximations are chosen for it too.  [default: 0.005 for --ring auto]",
)
@click.option(
    "--frac-bits", type=int, metavar="N", help="Fraction bits of every value.  [default: chosen]"
)
@click.option("--avgpool", is_flag=True, help="Take average pools in place of max pools.")
@click.option(
    "--parties",
    type=arguments.comma_list,
    metavar="NAME,NAME,...",
    help="The parties' names, in order.  [default: the first of alice, bob, carol that the suite "
    "needs]",
)
@click.option(
    "--dealer",
    metavar="NAME",
    help="The host that deals correlated randomness, for suites that have one.",
)
@click.option(
    "--client",
    "clients",
    multiple=True,
    metavar="NAME",
    help="A host that computes nothing, and owns inputs or receives outputs. May be repeated.",
)
@click.option(
    "--owner",
    "owners",
    type=arguments.named,
    multiple=True,
    metavar="NAME=PARTY",
    help="Who gives an input, columns of one as in `income,age=bank`, or `weights`; "
    "`weights=shared` writes a file of shares for each party, and none has them; `weights=public` "
    "puts them into the plan, for every party to read.  [default: the first party inputs, the "
    "second weights]",
)
@click.option(
    "--certificate",
    "certificates",
    type=arguments.named,
    multiple=True,
    metavar="PARTY=FILE.crt",
    help="With --owner weights=shared: encrypt a party's file of shares to its certificate. "
    "Without it whoever gets the file has the shares.",
)
@click.option(
    "--reveal",
    "receivers",
    type=arguments.named_list,
    multiple=True,
    metavar="NAME=PARTY,...",
    help="Who receives an output.  [default: the first party]",
)
@click.option(
    "--reveal-as",
    "forms",
    type=arguments.optionally_named,
    multiple=True,
    metavar="[NAME=]FORM",
    help="Reveal no more of an output, or of all, than its argmax, topk:5 or softmax.",
)
@click.option(
    "--trust-ranges",
    is_flag=True,
    help="Trust that no value leaves its calibrated range with its margin of two: real functions "
    "hold there and no further, and cost less.",
)
@click.option(
    "--keep-clips",
    is_flag=True,
    help="Keep every clip of a quantised model; else those that no sample of --calibrate reaches "
    "are left out.",
)
@click.option(
    "--protect-weights",
    type=click.Choice(["none", "roles", "exact"]),
    default="none",
    show_default=True,
    help="Against a receiver who asks equal questions and knows how values were rounded: roles "
    "gives it the role that knows no threshold, where a protocol of rep3 has one; exact rounds by "
    "comparisons. Neither covers masked functions (GELU, softmax). --compare-protections shows "
    "what each costs.",
)
@click.option(
    "--protocol",
    "protocols",
    type=arguments.named,
    multiple=True,
    metavar="OP=VARIANT",
    help="The protocol of an op, where the suite has several; may be repeated. Others are chosen "
    "by --protocols.",
)
@click.option(
    "--protocols",
    "goal",
    type=click.Choice([goal.value for goal in Goal]),
    default=Goal.AUTO.value,
    show_default=True,
    help="By what protocols are chosen, layer by layer: the least seconds on --network, the bytes "
    "of all parties, or the rounds online.",
)
@click.option(
    "--roles",
    type=click.Choice([roles.value for roles in Roles]),
    default=Roles.AUTO.value,
    show_default=True,
    help="Whether the parties of rep3 take turns in unlike roles, so that all links carry the "
    "same, or keep them, which saves a round a layer. Auto takes what --protocols prefers.",
)
@click.option(
    "--prepared",
    is_flag=True,
    help="The offline phase is prepared ahead (`veilgraph prepare`), and no part of a protocol's "
    "price.",
)
@click.option(
    "--most-store",
    type=click.IntRange(min=1),
    metavar="BYTES",
    help="What an inference prepared ahead may take in a party's store at most.",
)
@click.option(
    "--state",
    "state",
    type=arguments.named,
    multiple=True,
    metavar="INPUT=OUTPUT",
    help="An input that a run finds as another left it: what the output was. Parties keep shares "
    "of it; it is zero at first, and revealed only where --reveal names the output.",
)
@click.option(
    "--state-range",
    "state_range",
    type=arguments.named_range,
    multiple=True,
    metavar="INPUT=LOW:HIGH",
    help="Where a state lies.  [default: what runs on the samples, one after the other, show]",
)
@training.options
@click.option(
    "--cache",
    type=arguments.PATH,
    metavar="DIR",
    help="Keep fits of functions there for later compilations: GELU, softmax and the like.",
)
@click.option(
    "--dump-phases", type=arguments.PATH, metavar="DIR", help="Write the program after each pass."
)
@click.option(
    "--profile",
    "shows_profile",
    is_flag=True,
    help="Also show the seconds and the memory of each pass.",
)
@arguments.json_option
def command(
    model: Path | None,
    entries: tuple[tuple[str, str], ...],
    destination: Path | None,
    force: bool,
    side_by_side: bool,
    by_owner: bool,
    errors: tuple[float, ...] | None,
    by_protection: bool,
    by_protocol: bool,
    certificates: tuple[tuple[str, str], ...],
    shows_profile: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Compile MODEL, an ONNX file or a .pt2 archive, into a plan: the list of kernels, messages and
    random draws with which the parties compute it.

    The plan goes to all parties. The weights stay with their owner: nothing of their values is in
    the plan but what `inspect --reveals` lists.
    """
    compares = side_by_side or by_owner or by_protection or by_protocol or errors is not None
    if compares and shows_profile:
        raise UsageError(
            "--profile shows one compilation, and this compares several.", "Leave one out."
        )
    models = models_to_read(model, entries, compares=compares)
    trained, options = training.separated(options, compares=compares)
    if model is not None and side_by_side:
        comparing.suites(model, as_json, options)
        return
    options["reveal_as"] = _forms(options.pop("forms"))
    for option, name in REPEATED:
        options[name] = arguments.by_name(option, options[name])
    options["columns"] = read_names(options["columns"])
    if model is not None and by_owner:
        comparing.owners(model, as_json, options)
        return
    if model is not None and by_protection:
        comparing.protections(model, as_json, options)
        return
    if model is not None and by_protocol:
        comparing.protocols(model, as_json, options)
        return
    if model is not None and errors is not None:
        comparing.errors(model, errors, as_json, options)
        return
    destination = destination or plan_beside(models, options, force=force)
    weights_file = check_files(models, options["calibrate"], destination)
    pinned = certificates_by_party(certificates, options["owners"])
    given = models[0] if model is not None else dict(entries)
    price = ""
    with progress("compiling") as tell, profiled() as profile:
        if trained.loss is None:
            plan, weights = veilgraph.compile(given, progress=tell, **options)
        else:
            plan, weights = training.compiled(given, trained, options, tell)
            price = training.price(given, trained, options, plan, tell)
    dealt = {shares_file(destination, n): d for n, d in veilgraph.deal(plan, weights).items()}
    arguments.require_known("--certificate", pinned, [each.party for each in dealt.values()])
    for file in (*dealt, ranges_file(destination)):
        refuse_models(models, file)
    save_weights(weights, weights_file, plan.digest)
    for file, each in dealt.items():
        each.save(file, pinned.get(each.party))
    save_ranges(plan, ranges_file(destination))
    plan.save(destination)
    if not (options["parties"] and options["owners"] and options["receivers"]):
        remark(ownership(plan))
    if price:
        remark(price)
    if left := left_unprotected(plan):
        remark(left)
    for told in (d.why for d in plan.manifest.disclosures if d.what == CLIPS):
        remark(f"{told}. --keep-clips keeps them.")
    if options["calibrate"] is None and options["ring"] == "auto":
        remark(uncalibrated(plan))
    if readable := [str(file) for file, each in dealt.items() if each.party not in pinned]:
        remark(
            f"Whoever gets {' or '.join(readable)} has what is in it: --certificate PARTY=FILE.crt "
            "encrypts a file to the party's key."
        )
    report(
        plan, destination, weights_file, list(dealt), profile if shows_profile else None, as_json
    )


def _forms(given: tuple[tuple[str, str], ...]) -> dict[str, str] | str | None:
    """What --reveal-as says: of outputs by name, or of all of them."""
    forms = arguments.by_name("--reveal-as", given)
    if "" not in forms:
        return forms or None
    if len(forms) > 1:
        raise UsageError(
            "--reveal-as names one output, and gives a form for all.", "Name each, or none."
        )
    return forms[""]
