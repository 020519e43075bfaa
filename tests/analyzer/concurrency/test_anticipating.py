"""Learning adds up what passing runs show, and a run is judged by all of it (AI §2.1)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from crashcheck.analyzer.compile.learned_sets import FORMAT
from crashcheck.analyzer.compile.site_names import NamedSite
from crashcheck.analyzer.concurrency.anticipating import (
    AnticipatingInvariants,
    Guarded,
    Observed,
    Seen,
    Stall,
    Violation,
)
from crashcheck.errors import CrashcheckError


def site(name: str, function: str = "q.c:pop") -> NamedSite:
    return NamedSite(name, function, f"{name}.c:1", function, name)


A, B, C = site("a"), site("b", "q.c:push"), site("c", "q.c:push")
D, E = site("d"), site("e")
CODES = {"q.c:pop": "1", "q.c:push": "2"}


def observed(
    *pairs: tuple[NamedSite, NamedSite | None],
    codes: dict[str, str] | None = None,
    alone: Iterable[tuple[NamedSite, NamedSite]] = (),
    count: int = 1,
) -> Observed:
    seen = tuple(Seen(one, before, 1, count) for one, before in pairs)
    return Observed(seen, frozenset((one.name, before.name) for one, before in alone), codes or CODES)


def test_accesses_of_one_line_to_one_variable_are_told_apart() -> None:
    read = NamedSite("p.c:main:load:1", "p.c:main", "p.c:5", "main", "run")
    write = NamedSite("p.c:main:store:2", "p.c:main", "p.c:5", "main", "run")
    other = NamedSite("p.c:get:load:1", "p.c:get", "p.c:9", "get", "run")
    seen = Seen(other, write, 2, 1)
    assert str(Violation(seen, (None, read, B))) == (
        "p.c:9 get run (thread 2): after p.c:5 main run (store 2 of p.c:main) of another thread; "
        f"in passing runs after nothing of another thread or p.c:5 main run (load 1 of p.c:main) or {B}"
    )
    assert str(Violation(seen, (B,))) == (
        f"p.c:9 get run (thread 2): after p.c:5 main run of another thread; in passing runs after {B}"
    )


def test_what_no_passing_run_showed_is_a_violation_and_learning_it_relaxes() -> None:
    learned = AnticipatingInvariants().learn(observed((A, None), (B, A))).learn(observed((B, None), (A, B)))
    assert learned.predecessors == 4
    assert learned.judge(observed((B, None), (A, B))).violations == ()
    (violation,) = learned.judge(observed((A, None), (C, A), (A, C))).violations
    assert (violation.seen.site, violation.seen.before) == (A, C)
    assert violation.expected == (None, B)
    relaxed = learned.learn(observed((A, None), (C, A), (A, C)))
    assert relaxed.judge(observed((A, None), (C, A), (A, C))).violations == ()
    assert relaxed.judge(observed((C, None))).violations[0].seen.before is None


def test_learning_in_any_order_gives_the_same_file() -> None:
    runs = [observed((A, None), (B, A)), observed((B, None), (A, B)), observed((C, B), (A, C))]
    one, other = AnticipatingInvariants(), AnticipatingInvariants()
    for run in runs:
        one = one.learn(run)
    for run in reversed(runs):
        other = other.learn(run)
    assert one.new == (2, 2, 2)
    assert replace(one, new=()).encode() == replace(other, new=()).encode()
    assert AnticipatingInvariants.decode(one.encode(), "learned.json") == one


def test_a_site_that_shared_nothing_is_not_guarded_until_a_run_shows_it_to_share() -> None:
    learned = AnticipatingInvariants().learn(observed((A, None)))
    assert (learned.predecessors, learned.guarded) == (0, 0)
    assert learned.judge(observed((A, B))).violations == ()
    learned = learned.learn(observed((A, B)))
    assert learned.judge(observed((A, None))).violations == ()  # nil was seen, too


def test_changed_code_is_not_judged_and_is_learned_again() -> None:
    learned = AnticipatingInvariants().learn(observed((A, None), (B, A), (C, A), (A, B)))
    changed = {**CODES, "q.c:push": "3"}
    judged = learned.judge(observed((A, C), (B, A), codes=changed))
    assert judged.violations == ()
    assert judged.unjudged == (B, C)
    again = learned.learn(observed((A, None), codes=changed))
    assert AnticipatingInvariants.decode(again.encode(), "f").codes == changed
    assert again.predecessors == 1  # the predecessors that pop's load had in the old push are forgotten


def test_code_that_no_learned_run_reached_is_no_excuse() -> None:
    """C's function was there when A was learned: A after C is new, not C itself."""
    learned = AnticipatingInvariants().learn(observed((A, None), (B, A)))
    (violation,) = learned.judge(observed((A, C))).violations
    assert violation.seen.before == C


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{}", '{"format": "other"}'),
        AnticipatingInvariants().encode()[:-20],
        AnticipatingInvariants().encode().replace('"sites"', '"site"'),
        AnticipatingInvariants().encode().replace(FORMAT, f"not {FORMAT}"),
    ],
)
def test_a_damaged_file_is_named(text: str) -> None:
    with pytest.raises(CrashcheckError) as caught:
        AnticipatingInvariants.decode(text, "learned.json")
    assert caught.value.slug == "learned-corrupt"
    assert "learned.json" in caught.value.message


