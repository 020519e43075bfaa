"""One bug, one finding: which causes a single fix would remove."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from crashcheck.checker.findings.deduplicate import (
    Due,
    MissingPersist,
    Traits,
    bugs_of,
    callers_within,
    fixed_together,
    leader,
    mark_usual,
)
from crashcheck.checker.findings.identity import AT
from crashcheck.checker.findings.prefix_proof import PrefixProof
from crashcheck.checker.findings.register import DraftFinding, Register
from crashcheck.checker.results import FindingKind, Frame, Location, Outcome
from crashcheck.checker.search.crash_states import SearchResult
from support.checked_worlds import World, place, words
from support.tracing import TraceBuilder

Explore = Callable[..., SearchResult]


@pytest.fixture
def explore(tmp_path: Path, clauses: Path) -> Explore:
    def run(
        script: Callable[[TraceBuilder], None], *claims: str, snapshot: bool = False, **more: object
    ) -> SearchResult:
        check = words([str(clauses), "{pool}/p", "{acked}", *claims])
        world = World(tmp_path / "world", check, script, **more)  # type: ignore[arg-type]
        return world.explore(snapshot=world.real_snapshot if snapshot else None)

    return run


def store(t: TraceBuilder, site: int, offset: int) -> None:
    t.site = site
    t.store("p", offset, 8, 1)
    t.site = 0


def persist(t: TraceBuilder, *offsets: int) -> None:
    for offset in offsets:
        t.clwb("p", offset)
    t.sfence()


SITES = {1: place(1, "node.a"), 2: place(2, "node.b"), 3: place(3, "root.first"), 4: place(4, "root.last")}


@pytest.mark.parametrize("functions", [("Map<int>::put", "Map<long>::put"), ("Map::put", "Map::put")])
def test_a_bug_of_a_template_is_one_finding_that_lists_its_instantiations(
    explore: Explore, functions: tuple[str, str]
) -> None:
    """The value is not flushed before the flag, in one operation of each instantiation."""

    def script(t: TraceBuilder) -> None:
        for operation, (at, site) in enumerate(((0, 1), (256, 3)), 1):
            t.begin(operation)
            store(t, site, at)
            store(t, site + 1, at + 64)
            persist(t, at + 64)
            persist(t, at)
            t.end(operation)

    sites = {}
    for site, function in ((1, functions[0]), (3, functions[1])):
        sites[site], sites[site + 1] = (
            place(n, v, function=function) for n, v in ((1, "node.value"), (2, "node.used"))
        )
    (found,) = explore(script, "64>0", "320>256", sites=sites).findings
    assert found.states > 1
    listed = f"2 instantiations of a template have it: `{functions[0]}`, `{functions[1]}`"
    assert (listed in found.note) is (functions[0] != functions[1])


def test_one_helper_without_a_fence_is_one_finding_whatever_its_callers_store_next(explore: Explore) -> None:
    def script(t: TraceBuilder) -> None:
        for at, flag in ((0, 3), (256, 4)):
            store(t, 1, at)
            t.clwb("p", at)
            store(t, flag, at + 64)
            persist(t, at + 64)

    (finding,) = explore(script, "64>0", "320>256", sites=SITES).findings
    assert finding.message == "`root.first` (hash.c:3) can survive a crash without `node.a` (hash.c:1)"
    assert (
        finding.note
        == "the same fix also fixes: `root.last` (hash.c:4) can survive a crash without `node.a` (hash.c:1)"
    )
    assert finding.states == 2


def test_two_elements_of_an_array_are_told_apart_by_their_offsets(explore: Explore) -> None:
    def script(t: TraceBuilder) -> None:
        store(t, 1, 0)
        store(t, 1, 64)
        persist(t, 64)

    (finding,) = explore(script, "64>0", sites={1: place(1, "table.words[]")}).findings
    assert finding.message == (
        "`table.words[]` at offset 0x40 can survive a crash without `table.words[]` at offset 0x0 (hash.c:1)"
    )


def two_values(t: TraceBuilder, *flushed: int) -> None:
    store(t, 1, 0)
    store(t, 2, 128)
    for offset in flushed:
        t.clwb("p", offset)
    store(t, 3, 64)
    persist(t, 64)
    persist(t, 0, 128)


@pytest.mark.parametrize(
    ("flushed", "sites", "bugs"),
    [
        ((0, 128), {**SITES, 2: place(2, "other.b")}, 1),  # one fence before `root.first`
        ((0,), SITES, 2),  # a fence for one, a flush for the other
        ((), SITES, 1),  # one flush of the node
        ((), {**SITES, 2: place(2, "other.b")}, 2),  # two objects
        ((), {**SITES, 2: place(2, "node.b", function="add")}, 2),  # two functions
    ],
)
def test_two_values_lost_before_one_flag_are_one_bug_where_one_persist_is_missing(
    explore: Explore, flushed: tuple[int, ...], sites: dict[int, object], bugs: int
) -> None:
    found = explore(lambda t: two_values(t, *flushed), "64>0", "64>128", sites=sites)
    assert [finding.kind for finding in found.findings] == [FindingKind.ORDERING] * bugs
    assert sum(finding.states for finding in found.findings) == found.states.failing == 3


def test_values_on_one_line_lack_one_flush(explore: Explore) -> None:
    def script(t: TraceBuilder) -> None:
        store(t, 1, 0)
        store(t, 2, 8)
        store(t, 3, 64)
        persist(t, 64)

    found = explore(script, "64>0", "64>8", sites={**SITES, 2: place(2, "other.b")})
    assert len(found.findings) == 1


def test_a_chain_of_updates_that_belong_together_is_one_section(explore: Explore) -> None:
    def script(t: TraceBuilder) -> None:
        for site, offset in ((1, 0), (2, 64), (3, 128)):
            store(t, site, offset)
            persist(t, offset)

    found = explore(script, "!0=64", "64=128", snapshot=True, sites=SITES)
    (finding,) = found.findings
    assert (finding.location.line, finding.evidence.other and finding.evidence.other.line) == (1, 3)


@pytest.mark.parametrize(("variable", "bugs"), [("node.a", 1), ("", 2)])
def test_what_one_update_leaves_is_one_bug_whatever_follows_it(explore: Explore, variable: str, bugs: int) -> None:
    def script(t: TraceBuilder) -> None:
        for at, then in ((0, 3), (256, 4)):
            for site, offset in ((1, at), (then, at + 64)):
                store(t, site, offset)
                persist(t, offset)

    found = explore(script, "!0=64", "!256=320", snapshot=True, sites={**SITES, 1: place(1, variable)})
    assert [finding.kind for finding in found.findings] == [FindingKind.RECOVERY_FAILURE] * bugs


@pytest.mark.parametrize(("late", "bugs"), [(False, 1), (True, 2)])
def test_one_flush_of_a_line_fixes_all_that_needs_it_later_if_all_is_stored_by_then(
    explore: Explore, late: bool, bugs: int
) -> None:
    def script(t: TraceBuilder) -> None:
        store(t, 1, 0)
        if not late:
            store(t, 2, 8)
        store(t, 3, 64)
        persist(t, 64)
        if late:
            store(t, 2, 8)
        store(t, 4, 128)
        persist(t, 128)

    found = explore(script, "64>0", "128>8", sites={**SITES, 2: place(2, "other.b")})
    assert [finding.kind for finding in found.findings] == [FindingKind.ORDERING] * bugs


@pytest.mark.parametrize(("marked", "bugs"), [(True, 2), (False, 1)])
def test_values_on_one_line_that_each_operation_needs_at_once_lack_a_flush_each(
    explore: Explore, marked: bool, bugs: int
) -> None:
    """Without marks all is one operation."""

    def script(t: TraceBuilder) -> None:
        for operation, (site, value, flag) in enumerate(((1, 0, 64), (2, 8, 128), (1, 16, 192)), start=1):
            if marked:
                t.begin(operation)
            store(t, site, value)
            store(t, site + 2, flag)
            persist(t, flag)
            if marked:
                t.end(operation)

    found = explore(script, "128>8", "192>16", sites={**SITES, 2: place(2, "other.b")})
    assert [finding.kind for finding in found.findings] == [FindingKind.ORDERING] * bugs


@pytest.mark.parametrize(("loop", "bugs"), [(9, 1), (8, 2)])
def test_stores_that_one_flush_persists_but_for_a_few_lack_that_flush(explore: Explore, loop: int, bugs: int) -> None:
    """`node.a` and `node.b` are stored by two functions, and flushed by a third in a loop, or each by its own."""

    def script(t: TraceBuilder) -> None:
        for forgotten, flushed, done in (((2, 256), (1, 0), 64), ((1, 512), (2, 384), 128)):
            store(t, *flushed)
            store(t, *forgotten)
            t.site = 9 if flushed[0] == 1 else loop
            t.clwb("p", flushed[1])
            t.site = 0
            t.sfence()
            store(t, 3, done)
            persist(t, done)

    own = place(8, "", function="add") if loop == 8 else place(9, "", function="commit")
    sites = {
        1: place(1, "node.a", function="change"),
        2: place(2, "item.b", function="add"),
        3: place(3, "root.first", function="commit"),
        8: own,
        9: place(9, "", function="commit"),
    }
    found = explore(script, "64>256", "128>512", sites=sites)
    assert [finding.kind for finding in found.findings] == [FindingKind.ORDERING] * bugs


def test_a_pair_stored_by_one_line_is_one_bug_in_either_order(explore: Explore) -> None:
    def script(t: TraceBuilder) -> None:
        for offset in (0, 64):
            store(t, 1, offset)
            persist(t, offset)
        store(t, 1, 256)
        store(t, 1, 320)
        persist(t, 256, 320)

    found = explore(script, "0=64", "320>256", snapshot=True, sites=SITES)
    (finding,) = found.findings
    assert (finding.kind, finding.states) == (FindingKind.ATOMICITY, found.states.failing)


@pytest.mark.parametrize(("last", "bugs"), [(3, 1), (4, 2)])
def test_a_pair_is_one_bug_in_either_order_whatever_is_stored_between(explore: Explore, last: int, bugs: int) -> None:
    def script(t: TraceBuilder) -> None:
        for site, offset in ((1, 0), (2, 128), (3, 64)):
            store(t, site, offset)
            persist(t, offset)
        store(t, 1, 256)
        store(t, last, 320)
        persist(t, 256, 320)

    found = explore(script, "0=64", "320>256", snapshot=True, sites=SITES)
    assert [finding.kind for finding in found.findings] == [FindingKind.ATOMICITY, FindingKind.ORDERING][:bugs]


@pytest.mark.parametrize(
    ("third", "fourth", "bugs"),
    [
        (place(3, "node.b"), place(4, "node.a"), 1),  # the other branch
        (place(3, "node.b", function="other"), place(4, "node.a", function="other"), 2),
        (place(3, "node.b"), place(4, "node.c"), 2),
    ],
)
def test_two_fields_stored_one_after_the_other_in_both_branches_are_one_bug(
    explore: Explore, third: Location, fourth: Location, bugs: int
) -> None:
    def script(t: TraceBuilder) -> None:
        for site, offset in ((1, 0), (2, 64), (3, 256), (4, 320)):
            store(t, site, offset)
            persist(t, offset)

    found = explore(script, "!0=64", "!256=320", snapshot=True, sites={**SITES, 3: third, 4: fourth})
    assert [finding.kind for finding in found.findings] == [FindingKind.RECOVERY_FAILURE] * bugs


def of(*where: str) -> tuple[str, ...]:
    return (AT, "hash.c", "1", "1", "", *where)


LOCK, UNLOCK, VALUE = of("lock", "bucket.lock"), of("unlock", "bucket.lock"), of("insert", "bucket.value")
HELD = Traits(FindingKind.RECOVERY_FAILURE, None, VALUE, LOCK, (), (3, 1), outcome=Outcome.TIMEOUT)
RELEASED = Traits(
    FindingKind.UNPERSISTED, MissingPersist.FLUSH, UNLOCK, ("",), (), (5, 1), left=LOCK, outcome=Outcome.TIMEOUT
)


def test_a_loss_that_leaves_what_recovery_cannot_bear_is_that_bug_again() -> None:
    assert fixed_together(HELD, RELEASED)
    assert not fixed_together(HELD, replace(RELEASED, outcome=Outcome.FAIL))
    assert not fixed_together(HELD, replace(RELEASED, left=UNLOCK))
    assert not fixed_together(HELD, replace(RELEASED, signs=frozenset({"query #: missing instead of query #: #"})))
    assert not fixed_together(HELD, replace(RELEASED, lost=LOCK))


COPY_KEY, COPY_VALUE = of("copy", "node.key"), of("copy", "node.value")
ERASE, MOVE = ("hash.c", "erase"), ("hash.c", "move")


def test_a_helper_that_two_functions_call_is_a_section_of_each() -> None:
    """Key and value, and in a later turn value and key: one loop's chain, but no chain from one caller to the other."""
    first = replace(HELD, kept=COPY_KEY, lost=COPY_VALUE, kept_by=(ERASE,), lost_by=(ERASE,))
    turned = replace(HELD, kept=COPY_VALUE, lost=COPY_KEY, kept_by=(ERASE,), lost_by=(ERASE,))
    assert fixed_together(first, turned)
    assert fixed_together(first, replace(turned, kept_by=(), lost_by=()))  # not known
    assert fixed_together(first, replace(turned, kept_by=(ERASE, MOVE), lost_by=(ERASE, MOVE)))
    assert not fixed_together(first, replace(turned, kept_by=(MOVE,), lost_by=(MOVE,)))


