"""The command line: finds the verb, runs it, and says in one sentence what went wrong.

EPILOG lists the exit codes.
"""

from __future__ import annotations

import errno
import gc
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import click

from veilgraph import __version__
from veilgraph.command_lines import worded
from veilgraph.commands import VERBS, module_of
from veilgraph.ir.errors import ResourceLimitError, UsageError, VeilgraphError
from veilgraph.reports.log_lines import ShownLog, line_of, shown_log
from veilgraph.reports.tables import say, show_json

EXTRAS = {
    "onnx": "compile",
    "onnxruntime": "compile",
    "torch_mlir": "compile",
    "torch": "torch",
    "pycuda": "gpu",
}
INTERRUPTED = 130
# Objects that are made before Python looks for cycles among them, and how often it then looks at
# older ones. With its own 700 and 10 it goes through all of PyTorch again and again as that loads.
CYCLES = 20_000, 20, 50
SLOW_SECONDS = 10.0  # a compilation that takes longer has a line a step where nobody watches
AS_JSON = "veilgraph.as_json"  # in click's context: whether --json was given
LOG_JSON = "veilgraph.log_json"  # in click's context: whether --log-json was given
REMARKS = "veilgraph.remarks"  # in click's context: what shows the library's log
# Before the verb or behind it.
LOUDNESS: dict[tuple[str, ...], dict[str, Any]] = {
    ("-v", "--verbose"): {
        "count": True,
        "help": "Also show each step, with its seconds; with -vv all that is done.",
    },
    ("-q", "--quiet"): {"is_flag": True, "help": "Show results and errors alone."},
    ("--log-json",): {
        "is_flag": True,
        "help": "Show remarks, steps and errors as JSON objects, one a line.",
    },
}
ABOUT = """Compile a model into a plan with which several parties compute it on data that none of
them may see, and run that plan.
"""
EXAMPLE = """\b
Example, from a model to an answer that nobody saw:
  veilgraph compile model.onnx -o model.plan --shape x=1x3x224x224
  veilgraph inspect model.plan --reveals
  veilgraph simulate model.plan --weights model.weights --input x=@x.npy
  veilgraph VERB --help                              says more, with an example

"""
ABOUT_CLIENTS = """Ask parties for an answer of a model, of which none of them learns anything."""
EXAMPLE_OF_CLIENTS = """\b
Example, a patient's image:
  veilgraph infer digits --config patient.yaml --input image=@image.npy

"""
EPILOG = """\b
Exit codes:
  0    all is well
  1    something that this list does not foresee
  2    usage: a call, an option, a file or an input that makes no sense as given
  3    operators or shapes of a model that can't be compiled
  4    a value left its range, or an answer is further off than allowed
  5    a peer is lost, silent, or can't show who it is; or the network
  6    parties disagree on plan, weights or session; a replay; a plan that is refused
  7    not enough memory, disk or prepared inferences; a device that failed
  130  interrupted

\b
Completion in bash (zsh and fish likewise):
  eval "$(_VEILGRAPH_COMPLETE=bash_source veilgraph)"
"""


class Verbs(click.Group):
    """The verbs of `commands.VERBS`, each loaded when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command: click.Command = import_module(module_of(cmd_name)).command
        return _with_loudness(command)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Lists the verbs without loading them."""
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))

    def make_context(
        self, info_name: str | None, args: list[str], *more: Any, **extra: Any
    ) -> click.Context:
        as_json, log_json = "--json" in args, "--log-json" in args
        with _told(as_json, log_json):
            context = super().make_context(info_name, args, *more, **extra)
        context.meta[AS_JSON], context.meta[LOG_JSON] = as_json, log_json
        return context

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The verb; of one that there is not, the nearest are named."""
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            near = get_close_matches(args[0], VERBS)
            told = f" Did you mean {' or '.join(near)}?" if near else ""
            raise click.UsageError(f"No such verb: {args[0]}.{told}", ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the verb; an error is told in two lines, and ends with its exit code."""
        as_json, log_json = ctx.meta[AS_JSON], ctx.meta[LOG_JSON]
        try:
            with _told(as_json, log_json), shown_log(log_json, SLOW_SECONDS) as remarks:
                ctx.meta[REMARKS] = remarks
                remarks.adjust(ctx.params["verbose"], ctx.params["quiet"])
                return super().invoke(ctx)
        except (click.exceptions.Exit, click.Abort, click.exceptions.NoArgsIsHelpError):
            raise  # the last one's message is the help of a group of verbs
        except KeyboardInterrupt as error:
            told = line_of("error", "Interrupted.", exit_code=INTERRUPTED)
            click.echo(told if log_json else "Interrupted.", err=True)
            raise click.exceptions.Exit(INTERRUPTED) from error
        except Exception as error:
            if isinstance(error, OSError) and error.errno == errno.EPIPE:
                raise  # whoever read our output has left: click ends quietly
            if ctx.params["show_traceback"]:
                for line in traceback.format_exc().splitlines():
                    say(line)
            _tell(user_error(error), as_json, log_json)
            raise click.exceptions.Exit(user_error(error).exit_code) from error


