"""The oracle that [check] asks for, made ready: files of operations, and for output equivalence its references."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from crashcheck.analyzer.ir.facts import ProgramFacts
from crashcheck.analyzer.ir.operations import found as found_operations
from crashcheck.analyzer.trace.completeness import Completeness
from crashcheck.checker.command import CheckSetup
from crashcheck.checker.equivalence import Operations, Standings
from crashcheck.checker.executor import Executor
from crashcheck.checker.oracles import Oracle
from crashcheck.checker.oracles.exit_status import ExitStatus
from crashcheck.checker.oracles.output_equivalence import OutputEquivalence
from crashcheck.checker.process import Limits
from crashcheck.checker.references import References, prepare
from crashcheck.checker.subject import Subject
from crashcheck.config import Config
from crashcheck.errors import CrashcheckError

KEPT_BYTES = 64 * 1024  # of each output, to be shown; outputs are compared whole (the sockets to the workers hold two)
OPERATIONS = "operations"  # in a run's folder: the operations that the workload was given


def build_environment(config: Config) -> dict[str, str]:
    """What tells crashcheck-cc which functions are operations."""
    names = "\n".join(config.workload.operations)
    return {"CRASHCHECK_OPERATIONS": names} if names else {}


def must_be_marked(config: Config, facts: ProgramFacts) -> None:
    """Raises CrashcheckError operations-not-found for a name in [workload] operations that marks no function."""
    marked = found_operations(name for unit in facts.units.values() for name in unit.functions)
    missing = [name for name in config.workload.operations if name not in marked]
    if missing:
        raise CrashcheckError(
            "operations-not-found",
            f"[workload] operations names {', '.join(missing)}, but no such function was compiled to be marked",
            "Write a function's symbol, or its name with namespaces and classes; it must not be variadic. [build] must "
            "compile it anew: `make` does not see that the list has changed.",
        )


def is_equivalence(config: Config) -> bool:
    return config.check.oracle == OutputEquivalence.name


def keep_operations(config: Config, work: Path) -> Path | None:
    """Put the operations, and no empty line, where the workload finds them; None if there is no such file.

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
            "Write one operation a line, or let `crashcheck ops` do it.",
        )
    work.mkdir(parents=True, exist_ok=True)
    kept = work / OPERATIONS
    kept.write_bytes(operations.text(range(1, len(operations) + 1)))
    return kept


@contextmanager
def opened(
    config: Config, subject: Subject, recorded: Path, setup: CheckSetup, limits: Limits, jobs: int
) -> Iterator[Oracle]:
    """The oracle, and while it is open the workers that run its references. `recorded`: the recording's folder.

    Raises CrashcheckError operations-mismatch.
    """
    if not is_equivalence(config):
        yield ExitStatus()
        return
    operations = Operations.of((recorded / OPERATIONS).read_bytes())
    standings = Standings(subject.trace, subject.space.points)
    _must_match(operations, standings)
    points = subject.space.points
    with Executor(subject.content, points, setup, ExitStatus(), limits=limits, jobs=jobs) as uncrashed:
        yield OutputEquivalence(operations, standings, References(uncrashed, operations))


def make_ready(oracle: Oracle, tell: Callable[[str], None]) -> None:
    """Run what must hold before anything is crashed; see references.prepare for what it raises."""
    if isinstance(oracle, OutputEquivalence):
        tell("running the driver uncrashed")
        prepare(oracle.references, oracle.operations)


def judge_boundaries(oracle: Oracle, executor: Executor, subject: Subject, completeness: Completeness) -> None:
    """Run "everything persisted" between operations, where that says something.

    After operations that overlapped it tells in which order they took effect. With updates that were not traced it
    tells whether that matters (CrashcheckError boundary-rejected). Else a failing boundary is a finding, and
    the search's business.
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
    if not completeness.unexplained_bytes:
        return
    tickets = [executor.submit(subject.space.full(point)) for point in points]
    verdicts = [executor.result(ticket) for ticket in tickets]
    for point, verdict in zip(points, verdicts, strict=True):
        if verdict is None or verdict.passed:
            continue
        ordinal = oracle.standings.at(point).done[-1]
        raise CrashcheckError(
            "boundary-rejected",
            f"with everything persisted after operation {ordinal} ({oracle.operations.shown(ordinal)}), the driver "
            f"does not do what it should; {completeness.unexplained_bytes} bytes changed without a traced update, so "
            f"the image is wrong:\n{verdict.output.rstrip()}",
            "Build everything that writes the files with crashcheck-cc; the report's list of what is not instrumented "
            "says where to look.",
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
