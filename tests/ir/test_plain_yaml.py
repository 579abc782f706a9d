"""YAML of strangers: read as the safe loader reads it, or refused."""

import pytest
import yaml

from veilgraph.ir.files.plain_yaml import MOST_DEPTH, plain_yaml

READ = [
    "",
    "a: 1\nb: [1, 2.5, true, null, ~, text, '1', \"2\"]\n",
    "- {x: 0x10, y: 1e3, z: -.inf}\n- []\n- {}\n",
    "a: 2001-01-01\n1: one\nb: |\n  two\n  lines\n",
    "twice: 1\ntwice: 2\n",
    "anchored: &here 5\n",
]
REFUSED = {
    "a: &here [1]\nb: *here\n": "aliases",
    "a: !!binary aGVsbG8=\n": "tags",
    "a: !!set {x}\n": "tags",
    "? [1, 2]\n: pair\n": "no plain word",
    "a: 1\n---\nb: 2\n": "several documents",
    "[" * (MOST_DEPTH + 1) + "]" * (MOST_DEPTH + 1): "nested",
}


@pytest.mark.parametrize("text", READ)
def test_what_the_safe_loader_says(text: str) -> None:
    found = plain_yaml(text.encode())
    assert repr(found) == repr(yaml.safe_load(text))


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=REFUSED[text]):
        plain_yaml(text.encode())


@pytest.mark.parametrize("text", ["a: [1", "<<: {a: 1}\n", "a: !own 1\n"])
def test_what_is_no_plain_document(text: str) -> None:
    with pytest.raises((ValueError, yaml.YAMLError)):
        plain_yaml(text.encode())


def test_as_deep_as_may_be() -> None:
    text = "[" * MOST_DEPTH + "1" + "]" * MOST_DEPTH
    assert plain_yaml(text.encode()) == yaml.safe_load(text)