def test_a_helper_is_no_section_of_its_callers_if_they_write_other_files_with_it() -> None:
    """A new file that has no content yet, and a record of a log that is torn: one helper wrote both."""
    in_log, in_new = ((*COPY_VALUE[:4], files, *COPY_VALUE[5:]) for files in ("log", "new"))
    begun = replace(HELD, lost=in_new)
    torn = replace(HELD, torn=True)
    assert not fixed_together(begun, replace(torn, kept=in_log, lost=in_log))
    assert fixed_together(begun, replace(torn, kept=in_new, lost=in_new))
    assert not fixed_together(replace(torn, kept=in_log, lost=in_log), replace(torn, kept=in_new, lost=in_new))
    unsynced = Traits(FindingKind.ORDERING, MissingPersist.SYNC, in_log, LOCK)
    assert fixed_together(unsynced, replace(unsynced, lost=in_new))  # by one sync at the line


def test_a_section_within_one_function_is_one_bug_whatever_it_is_used_for() -> None:
    """One that writes any file: it opens the file, and writes it."""
    pairs = [
        ((AT, "io.c", "2", "1", use, "save", ""), (AT, "io.c", "3", "1", use, "save", "")) for use in ("index", "log")
    ]
    one, other = (replace(HELD, kept=opened, lost=written) for opened, written in pairs)
    assert fixed_together(one, other)
    at_a_line = [replace(each, lost=each.kept) for each in (one, other)]  # with open(...) as file:
    assert fixed_together(*at_a_line)
    assert not fixed_together(*(replace(each, torn=True) for each in at_a_line))
    in_two_calls = [replace(each, lost_by=(ERASE,), kept_by=(ERASE,)) for each in at_a_line]
    assert not fixed_together(*in_two_calls)
    assert not fixed_together(at_a_line[0], in_two_calls[1])
    assert not fixed_together(in_two_calls[1], at_a_line[0])
    in_another = [replace(each, lost=(*each.lost[:5], "put", "")) for each in (one, other)]
    assert not fixed_together(*in_another)


