"""What is wrong with a command line: what click found, in this house's words."""

from __future__ import annotations

from difflib import get_close_matches

import click

from veilgraph.ir.errors import UsageError


def worded(error: click.ClickException) -> UsageError:
    """The sentence and the hint for an error of click's."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    return UsageError(_sentence(error), _hint(error, f"{written(context)} --help"))


def written(context: click.Context | None) -> str:
    """The command so far as people type it, however this process was started."""
    names: list[str] = []
    while context is not None and context.parent is not None:
        names.insert(0, context.info_name or "")
        context = context.parent
    return " ".join(["veilgraph", *names])


def _sentence(error: click.ClickException) -> str:
    match error:
        case click.MissingParameter():
            return f"{_name(error)} is missing."
        case click.BadParameter() if error.param is not None:
            return f"{_name(error)}: {_refusal(error, error.param.type)}"
        case click.NoSuchOption():
            near = error.possibilities or []
            return f"There is no option {error.option_name}.{_meant(near)}"
        case click.BadOptionUsage():
            needs = "needs a" if "requires" in error.message else "takes no"
            return f"{error.option_name} {needs} value."
        case click.UsageError() if "extra argument" in error.message:
            words = error.message.partition("(")[2].rstrip(".").removesuffix(")")
            return f"There is no place for `{words}`."
        case click.UsageError() if error.message.startswith("No such command"):
            name = error.message.split("'")[1]
            return f"No such verb: {written(error.ctx).partition(' ')[2]} {name}."
    return error.format_message()


def _hint(error: click.ClickException, help_line: str) -> str:
    """How the option is written, and where more is said."""
    param = error.param if isinstance(error, click.BadParameter) else None
    if isinstance(param, click.Option) and param.metavar:
        return f"Write {_longest(param)} {param.metavar}; `{help_line}` says more."
    return f"`{help_line}` says what there is."


def _name(error: click.BadParameter) -> str:
    """The option with its dashes, the argument in capitals."""
    param = error.param
    if isinstance(param, click.Argument) and error.ctx is not None:
        return param.make_metavar(error.ctx).strip("[]")
    return "An option" if param is None else _longest(param)


def _longest(param: click.Parameter) -> str:
    return max(param.opts, key=len)


def _refusal(error: click.BadParameter, kind: object) -> str:
    """Why a value is refused; our own types say it themselves."""
    value = error.message.partition(" is not ")[0].strip("'")
    match kind:
        case click.Choice():
            known = [str(choice) for choice in kind.choices]
            near = get_close_matches(value, known)
            return f"`{value}` is none of {', '.join(known)}.{_meant(near)}"
        case click.IntRange() | click.FloatRange() if "in the range" in error.message:
            return f"{float(value):g} is not {_bounds(kind)}."
        case click.types.IntParamType():
            return f"`{value}` is no whole number."
        case click.types.FloatParamType():
            return f"`{value}` is no number."
    return error.message


def _bounds(kind: click.IntRange | click.FloatRange) -> str:
    low = "" if kind.min is None else f"{'above' if kind.min_open else 'at least'} {kind.min}"
    high = "" if kind.max is None else f"{'below' if kind.max_open else 'at most'} {kind.max}"
    return " and ".join(filter(None, (low, high)))


def _meant(near: list[str]) -> str:
    return f" Did you mean {' or '.join(near)}?" if near else ""
