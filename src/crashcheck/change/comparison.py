"""What a change brought, by the results of both versions: which of its findings the base has, and what is fixed.

Where that does not decide, the crash states of findings are executed on the other version. `docs/policy.md` describes
the rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from crashcheck.change.base import BaseVersion
from crashcheck.change.diff import Diff
from crashcheck.change.node_orders import NodeVersion, compared_orders, not_met
from crashcheck.change.removed_persists import breaking_promises, explaining, one_bug, removed_persists
from crashcheck.change.unreached import may_delete_syncs, never_run, recorded_stacks, syncing_functions
from crashcheck.checker.baseline import Known, matched
from crashcheck.checker.evidence import CrashSchedule
from crashcheck.checker.findings.counterpart import Counterpart, Signed, callers, counterpart, parted
from crashcheck.checker.findings.identity import digest_of
from crashcheck.checker.findings.uses import callers_of
from crashcheck.checker.fixes.source.unit_compiles import UnitCompiles
from crashcheck.checker.policy import in_order
from crashcheck.checker.results import Base, Earlier, Finding, FindingKind, Location, RunResult, StopReason
from crashcheck.checker.states.space import CrashState
from crashcheck.checker.token import Token, digest, parse
from crashcheck.checker.verdicts import prepare
from crashcheck.checker.verdicts.executor import Executor
from crashcheck.config import Config
from crashcheck.errors import CrashcheckError
from crashcheck.pipeline import Ran, keep_fixes
from crashcheck.source import spoken_line
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
        every = head.result.all_findings
        what = replace(what, note=f"the base was not searched: {_reason(error)}")
        result = _marked(head.result, dict(enumerate(every)), what)
    else:
        base.options.on_phase("comparing with the base")
        if head.config.nodes is not None:
            result = _compared_nodes(head, earlier, base, what)
        else:
            result = _compared(head, earlier, base, what, change)
    return keep_fixes(replace(head, result=result))  # some put a deleted line back


def _reason(error: CrashcheckError) -> str:
    return f"{error.slug}: {error.message.splitlines()[0].rstrip('.')}"


@dataclass(frozen=True, slots=True, eq=False)
class _Side:
    """One version's recording, and the check to run on its crash states."""

    config: Config
    run: RecordedRun
    signed: Signed
    executor: Executor

    def fails(self, states: Iterable[CrashState]) -> bool:
        """Whether the check fails on one of the states, twice: a state that fails once only is no evidence."""
        return any(not self.executor.run(state).passed and not self.executor.run(state).passed for state in states)


@contextmanager
def _side(config: Config, folder: Path, jobs: int) -> Iterator[_Side]:
    run = read_recording(config, earlier_recording(folder))
    oracle = prepare.choose_oracle(config, run.subject, run.folder)
    work = folder / "compared"
    work.mkdir(exist_ok=True)
    with executor_of(config, run, work, jobs, oracle) as executor:
        prepare.prepare_oracle(oracle, executor, lambda phase: None)
        prepare.require_reopenable(oracle)
        yield _Side(config, run, Signed(run.subject), executor)


def _compared(head: Ran, base: RunResult, version: BaseVersion, what: Base, change: Diff) -> RunResult:
    result, jobs = head.result, version.options.jobs
    every = result.all_findings
    earlier = base.all_findings
    pairs = matched(every, [Known(one.id, one.likenesses, one.kind.value, one.message) for one in earlier])
    shown = {at: replace(one, compared="existing") if at in pairs else one for at, one in enumerate(every)}
    known = _Names.of(earlier, every)
    parts = _parts(shown, known, len(result.findings))
    fresh = [at for at, one in shown.items() if at not in pairs or not known.has(one)][:MOST_COUNTERPARTS]
    shown |= {at: replace(shown[at], compared="") for at in fresh}  # what was merged in it may be the base's, alone
    shown |= parts
    met = set(pairs.values())
    gone = [one for at, one in enumerate(earlier) if at not in met]
    passed: tuple[str, ...] = ()
    own_run: RecordedRun | None = None
    base_run: RecordedRun | None = None
    try:
        if fresh or gone or parts or any(each.elsewhere for one in every for each in (one, *one.merged)):
            folder = version.recording()
            with _side(head.config, head.folder, jobs) as here, _side(version.config, folder, jobs) as there:
                impossible: list[int] = []
                for at in (*fresh, *parts):
                    found = _counterpart(shown[at], here, there)
                    if found.states or found.impossible:
                        existing = there.fails(found.deciding)
                        shown[at] = replace(shown[at], compared="existing" if existing else "introduced")
                    elif at in parts and known.has(shown[at]):
                        shown[at] = replace(shown[at], compared="existing")
                    if not found.states and found.impossible and at < len(result.findings):
                        impossible.append(at)
                for at in parts:
                    if shown[at].compared == "existing":
                        del shown[at]  # it is listed with what it is one bug with
                proved = [one for at, one in shown.items() if at < len(result.findings)]
                brought = [
                    new for one in proved if one.compared == "existing" for new in _new_callers(one, known, here, there)
                ]
                shown |= dict(enumerate(brought, start=min(shown, default=0) - len(brought)))
                _merge_by_removed_persists(shown, impossible, here, there, change)
                what = replace(what, earlier=tuple(_not_met(gone, here, there)))
                own_run, base_run = here.run, there.run
        if may_delete_syncs(change):
            passed = _never_run(change, head, version, own_run, base_run)
    except CrashcheckError as error:
        what = replace(what, note=f"of the base, a kept result alone was compared: {_reason(error)}")
    if base.stop_reason is StopReason.EXHAUSTED:  # it would have found them
        shown = {at: replace(one, compared=one.compared or "introduced") for at, one in shown.items()}
    return _marked(replace(result, unreached=(*result.unreached, *passed)), shown, what)