def test_the_callers_of_a_place_begin_at_the_function_that_the_end_is_in() -> None:
    main, put, commit = (Frame(name, "hash.c", line) for line, name in ((90, "main"), (20, "put"), (30, "put")))
    deep = Frame("copy", "hash.c", 40)
    end = replace(place(50, "log.entries"), stack=(commit, main))
    assert callers_within(replace(place(1, "node.key"), stack=(put, main)), end) == (("hash.c", "put"),)
    assert callers_within(replace(place(1, "node.key"), stack=(deep, deep, put, main)), end) == (
        ("hash.c", "copy"),
        ("hash.c", "put"),
    )
    assert callers_within(end, end) == callers_within(None, end) == callers_within(end, None) == ()
    assert callers_within(replace(place(1, "root.first"), stack=(main,)), end) == ()


def test_what_a_lock_leaves_is_that_bug_also_where_it_shows_only_after_another_update() -> None:
    held = replace(HELD, until=UNLOCK, replaced=LOCK)
    later = replace(held, kept=of("insert", "bucket.next"), lost=of("insert", "bucket.key"))
    assert fixed_together(held, later)
    assert not fixed_together(held, replace(later, replaced=VALUE))
    assert not fixed_together(held, replace(later, until=VALUE))
    assert not fixed_together(held, replace(later, outcome=Outcome.FAIL))
    anything = of("set", "")  # stored by a helper, which stores through any pointer
    assert not fixed_together(replace(held, kept=anything, replaced=anything), replace(later, replaced=anything))


