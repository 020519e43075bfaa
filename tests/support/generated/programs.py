"""Random programs of steps, with a bounded number of crash states."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from support.generated.states import Crashes, Model, State, TooManyStatesError
from support.generated.steps import MASKS, PAGE, UNWATCHED, WATCHED, Machine, Step, masked_bytes

MOST_SETS = 4000  # sets of pieces at all instants of a program

# How often each operation is tried, for programs that map memory and for those that write files.
MEMORY = {
    "store": 24, "copy": 6, "set": 2, "nt": 8, "masked": 8, "locked": 5, "flush": 14, "fence": 9, "write": 3,
    "msync": 3, "fsync": 2, "truncate": 2, "map": 2, "names": 1, "open": 1, "dirsync": 1, "mark": 5, "print": 2,
}  # fmt: skip
FILES = {
    "store": 10, "copy": 6, "set": 4, "nt": 2, "masked": 3, "locked": 1, "flush": 1, "fence": 1, "write": 16,
    "msync": 7, "fsync": 7, "truncate": 9, "map": 3, "names": 5, "open": 6, "dirsync": 4, "mark": 5, "print": 2,
}  # fmt: skip
# Masked stores by the feature that they need.
MASKS_OF = {"": "m", "avx2": "abcdef", "avx512bw": "ABCDEFGH"}


def features() -> frozenset[str]:
    """What this processor has."""
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("flags"):
            return frozenset(line.split())
    return frozenset()


@dataclass(frozen=True)
class Program:
    seed: int
    first: dict[str, bytes]
    steps: list[Step]


def generate(seed: int, models: tuple[Model, ...], has: frozenset[str]) -> Program:
    """The program of a seed, of few enough sets of pieces to list them all under each model."""
    rng = random.Random(seed)
    writer = _Writer(rng, has, FILES if models[0].name == "page-cache" else MEMORY)
    first = {name: bytes(data) for name, data in writer.first.items()}
    crashes = [Crashes(model, first) for model in models]
    steps: list[Step] = []
    wanted, refused = rng.randrange(8, 28), 0
    while len(steps) < wanted and refused < 6:
        marks = list(writer.marks)
        more = writer.next()
        try:
            for some in crashes:
                for step in more:
                    some.step(step)
                some.count(MOST_SETS)
            steps += more
        except TooManyStatesError:  # as if it had not been chosen
            refused += 1
            crashes = [Crashes(model, first) for model in models]
            writer.machine, writer.marks = Machine.of(first), marks
            for step in steps:
                writer.machine.apply(step)
                for some in crashes:
                    some.step(step)
                    some.count(MOST_SETS)
    return Program(seed, first, steps)


def expected(program: Program, model: Model) -> set[State]:
    crashes = Crashes(model, program.first)
    for step in program.steps:
        crashes.step(step)
    return crashes.states(MOST_SETS)


@dataclass
class _Writer:
    """Chooses steps that the driver can execute: it follows each on a machine of its own."""

    rng: random.Random
    has: frozenset[str]
    weights: dict[str, int]
    first: dict[str, bytes] = field(init=False)
    machine: Machine = field(init=False)
    marks: list[int] = field(default_factory=list)  # threads inside an operation
    begun: bool = False

    def __post_init__(self) -> None:
        sizes = [100, 4096, 4096, 5000, 8192, 8192, 12288]
        there = self.rng.sample(WATCHED, self.rng.choice([1, 2, 2, 3]))
        if self.rng.random() < 0.3:
            there.append(UNWATCHED)
        self.first = {name: self.rng.randbytes(self.rng.choice(sizes)) for name in sorted(there)}
        self.machine = Machine.of(self.first)

    def next(self) -> list[Step]:
        """One step, or the few that set a program up."""
        if not self.begun:
            self.begun = True
            steps: list[Step] = [
                (0, "open", handle, name, self.rng.choice(["", "", "", "s", "a"]))
                for handle, name in enumerate(self.first, 1)
            ]
            for step in steps:
                self.machine.apply(step)
            for _ in range(self.rng.randrange(1, 4)):
                if found := self._map():
                    self.machine.apply(found)
                    steps.append(found)
            return steps
        while True:
            operation = self.rng.choices(list(self.weights), list(self.weights.values()))[0]
            choose: Callable[[], Step | None] = getattr(self, f"_{operation}")
            if step := choose():
                self.machine.apply(step)
                return [step]

    def _thread(self) -> int:
        return self.rng.choice([0, 0, 0, 1, 2])

    # Addresses.
    def _valid(self, at: int) -> bool:
        where = self.machine.pages.get(at // PAGE)
        return where is not None and where[1] * PAGE + at % PAGE < len(where[0].content)

    def _once(self, addresses: list[int]) -> bool:
        """All of these bytes can be written, and none is mapped twice among them."""
        if not all(self._valid(at) for at in addresses):
            return False
        pages = self.machine.pages
        cells = {(id(pages[at // PAGE][0]), pages[at // PAGE][1] * PAGE + at % PAGE) for at in addresses}
        return len(cells) == len(addresses)

    def _place(self, size: int, align: int = 1) -> int | None:
        """Often near a border of pages, near the end of a file or near the start of a page, so that steps meet."""
        if not self.machine.pages:
            return None
        for _ in range(8):
            page = self.rng.choice(list(self.machine.pages)) * PAGE
            near = self.rng.random()
            if near < 0.35:
                at = page + PAGE - self.rng.randrange(1, size + 16)
            elif near < 0.45:
                file, number = self.machine.pages[page // PAGE]
                at = page + max(0, len(file.content) - number * PAGE - self.rng.randrange(1, size + 8))
            else:
                at = page + self.rng.choice([0, 64, 64, 512, 2048]) + self.rng.randrange(0, 24) - 8
            at = max(0, at // align * align)
            if self._once(list(range(at, at + size))):
                return at
        return None

    # Operations; each returns nothing if it is not possible now.
    def _store(self) -> Step | None:
        sizes = [*range(1, 17), 8, 8, 8, 4, 4, 2] + [32] * ("avx" in self.has) + [64] * ("avx512f" in self.has)
        size = self.rng.choice(sizes)
        at = self._place(size)
        return None if at is None else (self._thread(), "store", at, self.rng.randbytes(size))

    def _copy(self) -> Step | None:
        size = self.rng.choice([1, 7, 8, 13, 16, 24, 30, 40])
        at = self._place(size)
        return None if at is None else (self._thread(), self.rng.choice(["copy", "move"]), at, self.rng.randbytes(size))

    def _set(self) -> Step | None:
        small = self.weights is MEMORY
        size = self.rng.choice([3, 8, 20] if small else [3, 8, 20, 600, 4096, 5000])
        at = self._place(size)
        return None if at is None else (self._thread(), "set", at, size, self.rng.randrange(256))

    def _nt(self) -> Step | None:
        size = self.rng.choice([4, 8, 8, 16] + [32] * ("avx" in self.has) + [64] * ("avx512f" in self.has))
        at = self._place(size, size if size > 8 else 1)
        return None if at is None else (self._thread(), "nt", at, self.rng.randbytes(size))

    def _masked(self) -> Step | None:
        kind = self.rng.choice("".join(kinds for need, kinds in MASKS_OF.items() if not need or need in self.has))
        lanes, size, _ = MASKS[kind]
        many = self.rng.choice([0, 1, 2, 2, 3, 4])
        on = self.rng.sample(range(lanes), min(many, lanes))
        mask = "".join("1" if lane in on else "0" for lane in range(lanes))
        data = self.rng.randbytes(lanes * size)
        at = self._place(lanes * size if kind == "m" else size)
        if at is None or not self._once(list(masked_bytes(kind, at, mask, data))):
            return None
        return self._thread(), "masked", kind, at, mask, data

    def _locked(self) -> Step | None:
        size = self.rng.choice([1, 2, 4, 8, 8])
        at = self._place(size, size)
        how = self.rng.choice("xasrfc")
        return None if at is None else (self._thread(), "locked", how, at, size, self.rng.randrange(1 << 8 * size))

    def _flush(self) -> Step | None:
        at = self._place(1)
        how = self.rng.choice(["clflush"] + [name for name in ("clwb", "clwb", "clflushopt") if name in self.has])
        return None if at is None else (self._thread(), how, at)

    def _fence(self) -> Step | None:
        return self._thread(), self.rng.choice(["sfence", "sfence", "mfence", "lock"])

    def _handle(self) -> int | None:
        return self.rng.choice(list(self.machine.handles)) if self.machine.handles else None

    def _write(self) -> Step | None:
        handle = self._handle()
        if handle is None:
            return None
        file, flags = self.machine.handles[handle]
        end = len(file.content)
        near = self.rng.choice([0, 64, 500, PAGE - 10, PAGE - 3, PAGE, 2 * PAGE - 5, end - 5, end, end, end + 20])
        how = self.rng.choice("pppvvvwds")
        many = 1 if how == "w" else self.rng.randrange(1, 5)
        parts = [self.rng.randbytes(self.rng.choice([1, 3, 4, 8, 11, 24])) for _ in range(many)]
        if end > 6 * PAGE or near > end + PAGE:
            return None
        offset = max(0, near) if "a" not in flags else end
        if self.weights is MEMORY and end < offset + sum(map(len, parts)) and self.rng.random() < 0.6:
            return None
        return self._thread(), "write", handle, offset, how, *parts

    def _msync(self) -> Step | None:
        pages = [page for page in self.machine.pages if self._valid(page * PAGE)]
        if not pages:
            return None
        page = self.rng.choice(pages)
        many = 1
        while page + many in self.machine.pages and self.rng.random() < 0.5:
            many += 1
        size = (many - 1) * PAGE + self.rng.choice([1, 8, PAGE])
        return self._thread(), self.rng.choice(["msync", "msync", "msync", "async"]), page * PAGE, size

    def _fsync(self) -> Step | None:
        handle = self._handle()
        return None if handle is None else (self._thread(), self.rng.choice(["fsync", "fdatasync"]), handle)

    def _truncate(self) -> Step | None:
        handle = self._handle()
        if handle is None:
            return None
        size = len(self.machine.handles[handle][0].content)
        if self.rng.random() < 0.2:
            return self._thread(), "allocate", handle, self.rng.choice([0, size, 4096]), self.rng.choice([10, 4096])
        choices = [0, 100, 600, 4096, 4100, size + 10, size + 4096, size + 9000, size // 2, max(0, size - 7)]
        wanted = self.rng.choice([n for n in choices if n <= 6 * PAGE])
        return self._thread(), "truncate", handle, wanted

    def _map(self) -> Step | None:
        handle = self._handle()
        if handle is None:
            return None
        if self.begun and self.machine.pages and self.rng.random() < 0.15:
            return self._thread(), "unmap", self.rng.choice(list(self.machine.pages)), 1
        pages = len(self.machine.handles[handle][0].content) // PAGE + 1
        slot = self.rng.randrange(0, 5)
        page = self.rng.randrange(0, pages)
        return self._thread(), "map", slot, handle, page, self.rng.randrange(1, 3)

    def _open(self) -> Step | None:
        handle = self.rng.randrange(1, 5)
        name = self.rng.choice([*WATCHED, *WATCHED, UNWATCHED])
        flags = self.rng.choice(["c", "c", "c", "ct", "cs", "ca"])
        return self._thread(), "open", handle, name, flags

    def _names(self) -> Step | None:
        names = sorted(self.machine.names)
        if not names:
            return None
        name = self.rng.choice(names)
        if self.rng.random() < 0.4:
            return self._thread(), "unlink", name
        to = self.rng.choice([n for n in (*WATCHED, UNWATCHED) if n != name])
        return self._thread(), "rename", name, to

    def _dirsync(self) -> Step | None:
        return self._thread(), "dirsync"

    def _mark(self) -> Step | None:
        if self.marks:
            return self.marks.pop(), "end"
        self.marks.append(self._thread())
        return self.marks[0], "begin"

    def _print(self) -> Step | None:
        return self._thread(), "print"