@contextmanager
def _told(as_json: bool, log_json: bool) -> Iterator[None]:
    """Tells what click says about a command line as all errors are told.

    A shell may have put file names in: they are made harmless.
    """
    try:
        yield
    except click.exceptions.NoArgsIsHelpError:
        raise  # its message is the help
    except click.ClickException as error:
        _tell(worded(error), as_json, log_json)
        raise click.exceptions.Exit(error.exit_code) from error


def _adjust(context: click.Context, option: click.Parameter, given: int) -> None:
    """What an option behind a verb asks for; not where a shell only completes."""
    if given and REMARKS in context.meta:
        shown: ShownLog = context.meta[REMARKS]
        shown.adjust(given if option.name == "verbose" else 0, option.name == "quiet")


def _loudness(function: Callable[..., None]) -> Callable[..., None]:
    """The options of how much is said, before the verb."""
    for names in reversed(LOUDNESS):
        function = click.option(*names, **LOUDNESS[names])(function)
    return function


def _with_loudness(command: click.Command) -> click.Command:
    """A verb that takes -v, -q and --log-json as well, and so do those below it; once."""
    if isinstance(command, click.Group):
        for each in command.commands.values():
            _with_loudness(each)
    elif all(option.name != "verbose" for option in command.params):
        command.params += [
            click.Option([*names], callback=_adjust, expose_value=False, **LOUDNESS[names])
            for names in LOUDNESS
        ]
    return command


def _tell(error: VeilgraphError, as_json: bool, log_json: bool) -> None:
    """Two lines on standard error, or one object; with --json an object on standard output too."""
    if as_json and not error.is_reported:
        told = {"message": error.message, "hint": error.hint, "exit_code": error.exit_code}
        show_json({"error": told})
    if log_json:
        hint, code = error.hint, error.exit_code
        click.echo(line_of("error", error.message, hint=hint, exit_code=code), err=True)
        return
    click.echo(f"Error: {error.message}", err=True)
    if error.hint:
        click.echo(f"Hint: {error.hint}", err=True)


def user_error(error: Exception) -> VeilgraphError:
    """What to tell the user about any error."""
    match error:
        case VeilgraphError():
            return error
        case ModuleNotFoundError() if (package := (error.name or "").split(".")[0]) in EXTRAS:
            return UsageError(
                f"This needs the package {package}, which is not installed.",
                f"pip install 'veilgraph[{EXTRAS[package]}]'",
            )
        case ModuleNotFoundError() if (error.name or "").startswith("veilgraph."):
            return UsageError(
                "This needs the distribution veilgraph; veilgraph-client is installed alone.",
                "pip install veilgraph",
            )
        case MemoryError():
            return ResourceLimitError(
                "This machine ran out of memory.", "Compile for a smaller batch with --shape."
            )
    sentence = " ".join(str(error).split()) or "no reason given"
    return VeilgraphError(
        f"Something went wrong inside veilgraph ({type(error).__name__}: {sentence}).",
        "This is a bug: `veilgraph --traceback VERB ...` shows where, for the report.",
    )


_ABOUT, _EXAMPLE = (ABOUT, EXAMPLE) if "compile" in VERBS else (ABOUT_CLIENTS, EXAMPLE_OF_CLIENTS)


@click.group(
    cls=Verbs,
    help=_ABOUT,
    epilog=_EXAMPLE + EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="veilgraph")
@click.option(
    "--traceback", "show_traceback", is_flag=True, help="Also show where in the code an error rose."
)
@_loudness
def main(show_traceback: bool, verbose: int, quiet: bool, log_json: bool) -> None:
    """What the verbs have in common: how much is said, and of errors where they rose."""
    gc.set_threshold(*CYCLES)


if __name__ == "__main__":
    main()