def test_a_field_that_most_places_leave_is_forgotten_by_recovery() -> None:
    done = of("commit", "log.entries")
    some = [
        replace(HELD, kept=of(function, "node.parent"), lost=of(function, "node.color"), until=done)
        for function in ("rotate", "insert")
    ]
    assert len(bugs_of(mark_usual(some, lambda field: 3))) == 1
    assert len(bugs_of(mark_usual(some, lambda field: 4))) == 2
    assert len(bugs_of(mark_usual([some[0], replace(some[1], until=VALUE)], lambda field: 2))) == 2


def test_a_bug_is_a_recovery_failure_only_if_the_check_dies_on_all_that_it_leaves() -> None:
    wrong = replace(HELD, kind=FindingKind.ATOMICITY, kept=VALUE, lost=UNLOCK)
    assert leader([HELD, replace(HELD, lost=UNLOCK)], [0, 1]) == 0
    assert leader([HELD, wrong], [0, 1]) == 1


def test_a_missing_persist_is_identified_by_what_it_is_due_before_first() -> None:
    at_the_end = replace(RELEASED, due=Due.AT_THE_END)
    causes = [replace(RELEASED, due=Due.LATER), at_the_end, replace(RELEASED, due=Due.AT_ONCE), at_the_end]
    assert leader(causes, [0, 1, 2, 3]) == 2
    assert leader(causes, [0, 1, 3]) == 1


