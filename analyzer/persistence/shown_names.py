"""File names as reports and ids show them: without the parts that differ between two runs of one program.

Process numbers, times, addresses, and what mkstemp and its relatives choose at random are replaced. Images keep the
true names.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from functools import partial
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
_WHOLE = 10  # characters that mktemp(1) and the mkstemp of BSD replace; others replace six
_ANY = "…"
_CLOCK = re.compile(r"\d+[.:]\d[\d.:]*|\d{4}-\d\d-\d\d")  # in what is printed: a time, a duration, a date
_DIGEST = r"(?<![A-Za-z0-9])(?=(?:\d*[a-f]){4})[0-9a-f]{32,}(?![A-Za-z0-9])"  # its digits are no time, nor a process
_DIGITS = re.compile(rf"{_DIGEST}|(?<!\d)\d+(?!\d)")
_PYTHON = re.compile(r"(?<![A-Za-z0-9])tmp[a-z0-9_]{8}(?![A-Za-z0-9_])")  # tempfile
_PYTHON_WORD = re.compile(r"(?<![A-Za-z0-9])[a-z0-9_]{8}(?=[^A-Za-z0-9_]*$|\.[^.]*$)")  # tempfile, with a prefix
_CHOSEN = re.compile(  # wherever it is in a new name
    rf"(?P<digest>{_DIGEST})"  # kept
    r"|(?<!\d)[1-9]\d{9,}(?:\.\d+)?(?!\d)"  # a time
    r"|(?<=0x)[0-9a-f]{8,}"  # an address
    r"|(?<![0-9A-Fa-f])[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[147][0-9A-Fa-f]{3}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}"  # a UUID
    r"|(?<![A-Za-z0-9])(?=[a-z0-9]*\d[a-z]+\d)(?=[a-z0-9]*[g-z])[a-z0-9]{16,}(?![A-Za-z0-9])"  # and no digest
)
_DATE = re.compile(r"(?<!\d)20\d{6}(?=-PID-)")  # in a name of Ruby's Tempfile
_ADDED = re.compile(r"[A-Za-z0-9]{6,}")  # to the name that a file gets at last
_RUN = re.compile(r"[A-Za-z0-9_-]{6,}")  # also base64 for names
_PARTS = re.compile(r"[A-Za-z0-9]+")
_BY_PEOPLE = re.compile(  # what programs add to the name of a file while they write it
    r"(active|atomic|backup|bak|build(ing)?|candidate|commit(ted)?|compact(ed|ing)?|copy|created?|current|download(ing)?|"
    r"draft|dpkg|file|fresh|in|incoming|incomplete|init(ial)?|inprogress|journal|latest|lock|merged?|new|next|old|"
    r"orig(inal)?|out(put)?|part(ial)?|pending|pid|prepared?|previous|progress|recover(y|ed)|renam(e|ing)|replac(e|ing)|"
    r"replacement|rewrit(e|ing|ten)|rotated?|sav(e|ed|ing)|scratch|shadow|snapshot|stag(e|ed|ing)|swa?p|te?mp|te?mpfile|"
    r"temporary|transient|uncommitted|unfinished|unsynced|updat(e|ed|ing)|upload(ing)?|work(ing)?|writ(e|ing|ten)|x{6})\d{0,5}",
    re.IGNORECASE,
)
_LEAST = 3  # letters of a name that may be followed by what was added without a mark between them
_HEX = re.compile(r"(?=.*\d)(?=.*[a-f])[0-9a-f]{8,}")
_CHANGES = 3  # of capitals, small letters and digits: a word with a digit has fewer if a person chose it
_WORD = re.compile(r"[A-Za-z0-9]{6,}(?=[^A-Za-z0-9]*$|\.[^.]*$)")  # at the end, or before an extension


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
        gone = (call for call in name_events(trace) if isinstance(call, Rename | Unlink | RemoveFolder))
        self._gone = frozenset((call.inode, call.folder, call.name) for call in gone)
        left = Counter((call.folder, call.name) for call in name_events(trace) if isinstance(call, Rename))
        self._stable = frozenset(name for name, many in left.items() if many > 1)  # chance does not repeat itself
        self._last: dict[tuple[int, int, str], str] = {}  # the name that a file gets next
        self._before: dict[tuple[int, str, int], list[set[str]]] = {}  # words of the names that files had before it
        for call in name_events(trace):
            if isinstance(call, Rename):
                self._last[call.inode, call.folder, call.name] = call.to_name
                words = _ADDED.findall(call.name)
                seen = self._before.setdefault((call.folder, call.to_name, len(words)), [set() for _ in words])
                for word, others in zip(words, seen, strict=True):
                    others.add(word)
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
        makes = isinstance(call, Create | MakeFolder)
        by_chance = makes and (call.folder, given) not in self._stable
        last = self._last.get((call.inode, call.folder, given)) if by_chance else None
        around = _around(name, last) if last is not None else []
        if around:
            around[::2] = (_RUN.sub(self._without_run, part) for part in around[::2])
            name = "".join(around)
        exclusive = isinstance(call, MakeFolder) or int(trace.events["flags"][call.event]) & CreateFlag.EXCLUSIVE
        private = trace.inodes[call.inode].mode & 0o777 in _PRIVATE
        gone = (call.inode, call.folder, call.name) in self._gone
        temporary = makes and exclusive and (private or gone)  # else as git makes the files of a checkout
        if temporary and private and name == without_process:
            name = self._without_made(name, private, gone)
        if last is not None and not around:
            name = self._without_added(call.folder, given, name, last)
        if temporary and not private and name == without_process:
            name = self._without_made(name, private, gone)
        return name

    def _without_run(self, run: re.Match[str]) -> str:
        masked = _masked(run[0])
        return run[0] if masked != run[0] and self._is_old(run[0]) else masked

    def _without_made(self, name: str, private: bool, gone: bool) -> str:
        """A name without what mkstemp, its relatives and tempfile choose."""
        name = _DATE.sub(_RANDOM, name)
        if _PYTHON.search(name):
            return _PYTHON.sub(f"tmp{_RANDOM}", name)
        chosen = _PYTHON_WORD.search(name) if private and gone else None
        if chosen is not None and not self._is_old(chosen[0]):
            return name[: chosen.start()] + _RANDOM + name[chosen.end() :]
        word = next(filter(partial(self._is_random, name, private), _WORD.finditer(name)), None)
        if word is None:
            return name
        number = word[0][len(word[0].rstrip("0123456789")) :]  # Go's are of up to ten digits
        random = number if len(number) >= len(_RANDOM) else word[0][-len(_RANDOM) :]
        whole = (word.start() and len(word[0]) == _WHOLE) or _has_cases(word[0][: -len(random)])
        if whole or _HEX.fullmatch(word[0]):
            random = word[0]
        return name[: word.end() - len(random)] + _RANDOM + name[word.end() :]

    def _without_added(self, folder: int, given: str, name: str, last: str) -> str:
        """A name without what was added to it at random: the file gets another one that has not got these words."""
        words = _ADDED.findall(given)
        seen = self._before[folder, last, len(words)]
        differs = {word for word, others in zip(words, seen, strict=True) if len(others) > 1}

        def masked(found: re.Match[str]) -> str:
            word = found[0]
            mixed = _changes(word) >= _CHANGES and any(map(str.isdigit, word))
            chance = mixed or _HEX.fullmatch(word) or (word in differs and not word.isdigit())
            return _RANDOM if chance and word != _RANDOM and word not in last and not self._is_old(word) else word

        return _ADDED.sub(masked, name)

    def _is_random(self, name: str, private: bool, word: re.Match[str]) -> bool:
        """A word at the end of a private name, alone, or one that is mixed; not one as in .readme.swp or f.backup."""
        alone = word.end() == len(name) and private and _WORD.search(name, 0, word.start()) is None
        return not self._is_old(word[0]) and (alone or _is_mixed(word[0]))


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
    found = re.fullmatch(f"(.*?)((?<![A-Za-z0-9]){re.escape(stem)}){alone}(.*?)({re.escape(extension)})(.*)", name)
    return list(found.groups()) if found else []


def _masked(run: str) -> str:
    """What was added to a name, without 6 characters or more that no person chose; a counter has leading zeros."""
    by_chance = [one for one in _PARTS.finditer(run) if not _BY_PEOPLE.fullmatch(one[0])]
    start = by_chance[0].start() if by_chance else 0
    end = by_chance[-1].end() if by_chance else 0
    if end - start < len(_RANDOM) or (run[start:end].isdigit() and run[start] == "0"):
        return run
    return run[:start] + _RANDOM + run[end:]


def _is_mixed(word: str) -> bool:
    end = word[-6:]
    return sum((any(map(str.islower, end)), any(map(str.isupper, end)), any(map(str.isdigit, end)))) > 1


def _changes(word: str) -> int:
    """How often capitals, small letters and digits follow each other in a word."""
    kinds = "".join("0" if each.isdigit() else "A" if each.isupper() else "a" for each in word)
    return sum(before != after for before, after in pairwise(kinds))


def _has_cases(word: str) -> bool:
    """Unlike what programs put before the word: d2utmp."""
    return _is_mixed(word) and any(map(str.isupper, word))
