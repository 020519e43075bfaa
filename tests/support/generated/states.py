"""Which crash states a program of steps may leave: brute force, from docs/crash-model.md alone.

It knows neither traces nor graphs. After every effect it lists all sets of pieces that are closed under the order of
persistence and hold what must be durable.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from support.generated.steps import (
    PAGE,
    Acknowledge,
    Create,
    Effect,
    Fence,
    Flush,
    FolderSync,
    Life,
    Machine,
    Names,
    Resize,
    Step,
    Sync,
    Update,
)

LINE = 64
WORD = 8
Image = tuple[tuple[str, bytes], ...]
State = tuple[Image, int, int]  # the files, operations ended, bytes printed


class TooManyStatesError(Exception):
    """More sets of pieces than the caller wants listed."""


@dataclass(frozen=True)
class Model:
    name: str  # "px86", "eadr" or "page-cache"
    tear: int = 0
    files: str = "ext4"


@dataclass
class Piece:
    life: Life
    time: int  # of its effect
    data: dict[int, int] = field(default_factory=dict)  # by offset
    how: str = ""
    low: int = 0  # of its granule, of `bytes` bytes, which begins from zeros if `wipes`
    bytes: int = 0
    wipes: bool = False
    size: int | None = None
    by_write: bool = False
    cut: bool = False
    creates: bool = False
    before: int = 0  # pieces that persist before it


@dataclass(frozen=True)
class Instant:
    pieces: int  # how many were issued
    must: int
    names: tuple[tuple[str, Life], ...]
    acked: int
    printed: int


class Crashes:
    def __init__(self, model: Model, first: dict[str, bytes]) -> None:
        self.model = model
        self.machine = Machine.of(first)
        self.memory = model.name != "page-cache"
        self.pieces: list[Piece] = []
        self.must = 0
        self.time = 0
        self.flushed: dict[int, int] = {}  # by thread: what its next fence makes durable
        self.cuts: list[tuple[Life, int, int]] = []  # with time and size
        self.own: set[Life] = set()  # new files that were synced, and whose folder was
        self.folder: set[Life] = set()
        self.acked = self.printed = 0
        self.instants = [self._now()]
        self.counted = self.sets = 0  # instants, and what they hold

    def step(self, step: Step) -> None:
        for effect in self.machine.apply(step):
            self.time += 1
            issued = len(self.pieces)
            self._effect(effect)
            self.instants.append(self._now())
            if self.model.name == "eadr":  # what is visible has persisted when anything else happens
                self._durable(n for n in range(issued, len(self.pieces)) if self.pieces[n].how == "store")

    def _now(self) -> Instant:
        names = tuple(sorted(self.machine.lives().items()))
        return Instant(len(self.pieces), self.must, names, self.acked, self.printed)

    def _durable(self, numbers: Iterator[int]) -> None:
        for number in numbers:
            self.must |= 1 << number | self.pieces[number].before

    def _add(self, piece: Piece, *after: int) -> int:
        for number in after:
            piece.before |= 1 << number | self.pieces[number].before
        self.pieces.append(piece)
        return len(self.pieces) - 1

    def _of(self, life: Life) -> Iterator[tuple[int, Piece]]:
        return ((number, piece) for number, piece in enumerate(self.pieces) if piece.life is life)

    def _effect(self, effect: Effect) -> None:
        match effect:
            case Update():
                (self._store if self.memory else self._dirty)(effect)
            case Resize():
                self._resize(effect)
            case Create(life):
                number = self._add(Piece(life, self.time, creates=True))
                if self.memory:
                    self._durable(iter([number]))
            case Flush(thread, life, offset, at_once):
                line = [
                    n
                    for n, piece in self._of(life)
                    if piece.how == "store" and any(at // LINE == offset // LINE for at in piece.data)
                ]
                if self.model.name == "px86" and at_once:
                    self._durable(iter(line))
                elif self.model.name == "px86":
                    self.flushed[thread] = self.flushed.get(thread, 0) | sum(1 << n for n in line)
            case Fence(thread):
                if self.memory:
                    self._durable(n for n in range(len(self.pieces)) if self.flushed.get(thread, 0) >> n & 1)
                    self.flushed[thread] = 0
            case Sync(ranges):
                for life, low, high in ranges:
                    self._sync(life, low, high)
            case FolderSync():
                self.folder |= {piece.life for piece in self.pieces if piece.creates}
                self._durable_names()
            case Names(lives):
                self._durable(n for n, piece in enumerate(self.pieces) if piece.life in lives)
                if self.model.files == "ext4":  # one journal holds all creations, and sizes that were set
                    self._durable(
                        n
                        for n, piece in enumerate(self.pieces)
                        if piece.creates or (piece.size is not None and not piece.by_write)
                    )
            case Acknowledge(operation):
                self.acked += operation
                self.printed += not operation

    def _store(self, update: Update) -> None:
        """Persistent memory: a piece for each aligned word."""
        words: dict[tuple[Life, int], dict[int, int]] = {}
        for (life, offset), byte in update.cells.items():
            words.setdefault((life, offset // WORD), {})[offset] = byte
        for (life, word), data in words.items():
            after = []
            for number, piece in self._of(life):
                if piece.time == self.time or not piece.data:
                    continue
                other = min(piece.data) // WORD
                same_line = other * WORD // LINE == word * WORD // LINE
                both_ordinary = piece.how == update.how == "store" and self.model.name == "px86"
                if other == word or (same_line and both_ordinary):
                    after.append(number)
            number = self._add(Piece(life, self.time, data, update.how), *after)
            if update.how == "nt":
                self.flushed[update.thread] = self.flushed.get(update.thread, 0) | 1 << number

    def _dirty(self, update: Update) -> None:
        """The page cache: a piece for each page, or sector, whatever the bytes."""
        size = self.model.tear or PAGE
        granules: dict[tuple[Life, int], dict[int, int]] = {}
        for (life, offset), byte in update.cells.items():
            granules.setdefault((life, offset // size), {})[offset] = byte
        for life, page in {(life, granule * size // PAGE * PAGE) for life, granule in granules}:
            if self._begins_anew(life, page, PAGE):  # all its sectors
                for low in range(page, page + PAGE, size):
                    zeros = dict.fromkeys(range(low, low + size), 0)
                    granules[life, low // size] = zeros | granules.get((life, low // size), {})
        for (life, granule), data in sorted(granules.items(), key=lambda item: item[0][1]):
            self._granule(life, granule * size, data, update.how)

    def _begins_anew(self, life: Life, low: int, size: int) -> bool:
        """Whether what is there was cut off, page and all, since it was last written."""
        pieces = [piece for _, piece in self._of(life) if piece.bytes and low <= piece.low < low + size]
        last = max((piece.time for piece in pieces), default=-1)
        return any(of is life and time > last and cut <= low // PAGE * PAGE for of, time, cut in self.cuts)

    def _granule(self, life: Life, low: int, data: dict[int, int], how: str) -> None:
        size = self.model.tear or PAGE
        before = [n for n, piece in self._of(life) if piece.bytes and piece.low == low]
        self._add(Piece(life, self.time, data, how, low, size, self._begins_anew(life, low, size)), *before)

    def _resize(self, resize: Resize) -> None:
        life, old, new = resize.life, resize.old, resize.new
        cut = new < old
        sizes = [new] if cut or self.memory else [*range((old // PAGE + 1) * PAGE, new, PAGE), new]
        if cut and not self.memory and new % PAGE:
            step = self.model.tear or PAGE
            end = new // PAGE * PAGE + PAGE
            for low in range(new // step * step, end, step):
                self._granule(life, low, dict.fromkeys(range(max(low, new), low + step), 0), "zeros")
        if cut:
            self.cuts.append((life, self.time, new))
        for size in sizes:
            before = [n for n, piece in self._of(life) if piece.size is not None]
            piece = Piece(life, self.time, size=size, by_write=resize.by_write, cut=cut)
            number = self._add(piece, *before)
            if self.memory:
                self._durable(iter([number]))

    def _sync(self, life: Life, low: int | None, high: int) -> None:
        first = 0 if low is None else low // PAGE * PAGE
        end = 1 << 62 if low is None else (high + PAGE - 1) // PAGE * PAGE
        self._durable(n for n, piece in self._of(life) if any(first <= at < end for at in piece.data))
        self._durable(n for n, piece in self._of(life) if piece.size is not None)
        self.own.add(life)
        self._durable_names()

    def _durable_names(self) -> None:
        both = self.model.files == "posix"
        there = self.own & self.folder if both else self.own | self.folder
        self._durable(n for n, piece in enumerate(self.pieces) if piece.creates and piece.life in there)

    def count(self, most: int) -> None:
        """Raises TooManyStatesError if all instants up to now have more than `most` sets of pieces."""
        for instant in self.instants[self.counted :]:
            self.sets += len(self._closed(instant, most - self.sets))
        self.counted = len(self.instants)

    def states(self, most: int) -> set[State]:
        """All of them. Raises TooManyStatesError as `count` does."""
        found: set[State] = set()
        contents: dict[tuple[Life, int], bytes | None] = {}
        for now, later in zip(self.instants, [*self.instants[1:], None], strict=True):
            if later and (now.must, now.names, now.acked, now.printed) == (
                later.must, later.names, later.acked, later.printed,
            ):  # fmt: skip
                continue  # its states are among the later one's
            whole = {
                life: sum(1 << n for n, piece in enumerate(self.pieces) if piece.life is life) for _, life in now.names
            }
            for kept in self._closed(now, most):
                image = []
                for name, life in now.names:
                    key = life, kept & whole[life]
                    if key not in contents:
                        contents[key] = self._content(*key)
                    if (content := contents[key]) is not None:
                        image.append((name, content))
                found.add((tuple(image), now.acked, now.printed))
        return found

    def _closed(self, now: Instant, most: int) -> list[int]:
        sets = [0]
        for number, piece in enumerate(self.pieces[: now.pieces]):
            bit = 1 << number
            may = [kept | bit for kept in sets if piece.before & ~kept == 0]
            if now.must & bit:
                assert len(may) == len(sets), "what precedes a durable piece is durable"
                sets = may
            else:
                sets += may
            if len(sets) > most:
                raise TooManyStatesError
        return sets

    def _content(self, life: Life, kept: int) -> bytes | None:
        """What a crash leaves of one file; None: it is not there."""
        mine = list(self._of(life))
        if any(piece.creates and not kept >> n & 1 for n, piece in mine):
            return None
        there = [piece for n, piece in mine if kept >> n & 1]
        size = next((piece.size for piece in reversed(there) if piece.size is not None), len(life.base))
        cuts = [(piece.time, piece.size or 0) for piece in there if piece.cut]
        content = bytearray(max(size, len(life.base)) + PAGE)
        content[: len(life.base)] = life.base
        done = -1
        for piece in sorted((p for p in there if p.data), key=lambda piece: piece.time):
            _cut(content, cuts, done, piece.time)
            done = piece.time
            if piece.wipes:
                content[piece.low : piece.low + piece.bytes] = bytes(len(content[piece.low : piece.low + piece.bytes]))
            for at, byte in piece.data.items():
                if at < len(content):
                    content[at] = byte
        _cut(content, cuts, done, self.time + 1)
        return bytes(content[:size])


def _cut(content: bytearray, cuts: list[tuple[int, int]], since: int, until: int) -> None:
    """What was cut off after `since` and up to `until` shows no more."""
    for time, size in cuts:
        if since < time <= until:
            content[size:] = bytes(max(0, len(content) - size))