def test_the_rest_of_a_section_is_no_bug_of_its_own_where_its_beginning_was_not_found() -> None:
    whole = replace(HELD, until=UNLOCK, outcome=Outcome.FAIL)
    rest = replace(whole, kept=("", "another"), lost=("", "a third"), outcome=Outcome.TIMEOUT, given_up=True)
    assert bugs_of([rest, whole]) == [[0, 1]]
    assert leader([rest, whole], [0, 1]) == 1
    assert bugs_of([replace(rest, given_up=False), whole]) == [[0], [1]]
    assert bugs_of([replace(rest, until=VALUE), whole]) == [[0], [1]]
    assert bugs_of([replace(rest, until=()), replace(whole, until=())]) == [[0], [1]]


def test_two_that_must_persist_together_are_one_bug_whichever_is_lost() -> None:
    too_early = Traits(FindingKind.ORDERING, MissingPersist.FLUSH, LOCK, VALUE, (), (3, 1))
    assert fixed_together(HELD, too_early)
    assert not fixed_together(HELD, replace(too_early, kept=UNLOCK))


def test_the_same_half_of_a_pair_is_that_bug_only_where_it_does_the_same_harm() -> None:
    """A store of the next operation may persist before one that the previous operation never flushed: another bug."""
    carried = Traits(FindingKind.ORDERING, MissingPersist.FLUSH, VALUE, LOCK, (), (5, 1), outcome=Outcome.TIMEOUT)
    assert fixed_together(HELD, carried)
    assert not fixed_together(HELD, replace(carried, outcome=Outcome.FAIL))
    assert not fixed_together(HELD, replace(carried, signs=frozenset({"query #: missing instead of query #: #"})))
    ended = replace(HELD, until=UNLOCK)
    assert not fixed_together(ended, replace(carried, lost=UNLOCK, outcome=Outcome.FAIL))
    assert fixed_together(ended, replace(carried, lost=LOCK, kept=UNLOCK, outcome=Outcome.FAIL))


