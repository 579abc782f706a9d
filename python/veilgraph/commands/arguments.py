"""What verbs take on the command line: `x=1x3x224x224`, `weights=bob`, `x=@x.npy`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from veilgraph.ir.errors import UsageError
from veilgraph.ir.training import Schedule, require_rate
from veilgraph.kernels.native import INSTRUCTION_SETS, supported
from veilgraph.runtime.devices.cuda.archs import gpu_arch
from veilgraph.runtime.devices.names import DeviceName, require_device

if TYPE_CHECKING:
    from veilgraph.runtime.links.shaping import Shape

Value = TypeVar("Value")
Files = tuple[tuple[str, Path], ...]  # what --input and --output give


def named(text: str) -> tuple[str, str]:
    """NAME=VALUE as a pair."""
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise click.BadParameter(f"`{text}` should read NAME=..., without spaces.")
    return name, value


def named_shape(text: str) -> tuple[str, tuple[int, ...]]:
    """NAME=1x3x224x224."""
    name, value = named(text)
    extents = value.split("x")
    if not all(extent.isdecimal() and int(extent) > 0 for extent in extents):
        raise click.BadParameter(f"`{value}` is no shape like 1x3x224x224, of numbers above zero.")
    return name, tuple(int(extent) for extent in extents)


def named_list(text: str) -> tuple[str, tuple[str, ...]]:
    """NAME=a,b."""
    name, value = named(text)
    return name, comma_list(value)


def named_file(text: str) -> tuple[str, Path]:
    """NAME=@FILE, as the path of the file."""
    name, value = named(text)
    if not value.startswith("@") or value == "@":
        raise click.BadParameter(f"`{text}` should read {name}=@FILE.npy, with an @.")
    return name, Path(value[1:])


def input_file(text: str) -> tuple[str, Path]:
    """NAME=@FILE, or @FILE for all inputs, whose name is then empty."""
    return ("", Path(text[1:])) if text.startswith("@") and len(text) > 1 else named_file(text)


def optionally_named(text: str) -> tuple[str, str]:
    """NAME=VALUE, or VALUE alone, whose name is then empty."""
    return named(text) if "=" in text else ("", text)


def named_range(text: str) -> tuple[str, tuple[float, float]]:
    """NAME=LOW:HIGH."""
    name, value = named(text)
    low, _, high = value.partition(":")
    try:
        return name, (float(low), float(high))
    except ValueError:
        raise click.BadParameter(f"`{value}` is no range like -1000:1000.") from None


def comma_list(text: str) -> tuple[str, ...]:
    """Names with commas between them."""
    return tuple(part.strip() for part in text.split(","))


def errors(text: str) -> tuple[float, ...]:
    """Positive numbers with commas between them."""
    try:
        found = tuple(map(float, comma_list(text)))
    except ValueError:
        found = ()
    if not found or not all(0 < error < math.inf for error in found):
        raise click.BadParameter(f"`{text}` should read like 0.01,0.001: errors above 0.")
    return found


def error(text: str) -> float:
    """A positive number."""
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found < 1:
        raise click.BadParameter(f"`{text}` should be a number above 0 and below 1: 0.01 for 1%.")
    return found


def named_address(text: str) -> tuple[str, tuple[str, int]]:
    """NAME=HOST:PORT."""
    name, value = named(text)
    host, _, port = value.rpartition(":")
    if not host or not port.isdecimal() or not 1 <= int(port) <= 65535:
        raise click.BadParameter(f"`{value}` is no address like 10.0.0.1:7001.")
    return name, (host, int(port))


def public_key(text: str) -> bytes:
    """An author's public key, 32 bytes in base64."""
    from veilgraph.runtime.session.public_keys import bytes_of

    found = bytes_of(text)
    if found is None:
        raise click.BadParameter(f"`{text}` is no public key, as `cert author` shows one.")
    return found


