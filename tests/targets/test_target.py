"""What a user asks a suite for, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from veilgraph.ir.errors import UnsupportedError, UsageError
from veilgraph.targets.blocks.linear import LINEAR
from veilgraph.targets.suite import Suite
from veilgraph.targets.suites import SUITES
from veilgraph.targets.target import target

NINE = [f"p{i}" for i in range(9)]


def test_who_takes_part() -> None:
    three = target("rep3", ["x", "y", "z"], owners={"image": "z"}, receivers={"label": ["x", "y"]})
    assert three.everyone == ("x", "y", "z")
    assert (three.owner("image"), three.owner("other"), three.weights_owner) == ("z", "x", "y")
    assert three.receiver("label") == ("x", "y")
    assert three.numbers_receiving(["label", "other"]) == {"label": [0, 1], "other": [0]}
    dealt = target("additive", ["x", "y"], dealer="judge")
    assert dealt.parties == ("x", "y")
    assert dealt.everyone == ("x", "y", "judge")


@pytest.mark.parametrize(
    ("suite", "options", "sentence"),
    [
        ("none", {}, "no suite `none`"),
        ("rep3", {"parties": NINE[:2]}, "Suite rep3 has 3 parties, and 2 were named."),
        ("rep3", {"parties": NINE[:4]}, "Suite rep3 has 3 parties, and 4 were named."),
        ("rep3", {"dealer": "judge"}, "Suite rep3 has no dealer."),
        ("rep3", {"parties": ["x", "x", "y"]}, "Parties are named x, x, y."),
        ("additive", {"dealer": "judge", "parties": NINE[:1]}, "2 to 8 parties, and 1 was named."),
        ("additive", {"dealer": "judge", "parties": NINE}, "2 to 8 parties, and 9 were named."),
        ("additive", {}, "needs a dealer, a host of its own"),
        ("additive", {"dealer": "p0", "parties": NINE[:2]}, "p0 can't be the dealer and compute"),
        ("additive", {"dealer": "a b", "parties": NINE[:2]}, "The dealer is named 'a b'."),
    ],
)
def test_refuses(suite: str, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=r"\w") as refused:
        target(suite, **options)
    assert sentence in refused.value.message
    assert refused.value.hint


def test_the_fewest_parties_take_part_unless_others_are_named() -> None:
    assert target("additive", dealer="dora").parties == ("alice", "bob")


def test_suites_offer_the_same() -> None:
    """Whatever compiles in one suite compiles in the others."""
    offered = {name: set(suite.protocols) for name, suite in SUITES.items()}
    blocks = {"compare"}  # of what hides its operands
    assert offered["rep3"] == offered["additive"] == offered["cleartext"] | blocks


def test_the_number_of_names_is_in_the_hint() -> None:
    with pytest.raises(UsageError, match=r"has 1 party, and 2 were named\.") as refused:
        target("cleartext", NINE[:2])
    assert refused.value.hint == "Give 1 name with --parties."


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"owners": {"image": "dave"}},
            "dave owns `image`, and the dealer owns and receives nothing.",
        ),
        (
            {"receivers": {"y": ["dave"]}},
            "dave receives `y`, and the dealer owns and receives nothing.",
        ),
    ],
)
def test_owners_and_receivers_compute(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError) as refused:
        target("additive", NINE[:2], dealer="dave", **options)
    assert refused.value.message == sentence
    assert refused.value.hint == "Name one of p0, p1."


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"owners": {"image": "eve"}}, "eve owns `image`, and is no party."),
        ({"receivers": {"y": ["p0", "eve"]}}, "eve receives `y`, and is no party."),
    ],
)
def test_a_stranger_may_be_made_a_client(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError) as refused:
        target("additive", NINE[:2], dealer="dave", **options)
    assert refused.value.message == sentence
    assert refused.value.hint == "Name one of p0, p1; or a client, with --client."
    clients = target("additive", NINE[:2], dealer="dave", clients=["eve"], **options)
    assert clients.everyone == ("p0", "p1", "eve", "dave")
    assert clients.parties == ("p0", "p1")


def test_a_suite_that_offers_less() -> None:
    """What it lacks is a reason of the model, not a failure of ours."""
    rep3 = SUITES["rep3"]
    partial = Suite(
        "partial", rep3.security, "linear maps alone", rep3.share, rep3.from_shares, rep3.reveal
    )
    partial.include(LINEAR)
    with pytest.raises(UnsupportedError, match=r"relu1: relu .*Suite partial has no protocol"):
        partial.offered("relu", "relu1")
    assert partial.offered("add") is LINEAR["add"]
    assert partial.reveal_truncated is None
    assert not partial.safe_role


def test_a_suite_says_how_values_enter_and_leave() -> None:
    """Without it there is no suite, and not a failure in somebody's compile."""
    with pytest.raises(TypeError, match=r"missing .* 'share', 'from_shares', and 'reveal'"):
        Suite("partial", SUITES["rep3"].security, "no doors")  # type: ignore[call-arg]


def test_who_has_a_safe_role() -> None:
    assert {name: suite.safe_role for name, suite in SUITES.items()} == {
        "rep3": True,
        "additive": False,
        "cleartext": False,
    }
