"""Prints a trace as text: one line per event, in a stable form to read, grep and compare."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from crashcheck.analyzer.trace import calls
from crashcheck.analyzer.trace.accesses import Events
from crashcheck.analyzer.trace.python_code import python_code
from crashcheck.analyzer.trace.reader import Facts, Trace
from crashcheck.runtime import trace_format as fmt
from crashcheck.runtime.trace_format import (
    FenceKind,
    FlushKind,
    Kind,
    MapFlag,
    OutputKind,
    SiteFlag,
    StoreFlag,
    SyncKind,
    WriteFlag,
)

_SHOWN_BYTES = 16


def lines(trace: Trace, facts: Facts | None = None, loads: bool = False) -> Iterator[str]:
    """First what the trace is about, then its events in order.

    An event is `seq T<thread> <what happened>`, followed by ` @ file:line function` where `facts` know
    the site and ` < caller < …` for its stack. With `loads`, reads and accesses to other memory are printed before the
    event that has their number.
    """
    yield f"# crashcheck trace, version {fmt.VERSION}: {len(trace)} events, {len(trace.files)} files"
    for number in sorted(set(trace.files) - set(trace.inodes)):
        file = trace.files[number]
        first = f"{file.first_size} bytes at first" if file.existed else "does not exist at first"
        yield f"# file {number}: {_quoted(file.path)} ({first})"
    for number in sorted(trace.inodes):
        yield f"# inode {number}: {_inode(trace, number)}"
    for unit in trace.units:
        yield f"# unit {unit.key:016x}: sites {unit.base}..{unit.base + unit.sites - 1} of {_quoted(unit.module_path)}"
    if trace.truncated:
        yield f"# cut short: {trace.truncated}"
    processes = len(np.unique(trace.events["pid"])) > 1
    width = len(str(int(trace.events["seq"][-1]))) if len(trace) else 1

    def line(event: np.void, what: str) -> str:
        who = f"T{int(event['thread'])}" + (f"/{int(event['pid'])}" if processes else "")
        return f"{int(event['seq']):>{width}} {who} {what}{place(trace, event, facts)}".rstrip()

    others = _others(trace) if loads else trace.loads[:0]
    until = np.searchsorted(others["seq"], trace.events["seq"], side="right").tolist()
    at = 0
    for index in range(len(trace)):
        for other in others[at : until[index]]:
            yield line(other, _access(trace, other))
        at = max(at, until[index])
        yield line(trace.events[index], describe(trace, index))
    for other in others[at:]:
        yield line(other, _access(trace, other))


def _others(trace: Trace) -> Events:
    """Loads, other memory and gaps between loads, in order."""
    rows = np.concatenate([trace.gaps, trace.loads, trace.elsewhere])
    # among loads of one number a gap is at its offset
    rank = np.concatenate(
        [
            2 * trace.gaps["offset"].astype(np.int64),
            2 * np.arange(len(trace.loads)) + 1,
            np.zeros(len(trace.elsewhere), dtype=np.int64),
        ]
    )
    return rows[np.lexsort((rank, rows["seq"]))]


def _access(trace: Trace, access: np.void) -> str:
    kind, flags = int(access["kind"]), _flags(int(access["flags"]), _STORE_FLAGS)
    if kind == Kind.LOAD_GAP:
        return "loads are left out from here" if int(access["aux"]) else "loads are recorded again"
    if kind == Kind.LOAD:
        return f"load {_range(trace, access)}{flags}"
    return f"{_name(Kind, kind)} {int(access['offset']):#x},{int(access['size'])}{flags}"


def describe(trace: Trace, index: int) -> str:
    """What one event did, in words that name its file, range and bytes."""
    event = trace.events[index]
    kind = int(event["kind"])
    try:
        return _WORDS[Kind(kind)](trace, index, event)
    except (ValueError, KeyError):
        return f"kind-{kind} (unknown)"


def place(trace: Trace, event: np.void, facts: Facts | None = None) -> str:
    """Where in the source, if it is known, else the site's number."""
    site, stack = int(event["site"]), int(event["stack"])
    if not site and not stack:
        return ""
    frames = [site, *trace.stack(stack)] if site else list(trace.stack(stack))
    return " @ " + " < ".join(_site(trace, frame, facts) for frame in frames)


def _site(trace: Trace, number: int, facts: Facts | None) -> str:
    if number in trace.call_sites:
        call = trace.call_sites[number]
        return f"{_quoted(call.module)}+{call.offset:#x}"
    site = trace.site(number, facts)
    if site is None:
        return f"site {number}"
    return f"{site.file}:{site.line} {site.function}".rstrip()


