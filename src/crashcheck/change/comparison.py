"""What a change brought, by the results of both versions: which of its findings the base has, and what is fixed.

Where that does not decide, the crash states of findings are executed on the other version. `docs/policy.md` describes
the rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from crashcheck.change.base import BaseVersion
from crashcheck.change.diff import Diff
from crashcheck.change.removed_persists import explaining, one_bug, removed_persists
from crashcheck.checker.baseline import Known, matched
from crashcheck.checker.findings.counterpart import Counterpart, Signed, counterpart, parted
from crashcheck.checker.fixes.source.unit_compiles import UnitCompiles
from crashcheck.checker.oracles import prepare
from crashcheck.checker.oracles.executor import Executor
from crashcheck.checker.oracles.references import ReopenDifference
from crashcheck.checker.policy import in_order
from crashcheck.checker.results import Base, Compared, Earlier, Finding, RunResult, StopReason
from crashcheck.checker.token import Token, digest
from crashcheck.config import Config
from crashcheck.errors import CrashcheckError
from crashcheck.pipeline import Ran, keep_fixes
from crashcheck.stages.executor_setup import executor_of
from crashcheck.stages.recording import RecordedRun, earlier_recording, read_recording

MOST_COUNTERPARTS = 100  # findings of each side whose counterpart is run


def compare(head: Ran, base: BaseVersion, change: Diff, baseline: Path | None) -> Ran:
    """`head` with each finding marked as introduced, existing or not compared, and what is fixed.

    A base that cannot be built or run leaves findings that the change touches as introduced, and the others as not
    compared. Both count. `baseline`: the file, of which edits are shown.
    """
    what = Base(base.ref, base.commit, "", (), base.rule_edits(change, baseline))
    try:
        if head.result.stop_reason is StopReason.INTERRUPTED:
            raise CrashcheckError("base-skipped", "the run was interrupted")
        earlier = base.result()
    except CrashcheckError as error:
        result = _marked(head.result, {}, replace(what, note=f"the base was not searched: {_reason(error)}"))
    else:
        base.options.on_phase("comparing with the base")
        result = _compared(head, earlier, base, what, change)
    return keep_fixes(replace(head, result=result))  # some put a deleted line back


def _reason(error: CrashcheckError | ReopenDifference) -> str:
    if isinstance(error, ReopenDifference):
        return "a clean reopen changes the output"
    return f"{error.slug}: {error.message.splitlines()[0]}"


@dataclass(frozen=True, slots=True, eq=False)
class _Side:
    """One version's recording, and the check to run on its crash states."""

    config: Config
    run: RecordedRun
    signed: Signed
    executor: Executor

    def fails(self, found: Counterpart) -> bool:
        """Whether the check fails on one of the states, twice: a state that fails once only is no evidence."""
        return any(
            not self.executor.run(state).passed and not self.executor.run(state).passed for state in found.states
        )


@contextmanager
def _side(config: Config, folder: Path, jobs: int) -> Iterator[_Side]:
    run = read_recording(config, earlier_recording(folder))
    oracle = prepare.choose_oracle(config, run.subject, run.folder)
    work = folder / "compared"
    work.mkdir(exist_ok=True)
    with executor_of(config, run, work, jobs, oracle) as executor:
        prepare.prepare_oracle(oracle, executor, lambda phase: None)
        yield _Side(config, run, Signed(run.subject), executor)


