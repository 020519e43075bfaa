"""Read what strace printed with -f -y -yy -X raw -xx: calls with their arguments, in the order of their ends."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

# Calls whose arguments or results change descriptors, names, files or positions. A `?`: not on every machine.
NOT_FOLLOWED = (
    *("io_uring_setup", "io_submit", "pidfd_getfd", "open_by_handle_at", "mount", "move_mount", "chroot", "pivot_root"),
    *("swapon", "acct"),
)
TRACED = (
    *("open", "openat", "openat2", "creat", "close", "?close_range", "dup", "dup2", "dup3", "fcntl", "pipe", "pipe2"),
    *("read", "readv", "lseek", "write", "pwrite64", "writev", "pwritev", "pwritev2", "sendfile", "splice"),
    *("copy_file_range", "ioctl", "truncate", "ftruncate", "fallocate", "mkdir", "mkdirat", "mknod", "mknodat"),
    *("symlink", "symlinkat", "link", "linkat", "unlink", "unlinkat", "rmdir", "rename", "renameat", "renameat2"),
    *("mmap", "fsync", "fdatasync", "sync_file_range", "sync", "syncfs", "sendto", "sendmsg", "sendmmsg", "socketpair"),
    *("chdir", "fchdir", "fork", "vfork", "clone", "?clone3", "execve"),
    *(f"?{name}" for name in NOT_FOLLOWED),
)
_LINE = re.compile(r"(\d+) +(.*)", re.DOTALL)
_CALL = re.compile(r"(\w+)\((.*)\) += (-?\d+|0x[0-9a-f]+|\?)(.*)", re.DOTALL)
_RESUMED = re.compile(r"<\.\.\. \w+ resumed>(.*)", re.DOTALL)
_EXIT = re.compile(r"\+\+\+ (exited with (\d+)|killed by (\S+).*) \+\+\+")
_UNFINISHED = " <unfinished ...>"
_HEX = re.compile(r"\\x([0-9a-f]{2})")
_DESCRIPTOR = re.compile(r"(-?\d+)<(.*)>(\(deleted\))?", re.DOTALL)
_INNER = re.compile(r"<(?:char|block) [^>]*>$")


@dataclass(frozen=True, slots=True)
class Descriptor:
    """An argument that is a descriptor: its number, and what it is open on."""

    number: int
    path: bytes  # of a file absolute; else such as "pipe:[123]"
    deleted: bool


@dataclass(frozen=True, slots=True)
class Call:
    """A call at its begin (`ended` false: then without result) or at its end."""

    pid: int
    name: str
    arguments: tuple[str, ...]
    result: int
    returned: str  # all that is printed as the result
    ended: bool

    def number(self, at: int) -> int:
        """An argument that is a number: decimal, octal, hexadecimal, or flags of several."""
        return flags_of(self.arguments[at])

    def descriptor(self, at: int) -> Descriptor:
        return descriptor(self.arguments[at])

    def text(self, at: int) -> bytes:
        """An argument that is a string, as far as it was printed."""
        return unquoted(self.arguments[at])


@dataclass(frozen=True, slots=True)
class Exit:
    """A thread ended. `status`: as of waitpid where it is known."""

    pid: int
    status: int
    killed: bool


def read_lines(lines: Iterable[str]) -> Iterator[Call | Exit]:
    """Calls and exits. A call that others overlap appears twice: begun, and ended."""
    begun: dict[int, str] = {}
    for line in lines:
        found = _LINE.fullmatch(line.rstrip("\n"))
        if found is None:
            continue
        pid, text = int(found[1]), found[2]
        if text.startswith("+++"):
            ended = _EXIT.match(text)
            if ended is not None:
                killed = ended[2] is None
                yield Exit(pid, 9 if killed else int(ended[2]) << 8, killed)
        elif text.startswith("<..."):
            rest = _RESUMED.fullmatch(text)
            head = begun.pop(pid, None)
            if rest is not None and head is not None:
                yield from _call(pid, head + rest[1])
        elif text.endswith(_UNFINISHED):
            begun[pid] = head = text.removesuffix(_UNFINISHED)
            name, _, arguments = head.partition("(")
            yield Call(pid, name, tuple(_split(arguments)), 0, "", False)
        elif not text.startswith("---"):
            yield from _call(pid, text)


def _call(pid: int, text: str) -> Iterator[Call]:
    found = _CALL.fullmatch(text)
    if found is not None and found[3] != "?":
        returned = found[3] + found[4]
        yield Call(pid, found[1], tuple(_split(found[2])), _whole(found[3]), returned.partition(" ")[0], True)


def _split(text: str) -> Iterator[str]:
    """The arguments: commas inside of brackets do not count, and strings hold none."""
    depth = start = 0
    for at, char in enumerate(text):
        if char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
        elif char == "," and depth == 0:
            yield text[start:at].strip()
            start = at + 1
    if text[start:].strip():
        yield text[start:].strip()


def _whole(text: str) -> int:
    text = text.strip().partition("<")[0]
    if text == "NULL":
        return 0
    try:
        return int(text, 8) if re.fullmatch("0[0-7]+", text) else int(text, 0)
    except ValueError:
        return 0


def flags_of(text: str) -> int:
    """`0x100|17`."""
    return sum(_whole(part) for part in text.split("|"))


def descriptor(text: str) -> Descriptor:
    """`3</a/b>(deleted)`, `-100</folder>`, `4`."""
    found = _DESCRIPTOR.fullmatch(text)
    if found is None:
        return Descriptor(_whole(text), b"", False)
    return Descriptor(int(found[1]), _bytes(_INNER.sub("", found[2])), found[3] is not None)


def unquoted(text: str) -> bytes:
    """A printed string."""
    return _bytes(text.removesuffix("...").removeprefix('"').removesuffix('"'))


def _bytes(text: str) -> bytes:
    if "\\x" not in text:
        return text.encode("utf-8", "surrogateescape")
    if len(text) % 4 == 0 and text.count("\\x") == len(text) // 4:
        return bytes.fromhex(text.replace("\\x", ""))
    return _HEX.sub(lambda found: chr(int(found[1], 16)), text).encode("latin-1")


def parts_of(text: str) -> bytes:
    """The bytes of `[{iov_base="...", iov_len=2}, ...]`."""
    return b"".join(_bytes(part) for part in re.findall(r'iov_base="([^"]*)"', text))
