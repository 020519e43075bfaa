"""Enumeration and counting: lazy, exact, each state once, at a cost that follows what is pending."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from crashcheck.analyzer.persistence import Options, build
from crashcheck.analyzer.persistence.graph import PersistenceGraph
from crashcheck.analyzer.persistence.pieces import DATA
from crashcheck.checker.budget import OutOfTime, for_seconds
from crashcheck.checker.images.transition import Content
from crashcheck.checker.states import partial_order
from crashcheck.checker.states.counting import Feasible, StateCount, count_states
from crashcheck.checker.states.ideals import Chain, Ids, Layers
from crashcheck.checker.states.partial_order import Order
from crashcheck.checker.states.rooted import Rooted
from crashcheck.checker.states.space import CrashState, StateSpace
from crashcheck.checker.states.sweep import Sweep
from crashcheck.checker.strategies import REGISTRY, strategy
from crashcheck.checker.strategies.plan import select_states
from crashcheck.errors import CrashcheckError
from support.tracing import TraceBuilder
from support.worlds import deviation


@pytest.fixture
def t(tmp_path: Path) -> TraceBuilder:
    return TraceBuilder(tmp_path / "trace.cct")


def space_of(t: TraceBuilder, model: str = "px86", options: Options | None = None) -> StateSpace:
    return StateSpace(build(t.trace(), model, options))


def exhaustive(space: StateSpace) -> list[CrashState]:
    return list(select_states(space, strategy("exhaustive")))


def many_lines(t: TraceBuilder, lines: int, offset: int = 0) -> None:
    for line in range(lines):
        t.store("a", offset + 64 * line, 8, line + 1)


def test_the_count_is_exact_far_beyond_what_can_be_listed(t: TraceBuilder) -> None:
    many_lines(t, 100)
    feasible = count_states(space_of(t))
    assert (feasible.value, feasible.exact, feasible.note) == (2**100, True, "")


def test_what_is_pending_is_found_among_very_many_pieces(t: TraceBuilder) -> None:
    many_lines(t, 9000)
    for line in range(0, 9000, 100):
        t.clflush("a", 64 * line)
    space = space_of(t)
    event, durable_from = space.graph.event.tolist(), space.graph.durable_from.tolist()
    for point in (0, 1, len(space.points) - 1):
        at = int(space.points.event[point])
        assert space.pending(point) == tuple(i for i in range(9000) if event[i] < at < durable_from[i])


def test_a_state_is_counted_at_its_first_crash_point_only(t: TraceBuilder) -> None:
    many_lines(t, 3)
    t.clwb("a", 0)
    t.sfence()
    t.store("a", 64 * 9, 8, 1)
    # before the fence 2^3; after it line 0 is durable and line 9 new: 2^2 states hold it
    assert count_states(space_of(t)).value == 8 + 4


@pytest.mark.parametrize("names", ["unlink", "rename"])
def test_a_new_file_of_a_name_has_no_more_states_than_any_new_file(t: TraceBuilder, names: str) -> None:
    """What was there under the name cannot show any more: no sector of the new file begins again from zeros."""
    t.file("a", 8192)
    t.file("b", 4096)
    if names == "unlink":
        t.unlink("a")
    else:
        t.rename("a", "b", bytes(8192))
    t.create("a")
    t.write("a", 4090, bytes(range(12)))
    space = space_of(t, "page-cache", Options(512))
    assert space.graph.offset[space.graph.kind == DATA][-2:].tolist() == [4090, 4096]
    # as it was; else with the new name or without, with one of three sizes, and with each of two sectors or without
    assert count_states(space).value == 1 + 2 * 3 * 2 * 2


def test_a_promise_makes_equal_images_different_states(t: TraceBuilder) -> None:
    many_lines(t, 3)
    t.end(1)
    assert count_states(space_of(t)).value == 8 + 8


class Work:
    """Counts the calls of the functions that enumeration is made of."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls = 0
        for cls in (Chain, Layers, Order):
            for name in ("lost", "kept"):
                monkeypatch.setattr(cls, name, self._counted(getattr(cls, name)))

    def _counted(self, function: Callable[..., Iterator[Ids]]) -> Callable[..., Iterator[Ids]]:
        def counted(*args: object) -> Iterator[Ids]:
            for ids in function(*args):
                self.calls += 1
                yield ids

        return counted


