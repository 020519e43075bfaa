"""Check that a recording can be used, and if not, find the reason in the trace's header and the recorder's notes."""

from __future__ import annotations

import contextlib
import mmap
import os
import stat
from collections.abc import Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from crashcheck.config.faults import Fault
from crashcheck.errors import CrashcheckError
from crashcheck.runtime.patterns import regular_files
from crashcheck.runtime.sparse import equal_files
from crashcheck.runtime.trace_format import (
    CHUNK_BYTES,
    CHUNK_HEADER,
    CHUNK_HEADER_BYTES,
    HEADER,
    HEADER_BYTES,
    NAME_KINDS,
    RECORD,
    ChunkKind,
    Kind,
    Status,
)
from crashcheck.wording import listed

if TYPE_CHECKING:
    from crashcheck.runtime.record import Recording

_UPDATES = frozenset((Kind.STORE, Kind.WRITE))  # bytes, not only names and sizes
_CALLS = _UPDATES | {Kind.TRUNCATE, Kind.ALLOCATE, *NAME_KINDS}  # updates by system calls
_MOST_NAMED = 12

# Why a command that changed nothing may have changed something all the same, by the recorder's note.
_UNCHANGED = {
    "setuid": "it ran {}, a setuid program, without the rights that it expects",
    "unwatched": "{}: it could not be read, or is another file system; what changed in it is not recorded",
    "left": "{} was still running when the command ended; what it wrote from then on is not recorded",
    "ended": "{} was still running when the command ended, and was ended with it",
}

_RUNNING = ("left", "ended")  # notes of processes: their number and their name

_REASONS = {
    "pattern": "{path}: in the pool, but no pattern of [pool] files matches it",
    "private": "{path}: mapped with MAP_PRIVATE, so stores to it never reach the file",
    "outside": "{path}: mapped for writing, but it is outside the pool folder; use {{pool}} in the command",
    "deleted": "{path}: written after it was deleted",
    "readonly": "{path}: mapped or opened, but never stored to by instrumented code",
}


