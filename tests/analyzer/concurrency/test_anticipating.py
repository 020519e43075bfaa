"""Learning adds up what passing runs show, and a run is judged by all of it (AI §2.1)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from crashcheck.analyzer.compile.site_names import NamedSite
from crashcheck.analyzer.concurrency.anticipating import AnticipatingInvariants, Observed, Seen
from crashcheck.analyzer.concurrency.observations import NIL, shared_sites
from crashcheck.errors import CrashcheckError


def site(name: str, function: str = "q.c:pop") -> NamedSite:
    return NamedSite(name, function, f"{name}.c:1", function, name)


A, B, C = site("a"), site("b", "q.c:push"), site("c", "q.c:push")
CODES = {"q.c:pop": "1", "q.c:push": "2"}


def observed(*pairs: tuple[NamedSite, NamedSite | None], codes: dict[str, str] | None = None) -> Observed:
    seen = tuple(Seen(one, before, 1, 1) for one, before in pairs)
    shared = frozenset(one.name for pair in pairs for one in pair if one is not None)
    return Observed(seen, shared, codes or CODES)


def test_what_no_passing_run_showed_is_a_violation_and_learning_it_relaxes() -> None:
    learned = AnticipatingInvariants().learn(observed((A, None), (B, A))).learn(observed((B, None), (A, B)))
    assert learned.predecessors == 4
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
    assert (learned.predecessors, learned.guarded) == (0, 0)
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
    assert again.predecessors == 1  # the predecessors that pop's load had in the old push are forgotten


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
            AnticipatingInvariants().encode().replace('"version": 2', '"version": 9'), "learned.json"
        )
    assert caught.value.slug == "learned-version"
    assert "version 9" in caught.value.message
    assert "version 2" in caught.value.message


def test_a_site_is_shared_with_what_the_same_thread_did_before_on_the_variable() -> None:
    """Site 1, then 2, of one thread, then 3 of another on x; 5 after 4 on a variable of one thread; 1 after 6 on y."""
    remote = [(1, NIL), (2, NIL), (3, 2), (4, NIL), (5, NIL), (6, NIL)]
    assert shared_sites(remote, [(2, 1), (5, 4), (1, 6)]) == {1, 2, 3, 6}
