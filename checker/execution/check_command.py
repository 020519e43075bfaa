"""The check command: the program it names, its environment, and what is the same for every state."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from crashcheck import ports
from crashcheck.command import Command
from crashcheck.errors import CrashcheckError
from crashcheck.masking import inherited_environment

# Variables that a shell, or a run of GitHub Actions, sets to something else each time.
_DIFFERENT = re.compile(
    r"_|SHLVL|OLDPWD|PYTEST_CURRENT_TEST|"
    r"GITHUB_(RUN_ID|RUN_NUMBER|RUN_ATTEMPT|SHA|REF\w*|HEAD_REF|BASE_REF|ACTOR\w*|TRIGGERING_ACTOR|EVENT_\w+|JOB|ACTION\w*|"
    r"ENV|PATH|OUTPUT|STATE|STEP_SUMMARY|WORKFLOW_\w+)|RUNNER_(NAME|TRACKING_ID)|INPUT_\w+"
)
_MOST_OF_INTERPRETER = 256  # bytes of a script that the kernel reads for it (BINPRM_BUF_SIZE)


class Acked(NamedTuple):
    """The number of acknowledged operations, and the words of a run with `{acked}` in its place."""

    number: int
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CheckCommand:
    """A configured command whose program has been found; `program` is an absolute path."""

    command: Command
    program: str
    env: Mapping[str, str] = field(default_factory=dict)  # variables that the command itself sets
    function: str = ""  # of a test, which is called instead of the program; as a person may call it again

    @staticmethod
    def find(command: Command, folder: Path, search: str | None = None) -> CheckCommand:
        """`folder`: where it runs; `search`: its PATH. CrashcheckError check-not-started if it is not to be found."""
        if command.folders_at:
            return _given_folders(command, folder, search)
        plain, variables = command.without_shell()
        found = _program(plain.words[0], folder, search) if plain.words else None
        if command.shell:
            return CheckCommand(plain, found, variables) if found else CheckCommand(command, "/bin/sh")
        if found is None:
            raise _not_found(command.words[0], folder)
        return CheckCommand(command, found)

    @property
    def own_program(self) -> str:
        """The program of the check itself, which crashcheck's own starts if it is given folders."""
        return self.command.words[at] if (at := self.command.folders_at) else self.program

    def programs(self, folder: Path, search: str | None) -> list[str]:
        """All that a run starts as far as the command names it: also what a shell or `env` runs, and interpreters."""
        found: dict[str, None] = {}
        named = [self.own_program, *self.command.named()]
        while named:
            program = _program(named.pop(0), folder, search)
            if program and program not in found:
                found[program] = None
                named += _interpreter(program)
        return list(found)

    def argv(self, pool: str, acked: int, stdout: str, ops: str | None = None) -> list[str]:
        """The words of one run; `ops`: the file of operations that it is to run, if it is given one."""
        more = {} if ops is None else {"ops": ops}
        return self.command.argv(pool=pool, acked=str(acked), stdout=stdout, **more, **ports.of(self.command))

    def acked_of(self, argv: Sequence[str], acked: int) -> Acked | None:
        """What of the words `argv` of a run is the number for `{acked}`; None: nothing."""
        if not self.command.holds("acked"):
            return None
        own = self.command.words or ("/bin/sh", "-c", self.command.text)
        return Acked(acked, tuple(mine if "{acked}" in mine else word for mine, word in zip(own, argv, strict=True)))

    def shown(self, pool: str, acked: int, stdout: str) -> str:
        """What a person would type to run it, the same in each run of crashcheck."""
        if self.function:
            return self.function
        argv = self.command.argv(pool=pool, acked=str(acked), stdout=stdout, port=str(ports.FIRST))
        if at := self.command.folders_at:
            given = shlex.quote(f"{pool}\\t{acked}\\t{stdout}\\n")
            return f"printf {given} | {shlex.join(argv[at:])}"
        variables = [f"{name}={shlex.quote(value)}" for name, value in self.env.items()]
        return argv[2] if self.command.shell else " ".join([*variables, shlex.join(argv)])


def _given_folders(command: Command, folder: Path, search: str | None) -> CheckCommand:
    """As `CheckCommand.find`, of a check that is given folders: its own program has to be there, too."""
    program, at = command.words[0], command.folders_at
    found = _program(command.words[at], folder, search)
    if found is None:
        raise _not_found(command.words[at], folder)
    words = (*command.words[:at], found, *command.words[at + 1 :])
    return CheckCommand(replace(command, words=words), program)


def _not_found(program: str, folder: Path) -> CrashcheckError:
    return CrashcheckError(
        "check-not-started",
        f"the check program {program} does not exist or cannot be executed (looked for from {folder})",
        "Build it first ([build] command), or correct [check] command.",
    )


def _program(word: str, folder: Path, search: str | None) -> str | None:
    """The program that a word names, which runs in `folder`."""
    if "/" not in word:
        return shutil.which(word, path=search)
    there = (folder / word).absolute()
    return str(there) if there.is_file() and os.access(there, os.X_OK) else None


def _interpreter(program: str) -> list[str]:
    """The words after `#!` of a script."""
    try:
        with open(program, "rb") as file:
            first = file.readline(_MOST_OF_INTERPRETER)
    except OSError:  # it can be executed, and not read
        return []
    return os.fsdecode(first[2:]).split() if first.startswith(b"#!") else []


@dataclass(frozen=True, slots=True)
class CheckSetup:
    """Everything about running the check that is the same for every state."""

    command: CheckCommand
    folder: Path  # where it runs
    first: Path  # the pool folder as it was before the workload
    work: Path  # images go here if not to tmpfs
    source: Path | None = None  # the folder that was recorded in place: who can enter it can enter its images
    recorded_stdout: Path | None = None  # all that the workload printed
    addresses: Path | None = None  # where files were mapped; CRASHCHECK_ADDRESSES
    preload: Path | None = None  # the runtime, which maps files at the `addresses`
    patterns: tuple[str, ...] = ()  # CRASHCHECK_FILES
    env: Mapping[str, str] = field(default_factory=dict)  # added to our own environment; {pool} is filled in

    def inherited(self) -> dict[str, str]:
        """What checks get of our own environment: nothing that is meant for us."""
        return inherited_environment("CRASHCHECK_")

    def steady(self) -> dict[str, str]:
        """The same without what a shell sets to something else for each command."""
        return {name: value for name, value in self.inherited().items() if not _DIFFERENT.fullmatch(name)}

    def environment(self, pool: Path) -> dict[str, str]:
        """Of one worker's checks. Never asks the runtime to record."""
        env = self.inherited()
        env.update(self.added(pool))
        if self.preload is not None:
            env["LD_PRELOAD"] = ":".join(filter(None, [str(self.preload), env.get("LD_PRELOAD", "")]))
        env.pop("CRASHCHECK_TRACE", None)
        return env

    def added(self, pool: Path) -> dict[str, str]:
        """What checks get besides our own environment, without the runtime."""
        env = {name: value.replace("{pool}", str(pool)) for name, value in self.env.items()}
        env.update(self.command.env)
        env["CRASHCHECK_POOL"] = str(pool)
        env["CRASHCHECK_FILES"] = "\n".join(self.patterns)
        if self.addresses is not None:
            env["CRASHCHECK_ADDRESSES"] = str(self.addresses)
        return env
