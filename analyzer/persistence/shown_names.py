"""File names as reports and ids show them: without the parts that differ between two runs of one program.

Process numbers, times, addresses, and what mkstemp and its relatives choose at random are replaced. Images keep the
true names.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from os.path import splitext
from weakref import WeakKeyDictionary

import numpy as np

from crashcheck.analyzer.trace.calls import (
    Create,
    MakeFolder,
    NameEvent,
    RemoveFolder,
    Rename,
    RenameExchange,
    Unlink,
    name_events,
)
from crashcheck.analyzer.trace.reader import Trace
from crashcheck.runtime.trace_format import CreateFlag, Kind, Recorder

_PROCESS = "PID"
_RANDOM = "XXXXXX"  # as in the templates of mkstemp
_PRIVATE = (0o600, 0o400, 0o444, 0o700)  # permissions that makers of temporary files and directories give
_ANY = "…"
_CLOCK = re.compile(r"\d+[.:]\d[\d.:]*|\d{4}-\d\d-\d\d")  # in what is printed: a time, a duration, a date
_DIGEST = r"(?<![A-Za-z0-9])(?=(?:\d*[a-f]){4})[0-9a-f]{32,}(?![A-Za-z0-9])"  # its digits are no time, nor a process
_DIGITS = re.compile(rf"{_DIGEST}|(?<!\d)\d+(?!\d)")
_CHOSEN = re.compile(  # wherever it is in a new name
    rf"(?P<digest>{_DIGEST})"  # kept
    r"|(?<!\d)[1-9]\d{9,}(?:\.\d+)?(?!\d)"  # a time
    r"|(?<=0x)[0-9a-f]{8,}"  # an address
    r"|(?<!\d)20\d{6}(?=-PID-)"  # the date of Ruby's Tempfile
    r"|(?<![0-9A-Fa-f])[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[147][0-9A-Fa-f]{3}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}"  # a UUID
    r"|(?<![A-Za-z0-9])(?=[a-z0-9]*\d[a-z]+\d)(?=[a-z0-9]*[g-z])[a-z0-9]{16,}(?![A-Za-z0-9])"  # and no digest
)
_RUN = re.compile(r"[A-Za-z0-9_-]+")  # also base64 for names
_LAST = re.compile(r"[A-Za-z0-9_]{5,}(?!.*[A-Za-z0-9_]{5})")  # as mkstemp and tempfile choose it
_PARTS = re.compile(r"[A-Za-z0-9]+")
_BY_PEOPLE = re.compile(  # what programs add to the name of a file while they write it
    r"(active|atomic|backup|bak|build(ing)?|candidate|commit(ted)?|compact(ed|ing)?|copy|created?|current|download(ing)?|"
    r"draft|dpkg|file|fresh|in|incoming|incomplete|init(ial)?|inprogress|journal|latest|lock|merged?|new|next|old|"
    r"orig(inal)?|out(put)?|part(ial)?|pending|pid|prepared?|previous|progress|recover(y|ed)|renam(e|ing)|replac(e|ing)|"
    r"replacement|rewrit(e|ing|ten)|rotated?|sav(e|ed|ing)|scratch|shadow|snapshot|stag(e|ed|ing)|swa?p|te?mp|te?mpfile|"
    r"temporary|transient|uncommitted|unfinished|unsynced|updat(e|ed|ing)|upload(ing)?|work(ing)?|writ(e|ing|ten))\d{0,5}",
    re.IGNORECASE,
)
_LEAST = 3  # letters of a name that may be followed by what was added without a mark between them
_COUNT = re.compile(r"(?<!\d)\d{1,5}(?!\d)")
_SHORTEST = 5  # characters that somebody leaves to chance
_CAPITALISED = re.compile(r"[A-Z][a-z]+")
_HEX = re.compile(r"(?=.*\d)(?=.*[a-f])[0-9a-f]{8,}")
_CHANGES = 3  # of capitals, small letters and digits: a word with a digit has fewer if a person chose it
_EXTENSION = re.compile(r"\.[a-z]*\d?")
_MADE = re.compile(r"te?mp(?!file|orary)", re.IGNORECASE)  # before what was chosen, without a mark between them


_NUMBER = re.compile(r"\d+")
_HASH = re.compile(r"(?<![A-Za-z0-9])(?=[a-f]*\d)[0-9a-f]{8,}(?![A-Za-z0-9])")


def pattern_of(path: str) -> str:
    """A path without what distinguishes the files of one use: "000#.log" of all logs with numbers, "*" for hashes."""
    return _NUMBER.sub("#", _HASH.sub("*", path))


class ShownNames:
    """The names of one trace. Files that would be shown as the same get numbers, in the order of their creation."""

    def __init__(self, trace: Trace) -> None:
        started = trace.events[trace.events["kind"] == Kind.THREAD_START]
        self._processes = {str(int(pid)) for pid in np.unique(started["payload"]).tolist()}
        self._first = frozenset(
            part for i in trace.inodes.values() if i.existed for p in i.paths for part in p.split("/")
        )
        self._old = "/".join(self._first)
        self._old_patterns = frozenset(_COUNT.sub("#", name) for name in self._first)
        gone = (call for call in name_events(trace) if isinstance(call, Rename | Unlink | RemoveFolder))
        self._gone = frozenset((call.inode, call.folder, call.name) for call in gone)
        moves = [call for call in name_events(trace) if isinstance(call, Rename)]
        left = Counter((call.folder, call.name) for call in moves)
        # chance does not repeat itself, unless a process writes all its files under one name that it chose at first
        self._stable = frozenset(
            (folder, name)
            for (folder, name), many in left.items()
            if many > 1 and not _HEX.fullmatch(splitext(name)[0])
        )
        self._last = {(call.inode, call.folder, call.name): call.to_name for call in moves}  # what a file gets next
        self._shown: dict[str, str] = {}
        self._many: dict[tuple[int, str], int] = {}

        for call in name_events(trace):
            folder, name = _given(call)
            if name not in self._first and name not in self._shown:
                shown = self._without_chance(trace, call, name)
                if shown != name:
                    many = self._many[folder, shown] = self._many.get((folder, shown), 0) + 1
                    self._shown[name] = shown if many == 1 else f"{shown} ({many})"

    @classmethod
    def of(cls, trace: Trace) -> ShownNames:
        """Those of a trace, made once: there may be 10^5 names."""
        if trace not in _KNOWN:
            _KNOWN[trace] = cls(trace)
        return _KNOWN[trace]

    def path(self, path: str) -> str:
        """A path as reports show it."""
        return "/".join(map(self.name, path.split("/")))

    def name(self, name: str) -> str:
        """One part of a path as reports show it."""
        return self._shown.get(name) or (name if name in self._first else self._without_process(name))

    def text(self, text: str) -> str:
        """What was printed, without numbers of processes, times, durations and addresses."""
        return _CLOCK.sub(_ANY, _CHOSEN.sub(lambda found: found["digest"] or _RANDOM, self._without_process(text)))

    def _without_process(self, name: str) -> str:
        return _DIGITS.sub(lambda found: _PROCESS if found[0] in self._processes else found[0], name)

    def _is_old(self, part: str) -> bool:
        """Whether a name that was there before the run has this in it."""
        return part in self._old

    def _without_chance(self, trace: Trace, call: NameEvent, given: str) -> str:
        without_process = self._without_process(given)
        name = _CHOSEN.sub(
            lambda found: found[0] if found["digest"] or self._is_old(found[0]) else _RANDOM, without_process
        )
        used = _COUNT.sub("#", given) in self._old_patterns or (call.folder, given) in self._stable
        if used or not isinstance(call, Create | MakeFolder):
            return name
        last = self._last.get((call.inode, call.folder, given))
        exclusive = isinstance(call, MakeFolder) or int(trace.events["flags"][call.event]) & CreateFlag.EXCLUSIVE
        private = trace.inodes[call.inode].mode & 0o777 in _PRIVATE
        gone = (call.inode, call.folder, call.name) in self._gone
        around = _around(name, last) if last is not None else []
        if around:
            around[::2] = (self._masked(_RUN, part) for part in around[::2])
            return "".join(around)
        if exclusive and (private or gone):  # else as git makes the files of a checkout
            runs, is_chance = _LAST, bool if private and (last is not None or name != given) else _has_kinds
        elif last is not None:
            runs, is_chance = _RUN, _is_mixed
        else:
            return name
        if last is not None and last.startswith(given):  # as logs are put away
            return name
        stem, extension = splitext(name)
        masked = self._masked(runs, stem, is_chance)
        plain = masked != stem and _EXTENSION.fullmatch(extension)
        return masked + extension if plain else self._masked(runs, name, is_chance)

    def _masked(self, runs: re.Pattern[str], name: str, is_chance: Callable[[re.Match[str]], bool] = bool) -> str:
        """A name, or a part of one, without what no person chose in its runs."""
        return runs.sub(
            lambda run: _without_chance(run[0]) if is_chance(run) and not self._is_old(run[0]) else run[0], name
        )


_KNOWN: WeakKeyDictionary[Trace, ShownNames] = WeakKeyDictionary()


def shown_paths(trace: Trace) -> Callable[[str], str]:
    """Paths as reports show them; of a trace without names of files they are the watched ones, as they are."""
    return ShownNames.of(trace).path if trace.recorder is Recorder.SYSCALLS else lambda path: path


def _given(call: NameEvent) -> tuple[int, str]:
    """The name that a call gives, and its directory."""
    if isinstance(call, Rename | RenameExchange):
        return call.to_folder, call.to_name
    return call.folder, call.name


def _around(name: str, last: str) -> list[str]:
    """A name in parts, with stem and extension of the last name at odd places; empty if that is not in there."""
    stem, extension = splitext(last)
    alone = "" if len(stem) >= _LEAST else "(?![A-Za-z0-9])"
    stem, extension = f"[-_]?(?<![A-Za-z0-9]){re.escape(stem)}{alone}[-_]?", re.escape(extension)
    found = re.fullmatch(f"(.*?)({stem})(.*?)({extension and extension + '[-_]?'})(.*)", name)
    return list(found.groups()) if found else []


def _without_chance(run: str) -> str:
    """A run of a temporary name, without what is between its first and last word that no person chose."""
    made = _MADE.match(run)
    if made is not None:
        return made[0] + _without_chance(run[made.end() :])
    words = [*_PARTS.finditer(run)]
    by_chance = [number for number, word in enumerate(words) if not _BY_PEOPLE.fullmatch(word[0])]
    if not by_chance:
        return run
    first, last = by_chance[0], by_chance[-1]
    start = words[first - 1].end() + 1 if first else 0
    end = words[last + 1].start() - 1 if last + 1 < len(words) else len(run)
    is_counter = run[start:end].isdigit() and run[start] == "0"
    return run if end - start < _SHORTEST or is_counter else run[:start] + _RANDOM + run[end:]


def _changes(word: str) -> int:
    """How often capitals, small letters and digits follow each other in a word."""
    kinds = "".join("0" if each.isdigit() else "A" if each.isupper() else "a" for each in word)
    return sum(before != after for before, after in pairwise(kinds))


def _is_mixed(run: re.Match[str]) -> bool:
    """Whether nobody chose a word in it: hexadecimal digits, or kinds of characters that change again and again."""
    words = _PARTS.findall(run[0])
    hexadecimal = any(map(_HEX.fullmatch, words))
    whole = "".join(words)
    changes = _changes(whole)
    return (
        hexadecimal
        or 2 * changes >= len(whole) >= _SHORTEST
        or any(_changes(word) >= _CHANGES and any(map(str.isdigit, word)) for word in words)
    )


def _has_kinds(run: re.Match[str]) -> bool:
    """Whether mkstemp or tempfile have chosen a run, as far as one can see: not a word in one kind of letters, unless
    it is as long as mkstemp's, after a mark."""
    word = run[0]
    if _MADE.match(word) or word.isdigit() or (run.start() and len(word) == len(_RANDOM)):
        return True
    return _changes(word) > 0 and not _CAPITALISED.fullmatch(word)