def test_a_space_of_10_to_the_30_states_yields_at_once(t: TraceBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    many_lines(t, 100)
    t.end(1)
    space = space_of(t)
    assert count_states(space).value > 10**30
    work = Work(monkeypatch)
    first = list(itertools.islice(select_states(space, strategy("exhaustive")), 100))
    assert len(set(first)) == 100
    assert work.calls <= 100
    assert [deviation(space, state) for state in first] == [0] * 4 + [1] * 96


def test_a_page_copied_under_eadr_yields_at_once(t: TraceBuilder) -> None:
    """Its 512 pieces are one layer of the one order, with 2^512 ways to be caught half-way."""
    t.store("a", 0, 8, 1)
    t.begin(1)
    t.store("a", 0, 4096, bytes(range(256)) * 16)
    t.begin(2)
    space = space_of(t, "eadr")
    # before the first mark: all or nothing; before the second: any part of the page but none
    assert count_states(space).value == 2 + (2**512 - 1)
    first = list(itertools.islice(select_states(space, strategy("exhaustive")), 2000))
    assert len(set(first)) == 2000


def test_a_megabyte_written_under_eadr_yields_at_once(t: TraceBuilder) -> None:
    """131072 loose words hang on the stores before them; an order by masks would take gigabytes."""
    t.store("a", 0, 8, 1)
    t.write("a", 4096, bytes(1 << 20))
    t.store("a", 8, 8, 2)
    t.file("b", 0)
    space = space_of(t, "eadr")
    # before the write: 2; at the end, the size step has made the first store durable, the second is open
    assert count_states(space).value == 2 + 2 * 2**131072
    first = list(itertools.islice(select_states(space, strategy("exhaustive")), 50))
    assert len(set(first)) == 50


def test_no_state_is_produced_to_be_thrown_away(t: TraceBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    many_lines(t, 12)
    for line in range(20, 26):
        t.clflush("a", 64 * (line - 20))
        t.store("a", 64 * line, 8, 1)
    space = space_of(t)
    work = Work(monkeypatch)
    states = exhaustive(space)
    assert len(states) == count_states(space).value
    # each state joins at most one choice per factor that deviates; waste would multiply this
    assert work.calls <= sum(max(1, len(state.pieces)) for state in states) * 2


def test_deviations_grow_and_both_ends_are_first(t: TraceBuilder) -> None:
    many_lines(t, 5)
    space = space_of(t)
    states = exhaustive(space)
    assert states[0] == space.full(0)
    assert states[1] == space.empty(0)
    assert [len(state.pieces) for state in states] == [0] * 2 + [1] * 10 + [2] * 20


def test_the_loss_of_a_whole_line_precedes_losses_inside_lines(t: TraceBuilder) -> None:
    for line in range(3):
        for word in range(4):
            t.store("a", 64 * line + 8 * word, 8, 1 + word)
    space = space_of(t)
    lost = [len(space.lost(state)) for state in exhaustive(space) if deviation(space, state) == 1]
    # three lines lost whole, three kept alone; then each line cut at three places, from either end
    assert lost[:6] == [4] * 3 + [8] * 3
    assert sorted(lost[6:]) == sorted([1, 2, 3, 9, 10, 11] * 3)


def test_parts_of_two_files_are_in_one_order_on_either_side(t: TraceBuilder) -> None:
    for name, size in (("a", 100), ("b", 9000), ("a", 9000), *(("b", 9000 + more) for more in range(1, 8))):
        t.truncate(name, size)
    for page in range(2):
        t.store("a", 4096 * page, 8, 1)
    space = space_of(t, "page-cache")
    states = exhaustive(space)
    assert all(space.state(state.point, space.persisted(state)) == state for state in states)
    assert any(sum(id_ >= len(space.graph) for id_ in state.pieces) == 2 for state in states)


def test_bounded_stops_at_its_number_of_deviations(t: TraceBuilder) -> None:
    many_lines(t, 6)
    space = space_of(t)
    bounded = list(select_states(space, strategy("bounded", deviations=1)))
    assert bounded == [state for state in exhaustive(space) if deviation(space, state) <= 1]
    assert len(bounded) == 2 + 12


def test_enumeration_is_deterministic(t: TraceBuilder) -> None:
    many_lines(t, 6)
    t.store("a", 8, 32, bytes(range(32)))
    t.end(1)
    assert exhaustive(space_of(t)) == exhaustive(space_of(t))


def test_an_extension_of_a_gigabyte_is_one_update_with_many_parts(t: TraceBuilder) -> None:
    t.file("a", 0)
    t.truncate("a", 1 << 30)
    t.store("a", 0, 8, 1)
    space = space_of(t, "page-cache")
    boundaries = (1 << 30) // 4096 - 1
    assert count_states(space).value == 2 * (2 + boundaries)
    first = list(itertools.islice(select_states(space, strategy("exhaustive")), 8))
    assert len(set(first)) == 8
    assert len(space.pending(0)) == 2
    part = space.graph.part(0, 9)
    assert space.graph.piece(part).offset == 10 * 4096
    assert space.graph.piece(part).partial
    state = space.state(0, (1, part))
    assert space.persisted(state) == (1, part)
    assert space.lost(state) == (part,)
    assert Content(space).patches(state)[0].size == 10 * 4096


def test_where_nothing_is_pending_there_are_no_ideals(t: TraceBuilder) -> None:
    many_lines(t, 2)
    sweep = Sweep(space_of(t))
    assert sweep.ideals_of(()) == sweep.factors_of(()) == []
    assert sweep.factors_of((0, 1)) == [(0,), (1,)]


def test_dropping_takes_what_depends_on_it_along(t: TraceBuilder) -> None:
    t.store("a", 0, 8, 1)
    t.store("a", 8, 8, 2)
    t.store("a", 64, 8, 3)
    space = space_of(t)
    assert space.lost(space.drop(0, [0])) == (0, 1)
    assert space.persisted(space.keep(0, [1])) == (0, 1)
    assert space.state(0, [0, 2]) == CrashState(0, True, (1,))


def test_a_set_that_is_no_ideal_is_refused(t: TraceBuilder) -> None:
    t.store("a", 0, 8, 1)
    t.store("a", 8, 8, 2)
    space = space_of(t)
    with pytest.raises(ValueError, match="piece 1 cannot persist without pieces"):
        space.state(0, [1])
    with pytest.raises(ValueError, match="not pending"):
        space.state(0, [-1])
    with pytest.raises(ValueError, match="no piece 7"):
        space.state(0, [7, 0])


def test_points_record_what_was_acknowledged(t: TraceBuilder) -> None:
    t.file("a", 4096)
    t.begin(1)
    t.store("a", 0, 8, 1)
    t.output(5)
    t.end(1)
    space = space_of(t)
    assert [(p.begun, p.stdout_bytes, p.acked) for p in space.points] == [(0, 0, 0), (1, 0, 0), (1, 5, 0), (1, 5, 1)]
    assert [p.event for p in space.points] == [1, 3, 4, 5]


def test_durable_and_pending_split_what_was_issued(t: TraceBuilder) -> None:
    t.store("a", 0, 8, 1)
    t.store("a", 64, 8, 2)
    t.clwb("a", 0)
    t.sfence()
    t.store("a", 128, 8, 3)
    space = space_of(t)
    assert (space.durable(0).tolist(), space.pending(0)) == ([], (0, 1))
    assert (space.durable(1).tolist(), space.pending(1)) == ([0], (1, 2))


def test_a_store_that_rewrites_the_same_value_gives_an_equal_image(t: TraceBuilder) -> None:
    t.file("a", 4096)
    t.store("a", 0, 8, 0)
    t.store("a", 64, 8, 7)
    t.store("a", 64, 8, 0)
    t.end(1)
    space = space_of(t)
    content = Content(space)
    prints = {space.persisted(state): content.fingerprint(state) for state in exhaustive(space) if state.point == 0}
    assert prints[()] == prints[(0,)] == prints[(1, 2)] == prints[(0, 1, 2)]
    assert prints[(1,)] == prints[(0, 1)] != prints[()]
    assert content.fingerprint(space.full(1)) != content.fingerprint(space.full(0))


def test_nothing_recorded_leaves_one_state(t: TraceBuilder) -> None:
    space = space_of(t)
    assert (count_states(space).value, exhaustive(space)) == (1, [CrashState(0, True, ())])


def test_a_bound_names_itself(t: TraceBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partial_order, "COUNT_BUDGET", 3)
    for word in range(6):
        t.nt_store("a", 8 * word, 8, 1)
        t.store("a", 8 * word, 8, 2)
    space = space_of(t)
    feasible = count_states(space)
    exact = len(exhaustive(space))
    assert not feasible.exact
    assert feasible.value >= exact
    assert "chain cover" in feasible.note


def test_a_count_in_several_goes_is_the_count_at_once(t: TraceBuilder) -> None:
    for number in range(5):
        many_lines(t, 2, offset=128 * number)
        t.clwb("a", 128 * number)
        t.sfence()
    whole = StateCount(space_of(t))
    whole.advance()
    parts = StateCount(space_of(t))
    for _ in range(len(space_of(t).points)):
        with pytest.raises(OutOfTime):
            parts.advance(for_seconds(-1))
    assert parts.feasible() == whole.feasible()
    assert list(parts.stretches) == list(whole.stretches)
    assert sum(stretch.states for stretch in whole.stretches) == whole.feasible().value


def test_a_count_that_was_cut_short_says_so(t: TraceBuilder) -> None:
    many_lines(t, 3)
    t.end(1)
    many_lines(t, 3, offset=4096)
    count = StateCount(space_of(t))
    with pytest.raises(OutOfTime):
        count.advance(for_seconds(-1))
    note = "only those of the first 1 of 2 crash points were counted"
    assert count.feasible() == Feasible(8, False, note)


@pytest.mark.parametrize("seed", range(20))
def test_ideals_of_any_order_are_counted_and_listed_exactly(seed: int) -> None:
    source = random.Random(seed)
    size = source.randrange(1, 9)
    before = [tuple(b for b in range(at) if source.random() < 0.3) for at in range(size)]
    order = Order(tuple(range(size)), before)
    brute = {
        some
        for n in range(size + 1)
        for some in itertools.combinations(range(size), n)
        if all(b in some for at in some for b in before[at])
    }
    assert order.count() == (len(brute), True)
    assert sorted(kept for d in range(size + 1) for kept in order.kept(d)) == sorted(brute)
    lost = [tuple(sorted(set(range(size)) - set(gone))) for d in range(size + 1) for gone in order.lost(d)]
    assert sorted(lost) == sorted(brute)


def test_strategies_are_found_by_name() -> None:
    assert sorted(REGISTRY) == ["bounded", "exhaustive", "pathfinder", "random", "ranked", "witcher"]
    assert strategy("bounded").name == "bounded"
    with pytest.raises(CrashcheckError) as caught:
        strategy("luck")
    assert caught.value.slug == "unknown-strategy"
    for options in ({"deviations": -1}, {"colour": "red"}):
        with pytest.raises(CrashcheckError) as caught:
            strategy("bounded", **options)
        assert caught.value.slug == "bad-strategy-option"


def graph_of(t: TraceBuilder, model: str = "px86") -> PersistenceGraph:
    return build(t.trace(), model)


def test_edges_have_a_reason(t: TraceBuilder) -> None:
    t.store("a", 0, 8, 1)
    t.store("a", 8, 8, 2)
    t.clwb("a", 0)
    t.sfence()
    t.store("a", 64, 8, 3)
    t.clflush("a", 64)
    t.store("a", 128, 8, 4)
    drawn = graph_of(t).to_networkx()
    assert {(u, v): d["reason"] for u, v, d in drawn.edges(data=True)} == {
        (0, 1): "same line",
        (0, 2): "flush and fence",
        (1, 2): "flush and fence",
        (2, 3): "clflush",
    }
    assert drawn.nodes[3]["file"] == "a"
    assert drawn.nodes[3]["offset"] == 128


def test_a_set_restricts_the_picture(t: TraceBuilder) -> None:
    many_lines(t, 5)
    assert sorted(graph_of(t).to_networkx([3, 0]).nodes) == [0, 3]


def test_the_picture_has_the_orders_closure(t: TraceBuilder) -> None:
    """u reaches v in the picture exactly if no feasible state holds v without u."""
    t.store("a", 0, 16, bytes(range(1, 17)))
    t.clwb("a", 0)
    t.nt_store("a", 64, 8, 3)
    t.sfence()
    t.store("a", 64, 8, 4)
    t.store("a", 8, 8, 5)
    t.clwb("a", 64)
    t.sfence()
    t.store("a", 128, 8, 6)
    graph = graph_of(t)
    space = StateSpace(graph)
    held = [{*space.durable(s.point).tolist(), *space.persisted(s)} for s in exhaustive(space)]
    reach = {u: set() for u in range(len(graph))}
    drawn = graph.to_networkx()
    for u in reversed(range(len(graph))):
        for v in drawn.successors(u):
            reach[u] |= {v} | reach[v]
    for u, v in itertools.permutations(range(len(graph)), 2):
        assert (v in reach[u]) == all(u in state for state in held if v in state), (u, v)


def test_added_obligations_remove_states_and_invent_none(t: TraceBuilder) -> None:
    t.store("a", 0, 8, 1)
    t.store("a", 64, 8, 2)
    t.store("a", 128, 8, 3)
    t.clwb("a", 64)
    t.sfence()
    t.store("a", 192, 8, 4)
    graph = graph_of(t)
    stricter = graph.with_order([(0, 1)])
    before, after = StateSpace(graph), StateSpace(stricter)

    def held(space: StateSpace) -> set[frozenset[int]]:
        return {frozenset((*space.durable(s.point).tolist(), *space.persisted(s))) for s in exhaustive(space)}

    assert held(after) == {state for state in held(before) if 1 not in state or 0 in state}
    assert count_states(after).value == len(held(after))
    assert stricter.to_networkx().edges[0, 1]["reason"] == "required"
    assert graph.extra == ()
    with pytest.raises(ValueError, match="cannot be made to persist"):
        graph.with_order([(1, 0)])


def test_more_chains_than_calls_may_nest_are_combined() -> None:
    loose = Rooted([], [[(at, at)] for at in range(3_000)])
    for d in (2, 1_500, 2_999):
        assert len(next(loose.lost(d))) == d
        assert len(next(loose.kept(d))) == d
