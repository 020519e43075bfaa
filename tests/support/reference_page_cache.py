"""What may survive a crash with a page cache, computed the slow way from crash-model.md alone (reference.py)."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

from support.reference import (
    PAGE,
    First,
    Image,
    Order,
    Program,
    State,
    acknowledged,
    completed_syncs,
    in_range,
    issued,
    last_names,
    pieces,
)


def page_cache_order(program: Program) -> Order:
    """Rules 1 and 2 for the data of files that never shrink."""
    everything = pieces(program, len(program))
    syncs = completed_syncs(program)

    def page(p: Any) -> Any:
        return everything[p][0], everything[p][1] // PAGE

    durable_after: dict[Any, int] = {}
    for begin, end, step in syncs:
        if not step[7]:
            covered = [p for p in everything if p[0] < begin and in_range(step, *everything[p][:2])]
            for p in covered:
                latest = max(other[0] for other in covered if page(other) == page(p))
                failed = [(b, e) for b, e, s in syncs if s[7] and in_range(s, *everything[p][:2])]
                if not any(b < end and latest < e for b, e in failed):
                    durable_after[p] = min(end, durable_after.get(p, end))
    return set(), durable_after


class _History:
    """The contents that each granule had, and the sizes and names of each file, after every event."""

    ROOM = 5 * PAGE

    def __init__(self, first: First, program: Program, granule: int) -> None:
        self.first = first
        self.program = program
        self.granule = granule
        self.syncs = completed_syncs(program)
        self.live = {f: self._filled(c) for f, c in first.items()}
        self.size: dict[str, int] = {f: len(c or b"") for f, c in first.items()}
        self.versions: dict[tuple[str, int], list[tuple[int, bytes]]] = {}  # granule: (event, content after it)
        self.sizes: dict[str, list[tuple[int, int, int]]] = {f: [] for f in first}  # (event, old, new)
        self.created: dict[str, list[int]] = {f: [] for f in first}
        self.base: dict[tuple[str, int], bytes | None] = {}  # what a change of names left, for good, in a file
        self.dropped: set[tuple[str, int]] = set()  # pages whose blocks were given back and not written since
        for event, step in enumerate(program):
            if step[1] == "create":
                self.created[step[2]].append(event)
            elif step[1] == "truncate":
                self._truncate(event, step[2], step[3])
            elif step[1] in ("unlink", "rename"):
                self._name(event, step[2:])
            elif step[1] in ("store", "write"):
                self._write(event, step[2], step[3], step[4], extends=step[1] == "write")
        self.granules = sorted(self.versions)
        self.files = sorted(first)

    def _filled(self, content: bytes | None) -> bytearray:
        return bytearray((content or b"").ljust(self.ROOM, b"\0"))

    def _updated(self, file: str, low: int, high: int, event: int) -> None:
        for at in range(low // self.granule * self.granule, high, self.granule):
            self.versions.setdefault((file, at), []).append((event, bytes(self.live[file][at : at + self.granule])))

    def _truncate(self, event: int, file: str, new: int) -> None:
        old = self.size[file]
        if new != old:
            self.sizes[file].append((event, old, new))
            self.size[file] = new
        if new < old:
            self.live[file][new:] = bytes(self.ROOM - new)
            stop = -(-new // PAGE) * PAGE
            self.dropped |= {(file, page) for page in range(stop, self.ROOM, PAGE)}
            if min(stop, old) > new:
                self._updated(file, new, min(stop, old), event)

    def _name(self, event: int, files: tuple[Any, ...]) -> None:
        for file in files:
            content = issued(self.first, self.program, event + 1)[file]
            self.base[file, event] = content
            self.live[file] = self._filled(content)
            self.size[file] = len(content or b"")

    def _write(self, event: int, file: str, at: int, data: bytes, *, extends: bool) -> None:
        end = at + len(data)
        if extends and end > self.size[file]:
            self.sizes[file].append((event, self.size[file], end))
            self.size[file] = end
        self.live[file][at:end] = data
        for page in range(at // PAGE * PAGE, end, PAGE):
            if (file, page) in self.dropped:
                self.dropped.remove((file, page))
                self._updated(file, page, page + PAGE, event)
            else:
                self._updated(file, max(at, page), min(end, page + PAGE), event)

    # -- what a crash before an event may leave

    def choices(self, crash: int, posix: bool) -> list[list[Any]]:
        """Of each granule its contents, then of each file its sizes, and whether it exists."""
        named = last_names(self.program, crash)
        journal = max(named.values(), default=-1) if not posix else -1
        out: list[list[Any]] = [self._contents(*key, named.get(key[0], -1), crash) for key in self.granules]
        for file in self.files:
            since = named.get(file, -1)
            out.append(self._lengths(file, since, crash, journal))
            out.append(self._existences(file, since, crash, journal, posix))
        return out

    def _at_first(self, file: str, since: int) -> bytes | None:
        """The content that a file had when names last changed (`since`), or before the program."""
        return self.base[file, since] if since >= 0 else self.first[file]

    def _contents(self, file: str, at: int, since: int, crash: int) -> list[Any]:
        happened = [v for v in self.versions[file, at] if since < v[0] < crash]
        least = 0
        for begin, end, step in self.syncs:
            if not step[7] and end < crash and in_range(step, file, at) and not self._is_clean(file, at, begin, end):
                least = max(least, sum(v[0] < begin for v in happened))
        return [happened[n - 1] if n else None for n in range(least, len(happened) + 1)]

    def _is_clean(self, file: str, at: int, begin: int, end: int) -> bool:
        """Whether a failed sync has left the page clean for a sync from `begin` to `end` (rule 2)."""
        page = at // PAGE * PAGE
        updates = [
            event
            for (other, low), versions in self.versions.items()
            for event, _ in versions
            if other == file and low // PAGE * PAGE == page
        ]
        return any(
            bad[7]
            and b < end
            and in_range(bad, file, at)
            and any(u < e for u in updates if u < begin)
            and not any(e < u < begin for u in updates)
            for b, e, bad in self.syncs
        )

    def _lengths(self, file: str, since: int, crash: int, journal: int) -> list[Any]:
        """(how many changes of the size have persisted, the size): an extension may stop at any page."""
        steps = [s for s in self.sizes[file] if since < s[0] < crash]
        # one journal: a size that was changed by itself before names changed
        alone = [n + 1 for n, s in enumerate(steps) if s[0] < journal and self.program[s[0]][1] == "truncate"]
        least = max(alone, default=0)
        for begin, end, step in self.syncs:
            if end < crash and not step[7] and step[2] != "dirsync" and step[3] in (file, None):
                least = max(least, sum(s[0] < begin for s in steps))
        some: list[Any] = []
        for n in range(least, len(steps) + 1):
            some.append((n, steps[n - 1][2] if n else len(self._at_first(file, since) or b"")))
            if n < len(steps):
                some += [(n, stop) for stop in range(0, steps[n][2], PAGE) if stop > steps[n][1]]
        return some

    def _existences(self, file: str, since: int, crash: int, journal: int, posix: bool) -> list[Any]:
        made = [event for event in self.created[file] if since < event < crash]
        if self._at_first(file, since) is not None or not made:
            return [self._at_first(file, since) is not None]
        return (
            [True] if any(e < journal or self._name_is_synced(file, e, crash, posix) for e in made) else [False, True]
        )

    def _name_is_synced(self, file: str, event: int, crash: int, posix: bool) -> bool:
        done = [s for begin, end, s in self.syncs if event < begin and end < crash and not s[7]]
        own = any(s[2] != "dirsync" and s[3] in (file, None) for s in done)
        folder = any(s[2] in ("dirsync", "sync") for s in done)
        return (own and folder) if posix else (own or folder)

    # -- the image of some choices

    def image(self, crash: int, picked: tuple[Any, ...]) -> Image:
        named = last_names(self.program, crash)
        contents = dict(zip(self.granules, picked[: len(self.granules)], strict=True))
        rest = picked[len(self.granules) :]
        return tuple(
            (file, self._bytes(file, named.get(file, -1), contents, *size) if exists else None)
            for file, size, exists in zip(self.files, rest[::2], rest[1::2], strict=True)
        )

    def _bytes(self, file: str, since: int, contents: dict[tuple[str, int], Any], taken: int, length: int) -> bytes:
        body = self._filled(self._at_first(file, since))
        cuts = [(e, new) for e, old, new in [s for s in self.sizes[file] if s[0] > since][:taken] if new < old]
        for _, new in cuts:
            body[new:] = bytes(self.ROOM - new)
        for (other, low), version in contents.items():
            if other == file and version is not None:
                body[low : low + self.granule] = self._cut(low, *version, cuts)
        return bytes(body[:length])

    def _cut(self, low: int, event: int, content: bytes, cuts: list[tuple[int, int]]) -> bytes:
        """A granule's content after an event, less what later changes of the size have cut off."""
        part = bytearray(content)
        for cut, new in cuts:
            if cut > event and new < low + self.granule:
                keep = max(new - low, 0)
                part[keep:] = bytes(len(part) - keep)
        return bytes(part)


def page_cache(
    first: First, program: Program, tear: int = 0, posix: bool = False, limit: int = 1 << 30
) -> set[State] | None:
    """Rules 1 to 6, by the contents that each page had at each instant. None if more than `limit` combinations."""
    history = _History(first, program, tear or PAGE)
    plans = [(crash, history.choices(crash, posix)) for crash in range(len(program) + 1)]
    if sum(math.prod(map(len, choices)) for _, choices in plans) > limit:
        return None
    return {
        (history.image(crash, picked), *acknowledged(program, crash))
        for crash, choices in plans
        for picked in product(*choices)
    }
