"""A run of nodes that is made again from its token: exactly, or as far as other versions of its programs can follow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from crashcheck.checker.images import image_folder
from crashcheck.checker.nodes.describe import Describer, RunFacts, disk_text, facts_of
from crashcheck.checker.nodes.paths import ExactPath, SteeredPath
from crashcheck.checker.nodes.runs import NodeRun, execute
from crashcheck.checker.search.schedules import Diverged
from crashcheck.checker.token import OrderToken
from crashcheck.config import Config
from crashcheck.errors import CrashcheckError
from crashcheck.stages.nodes import STATE_BYTES, NodeSetup


def replay_order(config: Config, token: OrderToken, folder: Path) -> tuple[NodeRun, Describer]:
    """Make the run of a token again, up to what is wrong. Raises CrashcheckError: replay-differs and others."""
    path = ExactPath(token.actions)

    def replayed() -> NodeRun:
        nonlocal path
        path = ExactPath(token.actions)
        return execute(setup.world(), path, setup.rules())

    with _replayed(config, folder) as setup:
        if token.digest != setup.digest():
            message = "the token belongs to other nodes: a command, a program, [bounds], [time] or [model] differs"
            hint = (
                "Run `crashcheck run` again and take the token it prints, or follow it as far as possible with --steer."
            )
            raise CrashcheckError("token-other-nodes", message, hint)
        try:
            return setup.judging(replayed), setup.describer()
        except Diverged as error:
            different = error
    clause = setup.describer().clause(token.actions[len(path.chosen)], RunFacts())
    raise CrashcheckError(
        "replay-differs",
        f"the run differs from that of the token at action {len(path.chosen) + 1}: {clause}: {different}",
        "Something that the nodes read is not under control: docs/nodes.md lists what is.",
    ) from different


@dataclass(frozen=True, slots=True, eq=False)
class Steered:
    """A run that followed a token. `departs`: where it could not, as a clause; empty: it came to the token's end.

    `left`: how many actions of the token did not come.
    """

    run: NodeRun
    describer: Describer
    departs: str
    left: int


def steer_by(
    config: Config, token: OrderToken, folder: Path, known: RunFacts | None = None, *, to_end: bool = False
) -> Steered:
    """Follow the run of a token, which may be of other programs, as far as these nodes can.

    `known`: of the token's run, to name what departs; None: what is known of this one. `to_end`: after the token's last
    action come those that come by default.
    """

    def steered() -> NodeRun:
        return execute(setup.world(), SteeredPath(token.actions, to_end=to_end), setup.rules())

    with _replayed(config, folder) as setup:
        describer, run = setup.describer(), setup.judging(steered)
    path = run.path
    assert isinstance(path, SteeredPath)
    if path.departed is None:
        return Steered(run, describer, "", path.left)
    at, action = path.departed
    clause = describer.clause(action, facts_of(run) if known is None else known)
    return Steered(run, describer, f"after action {len(run.set_up) + at}: {clause} there", path.left)


@contextmanager
def _replayed(config: Config, folder: Path) -> Iterator[NodeSetup]:
    if config.nodes is None:
        message = "the token is of a run of nodes, and the configuration has no [[node]]"
        raise CrashcheckError("token-other-nodes", message, "Name the configuration of the run that found it: -c FILE.")
    with image_folder.held_home(folder, STATE_BYTES, 1) as states:
        yield NodeSetup(config, config.nodes, folder, 1, states)


def happened(run: NodeRun, describer: Describer) -> Iterator[str]:
    """The actions of a run, one line each, and what is wrong with it."""
    facts = facts_of(run)
    for number, result in enumerate((*run.set_up, *run.results), 1):
        yield f"{number:4}  {describer.clause(result.action, facts)}"
        if text := disk_text(result.disk):
            yield f"      {describer.node(result.action.node)}'s disk {text}"
        for text in result.wrote.decode("utf-8", "replace").splitlines():
            yield f"      {describer.node(result.action.node)} | {text}"
    if run.failure is not None and run.failure.verdict is not None:
        yield from (f"      check | {text}" for text in run.failure.verdict.output.splitlines())
    yield f"Then {describer.failure(run.failure)}." if run.failure is not None else "Nothing is wrong with this run."


def departure(steered: Steered, token: OrderToken) -> str:
    """How far a run followed a token, in sentences."""
    if not steered.departs:
        return "It followed the token to its end."
    missing = f"{steered.left} of the token's {len(token.actions)} actions did not come."
    return f"It departs from the token {steered.departs}. {missing}"
