"""What turns lead to: the same at all parties, whatever each has heard of and when."""

from __future__ import annotations

import random

import pytest

from veilgraph.ir.errors import SecurityAbort
from veilgraph.runtime.service.agenda import (
    MOST_ASSIGNED,
    MOST_REQUESTS,
    TURN_BYTES,
    Agenda,
    Batch,
    Decisions,
    Item,
    Stage,
    Statement,
)

PARTIES = (0, 1, 2)


def item(number: int, stage: Stage = Stage.KNOWN, plan: int = 0, rows: int = 1) -> Item:
    return Item(number.to_bytes(16, "big"), stage, plan, rows)


def alone(*items: Item) -> tuple[Batch, ...]:
    """A batch of each."""
    return tuple(Batch(((each, 0),)) for each in items)


def ids(decided: Decisions) -> list[list[bytes]]:
    """Of the requests that are due, batch by batch."""
    return [[each.id for each in batch.items] for _, batch in decided.due]


def turn(agenda: Agenda, *stated: list[Item], **flags: bool) -> Decisions:
    """One in which each party states so; the flags are the first party's."""
    statements = {party: Statement(tuple(items)) for party, items in enumerate(stated)}
    statements[0] = Statement(statements[0].items, **flags)
    return agenda.decide(statements)


def test_a_request_is_assigned_when_all_know_it_and_run_when_all_are_ready() -> None:
    agenda = Agenda(PARTIES)
    assert turn(agenda, [item(1)], [], []).assigned == ()
    assert turn(agenda, [item(1)], [item(1)], [item(1)]).assigned == alone(item(1))
    waiting = turn(agenda, [item(1, Stage.READY)], [item(1)], [item(1, Stage.READY)])
    assert not waiting.due
    assert not waiting.is_idle
    ready = [item(1, Stage.READY)]
    assert ids(turn(agenda, ready, ready, ready)) == [[item(1).id]]
    assert turn(agenda, [], [], []).is_idle


@pytest.mark.parametrize("gone_at", PARTIES)
def test_a_request_whose_client_is_gone_at_one_is_dropped_by_all(gone_at: int) -> None:
    agenda = Agenda(PARTIES)
    turn(agenda, *[[item(1)]] * 3)
    stated = [[item(1, Stage.READY)] for _ in PARTIES]
    stated[gone_at] = [item(1, Stage.GONE)]
    decided = turn(agenda, *stated)
    assert [each.id for each in decided.dropped] == [item(1).id]
    assert not decided.due


def test_a_party_that_states_no_more_of_a_request_drops_it() -> None:
    agenda = Agenda(PARTIES)
    turn(agenda, *[[item(1)]] * 3)
    assert turn(agenda, [item(1)], [], [item(1)]).dropped == (item(1),)


def test_requests_for_different_plans_under_one_id_are_no_request() -> None:
    agenda = Agenda(PARTIES)
    decided = turn(agenda, [item(1)], [item(1, plan=1)], [item(1)])
    assert decided.assigned == ()


def test_so_many_are_assigned_and_others_wait_their_turn() -> None:
    agenda = Agenda(PARTIES)
    known = [item(number) for number in range(MOST_ASSIGNED + 3)]
    assert turn(agenda, known, known, known).assigned == alone(*known[:MOST_ASSIGNED])
    ready = [item(0, Stage.READY), *known[1:]]
    decided = turn(agenda, ready, ready, ready)
    assert ids(decided) == [[known[0].id]]
    assert decided.assigned == alone(known[MOST_ASSIGNED])


def test_who_leaves_waits_for_what_is_open_and_for_nothing_new() -> None:
    agenda = Agenda(PARTIES)
    turn(agenda, *[[item(1)]] * 3)
    both = [item(1), item(2)]
    decided = turn(agenda, both, both, both, is_leaving=True)
    assert not decided.assigned
    assert not decided.ends
    ready = [item(1, Stage.READY), item(2)]
    assert turn(agenda, ready, ready, ready, is_leaving=True).due
    assert turn(agenda, *[[item(2)]] * 3, is_leaving=True).ends


def test_plans_change_when_nothing_is_open() -> None:
    agenda = Agenda(PARTIES)
    turn(agenda, *[[item(1)]] * 3)
    assert not turn(agenda, *[[item(1)]] * 3, is_changed=True).changes
    assert turn(agenda, [], [], [], is_changed=True).changes


def test_nothing_new_is_begun_while_plans_are_to_change() -> None:
    """Else they would never change while many ask."""
    agenda = Agenda(PARTIES)
    assert not turn(agenda, *[[item(1)]] * 3, is_changed=True).assigned
    assert turn(agenda, *[[item(1)]] * 3, is_changed=True).changes


# Requests that share an inference

ROWS = (4,)  # of the first plan


