"""Litmus programs as scripts for the virtual machine, with what drives write-back between their calls.

A kernel writes a page back after 30 seconds and commits its journal after 5; a schedule does both at chosen moments.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from crashcheck.runtime.trace_format import OutputKind, SyncKind
from support.litmus.file_systems import Litmus

BLOCK = 4096
ROOT = "/mnt"


class Calls:
    """In place of a CallsBuilder: notes the calls of a litmus program as lines of a script."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.pages: dict[str, int] = {}  # of each file: how many blocks it had at most

    def open(self, path: str) -> None:
        self._add("create", path)

    def write(self, path: str, at: int, data: bytes) -> None:
        if data != data[:1] * len(data):
            raise ValueError("a litmus program writes one byte many times")
        self.pages[path] = max(self.pages.get(path, 0), -(-(at + len(data)) // BLOCK))
        self._add("write", path, at, len(data), data[0])

    append = write

    def truncate(self, path: str, size: int) -> None:
        self._add("truncate", path, size)

    def allocate(self, path: str, at: int, size: int, mode: int = 0) -> None:
        self._add("allocate", path, mode, at, size)

    def mkdir(self, path: str) -> None:
        self._add("mkdir", path)

    def rmdir(self, path: str) -> None:
        self._add("rmdir", path)

    def move(self, path: str, to: str) -> None:
        self.pages[to] = self.pages.pop(path, 1)
        self._add("rename", path, to)

    def exchange(self, path: str, to: str) -> None:
        self._add("exchange", path, to)

    def link(self, path: str, to: str) -> None:
        self._add("link", path, to)

    def remove(self, path: str) -> None:
        self._add("unlink", path)

    def fsync(self, path: str) -> None:
        self._add("fsync", path or ".")

    def fdatasync(self, path: str) -> None:
        self._add("fdatasync", path or ".")

    def sync_all(self) -> None:
        self._add("sync")

    def sync(self, kind: SyncKind, path: str, at: int = 0, size: int = 0) -> None:
        """What O_SYNC or O_DSYNC did for the last write."""
        ways = {SyncKind.OSYNC: "write-sync", SyncKind.ODSYNC: "write-dsync"}
        if not self.lines[-1].startswith(f"write {path} "):
            raise ValueError(f"no write to {path} before its sync")
        self.lines[-1] = ways[kind] + self.lines[-1].removeprefix("write")

    def acknowledge(self, kind: OutputKind, data: bytes = b"") -> None:
        self._add("mark", "acknowledged")

    def _add(self, *words: object) -> None:
        self.lines.append(" ".join(map(str, words)))


@dataclass(frozen=True, slots=True)
class Run:
    """One schedule of a litmus program, in a folder of its own."""

    litmus: Litmus
    folder: str


def script(programs: list[Litmus], schedules: int, seed: int) -> tuple[list[Run], list[str]]:
    """All runs, and the script that makes them: each program under so many schedules."""
    runs, lines = list[Run](), list[str]()
    for number in range(schedules):
        for litmus in programs:
            run = Run(litmus, f"r{len(runs)}")
            runs.append(run)
            lines += _lines(run, number, random.Random(f"{seed} {litmus.name} {number}"))
    return runs, lines


def _lines(run: Run, number: int, choose: random.Random) -> list[str]:
    calls = Calls()
    run.litmus.program(calls)  # type: ignore[arg-type]
    first = Calls()
    for path, content in run.litmus.first.items():
        if content is None:
            first.mkdir(path)
        else:
            first.open(path)
            if content:
                first.write(path, 0, content)
    busy = number % 3 == 2  # another process commits the journal all the time
    between = _quiet if number == 0 else _driven
    out = [f"mkdir {ROOT}/{run.folder}", f"cd {ROOT}/{run.folder}", *first.lines, "sync", f"mark begin-{run.folder}"]
    out += ["churn 1"] if busy else []
    pages = first.pages | calls.pages
    for call in calls.lines:
        out += [call, *between(pages, choose)]
    if number:
        out += [line for _ in range(3) for line in _driven(pages, choose)]
    return [*out, *(["churn 0"] if busy else []), "sync", f"mark end-{run.folder}"]


_Between = Callable[[dict[str, int], random.Random], list[str]]


def _quiet(pages: dict[str, int], choose: random.Random) -> list[str]:
    return []


def _driven(pages: dict[str, int], choose: random.Random) -> list[str]:
    """Nothing, a pause, a commit of the journal, some pages written back, or several of these."""
    out = []
    while choose.random() < 0.6:
        kind = choose.choice(["nap", "commit", "commit", "push", "push", "push"])
        if kind == "push" and pages:
            path = choose.choice(sorted(pages))
            block = choose.randrange(pages[path])
            many = choose.choice([1, 1, pages[path] - block])
            out.append(f"push {path} {block * BLOCK} {many * BLOCK}")
        elif kind == "nap":
            out.append(f"nap {choose.choice([500, 2000])}")
        else:
            out.append("commit")
    return out