def rates(text: str) -> Schedule:
    """R,R@STEP,...: learning rates, each from a step on."""
    found: list[tuple[int, float]] = []
    for part in comma_list(text):
        rate, at, step = part.partition("@")
        try:
            found.append((int(step) if at else 0, require_rate(float(rate))))
        except (ValueError, UsageError):
            raise click.BadParameter(f"`{part}` is no rate above 0, as 0.1 or 0.05@300.") from None
    steps = [step for step, _ in found]
    if steps[0] != 0 or steps != sorted(set(steps)):
        raise click.BadParameter(f"`{text}` should read like 0.1,0.05@300, its steps rising.")
    return lambda number: next(rate for step, rate in reversed(found) if step <= number)


def ring_bits(text: str) -> int | str:
    """`auto`, or a number of bits."""
    if text != "auto" and not text.isdecimal():
        raise click.BadParameter(f"`{text}` is neither `auto` nor a number of bits.")
    return text if text == "auto" else int(text)


def link_shape(text: str) -> Shape:
    """RTT_MS,MBIT: milliseconds there and back, megabits a second one way."""
    parts = text.split(",")
    try:
        round_trip_ms, megabits = map(float, parts)
    except ValueError:
        raise click.BadParameter(f"`{text}` should read RTT_MS,MBIT, such as 40,100.") from None
    if not (0 <= round_trip_ms <= 60_000 and 1e-3 <= megabits <= 1e6):
        raise click.BadParameter(
            f"`{text}` is beyond 0 to 60000 milliseconds, or 0.001 to 1000000 megabits a second."
        )
    from veilgraph.runtime.links.shaping import Shape  # with all of TLS, which few verbs need

    return Shape(round_trip_ms / 1e3, megabits * 1e6 / 8)


def party_device(text: str) -> tuple[str, str]:
    """PARTY=DEVICE, or a DEVICE for all parties, which has no name then."""
    party, equals, name = text.rpartition("=")
    if equals and not party:
        raise click.BadParameter(f"`{text}` should read PARTY=DEVICE, or a device alone.")
    try:
        DeviceName.parse(name)
    except UsageError as error:
        raise click.BadParameter(f"{error.message} {error.hint}") from error
    return party, name


def devices(given: Iterable[tuple[str, str]], parties: Iterable[str]) -> dict[str, str]:
    """Each named party's device; one that is given alone is that of all others.

    Raises:
        UsageError: one party twice, or two devices for all.
    """
    found = by_name("--device", given)
    others = found.pop("", "cpu")
    return {**dict.fromkeys(parties, others), **found}


def by_name(option: str, pairs: Iterable[tuple[str, Value]]) -> dict[str, Value]:
    """The pairs of an option that may be repeated, by name.

    Raises:
        UsageError: one name twice.
    """
    found: dict[str, Value] = {}
    for name, value in pairs:
        if name in found:
            raise UsageError(f"{option} names `{name}` twice.", f"Give {option} {name}=... once.")
        found[name] = value
    return found


def require_known(option: str, given: Mapping[str, object], known: Iterable[str]) -> None:
    """Raises UsageError for a name that the plan does not have."""
    names = list(known)
    for name in given:
        if name not in names:
            listed = ", ".join(names) or "none"
            raise UsageError(
                f"{option} names `{name}`, which this plan does not have.",
                f"It can name: {listed}.",
            )


def _runnable(ctx: click.Context, param: click.Parameter, isa: str | None) -> str | None:
    """The instruction set, if this processor runs it."""
    if isa is not None and isa not in supported():
        raise click.BadParameter(f"this processor runs {', '.join(supported())} alone.", ctx, param)
    return isa


def _own_device(ctx: click.Context, param: click.Parameter, name: str | None) -> str | None:
    """The device of a party between hosts, if it is one."""
    try:
        require_device(name or "cpu")
    except UsageError as error:
        raise click.BadParameter(f"{error.message} {error.hint}", ctx, param) from error
    return name


def architectures(text: str) -> tuple[str, ...]:
    """sm_80,sm_90."""
    try:
        return tuple(dict.fromkeys(map(gpu_arch, comma_list(text))))
    except UsageError as error:
        raise click.BadParameter(f"{error.message} {error.hint}") from error