def _quoted(text: str) -> str:
    """Names are shown so that a line stays a line whatever they hold."""
    return "".join(c if c.isprintable() else c.encode("utf-8", "surrogateescape").hex(" ").join("<>") for c in text)


def _file(trace: Trace, event: np.void) -> str:
    number = int(event["file"])
    if not number:
        return "-"
    if number in trace.inodes:
        return f"inode-{number}"
    file = trace.files.get(number)
    return _quoted(file.path) if file is not None else f"file-{number}"


def _inode(trace: Trace, number: int) -> str:
    inode = trace.inodes[number]
    what = "folder" if inode.is_folder else "symlink" if inode.is_symlink else "file" if inode.is_file else "special"
    paths = ", ".join(_quoted(path) or "." for path in inode.paths) or "without a name"
    first = f"{inode.first_size} bytes at first" if inode.existed else "does not exist at first"
    return f"{what} {paths} ({'there at first' if inode.existed and not inode.is_file else first})"


def _names(trace: Trace, index: int, event: np.void) -> str:
    at = calls.name_event(trace, index)

    def entry(folder: int, name: str) -> str:
        return f"{_quoted(name)} in inode-{folder}" if folder else "outside"

    what = f"{_name(Kind, int(event['kind']))} inode-{at.inode}: {entry(at.folder, at.name)}"
    match at:
        case calls.Symlink():
            return f"{what} -> {_quoted(at.target)}"
        case calls.Rename():
            over = f" over inode-{at.replaced}" if at.replaced else ""
            return f"{what} to {entry(at.to_folder, at.to_name)}{over}"
        case calls.RenameExchange():
            return f"{what} and {entry(at.to_folder, at.to_name)} of inode-{at.other}"
    return what


def _fault(trace: Trace, index: int) -> str:
    call, _, path = trace.data(index).partition(b"\0")
    number = int(trace.events["aux"][index])
    name = _quoted(path.decode("utf-8", "surrogateescape"))
    return f"{call.decode()} {name} is made to fail with {errno.errorcode.get(number, number)}"


def _output(trace: Trace, index: int, event: np.void) -> str:
    kind = int(event["aux"])
    if kind == OutputKind.STDOUT:
        return f"output {int(event['offset'])} bytes so far"
    return f"output to {_name(OutputKind, kind)} = {_quoted(trace.data(index).decode('utf-8', 'surrogateescape'))}"


def _code(trace: Trace, index: int, event: np.void) -> str:
    code = python_code(trace.data(index))
    if code is None:
        return f"code {int(event['aux'])} is damaged"
    file = _quoted(code.file)
    language = f" of Python {code.version[0]}.{code.version[1]}" if code.version[0] else ""
    return f"code {int(event['aux'])} is {_quoted(code.name)}{language} in {file}"


def _range(trace: Trace, event: np.void) -> str:
    return f"{_file(trace, event)}+{int(event['offset']):#x},{int(event['size'])}"


def _bytes(data: bytes) -> str:
    shown = data[:_SHOWN_BYTES].hex(" ")
    return shown + (f" … ({len(data)} bytes)" if len(data) > _SHOWN_BYTES else "")


def _flags(value: int, names: dict[int, str]) -> str:
    present = [name for bit, name in names.items() if value & bit]
    return f" [{' '.join(present)}]" if present else ""


_STORE_FLAGS = {
    int(StoreFlag.NT): "nt",
    int(StoreFlag.ATOMIC): "atomic",
    int(StoreFlag.BULK): "bulk",
    int(StoreFlag.LIBRARY): "library",
    int(StoreFlag.VOLATILE): "volatile",
    int(StoreFlag.COMPARED): "compared",
}
_WRITE_FLAGS = {int(WriteFlag.APPEND): "append", int(WriteFlag.DIRECT): "direct", int(WriteFlag.PENDING): "pending"}
_MAP_FLAGS = {int(MapFlag.SHARED): "shared", int(MapFlag.WRITE): "write"}


def _store(trace: Trace, index: int, event: np.void) -> str:
    flags = _flags(int(event["flags"]), _STORE_FLAGS)
    return f"store {_range(trace, event)} = {_bytes(trace.data(index))}{flags}"


def _write(trace: Trace, index: int, event: np.void) -> str:
    flags = _flags(int(event["flags"]), _WRITE_FLAGS)
    return f"write {_range(trace, event)} = {_bytes(trace.data(index))}{flags}"


def _name(enum: Any, value: int) -> str:
    try:
        return str(enum(value).name).lower().replace("_", "-")
    except ValueError:
        return f"{enum.__name__}-{value}"