def test_what_is_uncertain_joins_the_proved_bug_that_one_fix_would_fix(explore: Explore) -> None:
    found = explore(lambda t: two_values(t, 0, 128), "64>0", "64>128", sites=SITES, unexplained={"p": [(128, 136)]})
    (finding,) = found.findings
    assert (finding.location.line, finding.evidence.other and finding.evidence.other.line) == (3, 1)
    assert finding.note == (
        "probably for the same reason, not proved: "
        "`root.first` (hash.c:3) can survive a crash without `node.b` (hash.c:2)"
    )
    assert finding.states == found.states.failing == 3
    assert (found.uncertain, found.states.uncertain) == ((), 0)


def test_what_was_not_run_again_is_no_state_of_the_proved_bug_that_it_joins(
    explore: Explore, monkeypatch: pytest.MonkeyPatch
) -> None:
    doubt = Register.doubt

    def doubt_once(register: Register, draft: DraftFinding, proof: PrefixProof | None, folder: Path) -> None:
        doubt(register, draft, proof, folder)
        draft.failed_once = bool(draft.uncertain)

    monkeypatch.setattr(Register, "doubt", doubt_once)
    found = explore(lambda t: two_values(t, 0, 128), "64>0", "64>128", sites=SITES, unexplained={"p": [(128, 136)]})
    (finding,) = found.findings
    assert "not proved" in finding.note
    assert 1 <= finding.states < found.states.failing


def test_what_is_uncertain_stays_apart_from_a_bug_that_needs_another_fix(explore: Explore) -> None:
    found = explore(lambda t: two_values(t, 0), "64>0", "64>128", sites=SITES, unexplained={"p": [(128, 136)]})
    assert (len(found.findings), len(found.uncertain)) == (1, 1)
    assert found.states.uncertain == found.uncertain[0].states > 0


def test_a_section_that_is_not_proved_joins_the_loss_of_its_store() -> None:
    """A store that no log entry covers: `kill -9` may leave it alone, and the commit does not persist it."""
    loss = Traits(FindingKind.UNPERSISTED, MissingPersist.FLUSH, VALUE, ("",))
    section = Traits(FindingKind.ATOMICITY, None, UNLOCK, VALUE, uncertain=True)
    assert fixed_together(loss, section)
    assert fixed_together(loss, replace(section, kept=LOCK, lost=VALUE))
    assert not fixed_together(loss, replace(section, uncertain=False))
    assert not fixed_together(loss, replace(section, kept=LOCK))
    assert not fixed_together(replace(loss, uncertain=True), section)


def test_a_proved_section_joins_the_loss_of_its_store_if_the_operation_logs_others_and_not_that() -> None:
    loss = Traits(FindingKind.UNPERSISTED, MissingPersist.FLUSH, VALUE, ("",))
    section = Traits(FindingKind.ATOMICITY, None, UNLOCK, VALUE)
    assert not fixed_together(loss, section)
    assert fixed_together(replace(loss, unlogged=True), section)
    assert fixed_together(section, replace(loss, unlogged=True, uncertain=True))
    assert not fixed_together(replace(loss, unlogged=True), replace(section, kept=LOCK))


@pytest.mark.parametrize(("logged", "bugs"), [(True, 1), (False, 2)])
def test_one_missing_log_entry_is_one_finding_although_it_shows_in_two_ways(
    explore: Explore, logged: bool, bugs: int
) -> None:
    """The commit persists the update that is logged, and forgets the other, which is not rolled back either."""
    old = bytes(8) + bytes(range(1, 9))

    def transfer(t: TraceBuilder) -> None:
        t.store("p", 128, 16, old)
        persist(t, 128)
        t.begin(1)
        t.store("p", 512, 16, old if logged else bytes(range(16)))
        persist(t, 512)
        store(t, 1, 0)
        store(t, 2, 128)
        persist(t, 128)
        t.end(1)

    found = explore(transfer, "0>128", "1:0", sites=SITES, snapshot=True)
    assert found.uncertain == ()
    assert len(found.findings) == bugs
    kinds = {finding.kind: finding for finding in found.findings}
    assert kinds[FindingKind.ATOMICITY].location.variable == "node.a"
    loss = "`node.a` can be lost after operation 1 was acknowledged (hash.c:1)"
    assert (kinds[FindingKind.ATOMICITY].note.endswith(f"the same fix also fixes: {loss}")) is logged
    assert (FindingKind.UNPERSISTED in kinds) is not logged


