"""A small reader of ext4 images: replays the journal and reads files, without a mount.

Blocks of 4096 bytes, extents, a journal inside; what mkfs.ext4 makes by default. A view is a function from the number
of a block to its bytes. e2fsck and debugfs judge the reader (test_kernel.py).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

BLOCK = 4096
View = Callable[[int], bytes]
Folder = dict[str, bytes | None]

_JOURNAL_INODE, _ROOT_INODE = 8, 2
_MAGIC, _DESCRIPTOR, _COMMIT, _REVOKE = 0xC03B3998, 1, 2, 5
_SUPERBLOCKS = (3, 4)
_ESCAPED, _SAME_UUID, _LAST = 1, 2, 8
_64BIT, _CSUM_V3 = 2, 0x10
_EXTENTS_MAGIC, _MOST_WRITTEN = 0xF30A, 32768
_FOLDER = 0o040000


@dataclass(frozen=True, slots=True)
class Layout:
    """What does not change while a file system is mounted."""

    inodes_per_group: int
    inode_bytes: int
    tables: tuple[int, ...]  # the first block of each group's inodes

    @staticmethod
    def of(view: View) -> Layout:
        sb = view(0)[1024:2048]
        assert struct.unpack_from("<H", sb, 0x38)[0] == 0xEF53, "no ext4 superblock"
        inodes, per_group = struct.unpack_from("<I", sb)[0], struct.unpack_from("<I", sb, 0x28)[0]
        wide = struct.unpack_from("<I", sb, 0x60)[0] & 0x80
        size = struct.unpack_from("<H", sb, 0xFE)[0] if wide else 32
        groups = -(-inodes // per_group)
        descriptors = b"".join(view(1 + at) for at in range(-(-groups * size // BLOCK)))
        tables = tuple(struct.unpack_from("<I", descriptors, at * size + 8)[0] for at in range(groups))
        return Layout(per_group, struct.unpack_from("<H", sb, 0x58)[0], tables)

    def inode(self, view: View, number: int) -> bytes:
        group, at = divmod(number - 1, self.inodes_per_group)
        block, offset = divmod(at * self.inode_bytes, BLOCK)
        return view(self.tables[group] + block)[offset : offset + self.inode_bytes]

    def folder(self, view: View, name: str) -> Folder:
        """All paths below a folder of the root, and the content of each file; None: the folder is not there."""
        number = dict(_entries(view, self.inode(view, _ROOT_INODE)))[name]
        return dict(self._below(view, number, ""))

    def journal_blocks(self, view: View) -> list[int]:
        inode = self.inode(view, _JOURNAL_INODE)
        return [physical for _, physical, _ in sorted(_blocks(view, inode[0x28:0x64]))]

    def _below(self, view: View, number: int, prefix: str) -> Iterator[tuple[str, bytes | None]]:
        for name, inner in _entries(view, self.inode(view, number)):
            inode = self.inode(view, inner)
            if struct.unpack_from("<H", inode)[0] & 0o170000 == _FOLDER:
                yield prefix + name, None
                yield from self._below(view, inner, f"{prefix}{name}/")
            else:
                yield prefix + name, _content(view, inode)


def _blocks(view: View, node: bytes) -> Iterator[tuple[int, int, bool]]:
    """(block in the file, block on the disk, whether it was written) of an extent tree."""
    magic, many, _, depth = struct.unpack_from("<HHHH", node)
    assert magic == _EXTENTS_MAGIC, "no extent tree"
    for at in range(12, 12 + 12 * many, 12):
        if depth:
            low, high = struct.unpack_from("<IH", node, at + 4)
            yield from _blocks(view, view(low | high << 32))
        else:
            first, length, high, low = struct.unpack_from("<IHHI", node, at)
            written = length <= _MOST_WRITTEN
            for inner in range(length if written else length - _MOST_WRITTEN):
                yield first + inner, (low | high << 32) + inner, written


def _content(view: View, inode: bytes) -> bytes:
    size = struct.unpack_from("<I", inode, 4)[0] | struct.unpack_from("<I", inode, 0x6C)[0] << 32
    data = bytearray(size)
    for logical, physical, written in _blocks(view, inode[0x28:0x64]):
        if written and logical * BLOCK < size:
            at = logical * BLOCK
            data[at : min(at + BLOCK, size)] = view(physical)[: min(BLOCK, size - at)]
    return bytes(data)


def _entries(view: View, inode: bytes) -> Iterator[tuple[str, int]]:
    data = _content(view, inode)
    at = 0
    while at < len(data):
        number, length, name_bytes = struct.unpack_from("<IHB", data, at)
        name = data[at + 8 : at + 8 + name_bytes].decode()
        if number and name not in (".", ".."):
            yield name, number
        at += length


def kind_of_journal_block(data: bytes) -> str:
    """ "commit", "superblock" or "other"."""
    magic, kind = struct.unpack_from(">II", data)
    if magic != _MAGIC:
        return "other"
    return "commit" if kind == _COMMIT else "superblock" if kind in _SUPERBLOCKS else "other"


@dataclass(slots=True)
class Journal:
    """What replaying a journal leaves, as far as it has been read, and where the next transaction begins."""

    blocks: list[int]
    tag_bytes: int
    tail_bytes: int
    first: int
    at: int
    sequence: int
    written: dict[int, tuple[int, bytes]] = field(default_factory=dict)
    revoked: dict[int, int] = field(default_factory=dict)

    @staticmethod
    def begin(blocks: list[int], view: View) -> Journal:
        sb = view(blocks[0])
        first, sequence, start = struct.unpack_from(">III", sb, 0x14)
        features = struct.unpack_from(">I", sb, 0x28)[0]
        v3 = bool(features & _CSUM_V3)
        tag = 16 if v3 else 12 if features & _64BIT else 8
        return Journal(blocks, tag, 4 if v3 else 0, first, start, sequence)

    def copy(self) -> Journal:
        return Journal(
            self.blocks,
            self.tag_bytes,
            self.tail_bytes,
            self.first,
            self.at,
            self.sequence,
            dict(self.written),
            dict(self.revoked),
        )

    def replay(self, view: View) -> Journal:
        """Read all transactions that are complete from here on."""
        while self.at and self._transaction(view):
            pass
        return self

    def over(self, view: View) -> View:
        """The blocks after the replay."""
        written = self.written
        return lambda number: written[number][1] if number in written else view(number)

    def _next(self, at: int) -> int:
        return at + 1 if at + 1 < len(self.blocks) else self.first

    def _transaction(self, view: View) -> bool:
        at, entries, revokes = self.at, list[tuple[int, bytes]](), list[int]()
        for _ in self.blocks:
            block = view(self.blocks[at])
            magic, kind, sequence = struct.unpack_from(">III", block)
            if magic != _MAGIC or sequence != self.sequence:
                return False
            at = self._next(at)
            if kind == _COMMIT:
                self._apply(entries, revokes)
                self.at, self.sequence = at, self.sequence + 1
                return True
            if kind == _DESCRIPTOR:
                for number, escaped in self._tags(block):
                    data = view(self.blocks[at])
                    entries.append((number, struct.pack(">I", _MAGIC) + data[4:] if escaped else data))
                    at = self._next(at)
            elif kind == _REVOKE:
                used = struct.unpack_from(">I", block, 12)[0]
                revokes += [struct.unpack_from(">Q", block, place)[0] for place in range(16, used, 8)]
            else:
                return False
        return False

    def _tags(self, block: bytes) -> Iterator[tuple[int, bool]]:
        at, flags = 12, 0
        while not flags & _LAST and at + self.tag_bytes <= BLOCK - self.tail_bytes:
            if self.tag_bytes == 16:
                number, flags, high = struct.unpack_from(">III", block, at)
            else:
                number, _, flags = struct.unpack_from(">IHH", block, at)
                high = struct.unpack_from(">I", block, at + 8)[0] if self.tag_bytes == 12 else 0
            yield number | high << 32, bool(flags & _ESCAPED)
            at += self.tag_bytes + (0 if flags & _SAME_UUID else 16)

    def _apply(self, entries: list[tuple[int, bytes]], revokes: list[int]) -> None:
        for number in revokes:
            self.revoked[number] = self.sequence
            self.written.pop(number, None)
        for number, data in entries:
            if self.revoked.get(number, -1) < self.sequence:
                self.written[number] = self.sequence, data
