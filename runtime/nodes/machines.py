"""The machine of a node: its folder, its processes' command and output, and what is recorded of it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from crashcheck.runtime.nodes.timers import NodeTimers
from crashcheck.runtime.sparse import copy_tree

_VARYING = ("PWD", "OLDPWD", "SHLVL", "_")  # variables that differ from shell to shell


@dataclass(frozen=True, slots=True)
class NodeCommand:
    """A node: the words of its command, run in a folder of its own.

    seed: what that folder is a copy of at the start of each run, or None: it is empty. ends: the run is over when all
    nodes with it have ended. crash: "process" and "machine", which of both may happen to it.
    """

    words: tuple[str, ...]
    seed: Path | None = None
    ends: bool = False
    crash: frozenset[str] = frozenset()
    variables: Mapping[str, str] | None = None  # None: those of this process


@dataclass(frozen=True, slots=True)
class NodeRecording:
    """What a node did to its folder since its machine started: a sealed trace of calls, and the folder before."""

    trace: Path
    first: Path


@dataclass(slots=True)
class Machine:
    """What is known of a node. `records`: where its traces are made, or None."""

    command: NodeCommand
    folder: Path
    records: Path | None
    starts: int = 0  # of its process
    powered: int = 0  # how often the machine was started
    alive: bool = False  # the process
    crashed: str = ""  # how, until it is started again
    status: int | None = None  # of the process that ended by itself
    timers: NodeTimers = field(default_factory=NodeTimers)
    output: bytearray = field(default_factory=bytearray)
    errors: bytearray = field(default_factory=bytearray)

    def __post_init__(self) -> None:
        if self.command.seed is None:
            self.folder.mkdir(parents=True)
        else:
            copy_tree(self.command.seed, self.folder)

    @property
    def answers(self) -> bool:
        """Whether the machine is there, even if its process is not."""
        return self.starts > 0 and self.crashed != "machine"

    def start(self) -> bytes:
        """Take note that the process starts; returns what the controller needs for it."""
        if self.records and not self.answers:
            self.powered += 1
            copy_tree(self.folder, self.recording().first)
        self.alive, self.status, self.crashed = True, None, ""
        self.starts += 1
        variables = dict(os.environ if self.command.variables is None else self.command.variables)
        texts = [
            str(self.folder),
            str(self.recording().trace) if self.records else "",
            str(len(self.command.words)),
            *self.command.words,
            *(f"{name}={value}" for name, value in sorted(variables.items()) if name not in _VARYING),
        ]
        return b"".join(os.fsencode(text) + b"\0" for text in texts)

    def recording(self) -> NodeRecording:
        """Where the trace is of what happened since the machine was started."""
        assert self.records is not None
        home = self.records / f"{self.powered}"
        return NodeRecording(home / "trace.cct", home / "first")

    def remove(self) -> None:
        """Remove its files."""
        for folder in (self.folder, self.records):
            if folder:
                shutil.rmtree(folder, ignore_errors=True)