def check_trace(
    recording: Recording, command: Sequence[str], pool_files: Sequence[str], home: Path, must_update: bool
) -> None:
    """Raise a CrashcheckError if the trace is unusable; record() lists the slugs. `home`: where the command ran."""
    trace = recording.trace
    if not trace.exists() or trace.stat().st_size < HEADER_BYTES:
        if must_update:
            raise _never_started(command)
        return
    notes = read_notes(trace)
    with open(trace, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        header = np.frombuffer(data[: HEADER.itemsize], HEADER)[0]
        status = Status(int(header["status"]))
        if status & Status.DISK_FULL:
            raise CrashcheckError(
                "record-disk-full",
                f"no room for the trace {trace}: later events are missing",
                "Free disk space (or raise the file-size limit), or use a smaller workload.",
            )
        if status & Status.TOO_MANY:
            raise _limit(notes, trace)
        if not must_update:
            return
        if header["main_pid"] == 0:
            raise _never_started(command)
        kinds = _kinds(data)
    if not kinds & _UPDATES:
        instrumented = Kind.UNIT_DEF in kinds or _is_instrumented(command, home)
        raise _nothing(recording, pool_files, notes, instrumented)


def check_permitted(recording: Recording, command: Sequence[str]) -> None:
    """Raise a CrashcheckError if system calls could not be traced at all."""
    for reason, text in read_notes(recording.trace):
        if reason == "ptrace":
            raise CrashcheckError(
                "ptrace-not-permitted",
                f"the system calls of {' '.join(command)} cannot be traced: {text}",
                "In a container allow it (--cap-add=SYS_PTRACE, or a seccomp profile that permits ptrace); elsewhere "
                "see /proc/sys/kernel/yama/ptrace_scope, which must be below 3.",
            )
        if reason == "failed":
            raise CrashcheckError(
                "record-failed", f"the recorder of system calls failed: {text}", "Check that the folder can be read."
            )


def unmet_faults(recording: Recording, faults: Sequence[Fault]) -> list[tuple[Fault, int]]:
    """The faults that were never injected, each with how many calls it met."""
    counts = [text.split() for reason, text in read_notes(recording.trace) if reason == "fault"]
    met = {int(number): int(count) for number, count in counts}
    return [(fault, met.get(at, 0)) for at, fault in enumerate(faults, 1) if met.get(at, 0) < fault.nth]


def check_faults(recording: Recording, unmet: Sequence[tuple[Fault, int]]) -> None:
    """Raise a CrashcheckError if a fault was never injected: the run would show nothing of it."""
    for fault, met in unmet:
        files = f" on a file that {fault.file!r} matches" if fault.file else ""
        raise CrashcheckError(
            "fault-not-met",
            f"the fault {fault.text} was never injected: the workload made "
            f"{met or 'no'} {fault.call} call{'s' * (met != 1)}{files} in the folder",
            f"`crashcheck trace dump {recording.trace}` shows its calls.",
        )


def check_calls(recording: Recording, command: str, must_update: bool, folder: Path) -> None:
    """As check_trace, of a trace of system calls. `folder`: the watched one, by its name for the user."""
    with open(recording.trace, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if int(np.frombuffer(data[: HEADER.itemsize], HEADER)[0]["status"]) & Status.DISK_FULL:
            raise CrashcheckError(
                "record-disk-full",
                f"no room for the trace {recording.trace}: later events are missing",
                "Free disk space (or raise the file-size limit), or use a smaller workload.",
            )
        kinds = _kinds(data, _CALLS)
    if not must_update or kinds & _CALLS:
        return
    if Kind.UNMODELLED in kinds:
        raise CrashcheckError(
            "not-followed",
            f"{command} made calls that are not followed, and no other that changes {folder}",
            f"`crashcheck trace dump {recording.trace}` names them; docs/limits.md lists those that are followed.",
        )
    changed = _changed(recording.first, recording.pool)
    if changed:
        shown = listed(changed, _MOST_NAMED)
        raise CrashcheckError(
            "not-followed",
            f"{command} was not seen to change anything in {folder}, but {shown} changed",
            "Let the command itself start the process that writes.",
        )
    reasons = remarks(_UNCHANGED, read_notes(recording.trace))
    raise CrashcheckError(
        "nothing-persistent",
        f"{command} changed no name, size or byte in {folder}" + "".join(f"\n  - {reason}" for reason in reasons),
        "Let the command use {pool} for the folder.",
    )


def remarks(words: Mapping[str, str], notes: Iterable[tuple[str, str]]) -> list[str]:
    """The sentences of some notes, each once; of processes the programs' names, in their order."""
    out, running = [], []
    for reason, text in notes:
        if reason in _RUNNING and reason in words:
            running.append(words[reason].format(text.partition(" ")[2] or "a process"))
        elif reason in words:
            out.append(words[reason].format(text))
    return list(dict.fromkeys([*out, *sorted(running)]))


def _changed(first: Path, last: Path) -> list[str]:
    """The paths that differ between two folders, sorted."""
    found = []
    for path in sorted({each.relative_to(top) for top in (first, last) for each in top.rglob("*")}):
        before, after = first / path, last / path
        with contextlib.suppress(PermissionError):  # what the user cannot read
            if _kind(before) != _kind(after) or (_kind(before)[0] == stat.S_IFREG and not equal_files(before, after)):
                found.append(str(path))
    return found


def _kind(path: Path) -> tuple[int, str]:
    """What there is, and where a symbolic link leads."""
    if not os.path.lexists(path):
        return 0, ""
    return stat.S_IFMT(path.lstat().st_mode), os.readlink(path) if path.is_symlink() else ""


def read_notes(trace: Path) -> list[tuple[str, str]]:
    """Return the recorder's notes as (reason, path), each once, in order."""
    path = Path(f"{trace}.notes")
    if not path.exists():
        return []
    lines = path.read_bytes().decode("utf-8", "surrogateescape").splitlines()
    pairs = [(reason, rest) for reason, tab, rest in (line.partition("\t") for line in lines) if tab]
    return list(dict.fromkeys(pairs))


def _kinds(data: mmap.mmap, updates: Set[Kind] = _UPDATES) -> set[int]:
    """Return the event kinds that occur, up to the first chunk that has one of `updates`."""
    found: set[int] = set()
    at = HEADER_BYTES
    while at + CHUNK_BYTES <= len(data):
        chunk = np.frombuffer(data[at : at + CHUNK_HEADER.itemsize], CHUNK_HEADER)[0]
        if chunk["kind"] == ChunkKind.EVENTS:
            start = at + CHUNK_HEADER_BYTES
            events = np.frombuffer(data[start : start + int(chunk["used_bytes"])], RECORD)
            found.update(np.unique(events["kind"]).tolist())
            if found & updates:
                return found
        at += CHUNK_BYTES * max(1, int(chunk["chunks"]))
    return found


def _never_started(command: Sequence[str]) -> CrashcheckError:
    return CrashcheckError(
        "no-trace",
        f"the recorder never ran in {' '.join(command)}: a static program that was not linked by crashcheck-cc,"
        " or one that drops the environment (sudo, a container)",
        "Build the program with CC=crashcheck-cc and let the workload command run it directly.",
    )


def _limit(notes: Sequence[tuple[str, str]], trace: Path) -> CrashcheckError:
    why = [text for reason, text in notes if reason in ("levels", "regions", "memory", "operations", "hooks-version")]
    if any(reason == "hooks-version" for reason, _ in notes):
        return CrashcheckError(
            "hooks-version",
            "the program was built by a crashcheck-cc of another version than this recorder's",
            "Rebuild the program with the crashcheck-cc of this installation.",
        )
    return CrashcheckError(
        "record-limit",
        f"a limit of the recorder was reached, later events are missing in {trace}: {'; '.join(why) or 'ids ran out'}",
        "Use a smaller workload.",
    )


def _nothing(
    recording: Recording,
    pool_files: Sequence[str],
    notes: Sequence[tuple[str, str]],
    instrumented: bool,
) -> CrashcheckError:
    why = [_REASONS[reason].format(path=path) for reason, path in notes if reason in _REASONS]
    met = _pool_files(recording.trace)
    explained = bool(why)
    if not instrumented and not explained:
        why += [
            f"{path}: used by a program that was not built with crashcheck-cc, whose stores cannot be seen"
            for path in met
        ]
    elif instrumented:
        why += [_REASONS["readonly"].format(path=path) for path in met]
    others = [path for path in regular_files(recording.pool) if not any(path in line for line in why)]
    why += [f"{path}: in the pool at the end, but never written while recording" for path in others]
    shown = why[:_MOST_NAMED] + ([f"and {len(why) - _MOST_NAMED} more"] if len(why) > _MOST_NAMED else [])
    listing = "".join(f"\n  - {line}" for line in shown) or "\n  - the workload opened no file for writing in the pool"
    slug = "nothing-persistent" if instrumented or explained or not met else "not-instrumented"
    return CrashcheckError(
        slug,
        f"the workload wrote no persistent byte (watched: {', '.join(pool_files)} in {recording.pool}){listing}",
        "Check [pool] files, that the command uses {pool}, and that the program was built with crashcheck-cc.",
    )


def _pool_files(trace: Path) -> list[str]:
    """Return the paths of the pool files that the recorder met, in the order of their ids."""
    path = Path(f"{trace}.files")
    if not path.exists():
        return []
    return [name.decode("utf-8", "surrogateescape") for name in path.read_bytes().split(b"\0") if name]


def _is_instrumented(command: Sequence[str], home: Path) -> bool:
    """Return whether a file that the command names holds the program facts that crashcheck-cc puts there."""
    for word in command:
        path = home / word
        if path.is_file() and path.stat().st_size:
            with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                if data.find(b"crashcheck_facts") >= 0:
                    return True
    return False
