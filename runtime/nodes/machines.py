"""The machine of a node: its folder, its processes' command and output, and what is recorded of it."""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Protocol

import numpy as np

from crashcheck.runtime.nodes.actions import ALL_WRITTEN, DiskState, NodeContent, ThreadWait
from crashcheck.runtime.nodes.programs import check_program
from crashcheck.runtime.nodes.timers import NodeTimers
from crashcheck.runtime.seal import seal
from crashcheck.runtime.sparse import copy_tree, restore_tree
from crashcheck.runtime.trace_format import HEADER

_TRACE = "trace.cct"
_IN_TEMPORARY = re.compile(r"(?<![\w./-])(/tmp|/dev/shm)/+([^/\s:,;'\"]+)")  # the first part of a path
_VARYING = ("PWD", "OLDPWD", "SHLVL", "_")  # variables that differ from shell to shell


@dataclass(frozen=True, slots=True)
class CallFault:
    """A call that fails. nth: the first of those that do, 0: when that is chosen; times: how many, 0: all.

    number: of the fault, for actions.
    """

    number: int
    call: str
    error: int
    nth: int = 0
    times: int = 1


@dataclass(frozen=True, slots=True)
class NodeCommand:
    """A node: the words of its command, run in a folder of its own.

    folder: how that is named; empty: n and the node's number. seed: what it is a copy of at the start of each run, or
    None: it is empty. ends: the run is over when all nodes with it have ended. crash: "process" and "machine", which of
    both may happen to it. explores: which of several threads continues is an action. name: how errors name it; empty:
    "node" and its number.
    """

    words: tuple[str, ...]
    folder: str = ""
    seed: Path | None = None
    ends: bool = False
    crash: frozenset[str] = frozenset()
    variables: Mapping[str, str] | None = None  # None: those of this process
    faults: tuple[CallFault, ...] = ()
    explores: bool = False
    name: str = ""


@dataclass(frozen=True, slots=True)
class NodeRecording:
    """What a node did to its folder since its machine started: a sealed trace of calls, the folder before, and after.

    since: the number of the last event before the node's last action. A machine may lose the power within that, as long
    as nobody has heard of what followed.
    """

    trace: Path
    first: Path
    last: Path
    since: int


class CrashedDisk(Protocol):
    """What the crash of one machine may have left of the node's folder."""

    @property
    def states(self) -> Sequence[int]:
        """Their names (DiskState.name). The first is all that was written."""
        ...

    @property
    def complete(self) -> bool:
        """Whether there are no more."""
        ...

    @property
    def unaccounted(self) -> Sequence[str]:
        """What changed in the folder and was not recorded."""
        ...

    def described(self, name: int) -> DiskState:
        """What a state lacks. To name updates takes longer than to find the states, and few are ever kept."""
        ...

    def write(self, name: int, folder: Path) -> None:
        """Write a state to a folder, which must not exist."""
        ...


CrashDisk = Callable[[NodeRecording], CrashedDisk]
Call = tuple[int, int]  # of a trace: a site, and the stack of its callers
# The stacks of calls of a trace, each as Message.stack has it.
NameCalls = Callable[[Path, Sequence[Call]], Sequence[tuple[str, ...]]]


