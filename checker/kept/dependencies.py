"""What followed runs of a check depended on, and what that is like now.

Contents, names, kinds and permissions of files count; their times do not. A file that changed after the search began,
or changes while it lasts, makes what was run meanwhile useless: nobody knows which of its contents a run has seen.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import time
from dataclasses import dataclass
from pathlib import Path

_OPENED, _FOLLOWED, _ITSELF, _ASKED, _UNKEPT = "o", "s", "l", "c", "x"  # records of runtime/inputs
_CHANGES = "it may change "
_NOTHING = re.compile(r"/dev/(null|zero|full)|/proc/(self|thread-self|\d+)/(maps|exe|fd/\d+)")  # its own
_RANDOM = re.compile(r"/dev/u?random")
_CHANGING = re.compile(r"/dev/(?!shm/)|/proc/(?!cpuinfo$|cmdline$|filesystems$|version$|sys/)")
_NO_TIMES = re.compile(r"/(proc|sys)/")  # files whose times mean nothing
_SETTLED_NS = 20_000_000  # a file's time may lag behind the clock by less than that

Listing = tuple[str, ...]  # of records, sorted


@dataclass(frozen=True, slots=True)
class Unkept:
    """Why a verdict is not kept."""

    why: str


@dataclass(frozen=True, slots=True)
class _Now:
    """What a record names: `state` as it is in a key, `identity` as long as nobody touches it."""

    state: bytes
    identity: object
    settled: bool  # it did not change after the search began


class Dependencies:
    """Records of runs as listings, and the state of listings. `own`: files of this recording, which each run has."""

    def __init__(self, own: tuple[Path, ...]) -> None:
        # constant
        self._own = {str(path) for path in own}
        self._began_ns = time.time_ns() - _SETTLED_NS
        # changing
        self._listings: dict[bytes, Listing | Unkept] = {}
        self._states: dict[Listing, bytes] = {}
        self._now: dict[str, _Now] = {}
        self._contents: dict[object, bytes] = {}

    def listing(self, records: bytes) -> Listing | Unkept:
        """The records of one run, in a form that is equal for equal ones; or why its verdict must not be kept."""
        known = self._listings.get(records)
        if known is None:
            known = self._listings[records] = self._listed(records)
        return known

    def _listed(self, records: bytes) -> Listing | Unkept:
        found: set[str] = set()
        for record in os.fsdecode(records).split("\0")[:-1]:
            letter, text = record[:1], record[1:]
            if text.removeprefix(_CHANGES) in self._own:
                continue
            if letter == _UNKEPT:
                return Unkept(text)
            if letter != _ASKED:
                if _NOTHING.fullmatch(text):
                    continue
                if _RANDOM.fullmatch(text):
                    return Unkept("it reads random numbers")
                if _CHANGING.match(text):
                    return Unkept(f"it uses {text}")
            found.add(record)
        return tuple(sorted(found))

    def state(self, listing: Listing) -> bytes | None:
        """16 bytes, equal while everything in the listing is; None if something changed after the search began."""
        known = self._states.get(listing)
        if known is None:
            digest = hashlib.blake2b(digest_size=16)
            for record in listing:
                now = self._of(record)
                if not now.settled:
                    return None
                digest.update(os.fsencode(record) + b"\0" + now.state + b"\0")
            known = self._states[listing] = digest.digest()
        return known

    def unchanged(self) -> bool:
        """Whether everything whose state was asked for is as it was then."""
        return all(self._seen(record).identity == now.identity for record, now in self._now.items())

    def _of(self, record: str) -> _Now:
        if record not in self._now:
            self._now[record] = self._seen(record)
        return self._now[record]

    def _seen(self, record: str) -> _Now:
        letter, path = record[:1], record[1:]
        if letter == _ASKED:
            answer = repr(tuple(os.uname()) if path == "uname" else sorted(os.sched_getaffinity(0))).encode()
            return _Now(answer, answer, settled=True)
        try:
            status = os.lstat(path) if letter == _ITSELF else os.stat(path)
            return self._status_of(letter, path, status)
        except (OSError, ValueError) as error:
            missing = str(error.errno if isinstance(error, OSError) else 0).encode()
            return _Now(missing, missing, settled=True)

    def _status_of(self, letter: str, path: str, status: os.stat_result) -> _Now:
        mode = b"%o " % status.st_mode
        settled = status.st_ctime_ns < self._began_ns
        times = status.st_dev, status.st_ino, mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns
        if stat.S_ISLNK(status.st_mode):
            target = mode + os.fsencode(os.readlink(path))
            return _Now(target, target, settled=True)
        if stat.S_ISDIR(status.st_mode) and letter == _OPENED:
            names = mode + b"\0".join(sorted(map(os.fsencode, os.listdir(path))))
            return _Now(names, names, settled)
        if not stat.S_ISREG(status.st_mode):
            return _Now(mode, mode, settled=True)
        if _NO_TIMES.match(path):
            content = mode + _content(path)
            return _Now(content, content, settled=True)
        if times not in self._contents:
            self._contents[times] = mode + _content(path)
        return _Now(self._contents[times], times, settled)


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").digest()