def _never_run(
    change: Diff, head: Ran, version: BaseVersion, own: RecordedRun | None, base: RecordedRun | None
) -> tuple[str, ...]:
    """The sentence of `never_run`. `own`, `base`: what both versions recorded, if it was read."""
    if base is None:
        base = read_recording(version.config, earlier_recording(version.recording()))
    here, there = head.config.folder, version.config.folder
    ran = base.subject.trace, base.subject.provenance, there
    rest = change, here, there, list(recorded_stacks(*ran))
    syncing = syncing_functions(*ran)
    if not never_run(*rest, syncing, head.result.unreached):
        return ()
    if own is None:
        own = read_recording(head.config, earlier_recording(head.folder))
    renamed = syncing_functions(own.subject.trace, own.subject.provenance, here)
    return never_run(*rest, syncing | renamed, head.result.unreached)


def _compared_nodes(head: Ran, base: RunResult, version: BaseVersion, what: Base) -> RunResult:
    result = head.result
    every, earlier = result.all_findings, base.all_findings
    pairs = matched(every, [Known(one.id, one.likenesses, one.kind.value, one.message) for one in earlier])
    shown = {at: replace(one, compared="existing") if at in pairs else one for at, one in enumerate(every)}
    fresh = [(at, one) for at, one in shown.items() if at not in pairs]
    met = set(pairs.values())
    gone = [one for at, one in enumerate(earlier) if at not in met]
    if fresh or gone:
        try:
            version.recording()
            here = NodeVersion(head.config, result, "this version")
            there = NodeVersion(version.config, base, "the base")
            with TemporaryDirectory(prefix="crashcheck-compared-") as folder:
                shown |= compared_orders(fresh[:MOST_COUNTERPARTS], here, there, Path(folder))
                what = replace(what, earlier=tuple(not_met(gone, here, there, Path(folder), MOST_COUNTERPARTS)))
        except CrashcheckError as error:
            what = replace(what, note=f"of the base, a kept result alone was compared: {_reason(error)}")
    return _marked(result, shown, what)


@dataclass(frozen=True, slots=True)
class _Names:
    """By which a finding itself, without what was merged in it, is known to be one of the base."""

    ids: Set[str]
    likenesses: Set[str]  # of findings of which nothing here has the id: one of the base is one here

    @classmethod
    def of(cls, earlier: Sequence[Finding], here: Iterable[Finding]) -> _Names:
        met = {one.id for each in here for one in (each, *each.merged)}
        return cls(
            {name for one in earlier for name in (one.id, *one.likenesses)},
            {name for one in earlier if one.id not in met for name in one.likenesses},
        )

    def has(self, finding: Finding) -> bool:
        return finding.id in self.ids or not self.likenesses.isdisjoint(finding.likenesses[:2])


def _parts(shown: Mapping[int, Finding], known: _Names, proved: int) -> dict[int, Finding]:
    """What was merged in findings that the base has, and is not known to be there, as findings of their own.

    Their numbers are beside those of `shown`, of which the first are `proved`.
    """
    out: dict[int, Finding] = {}
    for at, one in shown.items():
        for part in one.merged if one.compared == "existing" and one.new and not one.suppressed else ():
            if part.id not in known.ids:
                out[-1 - len(out) if at < proved else len(shown) + len(out)] = replace(part, fix=part.fix or one.fix)
    return out