@dataclass(slots=True)
class Machine:
    """What is known of a node.

    `records`: where its traces are made, or None. `private`: its own /tmp and /dev/shm. What is there is kept as long
    as the machine runs, and nobody syncs it.
    """

    command: NodeCommand
    folder: Path
    records: Path | None
    private: Path
    starts: int = 0  # of its process
    powered: int = 0  # how often the machine was started
    alive: bool = False  # the process
    crashed: str = ""  # how, until it is started again
    status: int | None = None  # of the process that ended by itself
    timers: NodeTimers = field(default_factory=NodeTimers)
    requests: list[int] = field(default_factory=list)  # to files, under way
    threads: dict[int, ThreadWait] = field(default_factory=dict)  # of which one may continue, by number
    turns: Counter[int] = field(default_factory=Counter)  # how often each thread was chosen
    output: bytearray = field(default_factory=bytearray)
    errors: bytearray = field(default_factory=bytearray)
    steps: int = 0  # actions in which it ran
    lapsed: list[int] = field(default_factory=list)  # since then: comparisons for which its clock has passed, by name
    chosen_faults: Counter[int] = field(default_factory=Counter)  # how often each was chosen
    disk: CrashedDisk | None = None  # since the machine crashed
    _since: int = 0  # as NodeRecording has it
    _mode: int = 0  # of its folder at first

    def __post_init__(self) -> None:
        if self.command.seed is None:
            empty_folder(self.folder)
        else:
            restore_tree(self.command.seed, self.folder)
        self._mode = self.folder.stat().st_mode
        self._empty_private()

    def _empty_private(self) -> None:
        shutil.rmtree(self.private, ignore_errors=True)
        for name in ("tmp", "shm"):
            (self.private / name).mkdir(parents=True)
            (self.private / name).chmod(0o1777)

    @property
    def content(self) -> NodeContent:
        """What a check sees of it."""
        return NodeContent(self.folder, bytes(self.output), bytes(self.errors))

    @property
    def answers(self) -> bool:
        """Whether the machine is there, even if its process is not."""
        return self.starts > 0 and self.crashed != "machine"

    @property
    def _home(self) -> Path:
        """Where the trace is of what happens since the machine was started."""
        assert self.records is not None
        return self.records / f"{self.powered}"

    @property
    def _first(self) -> Path:
        """Its folder when the machine was started."""
        return self.command.seed if self.command.seed and self.powered == 1 else self._home / "first"

    def start(self) -> bytes:
        """Take note that the process starts; returns what the controller needs for it."""
        if self.records and not self.answers:
            self.powered += 1
            if self._first != self.command.seed:
                copy_tree(self.folder, self._first)
            self._since = 0
        self.alive, self.status, self.crashed = True, None, ""
        self.starts += 1
        variables = dict(os.environ if self.command.variables is None else self.command.variables)
        check_program(self.command.words, variables, self.folder)
        texts = [
            str(self.folder),
            str(self._home / _TRACE) if self.records else "",
            str(self.private),
            ":".join(sorted(set(_shown((str(self.folder), *self.command.words, *variables.values()))))),
            str(len(self.command.words)),
            *self.command.words,
            *(f"{name}={value}" for name, value in sorted(variables.items()) if name not in _VARYING),
        ]
        return b"".join(os.fsencode(text) + b"\0" for text in texts)

    def acts(self) -> None:
        """Take note that an action begins in which the node runs."""
        self.steps += 1
        self.lapsed.clear()
        if self.records and self.answers:
            with suppress(FileNotFoundError), open(self._home / _TRACE, "rb") as trace:  # else it begins now
                self._since = int(np.frombuffer(trace.read(HEADER.itemsize), HEADER)[0]["next_seq"]) - 1

    @property
    def trace(self) -> Path:
        """The trace of what happens since the machine was started."""
        return self._home / _TRACE

    @property
    def traces(self) -> Sequence[Path]:
        """That trace, and those of before."""
        return sorted(self.records.glob(f"*/{_TRACE}")) if self.records else ()

    def recording(self) -> NodeRecording:
        """What happened since the machine was started. Nobody may write the trace any more."""
        seal(self._home / _TRACE)
        return NodeRecording(self._home / _TRACE, self._first, self.folder, self._since)

    def lose_power(self, crash: CrashDisk | None) -> CrashedDisk | None:
        """Find out what its disk may have kept, once all its processes have ended; no more is left of its memory."""
        self._empty_private()
        if self.records and crash is not None:
            self.disk = crash(self.recording())
        return self.disk

    @property
    def disk_states(self) -> Sequence[int]:
        """The names of what its folder may become when it starts again."""
        return self.disk.states if self.disk else (ALL_WRITTEN,)

    def keep(self, name: int) -> DiskState | None:
        """Let the folder become one of these."""
        if self.disk is None:
            return None
        disk, self.disk = self.disk, None
        if name != ALL_WRITTEN:
            os.rename(self.folder, self._home / "pool")  # owners and modes of files are found there
            disk.write(name, self.folder)
        return disk.described(name)

    def remove(self, *, rests: bool) -> None:
        """Remove its files. Its folder is left for the next run if it can become what it was, and no process may still
        write: ext4 takes milliseconds to remove a folder, and longer to create files where some were removed."""
        for folder in (self.records, self.private):
            if folder:
                shutil.rmtree(folder, ignore_errors=True)
        if not rests or not (self.command.seed or self._is_first()):
            shutil.rmtree(self.folder, ignore_errors=True)

    def _is_first(self) -> bool:
        """Whether its folder has the mode and attributes that it had at first."""
        return self.folder.is_dir() and self.folder.stat().st_mode == self._mode and not os.listxattr(self.folder)


def empty_folder(folder: Path) -> None:
    """Make a folder, or make one that an earlier run has left like a new one."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in os.listdir(folder):
        path = folder / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    os.utime(folder)


def _shown(texts: Iterable[str]) -> Iterator[str]:
    """The folders in /tmp and /dev/shm that texts name a path in, and that are there: a node finds them in its own."""
    for text in texts:
        yield from (path for path in _named(text) if os.path.isdir(path))


@lru_cache(4096)
def _named(text: str) -> Sequence[str]:
    """The first parts of paths in /tmp and /dev/shm that a text names: all runs have the same texts."""
    return [f"{place}/{name}" for place, name in _IN_TEMPORARY.findall(text)]
