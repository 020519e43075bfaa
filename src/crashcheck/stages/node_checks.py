"""The checks of a configuration of nodes: commands that judge the states of one run."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

from crashcheck.checker.execution.process import Ended
from crashcheck.checker.nodes.cuts import Cuts, nodes_of
from crashcheck.checker.nodes.runs import RunChecks
from crashcheck.checker.oracles.exit_status import ExitStatus
from crashcheck.checker.results import Verdict
from crashcheck.command import Command
from crashcheck.config.nodes import NodeCheckConfig
from crashcheck.errors import CrashcheckError
from crashcheck.masking import inherited_environment
from crashcheck.runtime.nodes.actions import Action, World

NodeStates = tuple[bytes, ...]  # a digest of each node's files and output

_OUTPUT_BYTES = 16 * 1024  # of a check, that a report keeps
_MOST_CUTS = 1000  # of one run; a report counts the runs that have more


class CommandChecks(RunChecks):
    """Runs the commands on a folder of the state, which is made in `place`. `names`: of the nodes' folders in it.

    `passed`: states of all nodes on which the check after each action passed, in any run. `cuts`: what is needed to
    judge consistent cuts is kept.
    """

    def __init__(
        self,
        check: NodeCheckConfig,
        project: Path,
        names: Sequence[str],
        place: Path,
        passed: set[NodeStates],
        cuts: bool,
    ) -> None:
        # constant
        self._check = check
        self._names = names
        self._project = project
        self._state = place / "state"
        self._kept = place / "versions"
        self._passed = passed
        self._cuts = cuts and check.after is not None
        # changing
        self._versions: list[list[bytes]] = [[] for _ in names]  # digests; the version's number is the place

    def begun(self, world: World) -> None:
        if self._cuts:
            with self._written(world):
                self._keep(range(len(self._versions)))

    def after(self, world: World, action: Action) -> Verdict | None:
        if self._check.after is None:
            return None
        with self._written(world):
            if not self._cuts:
                return self._judged(self._check.after)
            self._keep(nodes_of(action))
            states = tuple(each[-1] for each in self._versions)
            verdict = None if states in self._passed else self._judged(self._check.after)
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

    def failing_cut(self, cuts: Cuts) -> tuple[Sequence[Action], bool]:
        assert self._check.after is not None
        found = iter(cuts)
        for cut in islice(found, _MOST_CUTS):
            versions = cuts.versions(cut)
            states = tuple(each[number] for each, number in zip(self._versions, versions, strict=True))
            if states in self._passed:
                continue
            with self._folder():
                for node, number in enumerate(versions):
                    for part in (self._kept / str(node) / str(number)).iterdir():
                        _copy(part, self._state / part.name)
                log = (self._kept / "log.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
                before = len(log) - len(cuts)
                chosen = [text for at, text in enumerate(log) if at < before or cut >> (at - before) & 1]
                (self._state / "log.jsonl").write_text("".join(chosen), encoding="utf-8")
                if self._judged(self._check.after) is not None:
                    return cuts.actions(cut), True
            self._passed.add(states)
        return (), next(found, None) is None

    def _keep(self, nodes: Iterable[int]) -> None:
        """Keep a new version of some nodes, from the folder of the state."""
        for node in nodes:
            folder = self._kept / str(node) / str(len(self._versions[node]))
            folder.mkdir(parents=True)
            for part in _parts(self._state, self._names[node]):
                _copy(part, folder / part.name)
            self._versions[node].append(_digest(folder))
        log = self._state / "log.jsonl"
        if log.exists():
            shutil.copyfile(log, self._kept / "log.jsonl")

    @contextlib.contextmanager
    def _folder(self) -> Iterator[None]:
        self._state.mkdir()
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
        argv = command.argv(state=str(self._state))
        ended = _run(argv, self._project, {**inherited_environment(), **self._check.env}, self._check.timeout_s)
        verdict = ExitStatus().judge(ended, {str(self._state): "{state}"})
        return None if verdict.passed else verdict


def _parts(folder: Path, name: str) -> list[Path]:
    """What the folder of a state holds of a node: `n0`, `n0.output` and what else begins so."""
    return sorted(path for path in folder.iterdir() if path.name.partition(".")[0] == name)


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True)
    else:
        shutil.copyfile(source, target)


def _digest(folder: Path) -> bytes:
    """Of the names and contents of all files below a folder."""
    state = hashlib.blake2b(digest_size=16)
    for path in sorted(folder.rglob("*")):
        state.update(os.fsencode(path.relative_to(folder)) + b"\0")
        if path.is_symlink():
            state.update(os.fsencode(os.readlink(path)))
        elif path.is_file():
            data = path.read_bytes()
            state.update(b"%d\0" % len(data) + data)
    return state.digest()


def _run(argv: Sequence[str], folder: Path, env: Mapping[str, str], timeout_s: float) -> Ended:
    """Run a check to its end. Raises CrashcheckError(check-not-started)."""
    began = time.monotonic()
    try:
        process = subprocess.Popen(
            argv,
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        message = f"the check could not be started: {argv[0]}: {error.strerror}."
        raise CrashcheckError("check-not-started", message, "Name a program that exists and is executable.") from error
    with process:
        timed_out = False
        try:
            output, _ = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            timed_out, output = True, b""
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        code = process.wait()
    status = -code if code < 0 else code << 8
    kept = output[-_OUTPUT_BYTES:]
    return Ended(status, timed_out, "", kept, len(kept) < len(output), time.monotonic() - began)