def _not_met(findings: Iterable[Finding], here: _Side, there: _Side) -> Iterator[Earlier]:
    """Findings of the base that are fixed here, or were not seen again."""
    for number, one in enumerate(findings):
        found = _counterpart(one, there, here) if number < MOST_COUNTERPARTS else Counterpart()
        if here.fails(found.states):
            continue  # it is there still; this search did not come to it
        fate = "fixed" if found.states or found.impossible else "not-seen"
        yield Earlier(one.id, one.kind, one.message, fate, len(found.states))


def _new_callers(one: Finding, known: _Names, here: _Side, there: _Side) -> Iterator[Finding]:
    """A finding of the base once more for each function that leads to its lost update only here; or also in the base,
    where no crash shows it."""
    by_callers: dict[str, list[Finding]] = {}
    for each in (one, *one.merged) if one.new and not one.suppressed else ():
        for other in each.elsewhere if each.id in known.ids else ():
            by_callers.setdefault(f"{other.id} {callers_of(_lost(other))}", []).append(other)
    for name, findings in by_callers.items():
        found = [_counterpart(each, here, there) for each in findings]
        if any(there.fails(each.states) for each in found):
            continue
        for each, its in zip(findings, found, strict=True):
            state = _state(each, here)
            led = callers(each, state, here.signed, there.signed) if state is not None else None
            if state is None or led is None or not here.fails([state]):
                continue
            if led.new or (led.compared and (its.states or its.impossible)):
                yield _called(each, name, led.theirs)
                break


def _lost(finding: Finding) -> Location:
    crash = finding.evidence
    return crash.other if isinstance(crash, CrashSchedule) and crash.other is not None else finding.location


def _called(finding: Finding, name: str, theirs: Iterable[str]) -> Finding:
    """A finding with the innermost call that led to it and that the base has not."""
    known, lost = {each for led in theirs for each in led.split()}, _lost(finding)
    calls = [frame for frame in lost.stack if callers_of(replace(lost, stack=(frame,))) not in known] or lost.stack
    called = f", called from {calls[0].function} ({spoken_line(calls[0].file, calls[0].line)})" if calls else ""
    return replace(
        finding,
        id=digest_of([finding.id, name]),
        message=finding.message + called,
        likenesses=(finding.id, *finding.likenesses),
        compared="introduced",
    )


def _merge_by_removed_persists(
    shown: dict[int, Finding], impossible: Sequence[int], here: _Side, there: _Side, change: Diff
) -> None:
    """Let one finding name the deleted flushes, fences or syncs that explain it and others, which it replaces.

    `impossible`: those of `shown` that the base cannot have.
    """
    promised = [
        at
        for at, one in shown.items()
        if one.kind is FindingKind.UNPERSISTED and one.compared == "introduced" and not one.uncertain
    ]
    if not (impossible or promised):
        return
    removed = removed_persists((there.config, there.run), (here.config, here.run), change)
    explained: dict[tuple[int, ...], list[int]] = {}
    for at in dict.fromkeys((*impossible, *promised)):
        state = _state(shown[at], here)
        pair = parted(shown[at], state, here.signed, there.signed) if state is not None else None
        if pair is None:
            continue
        by = explaining(pair, removed) if at in impossible else breaking_promises(pair, removed, there.run.subject)
        if by:
            explained.setdefault(by, []).append(at)
    compiles = UnitCompiles(here.run.facts, here.config.folder)
    for by, members in explained.items():
        findings = [shown.pop(at) for at in members]
        shown[members[0]] = one_bug(findings, [removed[each] for each in by], compiles)


def _counterpart(finding: Finding, here: _Side, there: _Side) -> Counterpart:
    """None where the finding's state is not one of `here`: a program that is recorded again may do other things."""
    state = _state(finding, here)
    return Counterpart() if state is None else counterpart(finding, state, here.signed, there.signed)


def _state(finding: Finding, here: _Side) -> CrashState | None:
    token, trace = parse(finding.replay), here.run.subject.trace
    if not isinstance(token, Token) or len(token.levels) > 1 or token.levels[0].digest != digest(trace):
        return None
    return token.for_trace(trace)


def _marked(result: RunResult, shown: Mapping[int, Finding], base: Base) -> RunResult:
    """`shown`: the findings, then the uncertain ones, by their place in the result."""
    proved = len(result.findings)
    findings = in_order(_with_verdict(shown[at]) for at in sorted(shown) if at < proved)
    uncertain = in_order(_with_verdict(shown[at]) for at in sorted(shown) if at >= proved)
    return replace(result, findings=findings, uncertain=uncertain, base=base)


def _with_verdict(finding: Finding) -> Finding:
    """One that was not compared is introduced if the change touches it; else it names that."""
    if finding.compared:
        return finding
    if finding.in_diff:
        return replace(finding, compared="introduced")
    why = "it counts because it could not be compared with the base"
    return replace(finding, compared="not-compared", note="; ".join(filter(None, (finding.note, why))))