def test_requests_that_fill_a_plan_are_put_together_at_once() -> None:
    agenda = Agenda(PARTIES, ROWS)
    known = [item(1, rows=2), item(2), item(3)]
    (batch,) = turn(agenda, known[:2], known[:2], known[:2]).assigned or (None,)
    assert batch is None
    (batch,) = turn(agenda, known, known, known).assigned
    assert batch == Batch(tuple(zip(known, (0, 2, 3), strict=True)))


def test_a_request_that_waited_at_all_parties_goes_with_who_is_there() -> None:
    agenda = Agenda(PARTIES, ROWS)
    known, waited = [item(1), item(2)], [item(1, Stage.WAITED), item(2)]
    assert not turn(agenda, waited, known, waited).assigned
    (batch,) = turn(agenda, waited, waited, waited).assigned
    assert [each.id for each in batch.items] == [item(1).id, item(2).id]


def test_what_does_not_fit_is_the_next_batch() -> None:
    agenda = Agenda(PARTIES, ROWS)
    known = [item(1, rows=3), item(2, rows=2), item(3, rows=4)]
    decided = turn(agenda, known, known, known)
    assert decided.assigned == alone(*known)
    assert turn(agenda, [], [], []).dropped == tuple(known)


def test_plans_are_put_together_each_for_itself() -> None:
    agenda = Agenda(PARTIES, (2, 2))
    known = [item(1), item(2, plan=1), item(3), item(4, plan=1)]
    found = turn(agenda, known, known, known).assigned
    assert [[each.id for each in batch.items] for batch in found] == [
        [item(1).id, item(3).id],
        [item(2).id, item(4).id],
    ]


def test_a_batch_goes_on_without_who_is_gone() -> None:
    agenda = Agenda(PARTIES, ROWS)
    known = [item(1, rows=2), item(2, rows=2)]
    turn(agenda, known, known, known)
    ready = [item(1, Stage.GONE, rows=2), item(2, Stage.READY, rows=2)]
    decided = turn(agenda, ready, ready, ready)
    assert [each.id for each in decided.dropped] == [item(1).id]
    ((name, batch),) = decided.due
    assert name == item(1).id  # the batch's own, whoever is left of it
    assert batch.places == ((known[1], 2),)
    assert not decided.ended


def test_a_batch_of_which_nobody_is_left_ends() -> None:
    agenda = Agenda(PARTIES, ROWS)
    known = [item(1, rows=2), item(2, rows=2)]
    turn(agenda, known, known, known)
    assert turn(agenda, [], [], []).ended == (item(1).id,)


def test_all_that_waits_goes_when_a_party_leaves() -> None:
    agenda = Agenda(PARTIES, ROWS)
    assert not turn(agenda, *[[item(1)]] * 3).assigned
    assert len(turn(agenda, *[[item(1)]] * 3, is_leaving=True).assigned) == 1


def test_parties_that_heard_of_other_rows_have_another_request() -> None:
    agenda = Agenda(PARTIES, ROWS)
    stated = [[item(1, Stage.WAITED, rows=rows)] for rows in (1, 1, 2)]
    assert not turn(agenda, *stated).assigned


@pytest.mark.parametrize("seed", range(20))
def test_all_parties_decide_the_same(seed: int) -> None:
    """Each has an agenda of its own, and random requests in random stages."""
    draw = random.Random(seed)
    agendas = [Agenda(PARTIES, (4, 1)) for _ in PARTIES]
    for _ in range(60):
        statements = {
            party: Statement(
                tuple(
                    item(
                        number, draw.choice(list(Stage)), draw.randrange(2), draw.choice((1, 1, 3))
                    )
                    for number in draw.sample(range(12), draw.randrange(13))
                ),
                draw.random() < 0.1,
                draw.random() < 0.1,
            )
            for party in PARTIES
        }
        first, *others = [agenda.decide(statements) for agenda in agendas]
        assert all(other == first for other in others)


def test_statements_come_back() -> None:
    full = Statement(
        tuple(item(n, list(Stage)[n % 3], n) for n in range(MOST_REQUESTS)), False, True
    )
    assert len(full.pack()) == TURN_BYTES
    assert Statement.unpack(full.pack()) == full
    assert Statement.unpack(Statement(is_changed=True).pack()) == Statement(is_changed=True)


def test_what_has_no_meaning_is_refused() -> None:
    twice = Statement((item(1), item(2))).pack()
    twice = twice[:16] + 2 * twice[16:36] + twice[56:]
    stage = bytearray(Statement((item(1),)).pack())
    stage[32] = 9
    for content in (b"\xff" * TURN_BYTES, b"\0\xff" + bytes(TURN_BYTES - 2), twice, bytes(stage)):
        with pytest.raises(SecurityAbort, match="no meaning"):
            Statement.unpack(bytes(content))