def _compared(head: Ran, base: RunResult, version: BaseVersion, what: Base, change: Diff) -> RunResult:
    result, jobs = head.result, version.options.jobs
    every = (*result.findings, *result.uncertain)
    earlier = (*base.findings, *base.uncertain)
    pairs = matched(every, [Known(one.id, one.likenesses, one.kind.value, one.message) for one in earlier])
    verdicts: dict[int, Compared] = dict.fromkeys(pairs, "existing")
    fresh = [at for at in range(len(every)) if at not in pairs]
    gone = [at for at in range(len(earlier)) if at not in set(pairs.values())]
    bugs: dict[int, Finding | None] = {}
    if fresh or gone:
        try:
            folder = version.recording()
            with _side(head.config, head.folder, jobs) as here, _side(version.config, folder, jobs) as there:
                impossible: dict[int, Finding] = {}
                for at in fresh[:MOST_COUNTERPARTS]:
                    found = _counterpart(every[at], here, there)
                    if found.states:
                        verdicts[at] = "existing" if there.fails(found) else "introduced"
                    elif found.impossible:
                        verdicts[at] = "introduced"
                        impossible[at] = every[at]
                proved = {at: one for at, one in impossible.items() if at < len(result.findings)}
                bugs = _by_removed_persists(proved, here, there, change)
                what = replace(what, earlier=tuple(_not_met([earlier[at] for at in gone], here, there)))
        except (CrashcheckError, ReopenDifference) as error:
            what = replace(what, note=f"of the base, a kept result alone was compared: {_reason(error)}")
    if base.stop_reason is StopReason.EXHAUSTED:  # it would have found them
        verdicts = dict.fromkeys(fresh, "introduced") | verdicts
    return _marked(result, verdicts, what, bugs)


def _not_met(findings: Iterable[Finding], here: _Side, there: _Side) -> Iterator[Earlier]:
    """Findings of the base that are fixed here, or were not seen again."""
    for number, one in enumerate(findings):
        found = _counterpart(one, there, here) if number < MOST_COUNTERPARTS else Counterpart()
        if found.states and here.fails(found):
            continue  # it is there still; this search did not come to it
        fate = "fixed" if found.states or found.impossible else "not-seen"
        yield Earlier(one.id, one.kind, one.message, fate, len(found.states))


def _by_removed_persists(
    findings: Mapping[int, Finding], here: _Side, there: _Side, change: Diff
) -> dict[int, Finding | None]:
    """What each finding becomes that a deleted flush, fence or sync explains; None where another one names it, too.

    `findings`: those that the base cannot have, by their place in the result.
    """
    removed = removed_persists((there.config, there.run), (here.config, here.run), change) if findings else []
    explained: dict[tuple[int, ...], list[int]] = {}
    for at, finding in findings.items():
        state = Token.parse(finding.replay).for_trace(here.run.subject.trace)
        pair = parted(finding, state, here.signed, there.signed)
        by = explaining(pair, removed) if pair is not None else ()
        if by:
            explained.setdefault(by, []).append(at)
    compiles = UnitCompiles(here.run.facts, here.config.folder)
    bugs: dict[int, Finding | None] = {}
    for by, members in explained.items():
        bugs |= dict.fromkeys(members)
        bugs[members[0]] = one_bug([findings[at] for at in members], [removed[each] for each in by], compiles)
    return bugs


def _counterpart(finding: Finding, here: _Side, there: _Side) -> Counterpart:
    """None where the finding's state is not one of `here`: a program that is recorded again may do other things."""
    token = Token.parse(finding.replay)
    trace = here.run.subject.trace
    if len(token.levels) > 1 or token.levels[0].digest != digest(trace):
        return Counterpart()
    return counterpart(finding, token.for_trace(trace), here.signed, there.signed)


def _marked(
    result: RunResult, verdicts: Mapping[int, Compared], base: Base, bugs: Mapping[int, Finding | None] = {}
) -> RunResult:
    """Findings without a verdict: introduced where the change touches them, else not compared, which they name.

    `bugs`: what some of them become.
    """

    def mark(findings: tuple[Finding, ...], first: int) -> tuple[Finding, ...]:
        return in_order(
            _compared_as(shown, verdicts.get(at, "introduced" if one.in_diff else "not-compared"))
            for at, one in enumerate(findings, first)
            if (shown := bugs.get(at, one)) is not None
        )

    proved = len(result.findings)
    return replace(result, findings=mark(result.findings, 0), uncertain=mark(result.uncertain, proved), base=base)


def _compared_as(finding: Finding, verdict: Compared) -> Finding:
    why = "it counts because it could not be compared with the base" if verdict == "not-compared" else ""
    return replace(finding, compared=verdict, note="; ".join(filter(None, (finding.note, why))))
