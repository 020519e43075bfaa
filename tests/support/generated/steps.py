"""What the driver's steps do to files when nothing crashes, and the effects that a crash model is about.

A step is (thread, operation, arguments); `driver.c` executes it, `Machine.apply` follows it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Step = tuple[Any, ...]
PAGE = 4096
PAGES = 64  # of the region in which files are mapped
WATCHED = ("a.db", "b.db", "c.db")
UNWATCHED = "u"

# Masked stores: lanes, bytes of a lane, does it compress.
MASKS = {
    "a": (4, 4, False), "b": (8, 4, False), "c": (2, 8, False), "d": (4, 8, False), "e": (8, 4, False),
    "f": (2, 8, False), "m": (16, 1, False), "A": (64, 1, False), "B": (32, 2, False), "C": (16, 4, False),
    "D": (8, 8, False), "E": (16, 4, True), "F": (8, 8, True), "G": (32, 1, False), "H": (4, 4, False),
}  # fmt: skip


@dataclass(eq=False)
class Life:
    """A file from the moment when it takes a watched name to the moment when it loses it."""

    base: bytes  # its content at first, durable


@dataclass(eq=False)
class File:
    content: bytearray
    life: Life | None  # none: nobody watches it (any more)


Cells = dict[tuple[Life, int], int]  # (life, offset) -> byte


@dataclass(frozen=True)
class Update:
    """One store, non-temporal store ("nt") or write: all of it is one update."""

    how: str  # "store", "nt" or "write"
    thread: int
    cells: Cells


@dataclass(frozen=True)
class Resize:
    life: Life
    old: int
    new: int
    by_write: bool


@dataclass(frozen=True)
class Create:
    life: Life


@dataclass(frozen=True)
class Flush:
    """Of the line that holds `offset`; `at_once`: clflush."""

    thread: int
    life: Life
    offset: int
    at_once: bool


@dataclass(frozen=True)
class Fence:
    thread: int


@dataclass(frozen=True)
class Sync:
    """Of ranges [low, high), or of whole files (low is None)."""

    ranges: tuple[tuple[Life, int | None, int], ...]


@dataclass(frozen=True)
class FolderSync:
    pass


@dataclass(frozen=True)
class Names:
    """A removal or a renaming."""

    lives: tuple[Life, ...]


@dataclass(frozen=True)
class Acknowledge:
    operation: bool  # else a byte of output


Effect = Update | Resize | Create | Flush | Fence | Sync | FolderSync | Names | Acknowledge


@dataclass
class Machine:
    names: dict[str, File]
    handles: dict[int, tuple[File, str]] = field(default_factory=dict)  # with the flags of open
    pages: dict[int, tuple[File, int]] = field(default_factory=dict)  # page of the region -> file and its page

    @classmethod
    def of(cls, first: dict[str, bytes]) -> Machine:
        return cls({name: File(bytearray(data), cls._life(name, data)) for name, data in first.items()})

    @staticmethod
    def _life(name: str, data: bytes | bytearray) -> Life | None:
        return Life(bytes(data)) if name in WATCHED else None

    def lives(self) -> dict[str, Life]:
        return {name: file.life for name, file in self.names.items() if file.life}

    def apply(self, step: Step) -> list[Effect]:
        thread: int = step[0]
        match step[1:]:
            case ("open", int(handle), str(name), str(flags)):
                return self._open(handle, name, flags)
            case ("map", int(slot), int(handle), int(page), int(many)):
                for at in range(many):
                    self.pages[slot + at] = (self.handles[handle][0], page + at)
                return []
            case ("unmap", int(slot), int(many)):
                for at in range(many):
                    del self.pages[slot + at]
                return []
            case ("store" | "copy" | "move", int(at), bytes(data)):
                return self._store("store", thread, dict(enumerate(data, at)))
            case ("nt", int(at), bytes(data)):
                return self._store("nt", thread, dict(enumerate(data, at)))
            case ("set", int(at), int(size), int(byte)):
                return self._store("store", thread, dict.fromkeys(range(at, at + size), byte))
            case ("masked", str(kind), int(at), str(lanes), bytes(data)):
                return self._store("nt" if kind == "m" else "store", thread, masked_bytes(kind, at, lanes, data))
            case ("locked", str(how), int(at), int(size), int(value)):
                return self._locked(thread, how, at, size, value)
            case ("clwb" | "clflushopt" | "clflush", int(at)):
                file, page = self.pages[at // PAGE]
                if not file.life:
                    return []
                return [Flush(thread, file.life, page * PAGE + at % PAGE, step[1] == "clflush")]
            case ("sfence" | "mfence" | "lock",):
                return [Fence(thread)]
            case ("write", int(handle), int(offset), str(how), *parts):
                return self._write(thread, handle, offset, how, b"".join(parts))
            case ("truncate", int(handle), int(size)):
                return self._resize(self.handles[handle][0], size, by_write=False)
            case ("allocate", int(handle), int(offset), int(size)):
                file = self.handles[handle][0]
                return self._resize(file, max(len(file.content), offset + size), by_write=False)
            case ("msync", int(at), int(size)):
                return self._msync(at, size)
            case ("fsync" | "fdatasync", int(handle)):
                life = self.handles[handle][0].life
                return [Sync(((life, None, 0),))] if life else []
            case ("dirsync",):
                return [FolderSync()]
            case ("unlink", str(name)):
                return self._unlink(name)
            case ("rename", str(name), str(to)):
                return self._rename(name, to)
            case ("end",):
                return [Acknowledge(True)]
            case ("print",):
                return [Acknowledge(False)]
            case ("begin",) | ("async", _, _):
                return []
            case other:
                raise AssertionError(other)

    def _open(self, handle: int, name: str, flags: str) -> list[Effect]:
        effects: list[Effect] = []
        if name not in self.names:
            file = self.names[name] = File(bytearray(), self._life(name, b""))
            if file.life:
                effects.append(Create(file.life))
        file = self.names[name]
        if "t" in flags:
            effects += self._resize(file, 0, by_write=False)
        self.handles[handle] = file, flags
        return effects

    def _store(self, how: str, thread: int, data: dict[int, int]) -> list[Effect]:
        cells: Cells = {}
        for at, byte in data.items():
            file, page = self.pages[at // PAGE]
            offset = page * PAGE + at % PAGE
            file.content[offset] = byte
            if file.life:
                assert (file.life, offset) not in cells, "an update writes no byte twice"
                cells[file.life, offset] = byte
        return [Update(how, thread, cells)] if cells else []

    def _locked(self, thread: int, how: str, at: int, size: int, value: int) -> list[Effect]:
        file, page = self.pages[at // PAGE]
        offset = page * PAGE + at % PAGE
        if how == "a":
            value += int.from_bytes(file.content[offset : offset + size], "little")
        data = (value % (1 << 8 * size)).to_bytes(size, "little")
        fence: list[Effect] = [] if how == "r" else [Fence(thread)]
        return fence + ([] if how == "f" else self._store("store", thread, dict(enumerate(data, at))))

    def _write(self, thread: int, handle: int, offset: int, how: str, data: bytes) -> list[Effect]:
        file, flags = self.handles[handle]
        if "a" in flags:
            offset = len(file.content)
        end = offset + len(data)
        effects: list[Effect] = self._resize(file, max(end, len(file.content)), by_write=True)
        file.content[offset:end] = data
        if not file.life:
            return []
        effects.append(Update("write", thread, {(file.life, offset + at): byte for at, byte in enumerate(data)}))
        if how in "ds" or "s" in flags:
            effects.append(Sync(((file.life, offset, end),)))
        return effects

    def _resize(self, file: File, size: int, *, by_write: bool) -> list[Effect]:
        old = len(file.content)
        del file.content[size:]
        file.content.extend(bytes(size - len(file.content)))
        return [Resize(file.life, old, size, by_write)] if file.life and size != old else []

    def _msync(self, at: int, size: int) -> list[Effect]:
        ranges = []
        for address in range(at, at + size, PAGE):
            file, page = self.pages[address // PAGE]
            if file.life:
                ranges.append((file.life, page * PAGE, (page + 1) * PAGE))
        return [Sync(tuple(ranges))] if ranges else []

    def _lose(self, name: str) -> tuple[Life, ...]:
        file = self.names.pop(name, None)
        life = file.life if file else None
        if file:
            file.life = None
        return (life,) if life else ()

    def _unlink(self, name: str) -> list[Effect]:
        lives = self._lose(name)
        return [Names(lives)] if lives else []

    def _rename(self, name: str, to: str) -> list[Effect]:
        file = self.names[name]
        lives = self._lose(to) + self._lose(name)
        self.names[to] = file
        file.life = self._life(to, file.content)
        return [Names(lives)] if lives or file.life else []


def masked_bytes(kind: str, at: int, lanes: str, data: bytes) -> dict[int, int]:
    """By address, the bytes that a masked store writes."""
    _, size, compresses = MASKS[kind]
    out: dict[int, int] = {}
    for lane, enabled in enumerate(lanes):
        if enabled == "1":
            to = at + (len(out) if compresses else lane * size)
            out.update(enumerate(data[lane * size : (lane + 1) * size], to))
    return out


def text(program: list[Step]) -> str:
    """The program as the driver reads it."""
    lines = (" ".join(w.hex() if isinstance(w, bytes) else str(w) or "-" for w in step) for step in program)
    return "".join(line + "\n" for line in lines)
