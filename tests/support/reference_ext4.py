"""What ext4 may leave after a crash, computed the slow way from docs/file-systems.md alone.

Programs write, cut and sync one file "f" in halves of a block, and make and rename other names beside it. The journal
is a list of changes of which a prefix survives; a size that waits for write-back, and the writes of each block, are
lists of their own. All combinations are tried at each moment, and those that a rule forbids are left out. It shares
nothing with analyzer/persistence and checker/.

Steps: ("append", halves), ("write", half), ("cut", halves), ("create", name), ("rename",) of f to g, ("fsync",),
("fdatasync",), ("dirsync",), ("reserve", halves): fallocate that keeps the size, ("punch", quarter): a quarter of a
block at that quarter of the file.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product

B, H, Q = 4096, 2048, 1024
Step = tuple[object, ...]
Folder = frozenset[tuple[str, bytes]]
STALE = 0xA5


def random_program(choose: random.Random) -> tuple[bytes | None, list[Step]]:
    """What f holds at first (None: it is new), and some steps."""
    halves = choose.choice([None, 0, 1, 1, 2, 3])
    size = halves or 0
    program: list[Step] = []
    names, renamed = 0, False
    for _ in range(choose.randint(2, 5)):
        kinds = ["append", "append", "append", "cut", "create", "create", "fsync", "fdatasync", "dirsync", "reserve"]
        kinds += ["rename"] * (not renamed) + ["write", "write", "punch"] * (size > 0)
        kind = choose.choice(kinds)
        if kind == "append":
            step = choose.choice([1, 1, 1, 2, 3])
            size += step
            program.append((kind, step))
        elif kind == "cut":
            size = choose.randint(0, size + 1)
            program.append((kind, size))
        elif kind == "write":
            program.append((kind, choose.randrange(size)))
        elif kind == "punch":
            program.append((kind, choose.randrange(2 * size)))
        elif kind == "create":
            program.append((kind, "xyzuv"[names]))
            names += 1
        elif kind == "reserve":
            program.append((kind, size + 2))
        else:
            renamed |= kind == "rename"
            program.append((kind,))
    return None if halves is None else b"o" * H * halves, program


@dataclass
class Write:
    """What one step changes in one block: bytes, or all of the block first, as zeros or old bytes of the disk."""

    at: int  # the step
    low: int
    data: bytes
    whole: int | None = None  # the block is filled with this byte first
    ordered: bool = False  # zeros in a block that is written: later changes of the journal need them


@dataclass
class Size:
    at: int
    old: int
    new: int
    waits: bool  # for write-back


@dataclass
class Run:
    """All that the first steps of a program changed."""

    model: str
    first: bytes | None
    program: list[Step]
    journal: list[tuple[int, str, object]] = field(default_factory=list)  # step, "size" or "name", what
    waiting: list[Size] = field(default_factory=list)
    sizes: list[Size] = field(default_factory=list)
    blocks: dict[int, list[Write]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.size = len(self.first or b"")
        self.current = "f"
        if self.first is None:
            self.journal.append((-1, "name", ("f", "f")))
        self.begun = set(range(-(-self.size // B)))  # blocks that have bytes since they were last cut off
        self.reserved = 0
        self.cut_off = set[int]()
        for at, step in enumerate(self.program):
            getattr(self, f"_{step[0]}")(at, *step[1:])

    def written(self, block: int, at: int) -> bool:
        """Whether the steps before `at` prove that the block is allocated and written."""
        proven, size = block * B < len(self.first or b""), len(self.first or b"")
        dirty = False
        for kind, *words in self.program[:at]:
            low, high = size, size
            if kind == "append":
                size += words[0] * H
                high = size
            elif kind == "write":
                low, high = words[0] * H, (words[0] + 1) * H
            elif kind == "cut":
                size = words[0] * H
                if block * B >= size:
                    proven = dirty = False
            if kind in ("append", "write") and low < (block + 1) * B and block * B < high:
                dirty = True
            if kind in ("fsync", "fdatasync") and dirty:
                proven = True
        return proven

    def _append(self, at: int, halves: int) -> None:
        low, high = self.size, self.size + halves * H
        block = low // B
        waits = not (low % B and high <= (block + 1) * B and self.written(block, at))
        self._put(at, low, high)
        self._resize(Size(at, low, high, waits))

    def _write(self, at: int, half: int) -> None:
        self._put(at, half * H, (half + 1) * H)

    def _put(self, at: int, low: int, high: int) -> None:
        while low < high:
            block = low // B
            stop = min((block + 1) * B, high)
            data = bytes([65 + at]) * (stop - low)
            writes = self.blocks.setdefault(block, [])
            new = block not in self.begun
            whole = 0 if block in self.cut_off else None
            if self.model == "ext4-writeback" and new and not block * B < self.reserved:
                writes.append(Write(at, block * B, b"", STALE))
                whole = 0
            writes.append(Write(at, low, data, whole))
            self.begun.add(block)
            self.cut_off.discard(block)
            low = stop

    def _cut(self, at: int, halves: int) -> None:
        new = halves * H
        if new == self.size:
            last = self.sizes[-1] if self.sizes else None
            if last is not None and (last.waits or self.program[last.at][0] == "append"):
                self.journal.append((at, "size", Size(at, new, new, False)))
                self.sizes.append(Size(at, new, new, False))
            return
        if new < self.size:
            for block in range(-(-new // B), 99):
                self.cut_off.add(block)
                self.begun.discard(block)
            block = new // B
            if new % B:
                again = block in self.cut_off
                zeros = Write(at, new, bytes(min(self.size, (block + 1) * B) - new), 0 if again else None)
                if again:
                    self.cut_off.discard(block)
                zeros.ordered = self.model != "ext4-writeback" and self.written(block, at)
                self.blocks.setdefault(block, []).append(zeros)
        self._resize(Size(at, self.size, new, False))

    def _resize(self, change: Size) -> None:
        self.size = change.new
        self.sizes.append(change)
        if change.waits:
            self.waiting.append(change)
        else:
            self.journal.append((change.at, "size", change))

    def _punch(self, at: int, quarter: int) -> None:
        block = quarter * Q // B
        zeros = Write(at, quarter * Q, bytes(Q))
        zeros.ordered = self.model != "ext4-writeback" and self.written(block, at)
        self.blocks.setdefault(block, []).append(zeros)

    def _reserve(self, at: int, halves: int) -> None:
        self.reserved = max(self.reserved, halves * H)

    def _create(self, at: int, name: str) -> None:
        self.journal.append((at, "name", ("", name)))

    def _rename(self, at: int) -> None:
        self.journal.append((at, "name", ("f", "g")))

    def _fsync(self, at: int) -> None:
        pass

    _fdatasync = _dirsync = _fsync

    def least(self) -> tuple[int, int]:
        """What the syncs cover: up to which step (exclusive) the journal, and what the file holds."""
        journal = content = 0
        for at, (kind, *_) in enumerate(self.program):
            if kind == "dirsync":
                last = max((when for when, what, _ in self.journal if what == "name" and when < at), default=-2)
                journal = max(journal, last + 1)
            elif kind in ("fsync", "fdatasync"):
                content = at
                changed = [size.at for size in self.sizes if size.at < at]
                for when, what, which in self.journal:
                    covered = [("f", "f")] if kind == "fdatasync" else [("f", "f"), ("f", "g")]
                    if what == "name" and when < at and which in covered:
                        changed.append(when)
                journal = max(journal, max(changed, default=-2) + 1)
        return journal, content

    def folders(self) -> Iterator[Folder]:
        """What this moment may leave."""
        journal_least, least = self.least()
        created = any(kind in ("fsync", "fdatasync", "dirsync") for kind, *_ in self.program)
        blocks = sorted(self.blocks)
        for held in range(len(self.journal) + 1):
            if any(when < journal_least and (when >= 0 or created) for when, *_ in self.journal[held:]):
                continue
            for waiting in self._waiting(held, least):
                sizes = [which for when, what, which in self.journal[:held] if what == "size"] + waiting
                latest = max([when for when, *_ in self.journal[:held]] + [size.at for size in waiting], default=-1)
                choices = [self._prefixes(self.blocks[b], latest, least, sizes, b) for b in blocks]
                for counts in product(*choices):
                    kept = [(w.at, 1, w) for b, n in zip(blocks, counts, strict=True) for w in self.blocks[b][:n]]
                    yield self._folder(held, sizes, kept)

    def _waiting(self, held: int, least: int) -> Iterator[list[Size]]:
        """Of the sizes that wait, those that joined, the last of them up to a block boundary at most."""
        parted = list[list[Size]]()
        if self.model == "ext4-strict":
            steps = [Size(s.at, low, high, True) for s in self.waiting for low, high in _blocks_of(s.old, s.new)]
            for bits in product([False, True], repeat=len(steps)):
                parted.append([step for step, on in zip(steps, bits, strict=True) if on])
            must = [step for step in steps if step.at < least]
            parted = [some for some in parted if all(any(x is y for y in some) for x in must)]
        else:
            for many in range(len(self.waiting) + 1):
                if any(size.at < least for size in self.waiting[many:]):
                    continue
                parted.append(self.waiting[:many])
                if many < len(self.waiting):
                    nxt = self.waiting[many]
                    parted += [
                        [*self.waiting[:many], Size(nxt.at, nxt.old, high, True)]
                        for _, high in _blocks_of(nxt.old, nxt.new)[:-1]
                    ]
        for some in parted:
            if all(when > size.at for size in some for when, *_ in self.journal[held:]):
                yield some

    def _prefixes(self, writes: list[Write], latest: int, least: int, sizes: list[object], block: int) -> list[int]:
        most_needed = 0
        for count, write in enumerate(writes, 1):
            if write.at < least or (write.ordered and write.at < latest):
                most_needed = count
            for size in sizes:
                assert isinstance(size, Size)
                shows = size.waits and (size.new - 1) // B == block and size.old <= block * B
                if self.model == "ext4-strict" and shows and write.at <= size.at:
                    most_needed = count
        return list(range(most_needed, len(writes) + 1))

    def _folder(self, held: int, sizes: list[object], kept: list[tuple[int, int, Write]]) -> Folder:
        names: dict[str, str] = {} if self.first is None else {"f": "f"}
        for _, what, which in self.journal[:held]:
            if what == "name":
                file, name = which  # type: ignore[misc]
                names = {other: of for other, of in names.items() if not file or of != file} | {name: file or name}
        room = bytearray((self.first or b"").ljust(10 * B, b"\0"))
        end = len(self.first or b"")
        # within one step a size precedes its data, also where it cuts
        for _, _, change in sorted([*((s.at, 0, s) for s in sizes), *kept], key=lambda each: each[:2]):  # type: ignore[attr-defined]
            if isinstance(change, Size):
                if change.new < change.old:
                    room[change.new :] = bytes(len(room) - change.new)
                end = change.new
            else:
                assert isinstance(change, Write)
                if change.whole is not None:
                    low = change.low // B * B
                    room[low : low + B] = bytes([change.whole]) * B
                room[change.low : change.low + len(change.data)] = change.data
        return frozenset((name, bytes(room[:end]) if of == "f" else b"") for name, of in names.items())


def _blocks_of(low: int, high: int) -> list[tuple[int, int]]:
    out = []
    while low < high:
        stop = min((low // B + 1) * B, high)
        out.append((low, stop))
        low = stop
    return out


def folders(model: str, first: bytes | None, program: list[Step]) -> set[Folder]:
    """What a crash may leave at any moment."""
    moments = range(len(program) + 1)
    found = {folder for upto in moments for folder in Run(model, first, program[:upto]).folders()}
    return found if first is not None else found | {frozenset()}
