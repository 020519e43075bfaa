"""The ranked search: every state of the exhaustive one, in another order."""

from __future__ import annotations

import tempfile
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crashcheck.analyzer.behaviours import Behaviours
from crashcheck.analyzer.invariants.ranking import Scores
from crashcheck.analyzer.trace.reader import Facts
from crashcheck.checker.budget import OutOfTime, within
from crashcheck.checker.search.signature_share import SignatureShare
from crashcheck.checker.states.canonical import CanonicalStates
from crashcheck.checker.states.space import StateSpace
from crashcheck.checker.strategies import Choice, Ranked, strategy
from crashcheck.checker.strategies import ranked as ranked_module
from crashcheck.checker.strategies.numbers import WEIGHTS
from crashcheck.checker.strategies.plan import NOTHING, Infer, select_states
from crashcheck.checker.strategies.violations import states_of
from crashcheck.interruption import KeepOn
from support.random_runs import SETTINGS, Step, runs, script_of
from support.scripts import A, B, Inferred, Script, Wanted, X, Y, evidence, site, space_of


def choices_of(script: Script, model: str = "px86", *wanted: Wanted) -> tuple[StateSpace, list[Choice]]:
    space = space_of(script, model)
    return space, list(Ranked(script.facts, infer=evidence(*wanted)).plan(space).choices())


