"""Replays a finding: writes its token's image and runs the check on it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from crashcheck.checker.execution.check_script import CheckOnImage
from crashcheck.checker.results import Verdict
from crashcheck.checker.search.recovery import Recovery, RecoverySearch
from crashcheck.checker.states.space import CrashState
from crashcheck.checker.subject import Subject
from crashcheck.checker.token import Level, Token, digest
from crashcheck.checker.verdicts.executor import Executor
from crashcheck.checker.verdicts.image_judge import ImageJudge
from crashcheck.errors import CrashcheckError


@dataclass(frozen=True, slots=True, eq=False)
class Replayed:
    """`image`: the crash image as it was before the check ran; `subject`, `state`: what it is a state of."""

    subject: Subject
    state: CrashState
    image: Path
    verdict: Verdict
    check: CheckOnImage | None  # what ran; None: the oracle judged the image itself


def replay(
    token: Token, subject: Subject, executor: Executor, image: Path, deeper: RecoverySearch | None = None
) -> Replayed:
    """Write a token's image to `image`, which must not exist, and run the check on a copy of it.

    `subject` must be built with the token's model and options. A token of two levels needs `deeper`,
    and then records the check on the first level's image, in the folder `image` + ".recovery".
    CrashcheckError token-other-trace, token-other-model, token-no-state.
    """
    state = token.for_trace(subject.trace)
    graph = subject.graph
    if (token.model, token.options) != (graph.model, graph.options):
        raise CrashcheckError(
            "token-other-model",
            f"the token belongs to model {token.model} ({token.options}), not to {graph.model} ({graph.options})",
            "Run with the [model] that the finding names.",
        )
    must_be_feasible(subject, state)
    if len(token.levels) == 1:
        executor.images.write_image(state, image)
        return Replayed(subject, state, image, executor.run(state), _check_on(executor, state.point))
    if deeper is None or len(token.levels) != 2:
        raise CrashcheckError(
            "token-no-state",
            f"the token crashes {len(token.levels) - 1} recoveries, and none can be recorded here",
            "Replay it with the crashcheck.toml of the run that found it.",
        )
    recovery = _record(subject, executor, state, image, deeper)
    inner = token.levels[1]
    _must_be_same_run(recovery, inner)
    must_be_feasible(recovery.subject, inner.state)
    with deeper.executor(recovery, subject, state) as below:
        below.images.write_image(inner.state, image)
        verdict = below.run(inner.state)
        return Replayed(recovery.subject, inner.state, image, verdict, _check_on(below, inner.state.point))


def _check_on(executor: Executor, point: int) -> CheckOnImage | None:
    if isinstance(executor, ImageJudge):
        return None
    setup, (acked, printed) = executor.workers.setup, executor.images.acknowledged(point)
    stages = executor.oracle.stages(point)
    output = setup.recorded_stdout.read_bytes()[:printed] if setup.recorded_stdout is not None else b""
    return CheckOnImage(setup, acked, output, b"".join(stages) if stages else None)


def _record(subject: Subject, executor: Executor, state: CrashState, image: Path, deeper: RecoverySearch) -> Recovery:
    folder = image.with_name(image.name + ".recovery")
    folder.mkdir()
    executor.images.write_image(state, folder / "image")
    work = folder / "record"
    work.mkdir()
    point = subject.space.points[state.point]
    recovery = deeper.record(folder / "image", int(point.acked), int(point.stdout_bytes), work)
    if recovery is None:
        raise CrashcheckError(
            "token-no-state",
            "the token crashes the check's recovery, but the check updated nothing on that image this time",
            "The check has changed since: run `crashcheck run` again and use its token.",
        )
    return recovery


def _must_be_same_run(recovery: Recovery, level: Level) -> None:
    own = digest(recovery.subject.trace)
    if own != level.digest:
        raise CrashcheckError(
            "token-other-trace",
            f"the token belongs to run {level.digest.hex()} of the check, but it now ran as {own.hex()}",
            "The check has changed since, or does not do the same each time: run `crashcheck run` again.",
        )


def must_be_feasible(subject: Subject, state: CrashState) -> None:
    """Raise CrashcheckError(token-no-state) if no crash of a run leaves a state."""
    space = subject.space
    try:
        if not 0 <= state.point < len(space.points):
            raise ValueError(f"there are {len(space.points)} crash points, not {state.point + 1}")
        if not {subject.graph.whole(piece) for piece in state.pieces} <= set(space.pending(state.point)):
            raise ValueError(f"its updates are not pending at crash point {state.point}")
        space.state(state.point, space.persisted(state))
    except (ValueError, IndexError) as error:
        raise CrashcheckError(
            "token-no-state",
            f"the token names no crash state that {subject.graph.model} allows: {error}",
            "It was made by another version of crashcheck: run `crashcheck run` again.",
        ) from None