def test_nobody_is_told_to_remove_a_file_that_crashcheck_did_not_make() -> None:
    with pytest.raises(CrashcheckError) as caught:
        AnticipatingInvariants.decode("int main(void) { return 0; }\n", "main.c")
    assert caught.value.message == "main.c is no file of `crashcheck learn`."
    assert caught.value.hint == "Name the file that it made."


def test_an_error_on_a_file_of_another_version_names_both_versions() -> None:
    with pytest.raises(CrashcheckError) as caught:
        AnticipatingInvariants.decode(
            AnticipatingInvariants().encode().replace('"version": 5', '"version": 9'), "learned.json"
        )
    assert caught.value.slug == "learned-version"
    assert "version 9" in caught.value.message
    assert "version 5" in caught.value.message


def test_sites_are_shared_with_all_that_accessed_a_variable_with_them() -> None:
    """A, then B, of one thread, then C of another on x; E after D on a variable of one thread."""
    run = observed((A, None), (B, None), (C, B), (D, None), (E, None), alone=[(B, A), (E, D)])
    assert run.shared() == {"a", "b", "c"}
    assert sorted(map(sorted, run.groups())) == [["a", "b", "c"], ["d", "e"]]


def test_what_follows_a_shared_site_on_a_variable_of_one_thread_is_shared_too() -> None:
    """AI §3.2, footnote: y is shared, for B has other predecessors than nil; so A, which follows B on y, is guarded."""
    run = observed((B, None), (C, B), (A, None), alone=[(A, B)])
    assert run.shared() == {"a", "b", "c"}


def test_groups_of_several_runs_join_when_a_run_connects_them() -> None:
    learned = AnticipatingInvariants().learn(observed((A, B))).learn(observed((C, D)))
    assert {name: one.group for name, one in learned.sites.items()} == {"a": "a", "b": "a", "c": "c", "d": "c"}
    learned = learned.learn(observed((B, None), (D, None), alone=[(D, B)]))
    assert {one.group for one in learned.sites.values()} == {"a"}


def test_a_group_with_more_than_the_threshold_of_all_shared_accesses_is_left_alone() -> None:
    """AI §3.3. E is hotter than all, but its variable was never shared: it is no part of the sum."""
    learned = (
        AnticipatingInvariants()
        .learn(observed((A, B), (B, A), count=4))
        .learn(observed((C, D), count=2))
        .learn(observed((E, None), count=100))
    )
    assert learned.proportions() == {"a": 80.0, "c": 20.0}
    assert (learned.left_alone(), learned.guarded) == (frozenset(), 4)
    assert replace(learned, bias=80).left_alone() == frozenset()
    biased = replace(learned, bias=79.9)
    assert (biased.left_alone(), biased.guarded) == (frozenset({"a"}), 2)
    assert [str(group) for group in biased.hot_groups()] == [
        "80.0 % of the accesses to shared memory: a.c:1 q.c:pop a, b.c:1 q.c:push b"
    ]
    assert AnticipatingInvariants.decode(biased.encode(), "f") == biased
    assert biased.digest() != learned.digest()