def test_what_is_uncertain_links_no_two_proved_bugs() -> None:
    one = Traits(FindingKind.UNPERSISTED, MissingPersist.FLUSH, LOCK, ("",), line=(3, 1))
    other = replace(one, lost=VALUE, line=(5, 2))
    between = Traits(FindingKind.ATOMICITY, None, LOCK, VALUE, uncertain=True)
    assert bugs_of([between, one, other]) == [[1, 0], [2]]
    assert leader([between, one], [0, 1]) == 1


def test_what_needs_half_of_a_misaligned_store_joins_a_surer_bug_and_never_leads_it() -> None:
    sure = Traits(FindingKind.ORDERING, MissingPersist.FLUSH, LOCK, VALUE)
    half = replace(sure, kept=UNLOCK, half_store=True)
    unproved = replace(sure, kind=FindingKind.UNPERSISTED, kept=("",), uncertain=True)
    assert bugs_of([unproved, half, sure]) == [[2, 1, 0]]
    assert leader([unproved, half, sure], [2, 1, 0]) == 2
    assert bugs_of([unproved, half]) == [[1, 0]]
    assert leader([unproved, half], [1, 0]) == 1


@pytest.mark.parametrize(("flushed", "bugs"), [((), 1), ((512,), 2)])
def test_an_operation_that_persists_nothing_is_one_bug(explore: Explore, flushed: tuple[int, ...], bugs: int) -> None:
    """Two objects of two functions: where the operation flushes something, each of them lacks its own flush."""

    def load(t: TraceBuilder) -> None:
        t.begin(1)
        store(t, 1, 0)
        store(t, 2, 128)
        for offset in flushed:
            t.store("p", offset, 8, 7)
            persist(t, offset)
        t.end(1)

    sites = {1: place(1, "node.a", function="load"), 2: place(2, "item.b", function="add")}
    found = explore(load, "1:0", "1:128", sites=sites)
    assert [finding.kind for finding in found.findings] == [FindingKind.UNPERSISTED] * bugs


def test_two_operations_that_persist_nothing_are_two_bugs(explore: Explore) -> None:
    def loads(t: TraceBuilder) -> None:
        for operation, offset in ((1, 0), (2, 128)):
            t.begin(operation)
            store(t, operation, offset)
            t.end(operation)

    sites = {1: place(1, "node.a", function="load"), 2: place(2, "item.b", function="add")}
    found = explore(loads, "1:0", "2:128", sites=sites)
    assert [finding.kind for finding in found.findings] == [FindingKind.UNPERSISTED] * 2


def test_one_store_torn_in_one_place_is_one_bug_however_the_check_ends_on_it() -> None:
    torn = Traits(FindingKind.ATOMICITY, None, VALUE, VALUE, torn=True)
    assert fixed_together(torn, replace(torn, kind=FindingKind.RECOVERY_FAILURE, outcome=Outcome.SIGNAL))
    assert not fixed_together(torn, replace(torn, lost=LOCK))


def test_a_loss_that_was_met_after_its_acknowledgement_is_identified_by_what_needed_it_before(explore: Explore) -> None:
    def script(t: TraceBuilder) -> None:
        t.begin(1)
        store(t, 1, 0)
        t.end(1)
        t.begin(2)
        store(t, 1, 256)
        store(t, 3, 320)
        persist(t, 320)
        t.end(2)

    found = explore(script, "1:0", "320>256", sites=SITES)
    (finding,) = found.findings
    assert finding.message == "`root.first` (hash.c:3) can survive a crash without `node.a` (hash.c:1)"
    assert finding.kind is FindingKind.ORDERING
