"""`python -m bench.differential`: on traces so short that the exhaustive search ends, the share of its culprit pairs
that `ranked` has found after a tenth of the states. Writes build/bench/differential.json."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.measure import scratch
from bench.programs import CHECKOUT
from bench.recall import Bug, planted, ready
from crashcheck.checker.budget import Budget, Left, endless
from crashcheck.checker.findings.register import DraftFinding, Register
from crashcheck.checker.results import Finding, Location, StopReason
from crashcheck.checker.search.crash_states import Search, SearchResult
from crashcheck.checker.states.space import CrashState, StateSpace
from crashcheck.checker.strategies import Choice, Strategy
from crashcheck.checker.strategies.plan import NOTHING, Decided, Plan, Planned
from crashcheck.checker.subject import Subject
from crashcheck.config import override
from crashcheck.stages.search_setup import search_of
from crashcheck.stages.strategy_setup import strategy_of

OUTPUT = CHECKOUT / "build" / "bench" / "differential.json"
SHARE = 10  # of the exhaustive search's states, one in so many


@dataclass(frozen=True, slots=True)
class Row:
    """One bug: `states` of the exhaustive search, None if it did not end in time; the pairs of its findings, and those
    of them that failing states show which `ranked` executed in a tenth of that, and in all. A pair is "file:line
    file:line", of what persisted and what was lost: one bug may show in several, and which of them a finding names
    depends on the state that showed it first."""

    program: str
    bug: int
    states: int | None
    pairs: tuple[str, ...] = ()
    soon: tuple[str, ...] = ()
    ever: tuple[str, ...] = ()

    @property
    def missed(self) -> tuple[str, ...]:
        return tuple(sorted(set(self.pairs) - set(self.soon)))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.differential", description=__doc__)
    parser.add_argument("--program", action="append", default=[], metavar="NAME", help="only this structure")
    parser.add_argument("--bug", action="append", type=int, default=[], metavar="N", help="only this bug")
    parser.add_argument("--operations", type=int, default=8, help="of each run (default: 8)")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each search (default: 60)")
    parser.add_argument("--output", type=Path, default=OUTPUT, help=f"default: {OUTPUT}")
    args = parser.parse_args()
    rows = []
    for bug in planted():
        wanted = (not args.program or bug.program in args.program) and (not args.bug or bug.number in args.bug)
        if not wanted or not bug.number or bug.least > args.operations:
            continue
        with scratch(512) as folder:
            rows.append(measure(bug, folder, args.operations, args.seconds))
        _show(rows[-1])
        _write(args.output, rows, args)
    for line in _table(rows):
        print(line)
    print(f"Written to {args.output}.")
    return 0


def measure(bug: Bug, folder: Path, operations: int, seconds: float) -> Row:
    with ready(bug, folder, operations) as (config, run, executor):

        def search(name: str, states: int | None) -> tuple[Search, SearchResult, list[CrashState]]:
            seen = _Seen(strategy_of(override(config, strategy=name), run))
            own = folder / "work" / f"{name}-{states}"
            budget = Budget(seconds, states)
            exploring = search_of(config, run, executor, seen, budget, folder=own, explore=False)
            found = exploring.run()
            executor.settle()
            return exploring, found, seen.states

        exhaustive, whole, _ = search("exhaustive", None)
        if whole.stop_reason is not StopReason.EXHAUSTED:
            return Row(bug.program, bug.number, None)
        failed = exhaustive.tried().failed

        def shown(states: int | None) -> tuple[str, ...]:
            """The pairs that a failing state shows which `ranked` executes."""
            _, found, seen = search("ranked", states)
            if found.states.skipped:
                seen.pop()  # the one at which the budget ended
            failing = [state for state in seen if run.subject.content.fingerprint(state) in failed]
            drafts = {id(draft): draft for state in failing for draft in _shown_by(exhaustive.register, state)}
            return tuple(sorted({*_pairs(found.findings), *_drafted(run.subject, drafts.values())} & set(pairs)))

        pairs = tuple(sorted(set(_pairs(whole.findings))))
        many = whole.states.executed
        return Row(bug.program, bug.number, many, pairs, shown(max(1, many // SHARE)), shown(None))


class _Seen:
    """A strategy, and the states that it chose."""

    def __init__(self, strategy: Strategy) -> None:
        self._strategy = strategy
        self.name = strategy.name
        self.states: list[CrashState] = []

    def plan(self, space: StateSpace, left: Left = endless, decided: Decided = NOTHING) -> Plan:
        self._plan = self._strategy.plan(space, left, decided)
        return self

    @property
    def whole(self) -> bool:
        return self._plan.whole

    @property
    def groups(self) -> tuple[Planned, ...]:
        return self._plan.groups

    @property
    def notes(self) -> tuple[str, ...]:
        return self._plan.notes

    def choices(self) -> Iterator[Choice]:
        for choice in self._plan.choices():
            self.states.append(choice.state)
            yield choice


def _shown_by(register: Register, state: CrashState) -> Iterator[DraftFinding]:
    """Findings of which a failing state is an instance: by what it lost, or as a moment of their failing stretch."""
    subject = register.subject
    yield from (draft for draft, _ in register.applicable(state))
    stretch = register.by_moment(int(subject.space.points[state.point].event))
    if stretch is not None and not subject.space.lost(state):
        yield stretch


def _drafted(subject: Subject, drafts: Iterable[DraftFinding]) -> Iterator[str]:
    """The pairs of findings that are proved."""
    for draft in drafts:
        if not draft.uncertain:
            kept, lost = (
                _line(subject.provenance.of(subject.event_of(piece)) if piece is not None else None)
                for piece in (draft.cause.kept, draft.cause.lost)
            )
            yield f"{lost} -" if draft.cause.kept is None else f"{kept} {lost}"


def _pairs(findings: Sequence[Finding]) -> Iterator[str]:
    for finding in findings:
        yield f"{_line(finding.location)} {_line(next(iter(finding.evidence.blamed), None))}"


def _line(place: Location | None) -> str:
    return f"{Path(place.file).name}:{place.line}" if place is not None else "-"


def _show(row: Row) -> None:
    if row.states is None:
        print(f"{row.program:16} {row.bug:3} the exhaustive search did not end", flush=True)
        return
    found = len(row.pairs) - len(row.missed)
    missed = f"  missed {'; '.join(row.missed)}" if row.missed else ""
    print(f"{row.program:16} {row.bug:3} {row.states:7} states  {found} of {len(row.pairs)} pairs{missed}", flush=True)


def _table(rows: Sequence[Row]) -> Iterable[str]:
    ended = [row for row in rows if row.states is not None]
    showing = [row for row in ended if row.pairs]
    pairs = sum(len(row.pairs) for row in showing)
    soon = pairs - sum(len(row.missed) for row in showing)
    ever = sum(len(set(row.pairs) & set(row.ever)) for row in showing)
    whole = sum(not row.missed for row in showing)
    yield f"{len(rows)} bugs; of {len(ended)} the exhaustive search ended, and {len(showing)} it found"
    if pairs:
        yield f"in a tenth of the states {soon} of {pairs} culprit pairs ({soon / pairs:.1%}); to the end {ever}"
        yield f"bugs of which all pairs were found in a tenth: {whole} of {len(showing)} ({whole / len(showing):.1%})"


def _write(output: Path, rows: Sequence[Row], args: argparse.Namespace) -> None:
    report = {
        "schema": 1,
        "operations": args.operations,
        "seconds": args.seconds,
        "bugs": [{**asdict(row), "missed": row.missed} for row in rows],
        "summary": list(_table(rows)),
    }
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
