"""The model `ext4` against a brute-force reference, written from the rules of docs/system-calls.md alone.

Random programs create, append whole blocks, rename, remove and sync files of one folder. The reference chooses, at each
moment, how much of the journal, of each size and of the data persisted, and makes the folder by itself.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from support.folders import Recorded
from support.tracing import CallsBuilder

B = 4096
Op = tuple[str, ...]
Folder = frozenset[tuple[str, bytes]]


def random_program(seed: int) -> list[Op]:
    """Calls on the names a and b; b is there at first, with one block."""
    choose = random.Random(seed)
    there, program = {"b"}, list[Op]()
    for _ in range(choose.randint(2, 6)):
        absent = sorted({"a", "b"} - there)
        calls: list[Op] = [("open", name) for name in absent]
        for name in sorted(there):
            calls += [("append", name), ("append", name), ("fsync", name), ("fdatasync", name), ("remove", name)]
            calls += [("move", name, "b" if name == "a" else "a")] * 2
        call = choose.choice([*calls, ("dirsync",)])
        program.append(call)
        there |= {call[1]} if call[0] == "open" else {call[2]} if call[0] == "move" else set()
        there -= {call[1]} if call[0] in ("remove", "move") else set()
    return program


def play(program: list[Op], t: CallsBuilder) -> None:
    sizes = {t.files["b"]: B}
    for number, call in enumerate(program):
        match call:
            case ("open", name):
                t.open(name)
            case ("append", name):
                inode = t.files[name]
                t.append(name, sizes.get(inode, 0), bytes([number + 1]) * B)
                sizes[inode] = sizes.get(inode, 0) + B
            case ("fsync", name):
                t.fsync(name)
            case ("fdatasync", name):
                t.fdatasync(name)
            case ("remove", name):
                t.remove(name)
            case ("move", name, to):
                t.move(name, to)
            case _:
                t.fsync("")


class Reference:
    """The folders that may survive."""

    def __init__(self, program: list[Op]) -> None:
        self.program = program

    def folders(self) -> set[Folder]:
        return {folder for upto in range(len(self.program) + 1) for folder in self._at(self.program[:upto])}

    def _at(self, program: list[Op]) -> Iterator[Folder]:
        names = {"b": 0}
        blocks: dict[int, list[tuple[int, bytes]]] = {0: []}  # of each inode: (call, data) of each appended block
        journal: list[tuple[int, dict[str, int], tuple[int, int]]] = []  # call, names after it, (inode, least blocks)
        last: dict[int, int] = {}  # of each inode: its last creation or append
        stamped: dict[int, int] = {}  # its last rename
        synced_blocks: dict[int, int] = {}
        committed = -1
        for at, call in enumerate(program):
            inode = names.get(call[1], -1) if len(call) > 1 else -1
            match call[0]:
                case "open":
                    inode = len(blocks)
                    names, blocks[inode], last[inode] = {**names, call[1]: inode}, [], at
                    journal.append((at, names, (inode, 0)))
                case "append":
                    blocks[inode].append((at, bytes([at + 1]) * B))
                    last[inode] = at
                case "remove":
                    names = {name: which for name, which in names.items() if name != call[1]}
                    stamped[inode] = at
                    journal.append((at, names, (inode, 0)))
                case "move":
                    least = len(blocks[inode]) if call[2] in names else 0
                    names = {**{name: which for name, which in names.items() if name != call[1]}, call[2]: inode}
                    stamped[inode] = at
                    journal.append((at, names, (inode, least)))
                case "fsync" | "fdatasync":
                    synced_blocks[inode] = len(blocks[inode])
                    known = [last.get(inode, -1), stamped.get(inode, -1) if call[0] == "fsync" else -1]
                    committed = max(committed, *known)
                case _:
                    committed = max(committed, max((when for when, _, _ in journal), default=-1))
        least_journal = sum(when <= committed for when, _, _ in journal)
        for held in range(least_journal, len(journal) + 1):
            reach = journal[held][0] if held < len(journal) else len(program)
            now = journal[held - 1][1] if held else {"b": 0}
            some = sorted(set(now.values()))
            choices = []
            for inode in some:
                least = max([synced_blocks.get(inode, 0), *(n for _, _, (of, n) in journal[:held] if of == inode)])
                most = max(sum(when < reach for when, _ in blocks[inode]), least)
                choices.append(list(self._contents(blocks[inode], inode, least, most, synced_blocks.get(inode, 0))))
            for contents in product(*choices):
                held_by = dict(zip(some, contents, strict=True))
                yield frozenset((name, held_by[inode]) for name, inode in now.items())

    def _contents(
        self, blocks: list[tuple[int, bytes]], inode: int, least: int, most: int, synced: int
    ) -> Iterator[bytes]:
        first = b"o" * B if inode == 0 else b""
        for size in range(least, most + 1):
            parts = [[data] if at < synced else [data, bytes(B)] for at, (_, data) in enumerate(blocks[:size])]
            for chosen in product(*parts):
                yield first + b"".join(chosen)


@pytest.mark.parametrize("seed", range(60))
def test_ext4_allows_exactly_the_folders_of_the_reference(seed: int, tmp_path: Path) -> None:
    program = random_program(seed)
    run = Recorded(tmp_path, lambda t: play(program, t), {"b": b"o" * B}, "ext4")
    allowed = {frozenset((path, data or b"") for path, data in folder.items()) for folder in run.folders()}
    assert allowed == Reference(program).folders(), program
