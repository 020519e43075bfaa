"""Runs a reference program through the real pipeline: trace file, reader, model, enumeration, content."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from crashcheck.analyzer.persistence import Options, build
from crashcheck.analyzer.trace.reader import Trace
from crashcheck.checker.images.transition import Content, ImagePatch
from crashcheck.checker.states.ideals import Ids
from crashcheck.checker.states.space import CrashState, StateSpace
from crashcheck.checker.strategies import strategy
from crashcheck.checker.strategies.plan import select_states
from crashcheck.runtime.trace_format import StoreFlag, SyncKind
from support.reference import First, Image, Program, State, issued
from support.tracing import TraceBuilder

KINDS = {
    "msync": SyncKind.MSYNC,
    "fsync": SyncKind.FSYNC,
    "fdatasync": SyncKind.FDATASYNC,
    "sync": SyncKind.SYNC,
    "osync": SyncKind.OSYNC,
    "odsync": SyncKind.ODSYNC,
    "dirsync": SyncKind.DIRSYNC,
    "async": SyncKind.MSYNC_ASYNC,
}


def record(folder: Path, first: First, program: Program) -> TraceBuilder:
    """Writes the first image into folder/first and the program as a trace."""
    trace = TraceBuilder(folder / "trace.cct")
    image = folder / "first"
    image.mkdir(exist_ok=True)
    for name, content in first.items():
        (image / name).unlink(missing_ok=True)
        if content is not None:
            (image / name).write_bytes(content)
        trace.file(name, len(content or b""), existed=content is not None)
    begun: dict[object, int] = {}
    acked = 0
    for at, step in enumerate(program):
        with trace.thread(step[0]):
            match step[1:]:
                case ("store", file, offset, data, nt):
                    trace.store(file, offset, len(data), data, int(bool(nt)))
                case ("write", file, offset, data):
                    trace.write(file, offset, data)
                case ("truncate", file, size):
                    trace.truncate(file, size)
                case ("create", file):
                    trace.create(file)
                case ("stores", parts):
                    for number, (file, offset, data) in enumerate(parts):
                        trace.store(file, offset, len(data), data, int(StoreFlag.JOINED) if number else 0)
                case ("unlink", file):
                    trace.unlink(file)
                case ("rename", file, to):
                    trace.rename(file, to, issued(first, program, at)[file] or b"")
                case ("clwb", file, offset, size):
                    trace.clwb(file, offset, size)
                case ("clflush", file, offset, size):
                    trace.clflush(file, offset, size)
                case ("fence",):
                    trace.sfence()
                case ("begin", kind, file, offset, size, label, _):
                    begun[label] = trace.sync_begin(KINDS[kind], file, offset, size)
                case ("end", label):
                    failed = next(bool(s[7]) for s in program if s[1] == "begin" and s[6] == label)
                    trace.sync_end(begun[label], failed)
                case ("mark",):
                    acked += 1
                    trace.end(acked)
                case ("opmark",):
                    trace.begin(acked + 1)
                case ("printed", total):
                    trace.output(total)
                case other:
                    raise AssertionError(other)
    return trace


def apply(image: dict[str, bytes | None], patch: ImagePatch) -> dict[str, bytes | None]:
    out = dict(image)
    for file in patch:
        if not file.exists:
            out[file.path] = None
            continue
        body = bytearray((out.get(file.path) or b"")[: file.size].ljust(file.size, b"\0"))
        last = -1
        for offset, data in file.writes:
            assert data, "no write is empty"
            assert offset > last, "writes ascend and do not overlap"
            assert offset + len(data) <= file.size, "writes are within the size"
            body[offset : offset + len(data)] = data
            last = offset + len(data) - 1
        out[file.path] = bytes(body)
    return out


def frozen(image: dict[str, bytes | None]) -> Image:
    return tuple(sorted(image.items()))


@dataclass
class World:
    """Everything that the pipeline computes for one program."""

    space: StateSpace
    content: Content
    states: list[CrashState]
    images: list[State]  # of each state, in the same order
    first: First

    @property
    def distinct(self) -> set[State]:
        return set(self.images)


def explore(folder: Path, first: First, program: Program, model: str, options: Options | None = None) -> World:
    return explored(record(folder, first, program).trace(), folder, first, model, options)


def explored(trace: Trace, folder: Path, first: First, model: str, options: Options | None = None) -> World:
    """Of a trace whose first image is in folder/first."""
    space = StateSpace(build(trace, model, options))
    content = Content(space, folder / "first")
    states = list(select_states(space, strategy("exhaustive")))
    durable: list[dict[str, bytes | None]] = []
    before: dict[str, bytes | None] = dict(first)
    for at in range(len(space.points)):
        before = apply(before, content.durable(at - 1 if at else None, at))
        durable.append(before)
    images = []
    for state in states:
        point = space.points[state.point]
        images.append((frozen(apply(durable[state.point], content.patches(state))), point.acked, point.stdout_bytes))
    return World(space, content, states, images, first)


def deviation(space: StateSpace, state: CrashState) -> int:
    """In how many granules a state differs from the nearer of "everything persisted" and "nothing pending did"."""

    def granules(pieces: Ids) -> int:
        return len({int(space.graph.component[space.graph.whole(id_)]) for id_ in pieces})

    return min(granules(space.lost(state)), granules(space.persisted(state)))