@pytest.mark.parametrize("model", ["px86", "eadr", "page-cache"])
@SETTINGS
@given(steps=runs())
def test_run_to_its_end_it_gives_exactly_the_exhaustive_states_each_once(model: str, steps: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        script = script_of(Path(folder), steps)
        space, choices = choices_of(script, model)
        counted = Counter(choice.state for choice in choices)
        assert max(counted.values()) == 1
        assert counted.keys() == set(select_states(space, strategy("exhaustive")))


@SETTINGS
@given(steps=runs(), pieces=st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=4))
def test_with_any_queries_too_and_their_states_are_first(steps: list[Step], pieces: list[tuple[int, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        script = script_of(Path(folder), steps)
        space = space_of(script)
        wanted = [Wanted((a,), (b,), 0, n) for n, (a, b) in enumerate(pieces) if max(a, b) < len(space.graph)]
        _, choices = choices_of(script, "px86", *wanted)
        assert Counter(choice.state for choice in choices) == Counter(select_states(space, strategy("exhaustive")))
        canonical = CanonicalStates(space)
        first = next((states for query in wanted if (states := states_of(canonical, query))), None)
        assert first is None or choices[0].state == first[1]
        for query in wanted:
            for state in states_of(canonical, query):
                held = set(space.persisted(state)) | set(space.durable(state.point).tolist())
                assert held.issuperset(query.persisted)
                assert held.isdisjoint(query.unpersisted)


class Settled:
    """Some crash points are decided, and no further one will be."""

    settled = True

    def __init__(self, points: set[int]) -> None:
        self._points = points

    def __contains__(self, point: object, /) -> bool:
        return point in self._points


@SETTINGS
@given(steps=runs(), points=st.sets(st.integers(0, 12)), most=st.integers(0, 40))
def test_when_no_further_point_is_decided_the_other_states_follow_in_ranked_order_each_once(
    steps: list[Step], points: set[int], most: int
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        script = script_of(Path(folder), steps)
        space, ranked = choices_of(script)

        def given_with(points: set[int]) -> list[Choice]:
            return list(Ranked(script.facts, infer=evidence()).plan(space, decided=Settled(points)).choices())

        assert given_with(set()) == ranked
        patch.setattr(ranked_module, "MOST_DECIDED", most)
        states = [choice.state for choice in given_with(points)]
        assert len(set(states)) == len(states)
        assert set(states) == {choice.state for choice in ranked if choice.state.point not in points}


@SETTINGS
@given(steps=runs(), most=st.integers(0, 30))
def test_beyond_what_is_remembered_the_exhaustive_search_continues_alone(steps: list[Step], most: int) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranked_module, "REMEMBERED", most)
        space, choices = choices_of(script_of(Path(folder), steps))
        assert Counter(choice.state for choice in choices) == Counter(select_states(space, strategy("exhaustive")))


def test_a_query_gives_the_smallest_and_the_largest_state_at_the_first_point_after_it(tmp_path: Path) -> None:
    script = Script(tmp_path, A, B, X, Y)
    script.at(3, 0, delta=0)  # 0: older, never flushed
    script.at(1, 64, delta=0)  # 1
    script.at(2, 128, delta=64)  # 2
    script.at(4, 192, delta=0)  # 3
    script.persist(64, 72)
    space = space_of(script)
    smallest, largest = states_of(CanonicalStates(space), Wanted((2,), (1,)))
    assert space.persisted(smallest) == (0, 2)
    assert space.lost(largest) == (1,)
    assert smallest.point == largest.point == 0


def test_a_query_that_the_order_forbids_gives_no_state(tmp_path: Path) -> None:
    script = Script(tmp_path, A, B, X, Y)
    script.at(1, 0, delta=0)
    script.at(3, 8, delta=0)  # the same line: never without the earlier store
    script.persist(0)
    script.at(2, 64, delta=64)  # after the fence
    space = space_of(script)
    canonical = CanonicalStates(space)
    assert states_of(canonical, Wanted((1,), (0,))) == ()
    assert states_of(canonical, Wanted((2,), (0,))) == ()


def test_of_each_signature_only_the_first_query_is_in_the_phase_of_invariants(tmp_path: Path) -> None:
    script = Script(tmp_path, A, B, X, Y)
    for line in range(8):
        script.at(3, 4096 + 64 * line, delta=0)
    script.persist(4096, 512)
    wanted = [Wanted((n,), (n + 4,), 0, n % 2, n % 2) for n in (0, 2, 1, 3)]
    space, choices = choices_of(script, "px86", *wanted)
    canonical = CanonicalStates(space)
    order = [choice.state for choice in choices if choice.family == "invariant"]

    def turns(*queries: Wanted) -> list[int]:
        return [order.index(state) for each in queries for state in states_of(canonical, each) if state in order]

    first, second = turns(wanted[0], wanted[2]), turns(wanted[1], wanted[3])
    assert choices[0].state == states_of(canonical, wanted[0])[1]
    assert len(first) >= 2
    assert not second


def test_a_group_that_violates_an_invariant_is_ranked_first_with_that_reason(tmp_path: Path) -> None:
    script = Script(tmp_path, A, B, X, Y)
    script.at(1, 0, delta=0)
    script.at(2, 64, delta=64)
    script.persist(0, 128)
    script.at(3, 4096, delta=0)
    script.persist(4096)
    script.at(4, 8192, delta=0)
    script.persist(8192)
    space = space_of(script)
    plan = Ranked(script.facts, infer=evidence(Wanted((0,), (1,)))).plan(space)
    next(plan.choices())
    noted = [(planned.number, planned.ranked.group.types, planned.ranked.because) for planned in plan.groups]
    assert noted == [
        (1, ("pair",), ("may violate invariant 1", "2 updates")),
        (2, ("other",), ("1 update",)),
        (3, ("third",), ("1 update",)),
    ]
    assert [planned.ranked.score for planned in plan.groups] == [1.333333, 1.0, 1.0]


class Clock:
    """A budget of which a second is gone each time that somebody looks."""

    def __init__(self, seconds: float) -> None:
        self.left_s = seconds

    def __call__(self) -> float:
        self.left_s = max(0.0, self.left_s - 1)
        return self.left_s


def test_half_of_what_is_left_of_a_budget_is_half_of_it_however_often_one_asks() -> None:
    clock = Clock(11)
    keep_on = within(clock, 0.5)
    for _ in range(4):
        keep_on()
    with pytest.raises(OutOfTime):
        keep_on()
    assert clock.left_s == 5.0


def patient(steps: int, *wanted: Wanted) -> Infer:
    """Takes so many steps to infer what is wanted."""

    def infer(found: Behaviours, facts: Facts | None, /, *, keep_on: KeepOn) -> Inferred:
        for _ in range(steps):
            keep_on()
        return Inferred(wanted, wanted, "")

    return infer


@pytest.mark.parametrize(("seconds", "in_time"), [(300, True), (150, False)])
def test_invariants_that_take_more_than_half_of_the_budget_are_left_out_with_a_note(
    tmp_path: Path, seconds: float, in_time: bool
) -> None:
    script = Script(tmp_path, A, B)
    script.at(1, 0, delta=0)
    script.at(2, 64, delta=64)
    script.persist(0, 128)
    plan = Ranked(script.facts, infer=patient(100, Wanted((0,), (1,)))).plan(space_of(script), Clock(seconds))
    families = [choice.family for choice, _ in zip(plan.choices(), range(4), strict=False)]
    assert ("invariant" in families) is in_time
    assert len(families) == 4
    noted = [note.partition(":")[0] for note in plan.notes]
    assert noted == ([] if in_time else ["likely invariants were not inferred"])


def test_a_budget_ends_the_search_among_queries_that_show_no_new_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crashcheck.analyzer.invariants.ranking.QUERIES", 10)
    script = Script(tmp_path, A, B)
    script.at(1, 0, delta=0)
    script.persist(0)
    script.at(2, 64, delta=64)
    asked = [Wanted((1,), (0,), signature=number) for number in range(1000)]  # the first is durable by then
    choices = Ranked(script.facts, infer=evidence(*asked)).plan(space_of(script), Clock(900)).choices()
    with pytest.raises(OutOfTime):
        list(choices)


def test_changed_code_is_tested_first(tmp_path: Path) -> None:
    script = Script(tmp_path, A, B, X, Y)
    script.at(3, 4096, delta=0)
    script.persist(4096)
    script.at(4, 8192, delta=0)
    script.persist(8192)
    plan = Ranked(script.facts, changed=lambda place: place.variable == "third.y").plan(space_of(script))
    next(plan.choices())
    assert [(p.ranked.group.types, p.ranked.because) for p in plan.groups] == [
        (("third",), ("1 of 1 sites changed", "1 update")),
        (("other",), ("1 update",)),
    ]


def test_members_follow_one_of_each_group_at_a_time(tmp_path: Path) -> None:
    script = Script(tmp_path, A, B, X, Y)
    for number in range(12):
        for which, base in ((3, 4096), (4, 16384)):
            script.at(which, base + 64 * number, delta=0)
            script.persist(base + 64 * number)
    _, choices = choices_of(script)
    order = [choice.group for choice in choices if choice.family.startswith("member")]
    turns = [group for group, before in zip(order, [0, *order], strict=False) if group != before]
    assert turns[:4] == [1, 2, 1, 2]


def test_a_group_of_very_many_states_holds_up_no_other(tmp_path: Path) -> None:
    script = Script(tmp_path, A, B, X, Y)
    for step in range(200):
        script.at(1, 64 * step, delta=0)
        script.at(2, 64 * step + 64, delta=64)
    script.persist(0, 64 * 201)
    script.at(4, 1 << 15, delta=0)
    script.persist(1 << 15)
    plan = Ranked(script.facts).plan(space_of(script))
    small = None
    for place, choice in enumerate(plan.choices()):
        if plan.groups[choice.group - 1].ranked.group.types == ("third",) and choice.group:
            small = place
            break
    assert small is not None
    assert small < 100


def test_a_loss_that_is_carried_is_tested_once_for_each_origin_not_after_each_operation(tmp_path: Path) -> None:
    script = Script(tmp_path, A, B, X, Y)
    for operation in range(1, 41):
        script.trace.begin(operation)
        if operation == 1:
            script.at(3, 4096, delta=0)  # never flushed
        script.at(4, 8192 + 64 * operation, delta=0)
        script.persist(8192 + 64 * operation)
        script.trace.end(operation)
    space, choices = choices_of(script)
    carried = [choice.state for choice in choices if choice.family == "carry"]
    acked = [space.points[state.point].acked for state in carried if 0 in space.lost(state)]
    assert acked[:2] == [2, 40]
    assert len(acked) == len(set(acked))
    assert {2, 40} < set(acked) <= {2, 3, 4, 6, 10, 18, 34, 40}  # a random state may precede one of them


@pytest.mark.parametrize("phase", sorted(set(WEIGHTS) - {"rest"}))
def test_a_phase_without_turns_gives_no_state_and_the_others_still_give_all(phase: str, tmp_path: Path) -> None:
    script = Script(tmp_path, A, B, X, Y)
    for operation in range(1, 5):
        script.trace.begin(operation)
        script.at(1, 64 * operation, delta=0)
        script.at(2, 64 * operation, delta=64)
        script.persist(64 * operation, 128)
        script.trace.end(operation)
    space = space_of(script)
    without = Ranked(script.facts, weights={**WEIGHTS, phase: 0})
    choices = list(without.plan(space).choices())
    families = {"invariants": "invariant", "cheap": "one kept", "members": "member one kept"}
    assert families.get(phase, phase) not in {choice.family for choice in choices}
    assert Counter(choice.state for choice in choices) == Counter(select_states(space, strategy("exhaustive")))


def test_the_weights_of_scores_decide_which_group_is_first(tmp_path: Path) -> None:
    script = Script(tmp_path, A, B, X, Y)
    script.at(1, 4096, delta=0)
    script.at(2, 4096, delta=64)
    script.persist(4096, 128)
    script.at(3, 8192, delta=0)
    script.persist(8192)
    space = space_of(script)

    def first(scores: Scores) -> tuple[str, ...]:
        plan = Ranked(script.facts, scores=scores, changed=lambda place: place.variable == "pair.b").plan(space)
        return plan.rank()[0].ranked.because

    assert first(Scores()) == ("1 of 1 sites changed", "1 update")
    assert first(Scores(changed=0.0)) == ("1 update",)


def test_all_and_nothing_are_tested_early_at_each_new_set_of_calls_whose_updates_are_pending(tmp_path: Path) -> None:
    unflushed = [site(f"gone.m{line}", line=9 + line) for line in range(70)]
    script = Script(tmp_path, A, X, *unflushed)
    for line in range(len(unflushed)):
        script.at(3 + line, 64 * line)  # random states of these have ever other signatures
    for operation in range(1, 16):
        script.trace.begin(operation)
        script.at(1, 16384 + 64 * operation, stack=operation)
        script.at(2, 32768 + 64 * operation, stack=operation)
        script.persist(16384 + 64 * operation)
        script.persist(32768 + 64 * operation)
        script.trace.end(operation)
    space = space_of(script)
    share = SignatureShare(space)
    wanted, _ = share.counts(NOTHING)
    assert wanted > 20
    choices = Ranked(script.facts).plan(space).choices()
    for choice in islice(choices, wanted * sum(WEIGHTS.values()) // WEIGHTS["plain"]):
        share.test(choice.state)
    assert share.counts(NOTHING) == (wanted, wanted)
