"""What strace shows of the calls that change or sync a folder, and what a trace holds of them: one row per call."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from crashcheck.analyzer.trace import calls
from crashcheck.analyzer.trace.reader import Trace
from crashcheck.runtime.trace_format import NAME_KINDS, Kind

Row = tuple[str, str, bytes]  # the call, the last names of what it concerns, the bytes that it wrote

_WRITES = {1: "write", 18: "pwrite64", 20: "writev", 296: "pwritev", 328: "pwritev2"}
_SIZES = {76: "truncate", 77: "ftruncate", 285: "fallocate"}
_SYNCS = {74: "fsync", 75: "fdatasync", 277: "sync_file_range"}
_NAMES = {
    82: "rename", 264: "renameat", 316: "renameat2", 86: "link", 265: "linkat", 88: "symlink", 266: "symlinkat",
    87: "unlink", 263: "unlinkat", 83: "mkdir", 258: "mkdirat", 84: "rmdir",
}  # fmt: skip
_CALLS = _WRITES | _SIZES | _SYNCS | _NAMES
_KINDS = {
    **dict.fromkeys(_WRITES, (Kind.WRITE,)),
    76: (Kind.TRUNCATE,),
    77: (Kind.TRUNCATE,),
    285: (Kind.ALLOCATE,),
    **dict.fromkeys(_SYNCS, (Kind.SYNC_BEGIN,)),
    **dict.fromkeys(_NAMES, NAME_KINDS),
}
_MOST_BYTES = 16 << 20  # of one write
_LINE = re.compile(r"(\d+) +(?:<\.\.\. )?(\w+)(?: resumed>)?(.*)")
_STRING = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')


def by_strace(command: Sequence[str], pool: Path, log: Path) -> list[Row]:
    """Run a command, and list those of its calls that succeeded and concern the folder."""
    options = ["-f", "-y", "-X", "raw", "-xx", "-s", str(_MOST_BYTES), "-o", str(log)]
    subprocess.run(
        ["strace", *options, "-e", f"trace={','.join(_CALLS.values())}", *command], check=True, stdin=subprocess.DEVNULL
    )
    return list(_rows(log.read_text(encoding="ascii"), os.fsencode(pool)))


def _rows(printed: str, pool: bytes) -> Iterator[Row]:
    begun: dict[str, str] = {}
    known = (pool, b"/proc/self/")
    for line in printed.splitlines():
        match = _LINE.fullmatch(line)
        if match is None or match[2] not in _CALLS.values():
            continue  # a signal, or the end of a process
        pid, call, rest = match.groups()
        if rest.endswith(" <unfinished ...>"):
            begun[pid] = rest.removesuffix(" <unfinished ...>")
            continue
        arguments, _, result = (begun.pop(pid, "") + rest).rpartition(" = ")
        strings = [_decoded(text) for text in _STRING.findall(arguments)]
        file = re.match(r"\(-?\d+<([^>]*)>", arguments)
        opened = _decoded(file[1]) if file and call not in _NAMES.values() else b""
        paths = [opened] if opened else strings
        outside = [path for path in paths if (opened or path[:1] == b"/") and not path.startswith(known)]
        if outside or not result.isdecimal():
            continue
        if call in _WRITES.values():
            if int(result):
                yield call, _last(paths[0].removeprefix(pool)), b"".join(strings)[: int(result)]
        elif call.startswith("rename"):
            yield call, " ".join(map(_last, paths)), b""
        else:
            yield call, _last(paths[-1].removeprefix(pool)), b""


def _decoded(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))


def _last(path: bytes) -> str:
    return os.fsdecode(os.path.basename(path.rstrip(b"/")))


def by_trace(trace: Trace) -> list[Row]:
    """The same of a trace."""
    out: list[Row] = []
    names = {inode.id: os.path.basename(inode.paths[0]) for inode in trace.inodes.values() if inode.paths}
    for index, event in enumerate(trace.events):
        number, kind, inode = int(event["call"]) - 1, int(event["kind"]), int(event["file"])
        words = names.get(inode, "")
        if kind in NAME_KINDS:
            change = calls.name_event(trace, index)
            two = isinstance(change, calls.Rename | calls.RenameExchange)
            words = f"{change.name} {change.to_name}" if two else change.name
            if not isinstance(change, calls.Link):  # strace shows the name by which a file was opened
                names[inode] = change.to_name if two else change.name
        if kind in _KINDS.get(number, ()):
            out.append((_CALLS[number], words, trace.data(index) if kind == Kind.WRITE else b""))
    return out
