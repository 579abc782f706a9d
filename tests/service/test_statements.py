"""What parties state to a client: of odd types, or other than what the others state."""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from serving import SAMPLES, SUITES, Hospital, W, answer_to, compiled, members, until

from veilgraph.ir.errors import PeerError, SecurityAbort, UsageError
from veilgraph.runtime.service.served import ServedPlan
from veilgraph.serving import client as client_module
from veilgraph.serving import enrolling
from veilgraph.serving.client import Client
from veilgraph.serving.statements import may_settle, place_of, stated_by, who_differs

ODD: tuple[Any, ...] = (
    *([], {}, None, "x", "", -1, 0, 1.5, True, [[]], [{}], {"a": []}, "\ud800", 10**30),
    *(float("nan"), [1, [2]], ["\ud800"], [10**12] * 9),
)


@pytest.fixture(scope="module", params=SUITES)
def ward(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A hospital that serves, and its services."""
    plan, weights = compiled(request.param)
    hospital = Hospital(tmp_path_factory.mktemp("stated"), members(plan))
    hospital.put("small/1", plan, weights)
    with hospital.served() as services:
        until(lambda: all(each.served for each in services.values()))
        yield hospital, services


def described(ward: Any, party: str) -> dict[str, Any]:
    """A party's description, as a client reads it."""
    service = ward[1][party]
    found: dict[str, Any] = json.loads(
        json.dumps(service._desk._description(service._host.served["small"]))
    )
    return found


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Of all that a JSON object holds, inner ones too."""
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    for key, each in inner:
        yield (*at, key)
        if isinstance(each, dict | list):
            yield from places(each, (*at, key))


def with_odd(fields: dict[str, Any], at: tuple[Any, ...], odd: Any) -> dict[str, Any]:
    found = inner = copy.deepcopy(fields)
    for key in at[:-1]:
        inner = inner[key]
    inner[at[-1]] = odd
    return found


def test_odd_values_anywhere_are_the_partys_fault(ward: Any) -> None:
    fields = described(ward, "alice")
    stated_by("alice", fields)
    told = [
        error_of(lambda: stated_by("alice", with_odd(fields, at, odd)))  # noqa: B023
        for at in places(fields)
        for odd in ODD
    ]
    refused = [each for each in told if each is not None]
    assert len(refused) > len(told) // 2
    assert all(isinstance(each, PeerError) for each in refused)
    assert all(str(each).startswith("alice is no service: it ") for each in refused)


def error_of(read: Any) -> Exception | None:
    try:
        read()
    except Exception as error:
        return error
    return None


@pytest.mark.parametrize("fact", ["number", "row", "clients"])
def test_odd_values_beside_an_answer(fact: str) -> None:
    head = {"number": 3, "row": 0, "clients": {"patient": "ab" * 32}}
    assert place_of("bob", head) == (3, 0, (("patient", "ab" * 32),))
    for odd in (None, "x", -1, True, 1.5, [[]], {"patient": []}, {"patient": "\ud800"}):
        with pytest.raises(PeerError, match="bob is no service: it stated no "):
            place_of("bob", {**head, fact: odd})


LIES: dict[str, tuple[Any, str]] = {
    "plan": ("ab" * 32, "plan"),
    "session": ("ab" * 32, "session"),
    "computing": (["bob"], "parties"),
    "rows": (3, "number of rows"),
    "forms": ({"y": "argmax"}, "forms of outputs"),
}


def lying(ward: Any, party: str, change: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fields = described(ward, party)
    change(fields)
    monkeypatch.setattr(ward[1][party]._desk, "_description", lambda _: fields)


@pytest.mark.parametrize("computing", [[], ["alice", "mallory"]])
def test_parties_that_name_others_who_compute(
    ward: Any, monkeypatch: pytest.MonkeyPatch, computing: list[str]
) -> None:
    """Nobody, or somebody whom parties.yaml does not list."""
    for party in ward[0].parties:
        lying(ward, party, lambda fields: fields.update(computing=computing), monkeypatch)
    with pytest.raises(UsageError, match=r"is computed by .*, and .* lists alice") as told:
        Client("small", ward[0].client)
    assert told.value.hint == "List all parties that compute."


def refusal(ward: Any, party: str, what: str) -> None:
    """One of several is named; of two nobody can say."""
    parties = ward[0].parties
    others = [name for name in parties if name != party]
    with pytest.raises(SecurityAbort) as told:
        Client("small", ward[0].client)
    named = f"{party}, other than {' and '.join(others)}, serves small with another {what}."
    both = f"{' and '.join(parties[:2])} serve small with another {what}."
    assert told.value.message in (named, both)
    assert (told.value.message == named) or len(parties) < 3 or "dave" in parties
    assert told.value.hint.startswith("Nothing was sent.")


@pytest.mark.parametrize("fact", LIES)
def test_a_party_that_states_something_else(
    ward: Any, monkeypatch: pytest.MonkeyPatch, fact: str
) -> None:
    """It is asked again where honest ones may differ for a moment, and refused if it stays so."""
    value, what = LIES[fact]
    monkeypatch.setattr(client_module, "SETTLE_SECONDS", 0.2)
    asked = list[bool]()

    def seen(stated: Any) -> bool:
        asked.append(may_settle(stated))
        return asked[-1]

    monkeypatch.setattr(client_module, "may_settle", seen)
    for party in ward[0].parties[:2]:
        with monkeypatch.context() as now:
            lying(ward, party, lambda fields: fields.update({fact: value}), now)
            refusal(ward, party, what)
        assert asked.pop() == (fact in ("plan", "session"))
    with Client("small", ward[0].client) as client:
        assert client.run({"x": SAMPLES[0]})["y"].shape == (1, 5)


@pytest.mark.parametrize("w", [W, -W])
def test_parties_that_take_up_another_plan_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, w: Any
) -> None:
    """benchmarks/serving/soak.py found it: a client who asked meanwhile was told of a fraud.

    Where weights alone change, plans are the same and sessions differ.
    """
    hospital = Hospital(tmp_path, ["alice", "bob", "carol"])
    hospital.put("small/1", *compiled("rep3"))
    newer = compiled("rep3", w)
    init, has_asked, differed = ServedPlan.__init__, threading.Event(), list[bool]()

    def opened(self: ServedPlan, model: Any, config: Any, *rest: Any, **more: Any) -> None:
        init(self, model, config, *rest, **more)
        if config.me.name == "bob" and model.name == "small/2":
            assert has_asked.wait(30)

    def seen(stated: Any) -> bool:
        differed.append(may_settle(stated))
        has_asked.set()
        return differed[-1]

    monkeypatch.setattr(client_module, "may_settle", seen)
    with hospital.served() as services:
        until(lambda: all(each.served for each in services.values()))
        monkeypatch.setattr(ServedPlan, "__init__", opened)
        hospital.put("small/2", *newer)
        for each in services.values():
            each.reload()
        until(lambda: all("small/2" in services[each].served for each in ("alice", "carol")))
        with Client("small", hospital.client) as client:
            y = client.run({"x": SAMPLES[0]})["y"]
    np.testing.assert_allclose(y, answer_to(SAMPLES[0], w), atol=0.01)
    assert differed[0]
    assert not differed[-1]


def test_a_party_that_wants_an_input_that_is_not_for_it(
    ward: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With keys of its own it would read the input in it."""
    hospital, _ = ward
    with Client("small", hospital.client) as client:
        receivers = [name for name in client._links if name in client._receive]
        others = [name for name in client._links if name not in client._receive]
    wrong = sorted([*receivers, *others]) if others else receivers[:1]
    party = (others or receivers)[0]

    def change(fields: dict[str, Any]) -> None:
        fields["roles"]["patient"]["receivers"] = wrong

    lying(ward, party, change, monkeypatch)
    refusal(ward, party, "parties that are sent an input")


def test_a_party_that_states_another_range(ward: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def change(fields: dict[str, Any]) -> None:
        fields["roles"]["patient"]["inputs"][0]["high"] = 1e30

    lying(ward, "bob", change, monkeypatch)
    refusal(ward, "bob", "inputs or outputs")


@pytest.mark.parametrize(
    ("fact", "odd", "error", "said"),
    [
        ("number", [], PeerError, "bob is no service: it stated no number"),
        ("row", {}, PeerError, "bob is no service: it stated no number"),
        ("clients", [], PeerError, "bob is no service: it stated no fields"),
        ("clients", {}, PeerError, "bob is no service: it named no clients"),
        ("number", 99, SecurityAbort, "another inference"),
        ("receipt", "\ud800", Exception, "is no receipt"),
    ],
)
def test_odd_fields_beside_masks_or_answers(
    ward: Any, monkeypatch: pytest.MonkeyPatch, fact: str, odd: Any, error: Any, said: str
) -> None:
    receive = client_module.wire_receive

    def changed(party: str, *args: Any) -> Any:
        head, content = receive(party, *args)
        return ({**head, fact: odd} if party == "bob" else head), content

    monkeypatch.setattr(client_module, "wire_receive", changed)
    with Client("small", ward[0].client, receipts=True) as client:
        with pytest.raises(error, match=said):
            client.run({"x": SAMPLES[0]})
        assert not client.is_open


def test_who_differs() -> None:
    assert who_differs({"a": 1, "b": 1, "c": 1}) == ""
    assert who_differs({"a": 1}) == ""
    assert who_differs({"a": [1], "b": [2]}) == "a and b serve"
    assert who_differs({"a": 2, "b": 1, "c": 1}) == "a, other than b and c, serves"
    assert who_differs({"a": 1, "b": 1, "c": 2}) == "c, other than a and b, serves"
    assert who_differs({"a": 1, "b": 2, "c": 3}) == "a and b serve"
    assert who_differs({"a": 1, "b": 1, "c": 2, "d": 2}) == "a and c serve"


def test_a_party_that_names_nobody_enrolled(ward: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    config = client_module.ClientConfig.load(Path(ward[0].client))
    monkeypatch.setattr(enrolling, "answer_of", lambda *_: ({}, b""))
    with pytest.raises(PeerError, match="bob is no service: it named no client"):
        enrolling.enrol(config, "bob", "token")
