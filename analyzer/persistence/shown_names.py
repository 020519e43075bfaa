"""File names as reports and ids show them: without the parts that differ between two runs of one program.

Process numbers, and what mkstemp and its relatives choose at random, are replaced. Images keep the true names.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from crashcheck.analyzer.trace.calls import Create, Rename, Unlink, name_events
from crashcheck.analyzer.trace.reader import Trace
from crashcheck.runtime.trace_format import CreateFlag, Kind, Recorder

_PROCESS = "PID"
_RANDOM = "XXXXXX"  # as in the templates of mkstemp
_PRIVATE = (0o600, 0o400, 0o444)  # permissions that makers of temporary files give
_DIGITS = re.compile(r"(?<!\d)\d+(?!\d)")
_PYTHON = re.compile(r"(?<![A-Za-z0-9])tmp[a-z0-9_]{8}(?![A-Za-z0-9_])")  # tempfile
_WORD = re.compile(r"[A-Za-z0-9]{6,}(?=[^A-Za-z0-9]*$|\.[^.]*$)")  # at the end, or before an extension


class ShownNames:
    """The names of one trace. Files that would be shown as the same get numbers, in the order of their creation."""

    def __init__(self, trace: Trace) -> None:
        started = trace.events[trace.events["kind"] == Kind.THREAD_START]
        self._processes = {str(int(pid)) for pid in np.unique(started["payload"]).tolist()}
        self._trace = trace
        self._first = frozenset(
            part for i in trace.inodes.values() if i.existed for p in i.paths for part in p.split("/")
        )
        gone = (call for call in name_events(trace) if isinstance(call, Rename | Unlink))
        self._gone = frozenset((call.inode, call.folder, call.name) for call in gone)
        self._shown: dict[str, str] = {}
        self._many: dict[tuple[int, str], int] = {}

        for call in name_events(trace):
            if isinstance(call, Create) and call.name not in self._first and call.name not in self._shown:
                shown = self._without_chance(call)
                if shown != call.name:
                    many = self._many[call.folder, shown] = self._many.get((call.folder, shown), 0) + 1
                    self._shown[call.name] = shown if many == 1 else f"{shown} ({many})"

    def path(self, path: str) -> str:
        """A path as reports show it."""
        return "/".join(map(self.name, path.split("/")))

    def name(self, name: str) -> str:
        """One part of a path as reports show it."""
        return self._shown.get(name) or (name if name in self._first else self._without_process(name))

    def _without_process(self, name: str) -> str:
        return _DIGITS.sub(lambda found: _PROCESS if found[0] in self._processes else found[0], name)

    def _without_chance(self, call: Create) -> str:
        name = self._without_process(call.name)
        exclusive = int(self._trace.events["flags"][call.event]) & CreateFlag.EXCLUSIVE
        if name != call.name or not exclusive:
            return name
        private = self._trace.inodes[call.inode].mode & 0o777 in _PRIVATE
        if not private and (call.inode, call.folder, call.name) not in self._gone:
            return name  # as git makes the files of a checkout
        if _PYTHON.search(name):
            return _PYTHON.sub(f"tmp{_RANDOM}", name)
        word = _WORD.search(name)
        if word is None or any(word[0] in known for known in self._first):
            return name
        if (word.end() < len(name) or not private) and not _is_mixed(word[0]):
            return name  # a word, as in .readme.swp
        number = word[0][len(word[0].rstrip("0123456789")) :]  # Go's are of up to ten digits
        random = number if len(number) >= len(_RANDOM) else word[0][-len(_RANDOM) :]
        return name[: word.end() - len(random)] + _RANDOM + name[word.end() :]


def shown_paths(trace: Trace) -> Callable[[str], str]:
    """Paths as reports show them; of a trace without names of files they are the watched ones, as they are."""
    return ShownNames(trace).path if trace.recorder is Recorder.SYSCALLS else lambda path: path


def _is_mixed(word: str) -> bool:
    end = word[-6:]
    return sum((any(map(str.islower, end)), any(map(str.isupper, end)), any(map(str.isdigit, end)))) > 1
