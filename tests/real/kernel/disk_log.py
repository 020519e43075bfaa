"""What a crash leaves of a disk: its log of writes, cut at any place.

Between two flushes a disk may have kept any of the blocks that were written, so each flush is a place to cut at, and
there any subset of them may survive. Not varied are blocks of the journal other than commits and superblocks, for
without its commit a transaction is nothing, and blocks that hold what replaying the journal writes there anyway.
"""

from __future__ import annotations

import itertools
import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from pathlib import Path

from kernel.ext4_image import BLOCK, Journal, Layout, View, kind_of_journal_block

SECTOR = 512
MOST = 256  # images of one cut; above that they are chosen
_MAGIC = 0x6A736677736872  # of Linux' dm-log-writes, which QEMU's blklogwrites writes
_FLUSH = 1
_MARK = b"crashcheck "


def entries(log: Path) -> Iterator[tuple[int, bytes]]:
    """(offset, data) of each write; a flush has no data."""
    with log.open("rb") as file:
        magic, _, many, sector = struct.unpack("<QQQI", file.read(28))
        assert magic == _MAGIC, "no log of a disk"
        assert sector == SECTOR
        file.seek(SECTOR)
        for _ in range(many):
            where, sectors, flags, _ = struct.unpack("<QQQQ", file.read(SECTOR)[:32])
            yield where * SECTOR, file.read(sectors * SECTOR)
            if flags & _FLUSH and sectors:
                yield 0, b""


@dataclass(frozen=True, slots=True)
class Crash:
    """What a cut left: the run in which it is, whether that had acknowledged, and the blocks after the replay."""

    folder: str
    acknowledged: bool
    kept: dict[int, bytes]  # blocks that are not as at the flush before
    view: View


@dataclass(slots=True)
class Disk:
    """A disk on the way through its log."""

    image: bytearray
    layout: Layout
    journal_blocks: list[int]
    replayed: Journal
    pending: dict[int, list[bytes]] = field(default_factory=dict)  # by block, since the last flush: each write
    order: list[int] = field(default_factory=list)  # the blocks of these writes

    @staticmethod
    def of(image: bytearray) -> Disk:
        def view(number: int) -> bytes:
            return bytes(image[number * BLOCK : (number + 1) * BLOCK])

        layout = Layout.of(view)
        blocks = layout.journal_blocks(view)
        return Disk(image, layout, blocks, Journal.begin(blocks, view).replay(view))

    def durable(self, number: int) -> bytes:
        return bytes(self.image[number * BLOCK : (number + 1) * BLOCK])

    def write(self, offset: int, data: bytes) -> None:
        for at in range(offset // BLOCK, -(-(offset + len(data)) // BLOCK)):
            block = bytearray(self.pending[at][-1] if at in self.pending else self.durable(at))
            low, high = max(offset, at * BLOCK), min(offset + len(data), (at + 1) * BLOCK)
            block[low - at * BLOCK : high - at * BLOCK] = data[low - offset : high - offset]
            self.pending.setdefault(at, []).append(bytes(block))
            self.order.append(at)

    def flush(self) -> None:
        for number, versions in self.pending.items():
            self.image[number * BLOCK : (number + 1) * BLOCK] = versions[-1]
        if self.journal_blocks[0] in self.pending:
            self.replayed = Journal.begin(self.journal_blocks, self.durable)
        self.replayed.replay(self.durable)
        self.pending.clear()
        self.order.clear()

    def cuts(self, choose: random.Random) -> Iterator[tuple[dict[int, bytes], View]]:
        """Each subset of the pending writes that is tried, and the blocks after the replay."""
        journal = set(self.journal_blocks)
        fixed: dict[int, bytes] = {}
        varied: list[int] = []
        restarted = self.journal_blocks[0] in self.pending
        after = self.replayed.over(self.durable)
        for number, versions in self.pending.items():
            kinds = {kind_of_journal_block(data) for data in versions} if number in journal else {""}
            if kinds == {"other"} or (not kinds - {""} and not restarted and set(versions) == {after(number)}):
                fixed[number] = versions[-1]
            else:
                varied.append(number)
        for held in self._choices(varied, choose):
            kept = fixed | {number: self.pending[number][many - 1] for number, many in held.items() if many}

            def view(number: int, kept: dict[int, bytes] = kept) -> bytes:
                return kept[number] if number in kept else self.durable(number)

            if self.journal_blocks[0] in kept:
                replayed = Journal.begin(self.journal_blocks, view).replay(view)
            elif any(number in journal for number in kept):
                replayed = self.replayed.copy().replay(view)
            else:
                replayed = self.replayed
            yield kept, replayed.over(view)

    def _choices(self, varied: list[int], choose: random.Random) -> Iterator[dict[int, int]]:
        """How many writes of each block survive."""
        many = {number: len(self.pending[number]) for number in varied}
        if prod(most + 1 for most in many.values()) <= MOST:
            ranges = (range(most + 1) for most in many.values())
            yield from (dict(zip(many, counts, strict=True)) for counts in itertools.product(*ranges))
            return
        tried = set[tuple[int, ...]]()
        for held in itertools.islice(self._some(many, choose), MOST):
            if tuple(held.values()) not in tried:
                tried.add(tuple(held.values()))
                yield held

    def _some(self, many: dict[int, int], choose: random.Random) -> Iterator[dict[int, int]]:
        """All; without one block; one block alone; the first writes; then chosen ones."""
        none = dict.fromkeys(many, 0)
        yield many
        for number in many:
            yield many | {number: 0}
            yield none | {number: many[number]}
        held = dict(none)
        yield dict(held)
        for number in self.order:
            if number in held:
                held[number] += 1
                yield dict(held)
        while True:
            yield {number: choose.randint(0, most) for number, most in many.items()}


def crashes(disk: Disk, log: Path, last_block: int, seed: int) -> Iterator[Crash]:
    """All crashes of all runs. A view is valid until the next one is asked for."""
    choose = random.Random(seed)
    folder, acknowledged = "", False
    for offset, data in entries(log):
        if data and offset == last_block * BLOCK:
            text = data[: data.index(b"\0")].removeprefix(_MARK).decode()
            what, _, named = text.partition("-")
            if what == "acknowledged":
                acknowledged = True
            else:
                folder, acknowledged = (named if what == "begin" else ""), False
        elif data:
            disk.write(offset, data)
        else:
            if folder:
                for kept, view in disk.cuts(choose):
                    yield Crash(folder, acknowledged, kept, view)
            disk.flush()
