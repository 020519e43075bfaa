"""Faults: calls of the workload that are made to fail, as [[faults]] and `--fault` choose them."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from crashcheck.config.values import Count, Number, Text, choice

# As runtime/include/fault_calls.h has them: the variants of a call, such as pwrite and writev, are one.
CALLS = (
    *("fsync", "fdatasync", "msync", "syncfs", "sync_file_range", "write", "copy_file_range", "sendfile", "splice"),
    *("truncate", "fallocate", "open", "mkdir", "rmdir", "link", "symlink", "unlink", "rename"),
)
NODE_CALLS = (*CALLS, "socket", "mmap", "connect", "accept", "send", "recv")
ERRORS = tuple(errno.errorcode.values())


@dataclass(frozen=True, slots=True)
class Fault:
    """The `nth` call of a name on a matching file fails, and the next ones: `times` in all, 0: all of them."""

    call: Annotated[str, choice(CALLS, example='"fsync"')]
    error: Annotated[str, choice(ERRORS, "the name of an error, as 'EIO' or 'ENOSPC'")] = "EIO"
    file: Text = ""  # a pattern as in [pool] files; "": any file of the folder
    nth: Count = 1
    times: Number = 1

    @property
    def text(self) -> str:
        """As `--fault` takes it."""
        extra = (("file", self.file, ""), ("nth", self.nth, 1), ("times", self.times, 1))
        parts = [f"{self.call}={self.error}", *(f"{key}={value}" for key, value, usual in extra if value != usual)]
        return ",".join(parts)

    def words(self) -> tuple[str, ...]:
        """The recorder's arguments for it."""
        number = getattr(errno, self.error)
        return "--fault", self.call, str(number), str(self.nth), str(self.times), self.file


@dataclass(frozen=True, slots=True)
class NodeFault:
    """The `nth` call of a name by a node fails, and the next ones: `times` in all, 0: all of them. Without `nth` which
    one fails is a choice."""

    call: Annotated[str, choice(NODE_CALLS, example='"recv"')]
    error: Annotated[str, choice(ERRORS, "the name of an error, as 'EIO' or 'ECONNRESET'")] = "EIO"
    node: Text = ""  # the name of a [[node]]; "": any
    nth: Number = 0  # since its first start
    times: Number = 1


def arguments(faults: Sequence[Fault]) -> list[str]:
    """The recorder's arguments for all of them."""
    return [word for fault in faults for word in fault.words()]
