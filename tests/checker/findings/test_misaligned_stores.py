"""What needs half of a misaligned store: a note where a kill shows it, never a failed run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from crashcheck.checker import policy
from crashcheck.checker.findings.cause import Cause
from crashcheck.checker.findings.register import NEEDS_HALF_STORE, Register
from crashcheck.checker.results import FindingKind, Outcome, Verdict
from support.checked_worlds import (
    VALID,
    VALUE,
    MakeWorld,
    only,
    persist,
)
from support.reports import runs as report_runs
from support.tracing import TraceBuilder


def store_misaligned(t: TraceBuilder, site: int = 2) -> None:
    """8 bytes over two words of one line."""
    t.site = site
    t.store("p", 4, 8, 0x0101010101010101)


def put_misaligned(t: TraceBuilder) -> None:
    """A value, flushed too late, and a misaligned flag in another line."""
    t.begin(1)
    t.site = 1
    t.store("p", 64, 8, 7)
    store_misaligned(t)
    persist(t, 0)
    persist(t, 64)
    t.end(1)


def test_what_needs_half_of_a_misaligned_store_says_so_and_fails_no_run(world: MakeWorld) -> None:
    found = world(put_misaligned, "0>8", sites={1: VALUE, 2: VALID}).explore()
    finding = only(found.findings)
    assert (finding.kind, finding.model, finding.level) == (FindingKind.ATOMICITY, "px86 tear=8", "note")
    assert finding.note == NEEDS_HALF_STORE
    result = report_runs.run(*found.findings)
    assert not policy.fails(replace(result, fail_on="warning"))
    assert not policy.undecided(result)
    assert policy.fails(replace(result, fail_on="note"))


def test_what_fails_with_a_misaligned_store_kept_whole_needs_no_half_of_it(world: MakeWorld) -> None:
    """The first failing states keep half of the flag, without the value."""
    found = world(put_misaligned, "8>64", sites={1: VALUE, 2: VALID}).explore()
    finding = only(found.findings)
    assert (finding.kind, finding.model, finding.level, finding.note) == (FindingKind.ORDERING, "px86", "error", "")
    assert {(step.offset, step.state) for step in finding.evidence.schedule if step.what == "store"} == {
        (64, "lost"),
        (4, "persisted"),
    }


def test_what_fails_with_a_misaligned_store_lost_whole_needs_no_half_of_it(world: MakeWorld) -> None:
    def put(t: TraceBuilder) -> None:
        t.begin(1)
        store_misaligned(t, 1)
        t.site = 2
        t.store("p", 64, 8, 1)
        persist(t, 64)
        persist(t, 0)
        t.end(1)

    finding = only(world(put, "64>0", sites={1: VALUE, 2: VALID}).explore().findings)
    assert (finding.kind, finding.model, finding.level) == (FindingKind.ORDERING, "px86", "error")
    assert [step.state for step in finding.evidence.schedule if step.what == "store"] == ["lost", "persisted"]


def test_of_two_bugs_at_one_store_only_the_one_that_needs_half_of_it_is_a_note(world: MakeWorld) -> None:
    found = world(put_misaligned, "0>8", "8>64", sites={1: VALUE, 2: VALID}).explore()
    assert {(finding.kind, finding.level) for finding in found.findings} == {
        (FindingKind.ATOMICITY, "note"),
        (FindingKind.ORDERING, "error"),
    }
    assert [finding.level for finding in policy.in_order(found.findings)] == ["error", "note"]


@pytest.mark.parametrize(("offset", "size"), [(4, 16), (0, 16), (60, 8)])
def test_wider_stores_and_those_across_lines_tear_on_any_processor(world: MakeWorld, offset: int, size: int) -> None:
    def put(t: TraceBuilder) -> None:
        t.begin(1)
        t.site = 2
        t.store("p", offset, size, int.from_bytes(b"\1" * size, "little"))
        persist(t, 0)
        persist(t, 64)
        t.end(1)

    low = offset // 8 * 8
    finding = only(world(put, f"{low}>{low + 8}", sites={2: VALID}).explore().findings)
    assert (finding.kind, finding.model, finding.level) == (FindingKind.ATOMICITY, "px86", "error")


def test_half_of_a_misaligned_store_is_a_note_under_eadr_too(world: MakeWorld) -> None:
    finding = only(world(put_misaligned, "0>8", model="eadr", sites={1: VALUE, 2: VALID}).explore().findings)
    assert (finding.model, finding.level) == ("eadr tear=8", "note")


def test_a_cause_that_needs_no_half_store_takes_the_place_of_one_that_does(world: MakeWorld) -> None:
    subject = world(put_misaligned, sites={1: VALUE, 2: VALID}).subject
    value, low, high = range(3)
    point = next(at for at in range(len(subject.space.points)) if len(subject.space.pending(at)) == 3)
    torn, whole = (subject.space.drop(point, lost) for lost in ((value, high), (value,)))
    assert (subject.torn(torn), subject.torn(whole)) == ((high,), ())
    failed = Verdict(Outcome.FAIL, 1, None, "", False, 0.0)
    half, plain = (Cause(FindingKind.ORDERING, state, failed, value, low) for state in (torn, whole))
    for first, second in ((half, plain), (plain, half)):
        register = Register(subject)
        draft, _ = register.add(first)
        assert register.covers(draft, whole) is (first is plain)
        assert register.add(second) == (draft, first is half)
        assert (draft.cause, draft.states) == (plain, 2)