def _sync(trace: Trace, event: np.void) -> str:
    kind = _name(SyncKind, int(event["aux"]))
    if not int(event["file"]):
        return kind
    return f"{kind} {_range(trace, event)}" if int(event["size"]) else f"{kind} {_file(trace, event)}"


def _map(trace: Trace, index: int, event: np.void) -> str:
    data = trace.data(index)
    address, length = int.from_bytes(data[:8], "little"), int.from_bytes(data[8:16], "little")
    where = f"{_file(trace, event)}+{int(event['offset']):#x},{length} at {address:#x}"
    return f"{_name(Kind, int(event['kind']))} {where}{_flags(int(event['aux']), _MAP_FLAGS)}"


def _text(trace: Trace, index: int, event: np.void) -> str:
    data = trace.data(index)
    name = _quoted(data.decode("utf-8", "surrogateescape"))
    return f"{_name(Kind, int(event['kind']))} {_file(trace, event)} {name}".replace(" - ", " ")


_WORDS: dict[Kind, Callable[[Trace, int, Any], str]] = {
    Kind.STORE: _store,
    Kind.WRITE: _write,
    Kind.TRUNCATE: lambda trace, _, e: f"truncate {_file(trace, e)} to {int(e['offset'])}",
    Kind.CREATE: lambda trace, _, e: f"create {_file(trace, e)}",
    Kind.UNLINK: lambda trace, _, e: f"unlink {_file(trace, e)}",
    Kind.RENAME: lambda trace, _, e: (
        f"rename {_quoted(trace.files[int(e['aux'])].path) if int(e['aux']) else 'another file'} to {_file(trace, e)}, "
        f"{int(e['offset'])} bytes"
    ),
    Kind.CONTENT: lambda trace, _, e: f"content {_range(trace, e)}",
    Kind.FLUSH: lambda trace, _, e: f"{_name(FlushKind, int(e['aux']))} {_range(trace, e)}",
    Kind.FENCE: lambda _, __, e: f"fence {_name(FenceKind, int(e['aux']))}",
    Kind.SYNC_BEGIN: lambda trace, _, e: f"{_sync(trace, e)} begins",
    Kind.SYNC_END: lambda trace, _, e: (
        f"{_sync(trace, e)} {'failed' if int(e['flags']) & 1 else 'returned'} (began {int(e['payload'])})"
    ),
    Kind.MARK_BEGIN: lambda _, __, e: f"operation {int(e['aux'])} begins",
    Kind.MARK_END: lambda _, __, e: f"operation {int(e['aux'])} ends",
    Kind.OUTPUT: _output,
    Kind.FILE_DEF: lambda trace, _, e: f"file {int(e['file'])} is {_file(trace, e)}",
    Kind.UNIT_DEF: lambda _, __, e: f"unit of {int(e['offset'])} sites from {int(e['aux'])}",
    Kind.STACK_DEF: lambda _, __, e: f"stack {int(e['stack'])} = site {int(e['site'])} over stack {int(e['aux'])}",
    Kind.THREAD_START: lambda _, __, e: f"thread {int(e['aux'])} starts in process {int(e['payload'])}",
    Kind.MAP: _map,
    Kind.UNMAP: _map,
    Kind.FORK: lambda _, __, e: f"fork of process {int(e['payload'])}",
    Kind.EXEC: _text,
    Kind.DLOPEN: _text,
    Kind.EXIT: lambda _, __, e: "exit of the program" if int(e["aux"]) else "exit",
    Kind.UNMODELLED: _text,
    Kind.INODE_DEF: lambda trace, _, e: f"inode {int(e['file'])} is {_inode(trace, int(e['file']))}",
    Kind.ALLOCATE: lambda trace, _, e: (
        f"allocate {_file(trace, e)}+{int(e['offset']):#x},{int(e['payload'])} mode {int(e['aux']):#x}"
    ),
    Kind.MODULE_DEF: lambda trace, index, e: (
        f"module {int(e['aux'])} is {_quoted(trace.data(index).decode('utf-8', 'surrogateescape'))}"
    ),
    Kind.SITE_DEF: lambda _, __, e: (
        f"site {int(e['site'])} = {'code' if e['flags'] & SiteFlag.IN_CODE else 'module'} "
        f"{int(e['aux'])}+{int(e['offset']):#x}"
    ),
    Kind.CODE_DEF: _code,
    Kind.FAULT: lambda trace, index, _: _fault(trace, index),
    Kind.WRITE_END: lambda trace, _, e: f"end of the write to {_file(trace, e)} submitted by event {int(e['payload'])}",
    **dict.fromkeys(fmt.NAME_KINDS, _names),
}
