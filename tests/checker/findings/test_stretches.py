"""Moments that fail one after the other: one finding, its beginning and end found in few runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from crashcheck.checker.budget import Budget, Meter
from crashcheck.checker.execution.process import Limits
from crashcheck.checker.findings import stretches
from crashcheck.checker.findings.classify import Classifier
from crashcheck.checker.findings.register import KILL_FAILS_TOO, Register
from crashcheck.checker.results import FindingKind
from crashcheck.checker.verdicts.verdict_cache import VerdictCache
from support.checked_worlds import (
    VALID,
    VALUE,
    MakeWorld,
    World,
    apply_log,
    only,
    persist,
    place,
    words,
)
from support.tracing import TraceBuilder


def test_consecutive_failing_points_are_one_finding_and_like_states_there_are_dropped(world: MakeWorld) -> None:
    def long(t: TraceBuilder) -> None:
        t.store("p", 0, 8, 5)
        persist(t, 0)
        for extra in range(3):  # while 0 and 64 differ
            t.store("p", 512 + 128 * extra, 8, 1)
            t.store("p", 576 + 128 * extra, 8, 1)
            persist(t, 512 + 128 * extra, 576 + 128 * extra)
        t.store("p", 64, 8, 5)
        persist(t, 64)

    subject = world(long, "0=64")
    found = subject.explore(snapshot=subject.real_snapshot)
    finding = only(found.findings)
    assert finding.kind is FindingKind.ATOMICITY
    assert finding.states == found.states.failing > 4


@pytest.mark.parametrize(("how", "runs"), [("", 100), ("~", 30)])
def test_the_ends_of_a_long_stretch_are_found_in_few_runs_where_each_hangs(
    world: MakeWorld, how: str, runs: int
) -> None:
    def long(t: TraceBuilder) -> None:
        for offset in (0, *range(512, 512 + 8 * 120, 8), 64):
            t.store("p", offset, 8, 1)
            persist(t, offset)

    recorded = world(long, f"{how}0=64", limits=Limits(timeout_s=0.3))
    with recorded.executor() as executor:
        verdicts = VerdictCache(executor, recorded.content, Meter(Budget()))
        verdicts.allow(1000)
        deciding = Classifier(recorded.subject, verdicts)
        cause = deciding.stretches.cause(recorded.subject.event_of(100))
        assert (cause.kept, cause.lost, cause.complete) == (0, 1, True)
        assert verdicts.runs <= runs + 5
        assert cause.moment is not None
        assert deciding.stretches.end(cause.moment)[0] == len(recorded.graph) - 1


@pytest.mark.parametrize(("walked", "given_up"), [(2, True), (4, False), (5, False)])
def test_a_stretch_whose_beginning_was_not_found_is_described_as_such(
    tmp_path: Path, clauses: Path, monkeypatch: pytest.MonkeyPatch, walked: int, given_up: bool
) -> None:
    """Four moments fail, from after the first store until the last: at the last of them a walk back begins."""
    monkeypatch.setattr(stretches, "_WALK_BACK", walked)

    def script(t: TraceBuilder) -> None:
        for site, offset in ((1, 0), (3, 64), (3, 128), (3, 192), (2, 256)):
            t.site = site
            t.store("p", offset, 8, 1)

    check = words([str(clauses), "{pool}/p", "{acked}", "0=256"])
    world = World(tmp_path / "world", check, script, sites={1: VALUE, 2: VALID, 3: place(50, "entry.more")})
    last = len(world.trace.events) - 1
    with world.executor() as executor:
        verdicts = VerdictCache(executor, world.content, Meter(Budget()))
        verdicts.allow(100)
        cause = Classifier(world.subject, verdicts).stretches.cause(last)
    register = Register(world.subject)
    register.add(cause)
    (bug,) = register.bugs()
    assert cause.given_up is given_up
    assert (stretches.GIVEN_UP in bug.finding.note) is given_up
    assert (bug.finding.location.line == VALUE.line) is not given_up


@pytest.mark.parametrize(
    ("operations", "first", "kept", "lost"),
    [
        pytest.param(2, 1, "slot.token", "slot.key", id="another operation shows the beginning"),
        pytest.param(1, 1, "slot.key", "slot.value", id="there is no other"),
        pytest.param(2, 2, "slot.key", "slot.value", id="the other one came there by another way"),
    ],
)
def test_a_section_begins_where_it_does_in_another_operation_that_old_contents_do_not_hide(
    world: MakeWorld, operations: int, first: int, kept: str, lost: str
) -> None:
    """Token, key, value: after the token alone the first slot still looks whole, by what was in it before."""

    def put(t: TraceBuilder, at: int, key: int, first: int) -> None:
        for site, value in list(enumerate((1, key, key), 1))[first - 1 :]:
            t.site = site
            t.store("p", at + 8 * (site - 1), 8, value)
            t.site = 0
            persist(t, at + 8 * (site - 1))

    def run(t: TraceBuilder) -> None:
        t.store("p", 0, 8, first - 1)
        t.store("p", 8, 16, (5).to_bytes(8, "little") * 2)
        persist(t, 0)
        for number, at in enumerate((0, 512)[:operations], 1):
            t.begin(number)
            put(t, at, 7, first if number == 1 else 1)
            t.end(number)

    sites = {1: place(10, "slot.token"), 2: place(11, "slot.key"), 3: place(12, "slot.value")}
    recorded = world(run, "0>8", "8=16", "512>520", "520=528", sites=sites)
    with recorded.executor() as executor:
        verdicts = VerdictCache(executor, recorded.content, Meter(Budget()))
        verdicts.allow(100)
        value = next(
            p for p in range(len(recorded.graph)) if recorded.trace.events["site"][recorded.graph.event[p]] == 3
        )
        cause = Classifier(recorded.subject, verdicts).stretches.cause(recorded.subject.event_of(value))
    names = {
        piece: sites[int(recorded.trace.events["site"][recorded.subject.event_of(piece)])].variable
        for piece in (cause.kept, cause.lost)
        if piece is not None
    }
    assert list(names.values()) == [kept, lost]
    assert verdicts.runs < 20


def test_elsewhere_no_stretch_is_followed_further_than_its_beginning_would_help(world: MakeWorld) -> None:
    """In the second operation much fails before the same two updates: what that is, is not asked."""

    def run(t: TraceBuilder) -> None:
        for number, (at, more, before) in enumerate(((0, 2048, 1), (512, 1024, 100)), 1):
            t.begin(number)
            for site, place_, many in ((3, more, before), (1, at, 1), (2, at + 8, 1)):
                for word in range(many):
                    t.site = site
                    t.store("p", place_ + 8 * word, 8, 7)
                    t.site = 0
                    persist(t, place_ + 8 * word)
            t.end(number)

    sites = {1: VALUE, 2: VALID, 3: place(50, "entry.more")}
    recorded = world(run, "0=8", "512=520", "1024=520", sites=sites)
    with recorded.executor() as executor:
        verdicts = VerdictCache(executor, recorded.content, Meter(Budget()))
        verdicts.allow(400)
        cause = Classifier(recorded.subject, verdicts).stretches.cause(recorded.subject.event_of(2))
    assert (cause.kept, cause.lost, cause.complete) == (1, 2, True)
    assert 3 <= verdicts.runs < 20


@pytest.mark.parametrize(
    ("claims", "proved", "expected"),
    [
        (("0>64",), False, []),
        (("64>0",), False, [("b", "")]),
        (("64>0", "0=128"), False, [("b", "")]),
        (("64>0", "128>64", "64>128"), False, [("b", "probably shows"), ("c", "probably shows")]),
        (("64>0", "128>64", "64>128"), True, [("b", "shows")]),
    ],
    ids=["in order", "reordered only", "other harm", "no recovery", "no recovery, proved"],
)
def test_a_reordering_says_so_where_kill_shows_its_harm_too(
    world: MakeWorld, claims: tuple[str, ...], proved: bool, expected: list[tuple[str, str]]
) -> None:
    subject = world(apply_log, *claims, sites={1: place(1, "a"), 2: place(2, "b"), 3: place(3, "c")})
    found = subject.explore(snapshot=subject.real_snapshot if proved else None).findings
    notes = {how: KILL_FAILS_TOO.format(how, "before the store at hash.c:3") for how in ("shows", "probably shows")}
    assert [
        (finding.location.variable, next((how for how, note in notes.items() if note in finding.note), ""))
        for finding in found
        if finding.kind is FindingKind.ORDERING
    ] == expected


def test_a_loss_of_an_earlier_operation_has_nothing_to_do_with_where_kill_shows_another_bug(world: MakeWorld) -> None:
    def run(t: TraceBuilder) -> None:
        for number, stored in enumerate((((1, 0),), ((2, 512), (3, 576))), 1):
            t.begin(number)
            for site, offset in stored:
                t.site = site
                t.store("p", offset, 8, 5)
                t.site = 0
                if site > 1:
                    persist(t, offset)
            t.end(number)

    sites = {1: place(1, "value"), 2: place(2, "a"), 3: place(3, "b")}
    recorded = world(run, "!512>0", "!512=576", sites=sites)
    found = recorded.explore(snapshot=recorded.real_snapshot).findings
    notes = {(finding.kind, finding.location.variable): finding.note for finding in found}
    assert set(notes) == {(FindingKind.UNPERSISTED, "value"), (FindingKind.RECOVERY_FAILURE, "a")}
    assert "it, too" not in notes[FindingKind.UNPERSISTED, "value"]


SECOND, HALF = 2048, 20  # where the second of two operations stores; words that half a stretch stores


def put_twice(t: TraceBuilder, another: bool) -> None:
    """Twice: a word, many others, and a word that must equal the first; or in the middle of the second operation that
    word, and after some others one more pair."""
    for number, at in enumerate((0, SECOND), 1):
        t.begin(number)
        two = another and number == 2
        others = [(3, 64 + 8 * word) for word in range(3 * HALF)]
        middle = [(2, 1024), *others[HALF : 2 * HALF], (4, 1100), *others[2 * HALF :], (5, 1200)]
        for site, offset in ((1, 0), *others[:HALF], *(middle if two else [*others[HALF:], (2, 1024)])):
            t.site = site
            t.store("p", at + offset, 8, 1)
            t.site = 0
            persist(t, at + offset)
        t.end(number)


@pytest.mark.parametrize("another", [False, True])
def test_a_stretch_that_begins_as_a_known_one_does_is_found_in_a_few_runs(world: MakeWorld, another: bool) -> None:
    """Unless another one began since then."""
    sites = {1: VALUE, 2: VALID, 3: place(50, "entry.more"), 4: place(60, "entry.a"), 5: place(61, "entry.b")}
    claims = ("0=1024", f"{SECOND}={SECOND + 1024}", f"{SECOND + 1100}={SECOND + 1200}")
    recorded = world(lambda t: put_twice(t, another), *claims, sites=sites)
    updates = recorded.graph.event
    first = next(int(event) for event in updates if recorded.trace.events["site"][event] == 2)
    last = int(updates[-1])
    with recorded.executor() as executor:
        verdicts, again = (VerdictCache(executor, recorded.content, Meter(Budget())) for _ in range(2))
        verdicts.allow(1000)
        again.allow(1000)
        known = Classifier(recorded.subject, verdicts).stretches.cause(first)
        exact = Classifier(recorded.subject, verdicts).stretches.cause(last)
        found = Classifier(recorded.subject, again, lambda: [known]).stretches.cause(last)
    assert known.moment is not None
    assert exact.moment is not None
    assert known.moment < exact.moment
    assert (found.kind, found.moment, found.lost, found.kept) == (exact.kind, exact.moment, exact.lost, exact.kept)
    assert another or again.runs <= 12
