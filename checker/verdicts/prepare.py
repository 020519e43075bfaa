"""Prepare the oracle that [check] names: its file of operations and, for output equivalence, its references."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path

from crashcheck.analyzer.compile.facts import ProgramFacts
from crashcheck.analyzer.compile.instrument.operations import PAIR, found_operations
from crashcheck.analyzer.trace.completeness import Completeness
from crashcheck.checker.budget import Counting
from crashcheck.checker.oracles import Oracle
from crashcheck.checker.oracles.acknowledged import never_acknowledged
from crashcheck.checker.oracles.exit_status import ExitStatus
from crashcheck.checker.oracles.histories import History, Operations, Standings
from crashcheck.checker.oracles.output_equivalence import OutputEquivalence
from crashcheck.checker.oracles.references import Printed, References, prepare, spread
from crashcheck.checker.oracles.snapshot import SnapshotOracle
from crashcheck.checker.subject import UPDATES, Subject
from crashcheck.checker.verdicts.executor import Executor
from crashcheck.config import Config
from crashcheck.errors import CrashcheckError
from crashcheck.wording import listed

_NAMED = 5
_RECOVERIES = 16  # tested for output before the search, at most
KEPT_BYTES = 64 * 1024  # of each output, to be shown (a worker's socket holds two such); outputs are compared whole
OPERATIONS = "operations"  # in a run's folder: the operations file of the workload


def build_environment(config: Config) -> dict[str, str]:
    """Environment variables by which crashcheck-cc knows which functions are operations."""
    names = "\n".join((*config.workload.operation_functions, *map(PAIR.join, config.workload.operation_pairs)))
    return {"CRASHCHECK_OPERATIONS": names} if names else {}


def require_marked_operations(config: Config, facts: ProgramFacts) -> None:
    """Raise CrashcheckError operations-not-found if [workload] operations names a function that is not marked."""
    marked = found_operations(name for unit in facts.units.values() for name in unit.functions)
    named = (*config.workload.operation_functions, *chain.from_iterable(config.workload.operation_pairs))
    missing = [name for name in dict.fromkeys(named) if name not in marked]
    if missing:
        raise CrashcheckError(
            "operations-not-found",
            f"[workload] operations names {', '.join(missing)}, but crashcheck-cc compiled no such function",
            "Write a function's symbol, or its name with namespaces and classes; it must not be variadic. [build] must "
            "compile it again: `make` does not notice that the list has changed.",
        )


def compares_outputs(config: Config) -> bool:
    """Whether the check is a driver whose outputs are compared, and not judged by its exit status."""
    return config.check.oracle == OutputEquivalence.name


def copy_operations(config: Config, work: Path) -> Path | None:
    """Copy the operations, without empty lines, to where the workload reads them; None if there is no such file.

    Raises CrashcheckError operations-file.
    """
    if not config.workload.operations_file:
        return None
    path = config.folder / config.workload.operations_file
    try:
        operations = Operations.of(path.read_bytes())
    except OSError as error:
        raise CrashcheckError(
            "operations-file",
            f"[workload] operations_file: {path} cannot be read: {error.strerror}",
            "`crashcheck ops` writes one.",
        ) from None
    if not operations.lines:
        raise CrashcheckError(
            "operations-file",
            f"[workload] operations_file: {path} holds no operation",
            "Write one operation per line, or let `crashcheck ops` do it.",
        )
    work.mkdir(parents=True, exist_ok=True)
    kept = work / OPERATIONS
    kept.write_bytes(operations.text(range(1, len(operations) + 1)))
    return kept


def choose_oracle(config: Config, subject: Subject, recorded: Path, reading: Counting | None = None) -> Oracle:
    """The oracle that [check] names. `recorded`: the recording's folder; `reading`: how far going through it is.

    Raises CrashcheckError operations-mismatch, and what `reading` raises.
    """
    if config.check.oracle == SnapshotOracle.name:
        return SnapshotOracle(subject, reading=reading or Counting())
    if not compares_outputs(config):
        return ExitStatus()
    operations = Operations.of((recorded / OPERATIONS).read_bytes())
    standings = Standings(subject.trace, subject.space.points)
    _must_match(operations, standings)
    return OutputEquivalence(operations, standings, References(operations, config.check.outputs))


def oracle_in_recovery(oracle: Oracle, point: int) -> Oracle:
    """The oracle for crashes in the recovery from a crash at `point` of the workload."""
    return oracle.recovering(point) if isinstance(oracle, OutputEquivalence) else oracle


def use_executor(oracle: Oracle, executor: Executor) -> None:
    """Let the oracle run what it needs with the executor of the crash states."""
    if isinstance(oracle, OutputEquivalence):
        oracle.references.run_by(executor.workers)


def require_reopenable(oracle: Oracle) -> None:
    """Raise CrashcheckError driver-not-reopenable if a clean reopen was found to change what the check prints."""
    if isinstance(oracle, OutputEquivalence):
        oracle.references.require_reopenable()


def prepare_oracle(oracle: Oracle, executor: Executor, tell: Callable[[str], None]) -> None:
    """Run what has to pass before any crash state is checked. Raises what references.prepare raises."""
    use_executor(oracle, executor)
    if isinstance(oracle, OutputEquivalence):
        tell("running the driver uncrashed")
        prepare(oracle.references, oracle.operations)


def check_operation_boundaries(
    oracle: Oracle, executor: Executor, subject: Subject, find_completeness: Callable[[], Completeness]
) -> None:
    """Check the images with everything persisted between operations, where the result decides something.

    * After operations that overlapped, it decides in which order they took effect.
    * If bytes changed that the trace does not account for, it decides whether that matters (CrashcheckError
      boundary-rejected). Some operations are tried here; any other, before a finding depends on it.

    Otherwise a failing image of this kind is a finding, which the search makes.
    """
    if not isinstance(oracle, OutputEquivalence):
        return
    points = oracle.standings.quiet()
    for point in points:
        candidates = oracle.standings.overlapping(point)
        for order in candidates:
            oracle.standings.settle(point, order)
            if executor.run(subject.space.full(point)).passed:
                break
        else:
            if candidates:
                oracle.standings.settle(point, candidates[0])
    if unexplained := find_completeness().unexplained_bytes:
        boundaries = _Boundaries(oracle, executor, subject, unexplained, points)
        oracle.vouch = boundaries.must_pass
        for ordinal in spread(len(points)):
            boundaries.must_pass(ordinal)


def remarks(oracle: Oracle, executor: Executor, subject: Subject) -> tuple[str, ...]:
    """What is hidden from the search by the check's command, the driver or the operations; later among the oracle's
    notes.

    * A check that asks what was acknowledged, of a workload that acknowledges nothing before it ends.
    * Operations that update the files, and whose loss the rest's output does not show: a state, and a mutant, that
      loses no more passes. As many are tried as operations' ends.
    * What the driver prints when it recovers, on images with everything persisted in the middle of some operations:
      it counts as a difference.
    """
    if isinstance(oracle, ExitStatus):
        setup = executor.workers.setup
        if setup.command.function:  # what it asks for is not known
            return ()
        oracle.notes = never_acknowledged(setup.command.command, subject.trace, setup.recorded_stdout)
        return oracle.notes
    if not isinstance(oracle, OutputEquivalence):
        return ()
    updating = oracle.standings.updating(subject.trace.rows(*UPDATES).tolist())
    tried = [ordinal for ordinal in spread(len(oracle.operations)) if ordinal in updating]
    oracle.remarks = tuple(filter(None, (_unseen_losses(oracle, tried), _recovery_output(oracle, executor, subject))))
    return oracle.remarks


def _unseen_losses(oracle: OutputEquivalence, ordinals: Sequence[int]) -> str:
    operations, references = oracle.operations, oracle.references
    without = {ordinal: History(tuple(range(1, ordinal)), operations.boundary(ordinal).rest) for ordinal in ordinals}
    for history in without.values():
        references.want(history)
    unseen = [
        ordinal
        for ordinal, history in without.items()
        if not (lost := references.of(history)).unusable
        and lost.printed.key == references.of(operations.boundary(ordinal)).printed.key
    ]
    if not unseen:
        return ""
    named = listed([f"{ordinal} ({operations.shown(ordinal)[:60]})" for ordinal in unseen], _NAMED)
    return (
        f"the rest's output does not show whether operations were lost, {len(unseen)} of {len(ordinals)} tried: {named}"
        f". A crash state or a mutant that only loses one of them passes: read back later what it wrote"
    )


def _recovery_output(oracle: OutputEquivalence, executor: Executor, subject: Subject) -> str:
    inside = oracle.standings.alone()
    step = -(-len(inside) // _RECOVERIES)
    for ordinal, point in inside[:: step or 1]:
        ticket = executor.workers.submit(subject.space.full(point), (b"",), urgent=True)
        run = executor.workers.ended(ticket)
        for _ in executor.workers.arrivals():
            pass  # it is no verdict that the oracle will be asked for
        ended = run.ended
        if ended.timed_out:
            break  # the search explains hangs, and each would cost the whole limit here
        printed = Printed.of(ended, run.names).by_output()
        for at, part in enumerate(printed):
            if part.size and ended.status == 0:
                return (
                    f"the driver prints {(part.lines or [''])[0][:80]!r}{oracle.references.in_output(at)} when it "
                    f"recovers from a crash in operation {ordinal} ({oracle.operations.shown(ordinal)[:60]}): what it "
                    "prints in recovery counts as a difference; print it where outputs are not compared"
                )
    return ""


class _Boundaries:
    """Images with everything persisted between operations, each tried once, if the trace is incomplete."""

    def __init__(
        self, oracle: OutputEquivalence, executor: Executor, subject: Subject, unexplained: int, points: list[int]
    ) -> None:
        self._oracle = oracle
        self._executor = executor
        self._subject = subject
        self._unexplained = unexplained
        self._point_after = {len(oracle.standings.at(point).done): point for point in points}
        self._tried: set[int] = set()

    def must_pass(self, ordinal: int) -> None:
        """Check the image after `ordinal` operations. Raises CrashcheckError boundary-rejected if it fails."""
        point = self._point_after.get(ordinal)
        if point is None or ordinal in self._tried:
            return
        self._tried.add(ordinal)
        verdict = self._executor.run(self._subject.space.full(point))
        if verdict.passed:
            return
        last = self._oracle.standings.at(point).done[-1]
        raise CrashcheckError(
            "boundary-rejected",
            f"with everything persisted after operation {last} ({self._oracle.operations.shown(last)}), the driver "
            f"fails; {self._unexplained} bytes changed without a traced update, so "
            f"the image is wrong:\n{verdict.output.rstrip()}",
            "Build everything that writes the files with crashcheck-cc; the report lists what is not instrumented.",
        )


def _must_match(operations: Operations, standings: Standings) -> None:
    if standings.begun == standings.ended == len(operations):
        return
    raise CrashcheckError(
        "operations-mismatch",
        f"the file has {len(operations)} operations, but the workload began {standings.begun} and ended "
        f"{standings.ended}",
        "Mark each line's operation once, crashcheck_op_begin() before it and crashcheck_op_end() after it, on every "
        "path.",
    )
