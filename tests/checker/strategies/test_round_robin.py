"""Phases take turns by weight; states with a rare signature precede those with a common one."""

from __future__ import annotations

from collections import Counter
from itertools import repeat
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from crashcheck.analyzer.behaviours import find_behaviours
from crashcheck.analyzer.persistence import Options, build
from crashcheck.checker.states.space import CrashState, StateSpace
from crashcheck.checker.strategies.plan import Choice, Chosen
from crashcheck.checker.strategies.ranked import part_by_part
from crashcheck.checker.strategies.round_robin import RoundRobin, WeightedQueue
from support.random_runs import SETTINGS
from support.scripts import Script, site

A = site("pair.a", ("pair", "a", 0, 8), line=1)
B = site("pair.b", ("pair", "b", 64, 8), line=2)
WIDE = site("pair.wide", ("pair", "wide", 128, 24), line=3)

Named = list[tuple[int, str]]  # a state's number, and its signature


def choice(number: int, family: str) -> Choice:
    return Choice(CrashState(number, True, ()), 0, family)


def turns(phases: dict[str, Named], weights: dict[str, int], **options: dict[str, bool]) -> list[tuple[str, int]]:
    """(phase, number) in the order in which they come."""
    signatures = {number: signature.encode() for named in phases.values() for number, signature in named}
    chosen = Chosen()
    made = {
        name: WeightedQueue(
            map(choice, (number for number, _ in named), repeat(name)), weights.get(name, 1), **options.get(name, {})
        )
        for name, named in phases.items()
    }
    out = []
    found = RoundRobin(
        made, lambda one: not chosen.again(one, None), lambda state: signatures[state.point], lambda state: 1
    )
    for one in found.choices():
        assert chosen.new(one, None)
        out.append((one.family, one.state.point))
    return out


def numbers(phases: dict[str, Named], **options: dict[str, bool]) -> list[int]:
    return [number for _, number in turns(phases, {}, **options)]


def test_each_queued_signature_is_tested_once_before_any_is_tested_again() -> None:
    assert numbers({"one": [(1, "x"), (2, "x"), (3, "y"), (4, "x"), (5, "z")]}) == [1, 3, 5, 2, 4]


def test_a_signature_that_another_phase_has_shown_is_no_longer_new() -> None:
    assert numbers({"one": [(1, "x"), (2, "y")], "other": [(3, "x"), (4, "z")]}) == [1, 4, 2, 3]


def test_while_all_is_new_phases_take_turns_in_proportion_to_their_weights() -> None:
    phases = {name: [(at + base, f"{name}{at}") for at in range(90)] for name, base in (("often", 0), ("rare", 100))}
    came = Counter(name for name, _ in turns(phases, {"often": 3, "rare": 1})[:80])
    assert came == {"often": 60, "rare": 20}


def test_a_phase_without_news_leaves_its_turns_to_others() -> None:
    phases = {"stale": [(at, "x") for at in range(20)], "news": [(20 + at, f"y{at}") for at in range(8)]}
    came = turns(phases, {"stale": 9})
    assert [number for _, number in came[:10] if number >= 20] == list(range(20, 28))


def test_a_phase_in_order_never_takes_a_later_choice_first() -> None:
    named = [(1, "x"), (2, "x"), (3, "y"), (4, "x"), (5, "z")]
    assert numbers({"one": named}, one={"in_order": True}) == [1, 2, 3, 4, 5]


def test_what_another_phase_gives_meanwhile_ends_no_phase() -> None:
    """5 is the only choice of the second phase that is available when the first one gives it."""
    named = {"first": [(1, "x"), (5, "x")], "second": [(5, "x"), (6, "x")]}
    came = turns(named, {"first": 2}, second={"in_order": True})
    assert came == [("first", 1), ("first", 5), ("second", 6)]


def test_where_very_much_is_pending_few_states_are_read_ahead() -> None:
    looked: list[CrashState] = []

    def signature(state: CrashState) -> bytes:
        looked.append(state)
        return b"x"

    choices = (choice(number, "one") for number in range(100))
    found = RoundRobin({"one": WeightedQueue(choices, 1)}, lambda one: True, signature, lambda state: 1 << 14).choices()
    for number in range(50):
        assert next(found).state.point == number
        assert len(looked) < number + 5


def test_when_the_phase_that_has_everything_ends_all_end() -> None:
    phases = {"rest": [(1, "x"), (2, "y")], "other": [(at, f"z{at}") for at in range(3, 99)]}
    assert len(numbers(phases)) == 98
    assert len(numbers(phases, rest={"everything": True})) < 10


@SETTINGS
@given(
    phases=st.dictionaries(
        st.sampled_from("abc"), st.lists(st.tuples(st.integers(0, 40), st.sampled_from("xyz")), max_size=60), min_size=1
    ),
    weights=st.dictionaries(st.sampled_from("abc"), st.integers(1, 9)),
    in_order=st.sampled_from("abc-"),
)
def test_every_state_is_yielded_exactly_once(phases: dict[str, Named], weights: dict[str, int], in_order: str) -> None:
    came = turns(phases, weights, **{in_order: {"in_order": True}})
    assert Counter(number for _, number in came) == Counter({n for named in phases.values() for n, _ in named})


def test_states_that_lose_and_keep_the_same_sites_anywhere_have_one_signature(tmp_path: Path) -> None:
    script = Script(tmp_path, A, B, WIDE)
    for base in (0, 4096):
        script.at(1, base, delta=0)
        script.at(2, base + 64, delta=64)
        script.persist(base, 128)
    space = StateSpace(build(script.trace.trace(), "px86", Options()))
    signature = part_by_part(space, find_behaviours(space.graph, script.facts)).of
    points = [point for point in range(len(space.points)) if len(space.pending(point)) == 2]
    first, then = points[0], points[-1]
    assert first != then
    a, b = space.pending(first)
    c, d = space.pending(then)
    assert signature(space.drop(first, (a,))) == signature(space.drop(then, (c,)))
    assert signature(space.drop(first, (a,))) != signature(space.drop(then, (d,)))
    assert signature(space.drop(first, (a, b))) != signature(space.drop(then, (c,)))


def test_parts_of_one_update_have_different_signatures(tmp_path: Path) -> None:
    script = Script(tmp_path, A, B, WIDE)
    script.at(3, 56, delta=128, size=24)  # two lines
    script.persist(56, 24)
    space = StateSpace(build(script.trace.trace(), "px86", Options()))
    signature = part_by_part(space, find_behaviours(space.graph, script.facts)).of
    pending = space.pending(0)
    assert len(pending) >= 2
    assert signature(space.drop(0, pending[:1])) != signature(space.drop(0, pending[-1:]))


def test_of_a_long_update_the_first_words_and_the_last_have_signatures_of_their_own(tmp_path: Path) -> None:
    """The header of a record, and a checksum behind it: what is in between shares few."""
    script = Script(tmp_path, A, B, WIDE)
    script.at(3, 0, delta=128, size=512)
    script.persist(0, 512)
    space = StateSpace(build(script.trace.trace(), "px86", Options()))
    signature = part_by_part(space, find_behaviours(space.graph, script.facts)).of
    pending = space.pending(0)
    assert len(pending) == 64
    alone = [signature(space.keep(0, (piece,))) for piece in pending[:8]]
    lines = [signature(space.drop(0, (piece,))) for piece in pending[7::8]]
    assert len({*alone}) == 8
    assert lines[-1] not in lines[:-1]
    assert len({*lines}) == 5