def test_what_relaxing_learns_is_no_sample_of_the_accesses() -> None:
    learned = AnticipatingInvariants().learn(observed((A, B), (C, D)))
    stall = Stall(Violation(Seen(A, None, 1, 50), ()), 0.0, 0, 50)
    relaxed = learned.learn(Guarded((stall,), (), CODES, ()).harmless)
    assert relaxed.sites["a"].before == {None, "b"}
    assert relaxed.proportions() == learned.proportions()


WRITE, AGAIN = site("q.c:pop:store:1"), site("q.c:pop:store:2")
READ, LATER, EARLY, LAST = (site(f"q.c:push:load:{number}", "q.c:push") for number in range(1, 5))


def test_a_read_may_follow_any_read_after_the_same_write() -> None:
    """LATER only ever followed READ; both follow WRITE, which is first in its thread."""
    learned = AnticipatingInvariants().learn(observed((WRITE, None), (READ, WRITE), (LATER, READ)))
    assert learned.judge(observed((READ, LATER), (READ, READ), (LATER, LATER))).violations == ()
    assert [one.seen for one in learned.judge(observed((LATER, None), (WRITE, READ))).violations] == [
        Seen(LATER, None, 1, 1),
        Seen(WRITE, READ, 1, 1),
    ]


def test_a_function_that_clears_objects_of_two_kinds_leaves_reads_of_each_by_themselves() -> None:
    """All sites are of one group, since `clear` is the first to access both; two threads write to the one kind."""
    clear = site("q.c:clear:fill:1")
    of_one = ((READ, None), (LATER, READ), (WRITE, None), (READ, WRITE))
    of_other = ((AGAIN, None), (EARLY, AGAIN), (AGAIN, AGAIN), (LAST, EARLY))
    runs = observed((clear, None), *of_one, *of_other, alone=[(WRITE, clear), (AGAIN, clear)])
    learned = AnticipatingInvariants().learn(runs)
    assert len({one.group for one in learned.sites.values()}) == 1
    assert learned.harmless_reads() == dict.fromkeys((READ.name, LATER.name), frozenset((READ.name, LATER.name)))
    assert learned.settled_reads() == {READ.name: 1, LATER.name: 1}
    assert len(learned.judge(observed((LATER, LATER), (EARLY, LAST))).violations) == 1


def test_a_read_may_not_follow_one_that_precedes_the_write_it_waits_for() -> None:
    """EARLY runs before any write or after the first one, READ after the second one only, LAST after either."""
    runs = observed(
        *((WRITE, None), (AGAIN, EARLY), (EARLY, None), (EARLY, WRITE), (READ, AGAIN), (LAST, WRITE), (LAST, AGAIN))
    )
    learned = AnticipatingInvariants().learn(runs)
    allowed = {name: sorted(reads) for name, reads in learned.harmless_reads().items()}
    assert allowed == {
        EARLY.name: [EARLY.name],
        READ.name: [READ.name],
        LAST.name: [READ.name, LAST.name],
    }


def test_where_two_threads_write_every_order_of_reads_counts() -> None:
    """Two threads that each read and then write: a read after the other one's read is the turning point."""
    learned = AnticipatingInvariants().learn(observed((READ, None), (WRITE, None), (READ, WRITE), (WRITE, WRITE)))
    assert learned.harmless_reads() == {}
    assert [one.seen for one in learned.judge(observed((READ, READ))).violations] == [Seen(READ, READ, 1, 1)]
