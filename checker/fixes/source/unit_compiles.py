"""Whether a unit still compiles with an edit in it: by its own recorded command, syntax only, in a bounded time.

1. Nothing is written to the project: clang reads the edited text in the place of each file by a virtual file system.
2. A `#pragma message` at the end of each edited file shows that the compiler read that text.
3. An edit may bring no error and no warning that the unit did not have before: C compiles an integer as a pointer.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from crashcheck.analyzer.compile.driver.toolchain import runtime
from crashcheck.analyzer.compile.facts import ProgramFacts, UnitFacts
from crashcheck.checker.budget import Left, endless
from crashcheck.checker.fixes.source.patch import applied
from crashcheck.checker.results import Edit
from crashcheck.errors import CrashcheckError

MOST_S = 10.0  # for all edits of a run
_MARK = "crashcheck reads this text"
_MESSAGE = re.compile(r"^(.*?:\d+(?::\d+)?: )?(?:(fatal error|error)|warning): (.*)$", re.MULTILINE)
_OPTIONS = (
    "-fno-color-diagnostics",
    "-fno-caret-diagnostics",
    "-ferror-limit=20",
    "-Wno-unused-command-line-argument",
    "-Wno-error=#pragma-messages",
    "-W#pragma-messages",
)
_QUIET = frozenset({"-w", "-fsyntax-only"})
_WRITES = re.compile(r"-+(?:serialize-diagnostics|save-temps|save-stats|ftime-trace|fproc-stat-report|emit-)")


@dataclass(frozen=True, slots=True)
class _Diagnostics:
    """What a compiler printed: its messages, each as often as it came; `failed`: its first error, or "" if none."""

    messages: Counter[str]
    failed: str
    places: Mapping[str, str]  # of each message the first place, "FILE:LINE: "

    @property
    def marked(self) -> int:
        return sum(count for text, count in self.messages.items() if _MARK in text)


class _Unknown(Exception):
    """Why it is not known whether a unit compiles."""


@dataclass(slots=True, eq=False)
class UnitCompiles:
    """Compiles the units of one program with edits in them.

    `seconds`: for all edits together; `left`: what is left for them and for all else that tries fixes.
    """

    facts: ProgramFacts
    folder: Path  # that the names of files in edits are relative to
    seconds: float = MOST_S
    left: Left = endless
    _before: dict[int, _Diagnostics] = field(default_factory=dict)  # by key of the unit
    _answers: dict[tuple[Edit, ...], str] = field(default_factory=dict)
    _units_of: dict[str, list[tuple[UnitFacts, frozenset[str]]]] | None = None

    def why_not(self, edits: Sequence[Edit]) -> str:
        """Why edits are not shown: an error or a new warning of the compiler, or that none could be asked; else ""."""
        key = tuple(edits)
        if key not in self._answers:
            try:
                self._answers[key] = self._why_not(key)
            except _Unknown as reason:
                self._answers[key] = f"whether it compiles is not known: {reason}"
            except (CrashcheckError, OSError, ValueError, subprocess.SubprocessError) as error:
                self._answers[key] = f"whether it compiles is not known: {str(error).splitlines()[0]}"
        return self._answers[key]

    def _why_not(self, edits: Sequence[Edit]) -> str:
        changed = applied(edits, lambda file: (self.folder / file).read_bytes().decode("utf-8"))
        units: dict[int, tuple[UnitFacts, dict[str, str]]] = {}
        for file, (_, text) in changed.items():
            found = self._compiling(file)
            if not found:
                raise _Unknown(f"no unit of the program names {file}")
            for unit, paths in found:
                units.setdefault(unit.key, (unit, {}))[1].update(dict.fromkeys(sorted(paths), text))
        for unit, texts in units.values():
            reason = self._in_unit(unit, texts)
            if reason:
                return reason
        return ""

    def _in_unit(self, unit: UnitFacts, texts: Mapping[str, str]) -> str:
        if not unit.command:
            raise _Unknown(f"the command that compiled {unit.source} was not recorded")
        if unit.key not in self._before:
            self._before[unit.key] = self._compile(unit, {})
        before = self._before[unit.key]
        if before.failed:
            raise _Unknown(f"{unit.source} itself does not compile any more: {before.failed}")
        marked = {path: f'{text}\n#pragma message "{_MARK}"\n' for path, text in texts.items()}
        after = self._compile(unit, marked)
        new = [message for message in after.messages - before.messages if _MARK not in message]
        if new or after.failed:
            message = after.failed or new[0]
            return f"it does not compile: {after.places.get(message, '')}{message}"
        if not after.marked:
            raise _Unknown(f"the command that compiled {unit.source} reads the file from elsewhere")
        return ""

    def _compiling(self, file: str) -> list[tuple[UnitFacts, frozenset[str]]]:
        """The units whose code is partly in a file, and the paths by which the compiler may know it."""
        if self._units_of is None:
            self._units_of = {}
            for _, unit in sorted(self.facts.units.items()):
                named: dict[str, set[str]] = {}
                for path in {unit.source, *(place.file for site in unit.sites for place in site.positions)}:
                    absolute = os.path.normpath(os.path.join(unit.directory, path))
                    real = os.path.realpath(absolute)
                    named.setdefault(real, set()).update((absolute, real))
                for real, paths in named.items():
                    self._units_of.setdefault(real, []).append((unit, frozenset(paths)))
        return self._units_of.get(os.path.realpath(self.folder / file), [])

    # -- the compiler

    def _compile(self, unit: UnitFacts, texts: Mapping[str, str]) -> _Diagnostics:
        """Compile a unit with other texts in the place of some files, by absolute path."""
        with tempfile.TemporaryDirectory(prefix="crashcheck-fix-") as folder:
            options = [*_OPTIONS, "-idirafter", runtime().include]
            environment = {**os.environ, "LC_ALL": "C"}
            if "ziglang" in unit.command:
                # It writes an object in any case, and for one that it has in its cache it repeats no messages.
                options += ["-c", "-o", str(Path(folder) / "unit.o")]
                environment["ZIG_GLOBAL_CACHE_DIR"] = folder
            else:
                options.append("-fsyntax-only")
            if texts:
                options += ["-ivfsoverlay", _overlay(Path(folder), texts)]
            *words, dash, language = (word for word in unit.command if word not in _QUIET and not _WRITES.match(word))
            printed = self._run([*words, *options, dash, language, unit.source], unit.directory, environment)
        messages: Counter[str] = Counter()
        places: dict[str, str] = {}
        failed = ""
        for found in _MESSAGE.finditer(printed):
            where, error, text = found.groups()
            messages[text] += 1
            line = re.search(r"([^/:]+:\d+)", where or "")
            places.setdefault(text, f"{line.group(1)}: " if line else "")
            failed = failed or (text if error else "")
        return _Diagnostics(messages, failed, places)

    def _run(self, command: Sequence[str], directory: str, environment: Mapping[str, str]) -> str:
        """What a compiler prints. Raises _Unknown when the time is spent, or it ends in another way than by itself."""
        began = time.monotonic()
        left_s = self.left()
        seconds = self.seconds if left_s is None else min(self.seconds, left_s)
        if seconds <= 0:
            raise _Unknown("the time for compiling was spent")
        process = subprocess.Popen(
            command,
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            _, printed = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            raise _Unknown("the time for compiling was spent") from None
        finally:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            assert process.stderr is not None
            process.stderr.close()
            self.seconds -= time.monotonic() - began
        text = printed.decode("utf-8", "replace")
        if process.returncode and not re.search(r"\berror: ", text):
            raise _Unknown(f"the compiler ended with status {process.returncode}")
        return text


def _overlay(folder: Path, texts: Mapping[str, str]) -> str:
    """Write a description of a virtual file system that has some texts in the place of files."""
    roots = []
    for number, (path, text) in enumerate(sorted(texts.items())):
        held = folder / str(number)
        held.write_bytes(text.encode("utf-8"))
        name = {"name": os.path.basename(path), "type": "file", "external-contents": str(held)}
        roots.append({"name": os.path.dirname(path), "type": "directory", "contents": [name]})
    overlay = {"version": 0, "case-sensitive": "true", "use-external-names": "false", "roots": roots}
    described = folder / "overlay.yaml"
    described.write_bytes(os.fsencode(json.dumps(overlay, ensure_ascii=False)))
    return str(described)
