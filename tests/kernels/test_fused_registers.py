"""Where bit registers lie in a printed program, and how they get to where they are wanted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from veilgraph.kernels.fused.drawn import segments
from veilgraph.kernels.fused.instructions import Op
from veilgraph.kernels.fused.registers import LANES, Plane, lanes_of, moves, pieces

planes = st.builds(Plane, st.sampled_from("abc"), st.integers(0, LANES - 1))
uniform = st.builds(Plane, st.just("u"), st.just(0), st.just(True))


@given(st.lists(st.one_of(planes, uniform), max_size=99))
def test_pieces_lie_apart(registers: list[Plane]) -> None:
    found = list(pieces(registers))
    assert [p for _, part in found for p in part] == registers
    for first, part in found:
        assert registers[first : first + len(part)] == part
        lanes = lanes_of(part)
        assert len(set(lanes)) == len(lanes) <= LANES
        assert {p.name for p in part} == {part[0].name}


@given(st.lists(planes, min_size=1, max_size=LANES), st.permutations(range(LANES)))
def test_moves_bring_every_plane_once(registers: list[Plane], lanes: list[int]) -> None:
    wanted = lanes[: len(registers)]
    arrived = {
        lane: (move.name, (move.step * lane + move.start) % LANES)
        for move in moves(registers, wanted)
        for lane in move.lanes
    }
    assert arrived == {lane: (p.name, p.lane) for p, lane in zip(registers, wanted, strict=True)}


def test_every_second_plane_is_one_move() -> None:
    every_second = [Plane("a", 1 + 2 * j) for j in range(16)]
    (move,) = moves(every_second, [2 * j for j in range(16)])
    assert (move.step, move.start) == (1, 1)


def test_planes_that_stay_are_not_moved() -> None:
    (move,) = moves([Plane("a", lane) for lane in (3, 9, 20)], (3, 9, 20))
    assert move.stays


@given(st.lists(st.tuples(st.integers(0, 70), st.integers(-3, 3)), max_size=6))
def test_draws_fill_lanes_in_turn(draws: list[tuple[int, int]]) -> None:
    table = [
        {"op": Op.DRAW_BITS, "a": 1, "immediate": i, "b": 300, "a_step": step, "count": count}
        for i, (count, step) in enumerate(draws)
    ]
    places, drawn = [], []
    for number, parts in segments(table).items():
        for s in parts:
            places += [(s.batch, s.from_lane + j) for j in range(s.count)]
            drawn += [(s.draw, s.start + j * s.step) for j in range(s.count)]
            assert s.draw == number
    assert places == [divmod(i, LANES) for i in range(len(places))]
    assert drawn == [(i, 300 + j * step) for i, (n, step) in enumerate(draws) for j in range(n)]