PATH = click.Path(path_type=Path)
json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object instead of tables."
)
entry_option = click.option(
    "--entry", metavar="NAME", help="Which of the plan's entries to run.  [default: the first]"
)
threads_option = click.option(
    "--threads",
    type=click.IntRange(1, 1024),
    default=1,
    show_default=True,
    help="Threads that each party's kernels may use.",
)
isa_option = click.option(
    "--isa",
    type=click.Choice(INSTRUCTION_SETS),
    callback=_runnable,
    help="Instruction set of the kernels.  [default: the best that this processor runs]",
)
network_option = click.option(
    "--network",
    metavar="lan|metro|wan|FILE",
    help="Network to predict seconds for: lan, metro, wan or a YAML file.  "
    "[default: the plan's own]",
)
party_option = click.option(
    "--party", required=True, metavar="NAME", help="Which party of the plan this is."
)
config_option = click.option(
    "--config",
    "config_file",
    type=PATH,
    required=True,
    metavar="FILE",
    help="This party's parties.yaml: addresses, certificates, and its own key.",
)
timeout_option = click.option(
    "--timeout",
    "timeout_seconds",
    type=click.FloatRange(min=0, max=86_400, min_open=True),
    metavar="SECONDS",
    help="How long a peer may be silent.  [default: as in the configuration]",
)
plaintext_option = click.option(
    "--insecure-plaintext",
    is_flag=True,
    help="No TLS, for measurements; refused for any address but loopback.",
)
weights_option = click.option(
    "--weights",
    "weights_file",
    type=PATH,
    required=True,
    metavar="FILE",
    help="The weights that `compile` wrote beside the plan.",
)
model_option = click.option(
    "--model",
    type=PATH,
    required=True,
    metavar="FILE",
    help="The ONNX model, or the .pt2 archive.",
)
rate_option = click.option(
    "--rate",
    type=rates,
    required=True,
    metavar="R[,R@STEP,...]",
    help="The learning rate; others from a step on, counted from 0: 0.1,0.05@300.",
)
input_option = click.option(
    "--input",
    "sources",
    type=input_file,
    metavar="NAME=@FILE.npy",
    multiple=True,
    help="An input's array, as a .npy file; or NAME=@FILE.csv for a table whose columns the plan "
    "names, @FILE.csv for all of them; or Parquet files, .parquet. Once an input.",
)
output_option = click.option(
    "--output",
    "destinations",
    type=named_file,
    metavar="NAME=@FILE.npy",
    multiple=True,
    help="Where to write an output, as a .npy file, or .csv or .parquet where its name says so; "
    "without it outputs are printed.",
)
role_option = click.option(
    "--role", metavar="ROLE", help="Which of the plan's clients this is, where it has several."
)
others_option = click.option(
    "--with",
    "others",
    type=named,
    multiple=True,
    metavar="ROLE=FILE.crt",
    help="Certificate of who must fill another role; whoever comes, if left out.",
)
receipts_option = click.option(
    "--receipts",
    "folder",
    type=PATH,
    metavar="DIR",
    help="Where each party's signed word of what it did goes, PARTY.receipt; of the last request, "
    "where there are several. `verify --receipt` checks one.",
)
processes_option = click.option(
    "--processes",
    is_flag=True,
    help="A process a party, with mutual TLS on loopback, rather than threads of this one.",
)
trust_author_option = click.option(
    "--trust-author",
    is_flag=True,
    help="Don't verify PLAN: trust whoever compiled it, or changed it since, with all that this "
    "party gives.",
)
device_option = click.option(
    "--device",
    callback=_own_device,
    metavar="cpu|cuda:N|auto",
    help="Where to compute.  [default: as in the configuration, else cpu]",
)
devices_option = click.option(
    "--device",
    "devices",
    type=party_device,
    metavar="[PARTY=]cpu|cuda:N|auto",
    multiple=True,
    help="Where all parties compute, or one does; may be repeated.  [default: cpu]",
)
cubins_option = click.option(
    "--cubins",
    type=PATH,
    metavar="DIR",
    help="The GPU's kernels that `prepare --gpu-arch` compiled.  [default: compile, and cache]",
)
