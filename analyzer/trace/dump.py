"""Prints a trace as text: one line per event, in a stable form to read, grep and compare."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from enum import IntEnum, IntFlag
from typing import Any

import numpy as np

from crashcheck.analyzer.trace import calls
from crashcheck.analyzer.trace.accesses import Events
from crashcheck.analyzer.trace.reader import Facts, Trace
from crashcheck.runtime import trace_format as fmt
from crashcheck.runtime.trace_format import (
    FenceKind,
    FlushKind,
    Kind,
    OutputKind,
    StoreFlag,
    SyncKind,
    WriteFlag,
)

_SHOWN_BYTES = 16
_AUX: dict[int, type[IntEnum]] = {  # what `aux` names
    Kind.FLUSH: FlushKind,
    Kind.FENCE: FenceKind,
    Kind.SYNC_BEGIN: SyncKind,
    Kind.SYNC_END: SyncKind,
    Kind.OUTPUT: OutputKind,
}
_FLAGS: dict[int, type[IntFlag]] = {Kind.STORE: StoreFlag, Kind.WRITE: WriteFlag}
_TEXTS = (
    Kind.FILE_DEF,
    Kind.OUTPUT,
    Kind.EXEC,
    Kind.DLOPEN,
    Kind.UNMODELLED,
    Kind.MODULE_DEF,
    Kind.FAULT,
)  # what they carry


def lines(trace: Trace, facts: Facts | None = None, loads: bool = False) -> Iterator[str]:
    """First what the trace is about, then its events in order.

    An event is `seq T<thread> <what happened>`, followed by ` @ file:line function` where `facts` know
    the site and ` < caller < …` for its stack. With `loads`, reads are printed before the event that has their number.
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
    """Loads, and gaps between them, in order."""
    rows = np.concatenate([trace.gaps, trace.loads])
    # among loads of one number a gap is at its offset
    rank = np.concatenate([2 * trace.gaps["offset"].astype(np.int64), 2 * np.arange(len(trace.loads)) + 1])
    return rows[np.lexsort((rank, rows["seq"]))]


def _access(trace: Trace, access: np.void) -> str:
    kind = int(access["kind"])
    if kind == Kind.LOAD_GAP:
        return "loads are left out from here" if int(access["aux"]) else "loads are recorded again"
    flags = _flags(Kind.STORE, int(access["flags"]))
    return f"{_name(Kind, kind)} {_range(trace, access)}{flags}"


def describe(trace: Trace, index: int) -> str:
    """One event: its kind and what its fields hold, as runtime/include/trace_format.h has them.

    File, offset and size; what `aux` names, or its number; bytes or text.
    """
    event = trace.events[index]
    kind, aux, data = int(event["kind"]), int(event["aux"]), trace.data(index)
    words = [_name(Kind, kind)]
    if kind in fmt.NAME_KINDS:
        at = calls.name_event(trace, index)
        names = [field.name for field in fields(at) if field.name != "event"]
        return " ".join([*words, *(f"{name}={_quoted(str(getattr(at, name)))}" for name in names)])
    if int(event["file"]):
        words.append(_range(trace, event))
    elif int(event["offset"]):
        words.append(f"offset={int(event['offset']):#x}")
    if kind in _AUX:
        words.append(_name(_AUX[Kind(kind)], aux))
    elif aux:
        words.append(f"aux={aux}")
    if kind in _TEXTS and data:
        words.append(f"= {_quoted(data.decode('utf-8', 'surrogateescape'))}")
    elif data:
        words.append(f"= {_bytes(data)}")
    elif int(event["payload"]):
        words.append(f"payload={int(event['payload'])}")
    return " ".join(words) + _flags(kind, int(event["flags"]))


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


def _range(trace: Trace, event: np.void) -> str:
    return f"{_file(trace, event)}+{int(event['offset']):#x},{int(event['size'])}"


def _bytes(data: bytes) -> str:
    shown = data[:_SHOWN_BYTES].hex(" ")
    return shown + (f" … ({len(data)} bytes)" if len(data) > _SHOWN_BYTES else "")


def _flags(kind: int, value: int) -> str:
    present = [str(flag.name).lower() for flag in _FLAGS.get(kind, ()) if value & flag]
    return f" [{' '.join(present)}]" if present else f" flags={value:#x}" if value else ""


def _name(enum: Any, value: int) -> str:
    try:
        return str(enum(value).name).lower().replace("_", "-")
    except ValueError:
        return f"{enum.__name__}-{value}"
