"""The check command: its placeholders, its environment, and whether it needs a shell."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from crashcheck.errors import CrashcheckError

_PLACEHOLDER = re.compile(r"\{(pool|acked|stdout)\}")
_SHELL = re.compile(r"[|&;<>()$`*?\[\]#~!\n{}]|^\s*\w+=")


@dataclass(frozen=True, slots=True)
class CheckCommand:
    """A check as configured: `words` to be executed as they are, or a line for /bin/sh."""

    words: tuple[str, ...]
    shell: bool  # words is one line

    @staticmethod
    def parse(command: str | Sequence[str], folder: Path, search: str | None = None) -> CheckCommand:
        """As configured. `folder`: where it runs; `search`: its PATH. CrashcheckError if there is no such program."""
        if isinstance(command, str):
            if _SHELL.search(_PLACEHOLDER.sub("x", command)):
                return CheckCommand((command,), True)
            try:
                words = shlex.split(command)
            except ValueError as error:
                raise CrashcheckError(
                    "check-command",
                    f"[check] command cannot be split into words: {error}: {command}",
                    "Close the quotes.",
                ) from None
        else:
            words = list(command)
        if not words:
            raise CrashcheckError(
                "check-command", "[check] command is empty", "Give a program that exits 0 if {pool} is consistent."
            )
        program = words[0]
        if "/" in program:
            found = str((folder / program).absolute()) if os.access(folder / program, os.X_OK) else None
        else:
            found = shutil.which(program, path=search)
        if found is None:
            raise CrashcheckError(
                "check-not-started",
                f"the check program {program} does not exist or cannot be executed (looked for from {folder})",
                "Build it first ([build] command), or correct [check] command.",
            )
        return CheckCommand((found, *words[1:]), False)

    def argv(self, pool: str, acked: int, stdout: str) -> list[str]:
        """The words of one run; argv[0] is an absolute path."""
        values = {"pool": pool, "acked": str(acked), "stdout": stdout}
        if self.shell:
            line = _PLACEHOLDER.sub(lambda match: shlex.quote(values[match[1]]), self.words[0])
            return ["/bin/sh", "-c", line]
        return [_PLACEHOLDER.sub(lambda match: values[match[1]], word) for word in self.words]

    def shown(self, pool: str, acked: int, stdout: str) -> str:
        """What a person would type to run it."""
        argv = self.argv(pool, acked, stdout)
        return argv[2] if self.shell else shlex.join(argv)


@dataclass(frozen=True, slots=True)
class CheckSetup:
    """Everything about running the check that is the same for every state."""

    command: CheckCommand
    folder: Path  # where it runs
    first: Path  # the pool folder as it was before the workload
    work: Path  # images go here if not to tmpfs
    recorded_stdout: Path | None  # all that the workload printed
    addresses: Path | None  # where files were mapped; CRASHCHECK_ADDRESSES
    patterns: tuple[str, ...] = ()  # CRASHCHECK_FILES
    env: Mapping[str, str] = field(default_factory=dict)  # added to our own environment

    def environment(self, pool: Path) -> dict[str, str]:
        """Of one worker's checks. Never asks the runtime to record."""
        env = {name: value for name, value in os.environ.items() if not name.startswith("CRASHCHECK_")}
        env.update(self.env)
        env["CRASHCHECK_POOL"] = str(pool)
        env["CRASHCHECK_FILES"] = "\n".join(self.patterns)
        if self.addresses is not None:
            env["CRASHCHECK_ADDRESSES"] = str(self.addresses)
        env.pop("CRASHCHECK_TRACE", None)
        return env
