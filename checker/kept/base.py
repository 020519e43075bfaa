"""What all runs of one search share (check, limits, kernel, crashcheck): verdicts are kept and used under this key."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import crashcheck
from crashcheck.analyzer.trace.reader import Trace
from crashcheck.checker.execution.check_command import CheckSetup
from crashcheck.checker.execution.process import Limits


def base_of(setup: CheckSetup, limits: Limits, trace: Trace, judged: str, operations: bytes) -> bytes:
    """16 bytes. `judged`: the oracle's name; `operations`: those that it gives to the check."""
    command = setup.command
    printed = setup.recorded_stdout is not None and "{stdout}" in command.command.text
    parts = (
        sources(),
        _machine(),
        repr((command.program, command.command, str(setup.folder), setup.patterns, judged, limits)),
        repr(sorted(setup.inherited().items())),
        repr(sorted(setup.env.items())),
        content_of_file(setup.recorded_stdout) if printed and setup.recorded_stdout is not None else "",
        content_of_file(setup.addresses) if setup.addresses is not None else "",
        hashlib.sha256(operations).hexdigest(),
        repr([(number, file.path, file.existed, file.first_size) for number, file in sorted(trace.files.items())]),
        *content_of_folder(setup.first),
    )
    return digest_of(parts)


def digest_of(parts: Iterable[str]) -> bytes:
    """16 bytes, of all parts in their order."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(hashlib.sha256(part.encode("utf-8", "surrogateescape")).digest())
    return digest.digest()


@cache
def sources() -> str:
    """The hash of crashcheck itself."""
    digest = hashlib.sha256(crashcheck.__version__.encode())
    home = Path(crashcheck.__file__).parent
    for folder, folders, files in os.walk(home, followlinks=True):
        folders.sort()
        for name in sorted(files):
            if name.endswith((".py", ".c", ".h")):
                digest.update(name.encode() + b"\0" + Path(folder, name).read_bytes())
    return digest.hexdigest()


def _machine() -> str:
    """The kernel, the processor and the user; not the machine's name."""
    system = os.uname()
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        flags = next((line for line in file if line.startswith("flags")), "")
    return repr(
        (system.sysname, system.release, system.machine, flags, os.getuid(), os.getgid(), sorted(os.getgroups()))
    )


def content_of_folder(folder: Path) -> Iterator[str]:
    """Names, kinds, permissions and contents of everything in a folder."""
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        yield f"{path.relative_to(folder)} {status.st_mode:o}"
        if stat.S_ISLNK(status.st_mode):
            yield os.readlink(path)
        elif stat.S_ISREG(status.st_mode):
            yield content_of_file(path)


def content_of_file(path: Path) -> str:
    """The hash of a file's content; "none" if there is no file."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return "none"
