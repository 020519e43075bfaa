"""What is to blame, and which kind it is, for small recorded runs whose answer is known."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from crashcheck.analyzer.persistence.graph import Options
from crashcheck.analyzer.persistence.pieces import DATA
from crashcheck.checker.baseline import Known, matched
from crashcheck.checker.budget import Budget, Meter
from crashcheck.checker.evidence import CrashSchedule
from crashcheck.checker.execution.process import Ended, Limits
from crashcheck.checker.findings.cause import CUT_SHORT
from crashcheck.checker.findings.classify import Classifier
from crashcheck.checker.findings.describe import name_of
from crashcheck.checker.findings.identity import Identities
from crashcheck.checker.findings.prefix_proof import NO_SNAPSHOT, ON_REAL_FILES
from crashcheck.checker.findings.register import UNEXPLAINED
from crashcheck.checker.images.real_files import RealFiles
from crashcheck.checker.oracles.exit_status import ExitStatus
from crashcheck.checker.policy import Suppression
from crashcheck.checker.results import KILL_SHOWS_IT, FindingKind, Frame, StopReason, Verdict
from crashcheck.checker.search import failures
from crashcheck.checker.states.space import CrashState, StateSpace
from crashcheck.checker.strategies.exhaustive import Exhaustive
from crashcheck.checker.strategies.plan import NOTHING, Decided
from crashcheck.checker.verdicts.verdict_cache import VerdictCache
from crashcheck.runtime.trace_format import Kind, OutputKind
from support.checked_worlds import (
    STEPS,
    VALID,
    VALUE,
    MakeWorld,
    World,
    only,
    persist,
    place,
    put_flag_first,
    two_steps,
    words,
)
from support.tracing import TraceBuilder


def test_a_flag_that_may_persist_before_its_value_is_an_ordering_bug(world: MakeWorld) -> None:
    found = world(put_flag_first, "64>0", "320>256", "576>512", sites={1: VALUE, 2: VALID}).explore()
    finding = only(found.findings)
    assert finding.kind is FindingKind.ORDERING
    assert finding.message == "`entry.valid` (hash.c:42) can survive a crash without `entry.value` (hash.c:40)"
    assert (finding.location, finding.evidence.other) == (VALID, VALUE)
    assert finding.evidence.crash_point == "before the fence, in operation 1; 0 operations acknowledged"
    assert finding.evidence.verdict.output == "64>0 does not hold\n"
    assert finding.model == "px86"
    assert type(finding.evidence) is CrashSchedule
    assert found.uncertain == ()
    assert found.stop_reason is StopReason.EXHAUSTED


def test_failing_states_are_merged_by_site_and_counted(world: MakeWorld) -> None:
    found = world(put_flag_first, "64>0", "320>256", "576>512", sites={1: VALUE, 2: VALID}).explore()
    assert only(found.findings).states == 3
    assert found.states.failing == 3
    assert found.states.executed == found.states.feasible == 13


def test_the_schedule_shows_the_fate_of_each_update(world: MakeWorld) -> None:
    finding = only(world(put_flag_first, "64>0", sites={1: VALUE, 2: VALID}).explore().findings)
    assert [(step.what, step.state, step.detail, step.granule) for step in finding.evidence.schedule] == [
        ("mark", "", "operation 1 begins", -1),
        ("store", "lost", "entry.value = 07 00 00 00 00 00 00 00", 0),
        ("store", "persisted", "entry.valid = 01 00 00 00 00 00 00 00", 1),
        ("flush", "", "clwb", 1),
    ]
    assert [(node.label, node.state, node.granule) for node in finding.evidence.nodes] == [
        ("entry.value", "lost", 0),
        ("entry.valid", "persisted", 1),
    ]
    assert finding.evidence.edges == ()


def test_the_schedule_separates_what_a_write_did_to_the_size_from_what_it_wrote(world: MakeWorld) -> None:
    def append(t: TraceBuilder) -> None:
        t.site = 1
        t.write("p", 8192, b"\1" * 8)
        t.site = 2
        t.store("p", 0, 8, 1)

    finding = only(world(append, "0>8192", model="page-cache", sites={1: VALUE, 2: VALID}).explore().findings)
    assert [(step.what, step.state, step.detail, step.granule) for step in finding.evidence.schedule] == [
        ("write", "persisted", "size = 8200", -1),
        ("write", "lost", "entry.value = 01 01 01 01 01 01 01 01", 2),
        ("store", "persisted", "entry.valid = 01 00 00 00 00 00 00 00", 0),
    ]


def test_the_schedule_names_what_was_sent_and_leaves_out_standard_error(world: MakeWorld) -> None:
    def report_and_send(t: TraceBuilder) -> None:
        t.site = 1
        t.store("p", 0, 8, 7)
        t.site = 0
        t.event(Kind.OUTPUT, aux=OutputKind.STDERR)
        t.event(Kind.OUTPUT, aux=OutputKind.SOCKET)
        t.site = 2
        t.store("p", 64, 8, 1)

    finding = only(world(report_and_send, "64>0", sites={1: VALUE, 2: VALID}).explore().findings)
    assert [(step.what, step.detail[:18]) for step in finding.evidence.schedule] == [
        ("store", "entry.value = 07 0"),
        ("output", "bytes for a socket"),
        ("store", "entry.valid = 01 0"),
    ]


GROWN = """
flag=$(od -An -tu8 -N8 {pool}/p); log=$(od -An -tu8 -j8192 -N8 {pool}/p)
test $(stat -c %s {pool}/p) -le 8192 || test $flag -ne 0 || test $log -ne 0
"""


def test_a_file_that_was_removed_is_named_by_its_removal(tmp_path: Path) -> None:
    """Its name is what does not survive."""
    recorded = World(tmp_path / "world", words(["/bin/true"]), lambda t: t.unlink("p"), model="page-cache")
    graph = recorded.subject.graph
    (name,) = (piece for piece in range(len(graph)) if graph.piece(piece).kind == "exists")
    assert name_of(recorded.subject, name) == "the removal of p"


def test_a_log_that_grew_without_its_bytes_is_not_called_a_size_before_another_store(tmp_path: Path) -> None:
    """The flag must be lost as well: it is the first loss, but what recovery reads wrongly is the log."""

    def append(t: TraceBuilder) -> None:
        t.site = 2
        t.store("p", 0, 8, 1)
        t.site = 1
        t.write("p", 8192, b"\1" * 8)

    calls = (Frame("put", "/lib/put.c", 3), Frame("main", "app.c", 9))
    log = replace(place(7, "log.record", file="/lib/log.c"), stack=calls)
    check = words(["/bin/sh", "-c", GROWN])
    recorded = World(tmp_path / "world", check, append, model="page-cache", sites={1: log, 2: VALID})
    finding = only(recorded.explore().findings)
    assert finding.message == (
        "the size 8200 of p can survive a crash without `log.record` of the same call, which fails the check and "
        "reads zeros there (log.c:7, called from app.c:9)"
    )
    assert finding.kind is FindingKind.ATOMICITY
    graph = recorded.subject.graph
    flag, size = (
        next(piece for piece in range(len(graph)) if graph.piece(piece).kind == kind) for kind in ("data", "size")
    )
    former = Identities(recorded.subject).stable(FindingKind.ORDERING, flag, size)
    assert former in finding.likenesses
    assert matched([finding], [Known(former, (), "ordering", "")]) == {0: 0}


def test_a_crash_point_mentions_operations_and_output_only_where_the_run_had_some(world: MakeWorld) -> None:
    def put(t: TraceBuilder) -> None:
        t.store("p", 0, 8, 7)
        t.store("p", 64, 8, 1)
        persist(t, 64)

    def put_and_print(t: TraceBuilder) -> None:
        t.output(5)
        put(t)

    quiet = only(world(put, "64>0", name="quiet").explore().findings)
    assert quiet.evidence.crash_point == "before the fence"
    talking = only(world(put_and_print, "64>0", name="talking").explore().findings)
    assert talking.evidence.crash_point == "before the fence; 5 bytes printed"


def test_a_value_that_is_persisted_first_is_clean(world: MakeWorld) -> None:
    def fixed(t: TraceBuilder) -> None:
        t.begin(1)
        t.store("p", 0, 8, 7)
        persist(t, 0)
        t.store("p", 64, 8, 1)
        persist(t, 64)
        t.end(1)

    found = world(fixed, "64>0", "1:64").explore()
    assert (found.findings, found.uncertain, found.states.failing) == ((), (), 0)


def test_the_other_store_is_what_had_persisted_for_sure_not_a_later_bystander(world: MakeWorld) -> None:
    """Losing the value fails at first as the half-done pair does, and so is seen only once the flag is durable."""

    def pair_and_flag(t: TraceBuilder) -> None:
        for t.site, offset in ((1, 0), (3, 128), (2, 64)):
            t.store("p", offset, 8, 1)
        t.site = 0
        persist(t, 128, 64)
        for t.site, offset in ((4, 192), (5, 256)):
            t.store("p", offset, 8, 1)
        t.site = 0
        persist(t, 192)

    sites = {1: VALUE, 2: VALID, **{site: place(40 + site, f"entry.field{site}") for site in (3, 4, 5)}}
    found = world(pair_and_flag, "64>0", "128>192", sites=sites).explore()
    assert "`entry.valid` (hash.c:42) can survive a crash without `entry.value` (hash.c:40)" in [
        finding.message for finding in found.findings
    ]


class Verbose(ExitStatus):
    """Adds to the output where the crash was, which the check did not print."""

    def judge(self, ended: Ended, names: Mapping[str, str], point: int = 0) -> Verdict:
        verdict = super().judge(ended, names, point)
        return replace(verdict, output=f"crashed {'within' if self.begins <= point else 'before'}\n{verdict.output}")

    begins = 0  # crash point


def test_a_loss_seen_late_is_blamed_on_what_made_it_harmful_whatever_the_oracle_reports_of_the_crash(
    world: MakeWorld,
) -> None:
    """At the point where it is seen another bug makes the check fail with nothing lost as well."""

    def late(t: TraceBuilder) -> None:
        for t.site, offset in ((1, 0), (2, 64)):
            t.store("p", offset, 8, 1)
        t.site = 0
        persist(t, 64)
        t.begin(1)
        for t.site, offset in ((3, 128), (4, 192)):
            t.store("p", offset, 8, 1)
            at, t.site = t.site, 0
            persist(t, offset)
            t.site = at
        t.end(1)

    sites = {1: VALUE, 2: VALID, 3: place(50, "pair.one"), 4: place(51, "pair.two")}
    oracle = Verbose()
    recorded = world(late, "!64>0", "128=192", sites=sites, oracle=oracle)
    oracle.begins = int(np.flatnonzero(recorded.space.points.begun)[0])
    between = next(p.index for p in recorded.space.points if p.event == recorded.subject.event_of(2) + 2)
    with recorded.executor() as executor:
        verdicts = VerdictCache(executor, recorded.content, Meter(Budget()))
        verdicts.allow(400)
        state = recorded.space.drop(between, (0,))
        assert not verdicts.verdict(recorded.space.full(between)).passed
        cause = Classifier(recorded.subject, verdicts).decide(state, verdicts.verdict(state))
    assert (cause.kind, cause.lost, cause.kept) == (FindingKind.ORDERING, 0, 1)


def test_two_bugs_in_one_state_become_two_findings(world: MakeWorld) -> None:
    def both(t: TraceBuilder) -> None:
        for site, offset in ((1, 0), (2, 64), (3, 128), (4, 192)):
            t.site = site
            t.store("p", offset, 8, 1)
        t.site = 0
        persist(t, 0, 64, 128, 192)

    sites = {site: place(site, f"v{site}") for site in (1, 2, 3, 4)}
    found = world(both, "64>0", "192>128", sites=sites).explore()
    assert sorted(finding.message for finding in found.findings) == [
        "`v2` (hash.c:2) can survive a crash without `v1` (hash.c:1)",
        "`v4` (hash.c:4) can survive a crash without `v3` (hash.c:3)",
    ]
    assert sum(finding.states for finding in found.findings) == found.states.failing


def test_an_update_that_only_hides_the_failure_where_it_persists_is_not_to_blame(world: MakeWorld) -> None:
    """A check that waits for a held lock shows nothing else: the lock must be lost as well, as an older update is."""

    def locked(t: TraceBuilder) -> None:
        for site, offset in ((3, 0), (4, 192), (1, 64), (2, 128)):
            t.site = site
            t.store("p", offset, 8, 1)
        t.clwb("p", 128)

    lock = place(30, "entry.lock")
    sites = {1: VALUE, 2: VALID, 3: lock, 4: place(31, "entry.next")}
    found = world(locked, "~0>1024", "128>64", sites=sites, limits=Limits(timeout_s=0.2)).explore()
    ordering = only([finding for finding in found.findings if finding.kind is FindingKind.ORDERING])
    assert ordering.message == "`entry.valid` (hash.c:42) can survive a crash without `entry.value` (hash.c:40)"


def test_an_acknowledged_update_that_may_be_lost_is_unpersisted(world: MakeWorld) -> None:
    def forgotten(t: TraceBuilder) -> None:
        t.begin(1)
        t.site = 1
        t.store("p", 0, 8, 5)
        t.site = 0
        t.end(1)
        t.begin(2)
        t.store("p", 128, 8, 6)
        persist(t, 128)
        t.end(2)

    finding = only(world(forgotten, "1:0", "2:128", sites={1: place(3, "x", file="f.c")}).explore().findings)
    assert finding.kind is FindingKind.UNPERSISTED
    assert finding.message == "`x` can be lost after operation 1 was acknowledged (f.c:3)"
    assert finding.evidence.other is None
    assert finding.evidence.crash_point == "before operation 2 begins; 1 operation acknowledged"
    assert finding.states == 3


def test_a_prefix_that_the_check_rejects_is_an_atomicity_bug_if_the_files_really_were_so(world: MakeWorld) -> None:
    subject = world(two_steps, "0=64", sites=STEPS)
    finding = only(subject.explore(snapshot=subject.real_snapshot).findings)
    assert finding.kind is FindingKind.ATOMICITY
    assert (
        finding.message == "a crash between `a` (hash.c:10) and `b` (hash.c:12) leaves a state that the check rejects"
    )
    assert finding.note == KILL_SHOWS_IT
    assert finding.uncertain == ""


def test_a_section_of_more_than_two_updates_names_the_one_that_ends_it(world: MakeWorld) -> None:
    def three_steps(t: TraceBuilder) -> None:
        for site, offset in ((1, 0), (2, 128), (3, 64)):
            t.site = site
            t.store("p", offset, 8, 1)
            t.site = 0
            persist(t, offset)

    sites = {number: place(10 + number, name) for number, name in ((1, "a"), (2, "b"), (3, "c"))}
    subject = world(three_steps, "0=64", sites=sites)
    finding = only(subject.explore(snapshot=subject.real_snapshot).findings)
    assert finding.message.startswith("a crash between `a` (hash.c:11) and `c` (hash.c:13) leaves")
    assert isinstance(finding.evidence, CrashSchedule)
    assert finding.evidence.other is not None
    assert finding.evidence.other.line == 13
    assert finding.note == KILL_SHOWS_IT


def test_a_section_ends_before_the_next_one_begins(world: MakeWorld) -> None:
    def twice(t: TraceBuilder) -> None:
        for t.site, offset in ((1, 0), (2, 128), (3, 64), (4, 192), (5, 320), (6, 256)):
            t.store("p", offset, 8, 1)

    sites = {number: place(10 + number, name) for number, name in enumerate("abcdef", 1)}
    subject = world(twice, "0=64", "192=256", sites=sites)
    finding = only(subject.explore(snapshot=subject.real_snapshot).findings)
    assert finding.message.startswith("a crash between `a` (hash.c:11) and `c` (hash.c:13) leaves")


def test_a_section_that_the_next_store_to_its_place_ends_says_so(world: MakeWorld) -> None:
    def there_and_back(t: TraceBuilder) -> None:
        t.site = 1
        for value in (1, 0):
            t.store("p", 0, 8, value)
            persist(t, 0)

    subject = world(there_and_back, "0=64", sites={1: place(11, "a")})
    finding = only(subject.explore(snapshot=subject.real_snapshot).findings)
    assert finding.message == (
        "a crash between `a` and the next store to it leaves a state that the check rejects (hash.c:11)"
    )


def test_a_section_has_one_id_whether_the_check_rejects_what_it_leaves_or_dies_of_it(world: MakeWorld) -> None:
    rejects, dies = (world(two_steps, claim, name=claim, sites=STEPS) for claim in ("0=64", "!0=64"))
    rejected, died = (only(each.explore(snapshot=each.real_snapshot).findings) for each in (rejects, dies))
    assert (rejected.kind, died.kind) == (FindingKind.ATOMICITY, FindingKind.RECOVERY_FAILURE)
    assert rejected.id == died.id == "89f527f2f3b9"
    assert rejected.likenesses == died.likenesses
    for former in ("89f527f2f3b9", "e443759bf822"):  # the ids of version 0.1
        assert matched([rejected], [Known(former, (), "", "")]) == {0: 0}
        assert matched([died], [Known(former, (), "", "")]) == {0: 0}
        assert Suppression("", "", id=former).means(died)


def test_a_baseline_knows_a_bug_by_the_id_of_what_was_merged_with_it(world: MakeWorld) -> None:
    def values(t: TraceBuilder) -> None:
        for site, offset in ((1, 0), (2, 128), (3, 64)):
            t.site = site
            t.store("p", offset, 8, 1)
        t.site = 0
        persist(t, 64)

    sites = {1: place(1, "node.a"), 2: place(2, "node.b"), 3: place(3, "root")}
    claims = (("64>0",), ("64>128",), ("64>0", "64>128"))
    first, second, both = (
        only(world(values, *some, name="".join(some), sites=sites).explore().findings) for some in claims
    )
    assert both.id == first.id != second.id
    assert matched([both], [Known(second.id, second.likenesses, "", "")]) == {0: 0}
    assert matched([second], [Known(both.id, both.likenesses, "", "")]) == {0: 0}


def test_a_prefix_is_uncertain_without_a_snapshot_and_if_the_files_were_otherwise(world: MakeWorld) -> None:
    subject = world(two_steps, "0=64", sites=STEPS)
    found = subject.explore()
    assert found.findings == ()
    assert only(found.uncertain).uncertain == NO_SNAPSHOT
    assert found.states.uncertain == found.states.failing == 1

    def other(seq: int) -> RealFiles:
        real = subject.real_snapshot(seq)
        (real.folder / "p").write_bytes(b"w" * 80)
        return real

    assert only(subject.explore(snapshot=other).uncertain).uncertain.startswith(f"{ON_REAL_FILES} ")


@pytest.mark.parametrize("how", ["!", "~"])
def test_a_prefix_on_which_the_check_dies_is_a_recovery_failure(world: MakeWorld, how: str) -> None:
    subject = world(two_steps, f"{how}0=64", sites=STEPS, limits=Limits(timeout_s=0.5))
    finding = only(subject.explore(snapshot=subject.real_snapshot).findings)
    assert finding.kind is FindingKind.RECOVERY_FAILURE
    end = {"!": "kills the check", "~": "makes the check hang"}[how]
    assert finding.message == f"a crash between `a` (hash.c:10) and `b` (hash.c:12) {end}"


def test_a_reordering_on_which_the_check_dies_stays_an_ordering_bug(world: MakeWorld) -> None:
    finding = only(world(put_flag_first, "!64>0", sites={1: VALUE, 2: VALID}).explore().findings)
    assert finding.kind is FindingKind.ORDERING
    assert finding.evidence.verdict.signal == 6


@pytest.mark.parametrize(
    ("how", "harms"), [("", "fails the check"), ("!", "kills the check"), ("~", "makes the check hang")]
)
def test_what_was_not_minimised_is_described_by_what_was_run(
    how: str, harms: str, world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "RUNS", 0)
    subject = world(put_flag_first, f"{how}64>0", sites={1: VALUE, 2: VALID}, limits=Limits(timeout_s=0.5))
    finding = only(subject.explore().findings)
    assert finding.message == f"a crash that loses `entry.value` (hash.c:40) {harms}"
    assert CUT_SHORT in finding.note


def test_a_moment_without_a_cause_is_described_by_the_updates_around_it(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "RUNS", 0)
    subject = world(two_steps, "0=64", sites=STEPS)
    finding = only(subject.explore(snapshot=subject.real_snapshot).findings)
    assert finding.message.startswith("a crash between `a` (hash.c:10) and `b` (hash.c:12) ")
    assert CUT_SHORT in finding.note


@pytest.mark.parametrize("at_once", [False, True], ids=["at another place", "at the same two places"])
def test_what_was_not_minimised_is_counted_with_a_later_finding_that_explains_it(
    at_once: bool, world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    def put_much(t: TraceBuilder) -> None:
        if at_once:
            t.site = 1
            t.store("p", 0, 8, 7)
        t.site = 3
        for at in range(1024, 1024 + 4 * 64, 64):
            t.store("p", at, 8, 1)
        if at_once:
            t.site = 2
            t.store("p", 64, 8, 1)
            t.site = 0
            persist(t, 64)
            persist(t, 0)
        else:
            put_flag_first(t)

    class MostLostFirst(Exhaustive):
        def states(self, space: StateSpace, decided: Decided = NOTHING) -> Iterator[CrashState]:
            yield from sorted(super().states(space, decided), key=lambda state: -len(space.lost(state)))

    allowed, allow = iter([1, 1]), VerdictCache.allow

    def allow_less_first(verdicts: VerdictCache, runs: int, share: float = 1.0) -> None:
        allow(verdicts, next(allowed, runs), share)

    monkeypatch.setattr(VerdictCache, "allow", allow_less_first)
    subject = world(put_much, "64>0", "320>256", "576>512", sites={1: VALUE, 2: VALID, 3: place(3, "more")})
    with subject.executor() as executor:
        found = subject.search(executor, strategy=MostLostFirst())
    finding = only(found.findings)
    assert finding.message == "`entry.valid` (hash.c:42) can survive a crash without `entry.value` (hash.c:40)"
    assert CUT_SHORT not in finding.note
    assert finding.states == found.states.failing


def wide(t: TraceBuilder) -> None:
    t.site = 1
    t.store("p", 8, 16, b"\5" * 16)
    t.site = 0
    persist(t, 8)


@pytest.mark.parametrize(("how", "kind"), [("", FindingKind.ATOMICITY), ("!", FindingKind.RECOVERY_FAILURE)])
def test_a_store_that_persists_in_part_is_one_finding(world: MakeWorld, how: str, kind: FindingKind) -> None:
    found = world(wide, f"{how}8=16", sites={1: place(9, "pair")}).explore()
    finding = only(found.findings)
    assert finding.kind is kind
    assert finding.states == found.states.failing == 2
    assert finding.message.startswith(
        "part of `pair` can survive a crash without the rest (offset 0x10 without offset 0x8), which "
    )
    assert [(step.what, step.state) for step in finding.evidence.schedule if step.what == "store"] == [
        ("store", "lost"),
        ("store", "persisted"),
    ]


def test_a_size_that_persists_without_the_bytes_of_its_write_is_named_as_that(tmp_path: Path) -> None:
    def append(t: TraceBuilder) -> None:
        t.site = 1
        t.write("p", 8192, b"\7" * 8)
        t.site = 0
        t.fsync("p")

    check = words("test $(tail -c +8193 {pool}/p | tr -d '\\0' | wc -c) = $(tail -c +8193 {pool}/p | wc -c)")
    found = World(tmp_path / "world", check, append, model="page-cache", sites={1: VALUE}).explore()
    finding = only(found.findings)
    assert finding.message == (
        "the size 8200 of p can survive a crash without `entry.value` of the same call, which fails the check "
        "and reads zeros there (hash.c:40)"
    )


def test_culprits_in_unexplained_bytes_are_uncertain(world: MakeWorld) -> None:
    subject = world(put_flag_first, "64>0", unexplained={"p": [(64, 72)]}, sites={1: VALUE, 2: VALID})
    found = subject.explore()
    assert found.findings == ()
    assert only(found.uncertain).uncertain == UNEXPLAINED


def test_a_flaky_check_never_makes_a_finding(tmp_path: Path) -> None:
    once = tmp_path / "once"
    check = words(f"test -e {once} || {{ touch {once}; echo not yet; exit 3; }}")
    found = World(tmp_path / "world", check, two_steps).explore()
    assert (found.findings, found.uncertain) == ((), ())
    assert found.states.flaky == 1
    assert found.states.failing == 0
    assert "flaky" in found.warnings[0]
    assert re.search(r"Replay: crash:\w+ \(exit status 3: not yet\)$", found.warnings[0])


def test_places_that_nobody_knows_are_named_by_file_and_offset(world: MakeWorld) -> None:
    finding = only(world(lambda t: put_flag_first(t, 1), "64>0").explore().findings)
    assert finding.message == "8 bytes at offset 0x40 of p can survive a crash without 8 bytes at offset 0x0 of p"
    assert (finding.location.file, finding.location.line) == ("p", 0)


def test_an_identity_survives_moved_lines_and_other_checkouts(world: MakeWorld) -> None:
    def of(name: str, lines: int, file: str) -> str:
        sites = {1: place(40 + lines, "entry.value", file=file), 2: place(42 + lines, "entry.valid", file=file)}
        return only(world(put_flag_first, "64>0", sites=sites, name=name).explore().findings).id

    assert of("a", 0, "/home/one/hash.c") == of("b", 17, "/home/two/hash.c")
    assert of("c", 0, "src/hash.c") != of("d", 0, "lib/hash.c")


def test_a_finding_that_needs_torn_pages_is_described_with_them(world: MakeWorld) -> None:
    def page(t: TraceBuilder) -> None:
        t.store("p", 0, 8, 1)
        t.store("p", 512, 8, 1)
        t.msync("p", 0, 4096)

    torn = world(page, "512>0", model="page-cache", options=Options(512), name="torn").explore()
    assert only(torn.findings).model == "page-cache tear=512"
    assert world(page, "512>0", model="page-cache", name="whole").explore().findings == ()


def test_a_lost_page_before_a_later_one_is_found_without_tearing(world: MakeWorld) -> None:
    def pages(t: TraceBuilder) -> None:
        t.truncate("p", 12288)
        t.msync("p", 0, 12288)
        t.store("p", 0, 8, 1)
        t.store("p", 4096, 8, 1)
        t.msync("p", 0, 8192)

    finding = only(world(pages, "4096>0", model="page-cache", options=Options(512)).explore().findings)
    assert (finding.kind, finding.model) == (FindingKind.ORDERING, "page-cache")


def test_what_a_rename_brings_into_a_file_is_called_the_rename(tmp_path: Path) -> None:
    def script(t: TraceBuilder) -> None:
        t.file("t", size=0)
        t.site = 1
        t.rename("t", "p", bytes(24))

    recorded = World(
        tmp_path / "world", words(["/bin/true"]), script, "page-cache", sites={1: replace(VALUE, variable="")}
    )
    (data,) = np.flatnonzero(recorded.graph.kind == DATA).tolist()
    assert name_of(recorded.subject, data) == "the rename of t to p"
