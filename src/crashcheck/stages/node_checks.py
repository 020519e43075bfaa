"""The checks of a configuration of nodes: commands that judge the states of one run."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from crashcheck.checker.nodes.cuts import Cuts, nodes_of
from crashcheck.checker.nodes.runs import RunChecks
from crashcheck.checker.results import Verdict
from crashcheck.command import Command
from crashcheck.config.nodes import NodeCheckConfig
from crashcheck.runtime.nodes.actions import Action, ActionResult, NodeContent, World
from crashcheck.runtime.sparse import content_digest, copy_tree
from crashcheck.stages.state_judge import LOG, StateJudge

NodeStates = tuple[bytes, ...]  # a digest of each node's files and output

_MOST_CUTS = 1000  # of one run; a report counts the runs that have more
# Of a sample of runs, so many cuts of one are judged, or as many as states that it passed. Berkeley DB's example has
# 1,000 in each run of 330 actions: their checks took two minutes, and the run itself 2 s.
_CUTS_OF_SAMPLE = 64


class PassedStates:
    """States of all nodes on which the check after each action passed, in any run, also of other processes."""

    def __init__(self) -> None:
        self._known: set[NodeStates] = set()
        self._new: list[NodeStates] = []

    def __contains__(self, states: NodeStates) -> bool:
        return states in self._known

    def add(self, states: NodeStates) -> None:
        self._known.add(states)
        self._new.append(states)

    def news(self) -> Sequence[NodeStates]:
        """Those that were added here since this was asked last."""
        new, self._new = self._new, []
        return new

    def hear(self, news: Iterable[NodeStates]) -> None:
        """Take over those of another process."""
        self._known.update(news)


class CommandChecks(RunChecks):
    """Has the commands judge folders of states, which are made in `place`. `nodes`: how many there are.

    `passed`: states that need no check; None: each state is judged, as its log may be what fails. `cuts`: what is
    needed to judge consistent cuts is kept. `sample`: the runs are one, so judging cuts takes no more checks than
    judging the states that a run passes.
    """

    def __init__(
        self,
        check: NodeCheckConfig,
        judge_of: Callable[[Command], StateJudge],
        nodes: int,
        place: Path,
        passed: PassedStates | None,
        cuts: bool,
        sample: bool = False,
    ) -> None:
        # constant
        self._check = check
        self._judge_of = judge_of
        self._state = place / "00000000" / "state"  # the folder above is renamed to numbers (execution/in_turn.py)
        self._kept = place / "versions"
        self._passed = passed
        self._cuts = cuts and check.after is not None
        self._sample = sample
        # changing
        self._versions: list[list[bytes]] = [[] for _ in range(nodes)]  # digests of each node, the newest last
        self._log: Sequence[str] = ()  # of the world
        self._judged_states = 0  # by the check after each action

    def begun(self, world: World) -> None:
        if self._check.after is not None and self._passed is not None:
            self._log = world.log()
            self._look(world, range(len(self._versions)))

    def after(self, world: World, result: ActionResult) -> Verdict | None:
        if self._check.after is None:
            return None
        if self._passed is None:
            return self._judged_now(world, self._check.after)
        self._look(world, nodes_of(result.action), kept=result.kept)
        states = tuple(each[-1] for each in self._versions)
        if states in self._passed:
            return None
        self._judged_states += 1
        verdict = self._judged_now(world, self._check.after)
        if verdict is None:
            self._passed.add(states)
        return verdict

    def end(self, world: World) -> Verdict | None:
        return self._judged_now(world, self._check.end)

    def progress(self, world: World) -> Verdict | None:
        return self._judged_now(world, self._check.progress)

    def _judged_now(self, world: World, command: Command | None) -> Verdict | None:
        if command is None:
            return None
        with self._written(world):
            return self._judged(command)

    def failing_cut(self, world: World, cuts: Cuts) -> tuple[Sequence[Action], bool]:
        assert self._check.after is not None
        assert self._passed is not None
        found = cuts.differing(self._versions)
        left = max(_CUTS_OF_SAMPLE, self._judged_states) if self._sample else _MOST_CUTS
        for cut in islice(found, _MOST_CUTS):
            versions = cuts.versions(cut)
            states = tuple(each[number] for each, number in zip(self._versions, versions, strict=True))
            if states in self._passed:
                continue
            if not left or world.stopped:
                return (), False
            left -= 1
            with self._folder():
                for node, state in enumerate(states):
                    copy_tree(self._kept / str(node) / state.hex(), self._state)
                before = len(self._log) - len(cuts)
                chosen = [text for at, text in enumerate(self._log) if at < before or cut >> (at - before) & 1]
                (self._state / LOG).write_text("".join(chosen), encoding="utf-8")
                if self._judged(self._check.after) is not None:
                    return cuts.actions(cut), True
            self._passed.add(states)
        return (), next(found, None) is None

    def _look(self, world: World, nodes: Iterable[int], *, kept: bool = False) -> None:
        """Take note of what some nodes are now, and keep it for the cuts that it is part of. `kept`: as before."""
        for node in nodes:
            if kept:
                self._versions[node].append(self._versions[node][-1])
                continue
            content = world.content(node)
            digest = _digest(content)
            self._versions[node].append(digest)
            copy = self._kept / str(node) / digest.hex()
            if self._cuts and not copy.exists():
                copy.mkdir(parents=True)
                content.write(copy)

    @contextlib.contextmanager
    def _folder(self) -> Iterator[None]:
        self._state.mkdir(parents=True)
        try:
            yield
        finally:
            shutil.rmtree(self._state, ignore_errors=True)

    @contextlib.contextmanager
    def _written(self, world: World) -> Iterator[None]:
        """The folder of the state, with what a world has reached."""
        with self._folder():
            world.state(self._state)
            yield

    def _judged(self, command: Command) -> Verdict | None:
        """How a check fails on the folder of the state; None if it passes."""
        verdict = self._judge_of(command).judge(self._state)
        return None if verdict.passed else verdict


def _digest(content: NodeContent) -> bytes:
    """Of the names and contents of all files below a node's folder, and of what it printed."""
    state = hashlib.blake2b(digest_size=16)
    for printed in (content.output, content.errors):
        state.update(b"%d\0" % len(printed) + printed)
    for path in sorted(content.folder.rglob("*")):
        state.update(os.fsencode(path.relative_to(content.folder)) + b"\0")
        if path.is_symlink():
            state.update(os.fsencode(os.readlink(path)))
        elif path.is_file():
            state.update(content_digest(path))
    return state.digest()
