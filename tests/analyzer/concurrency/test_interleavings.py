"""Remote predecessors are as the paper defines them (AI §2.1), and learning adds them up."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crashcheck.analyzer.concurrency import interleavings as module
from crashcheck.analyzer.concurrency.anticipating import AnticipatingInvariants, Observed, Seen
from crashcheck.analyzer.concurrency.interleavings import NIL, MemoryAccesses, find_interleavings
from crashcheck.analyzer.concurrency.stable_names import NamedSite
from crashcheck.errors import CrashcheckError

Row = tuple[int, int, int, int]  # thread, site, offset, size


def run_of(rows: list[Row]) -> MemoryAccesses:
    thread, label, offset, size = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    sites = [(number, ()) for number in range(int(label.max()) + 1)]
    return MemoryAccesses(np.arange(1, len(rows) + 1), thread, np.zeros_like(thread), offset, size, label, sites)


def pairs_of(rows: list[Row]) -> list[tuple[int, int]]:
    return [(pair.label, pair.before) for pair in find_interleavings(run_of(rows)).pairs]


def belonging(rows: list[Row]) -> dict[int, set[int]]:
    sets: dict[int, set[int]] = {}
    for label, before in pairs_of(rows):
        sets.setdefault(label, set()).add(before)
    return sets


X, Y = 0, 8


def test_figure_3_an_access_of_the_same_thread_in_between_does_not_count() -> None:
    """Thread 2: s1 writes x, s2 writes y, later s5 reads x. Thread 1: s3 reads x, s4 y, later s6 y, s7 x.

    The paper: rpre(i1) and rpre(i2) are nil, i3: s1, i4: s2, i5: s3, i6: s2 although i4 is nearer, i7: s5.
    """
    rows = [(2, 1, X, 8), (2, 2, Y, 8), (1, 3, X, 8), (1, 4, Y, 8), (2, 5, X, 8), (1, 6, Y, 8), (1, 7, X, 8)]
    assert pairs_of(rows) == [(1, NIL), (2, NIL), (3, 1), (4, 2), (5, 3), (6, 2), (7, 5)]


def test_figure_4_a_belonging_set_joins_all_executions_of_a_site() -> None:
    rows = [(1, 1, X, 8), (2, 2, X, 8), (1, 3, X, 8), (2, 2, X, 8), (1, 3, X, 8)]
    assert belonging(rows) == {1: {NIL}, 2: {1, 3}, 3: {2}}


def test_variables_that_overlap_share_their_common_bytes() -> None:
    """Thread 1 writes eight bytes; thread 2 reads the first four, then all eight after thread 1 wrote the last four."""
    rows = [(1, 1, 0, 8), (2, 2, 0, 4), (1, 3, 4, 4), (2, 4, 0, 8)]
    assert sorted(pairs_of(rows)) == [(1, NIL), (2, 1), (3, NIL), (4, 1), (4, 3)]


def test_neighbouring_bytes_are_other_variables() -> None:
    rows = [(1, 1, 0, 1), (2, 2, 1, 1), (1, 3, 0, 1)]
    found = find_interleavings(run_of(rows))
    assert [(pair.label, pair.before) for pair in found.pairs] == [(1, NIL), (2, NIL), (3, NIL)]
    assert found.shared == frozenset()


def test_a_site_is_shared_if_one_of_its_variables_is() -> None:
    rows = [(1, 1, 0, 8), (1, 1, 64, 8), (2, 2, 64, 8), (1, 3, 0, 8)]
    assert find_interleavings(run_of(rows)).shared == {1, 2}


def by_definition(rows: list[Row]) -> tuple[set[tuple[int, int]], set[int]]:
    """Byte by byte, access by access."""
    pairs: set[tuple[int, int]] = set()
    shared: set[int] = set()
    for at, (thread, label, offset, size) in enumerate(rows):
        for byte in range(offset, offset + size):
            covering = [row for row in rows[:at] if row[2] <= byte < row[2] + row[3] and row[0] != thread]
            pairs.add((label, covering[-1][1] if covering else NIL))
            if {row[0] for row in rows if row[2] <= byte < row[2] + row[3]} != {thread}:
                shared.add(label)
    return pairs, shared


accesses = st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(0, 9), st.integers(1, 6))


@settings(max_examples=400, deadline=None, derandomize=True)
@given(st.lists(accesses, min_size=1, max_size=14), st.sampled_from([3, 1 << 20]))
def test_remote_predecessors_are_those_of_the_definition(rows: list[Row], together: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_ROWS", together)
        found = find_interleavings(run_of(rows))
    assert ({(pair.label, pair.before) for pair in found.pairs}, found.shared) == by_definition(rows)
    for pair in found.pairs:  # `first` is the first access that had it
        earlier, _ = by_definition(rows[: pair.first]) if pair.first else (set(), set())
        assert (pair.label, pair.before) not in earlier
        assert (pair.label, pair.before) in by_definition(rows[: pair.first + 1])[0]


# -- learning, judging and the file ---------------------------------------------------------------------------------


def site(name: str, function: str = "q.c:pop") -> NamedSite:
    return NamedSite(name, (function,), f"{name}.c:1", function, name)


A, B, C = site("a"), site("b", "q.c:push"), site("c", "q.c:push")
CODES = {"q.c:pop": "1", "q.c:push": "2"}


def observed(*pairs: tuple[NamedSite, NamedSite | None], codes: dict[str, str] | None = None) -> Observed:
    seen = tuple(Seen(one, before, number, 1, 1) for number, (one, before) in enumerate(pairs, 1))
    shared = frozenset(one.name for pair in pairs for one in pair if one is not None)
    return Observed(seen, shared, codes or CODES, len(pairs))


def test_what_no_passing_run_showed_is_a_violation_and_learning_it_relaxes() -> None:
    learned = AnticipatingInvariants().learn(observed((A, None), (B, A))).learn(observed((B, None), (A, B)))
    assert learned.many == 4
    assert learned.judge(observed((B, None), (A, B))).violations == ()
    (violation,) = learned.judge(observed((A, None), (C, A), (A, C))).violations
    assert (violation.seen.site, violation.seen.before) == (A, C)
    assert violation.expected == ("nothing of another thread", str(B))
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
    assert one.encode() == other.encode()
    assert AnticipatingInvariants.decode(one.encode(), "learned.json") == one


def test_a_site_that_shared_nothing_is_not_guarded_until_a_run_shows_it_to_share() -> None:
    alone = replace(observed((A, None)), shared=frozenset())
    learned = AnticipatingInvariants().learn(alone)
    assert (learned.many, learned.guarded) == (0, 0)
    assert learned.judge(observed((A, B))).violations == ()
    learned = learned.learn(observed((A, B)))
    assert learned.judge(observed((A, None))).violations == ()  # nil was seen, too


def test_changed_code_is_not_judged_and_is_learned_again() -> None:
    learned = AnticipatingInvariants().learn(observed((A, None), (B, A), (C, A), (A, B)))
    changed = {**CODES, "q.c:push": "3"}
    judged = learned.judge(observed((A, C), (B, None), codes=changed))
    assert judged.violations == ()
    assert judged.unjudged == (B, C)
    again = learned.learn(observed((A, None), codes=changed))
    assert AnticipatingInvariants.decode(again.encode(), "f").codes == changed
    assert again.many == 1  # the predecessors that pop's load had in the old push are forgotten


def test_code_that_no_learned_run_reached_is_no_excuse() -> None:
    """C's function was there when A was learned: A after C is new, not C itself."""
    learned = AnticipatingInvariants().learn(observed((A, None), (B, A)))
    (violation,) = learned.judge(observed((A, C))).violations
    assert violation.seen.before == C


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"format": "other"}', AnticipatingInvariants().encode().replace('"sites"', '"site"')],
)
def test_a_damaged_file_is_named(text: str) -> None:
    with pytest.raises(CrashcheckError) as caught:
        AnticipatingInvariants.decode(text, "learned.json")
    assert caught.value.slug == "learned-corrupt"
    assert "learned.json" in caught.value.message


def test_an_error_on_a_file_of_another_version_names_both_versions() -> None:
    with pytest.raises(CrashcheckError) as caught:
        AnticipatingInvariants.decode(
            AnticipatingInvariants().encode().replace('"version": 1', '"version": 9'), "learned.json"
        )
    assert caught.value.slug == "learned-version"
    assert "version 9" in caught.value.message
    assert "version 1" in caught.value.message
