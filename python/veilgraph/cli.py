"""The command line: finds the verb, runs it, and says in one sentence what went wrong.

Exit codes: 0 ok, 2 usage, 3 unsupported operators, 4 range or accuracy, 5 peer or network,
6 security abort, 7 resources, 130 interrupted, 1 anything else.
"""

from __future__ import annotations

import errno
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import click

from veilgraph.commands import VERBS
from veilgraph.ir.errors import ResourceLimitError, UsageError, VeilgraphError
from veilgraph.ir.harmless import harmless
from veilgraph.reports.tables import remark

EXTRAS = {
    "onnx": "compile",
    "onnxruntime": "compile",
    "torch_mlir": "compile",
    "torch": "torch",
    "pycuda": "gpu",
}
INTERRUPTED = 130
EPILOG = """\b
Example, from a model to an answer that nobody saw:
  veilgraph compile model.onnx -o model.plan --shape x=1x3x224x224
  veilgraph inspect model.plan --reveals
  veilgraph simulate model.plan --weights model.weights --input x=@x.npy
  veilgraph VERB --help                              says more, with an example
"""


class Verbs(click.Group):
    """The verbs of `commands.VERBS`, each loaded when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command: click.Command = import_module(f"veilgraph.commands.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Lists the verbs without loading them."""
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        with _harmless_usage():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the verb; an error is told in two lines, and ends with its exit code."""
        try:
            with _harmless_usage():
                return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except KeyboardInterrupt as error:
            click.echo("Interrupted.", err=True)
            raise click.exceptions.Exit(INTERRUPTED) from error
        except Exception as error:
            if isinstance(error, OSError) and error.errno == errno.EPIPE:
                raise  # whoever read our output has left: click ends quietly
            if ctx.params["show_traceback"]:
                for line in traceback.format_exc().splitlines():
                    remark(line)
            told = user_error(error)
            click.echo(f"Error: {told.message}", err=True)
            if told.hint:
                click.echo(f"Hint: {told.hint}", err=True)
            raise click.exceptions.Exit(told.exit_code) from error


@contextmanager
def _harmless_usage() -> Iterator[None]:
    """Makes what click says about a command line harmless: a shell may have put file names in."""
    try:
        yield
    except click.ClickException as error:
        vars(error)["message"] = harmless(error.message)
        raise


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
        case MemoryError():
            return ResourceLimitError(
                "This machine ran out of memory.", "Compile for a smaller batch with --shape."
            )
    sentence = " ".join(str(error).split()) or "no reason given"
    return VeilgraphError(
        f"Something went wrong inside veilgraph ({type(error).__name__}: {sentence}).",
        "This is a bug: `veilgraph --traceback VERB ...` shows where, for the report.",
    )


@click.group(cls=Verbs, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="veilgraph", prog_name="veilgraph")
@click.option(
    "--traceback", "show_traceback", is_flag=True, help="Also show where in the code an error rose."
)
def main(show_traceback: bool) -> None:
    """Compile a model into a plan with which several parties compute it on data that none of them
    may see, and run that plan.
    """


if __name__ == "__main__":
    main()
