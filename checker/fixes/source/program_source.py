"""The sources of one program, as fixes read them: a file with the project's headers, its macros and declarations."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from crashcheck.checker.fixes.source.c_source import Macro, NotEditable, Source, macros_of, visible
from crashcheck.checker.fixes.source.line_edits import first_include
from crashcheck.checker.results import Edit

_PURE = r"\b{}\s*\([^;{{}}]*\)\s*\{{\s*return\s[^;{{}}]*;\s*\}}"


class ProgramSource:
    """Reads each file once. A file that is newer than `built_ns` is not what the program was built from."""

    def __init__(self, folder: Path, built_ns: int) -> None:
        self._folder = folder
        self._built_ns = built_ns
        self._sources: dict[str, Source | None] = {}
        self._seen: dict[str, list[Source]] = {}
        self._macros_of: dict[str, Mapping[str, Macro]] = {}
        self._functions: dict[tuple[str, str], tuple[int, str] | None] = {}

    def source(self, file: str) -> Source:
        if file not in self._sources:
            path = self._folder / file
            try:
                # What the program was built from was there before it ran.
                if path.stat().st_mtime_ns > self._built_ns:
                    raise NotEditable(f"{file} has changed since the program ran")
                self._sources[file] = Source(path.read_bytes().decode("utf-8").replace("\r\n", "\n"))
            except (OSError, UnicodeDecodeError):
                self._sources[file] = None
        found = self._sources[file]
        if found is None:
            raise NotEditable("the source file cannot be read")
        return found

    def seen_by(self, file: str) -> list[Source]:
        """A file and the headers of the project that it includes."""

        def read(path: Path) -> Source | None:
            try:
                return self.source(str(path))
            except NotEditable:
                return None

        if file not in self._seen:
            self._seen[file] = visible(self._folder / file, read)
        return self._seen[file]

    def macros(self, file: str) -> Mapping[str, Macro]:
        if file not in self._macros_of:
            out: dict[str, Macro] = {}
            for source in self.seen_by(file):
                out.update(macros_of(source.text))
            self._macros_of[file] = out
        return self._macros_of[file]

    def declared(self, file: str, name: str) -> tuple[int, str] | None:
        """Where a file declares a function first, 0 in a header of the project; and its parameters."""
        if (file, name) not in self._functions:
            self._functions[file, name] = self._find_declared(file, name)
        return self._functions[file, name]

    def _find_declared(self, file: str, name: str) -> tuple[int, str] | None:
        pattern = re.compile(rf"(\w+|[*&>])\s*\b{re.escape(name)}\s*\(([^()]*)\)\s*[;{{]")
        here, *headers = (
            next((one for one in pattern.finditer(source.code) if one.group(1) not in ("else", "return", "do")), None)
            for source in self.seen_by(file)
        )
        last = next((one for one in reversed(headers) if one is not None), None)
        if last is not None:
            return 0, last.group(2)
        return None if here is None else (here.start(), here.group(2))

    def spaced(self, file: str) -> bool:
        """Whether the program writes `sizeof x` rather than `sizeof(x)`."""
        return any(re.search(r"\bsizeof [^(]", source.code) for source in self.seen_by(file))

    def harmless(self, file: str, name: str) -> bool:
        """A macro, or a function of one return statement that assigns nothing."""
        if name in self.macros(file):
            return True
        for source in self.seen_by(file):
            found = re.search(_PURE.format(re.escape(name)), source.code)
            if found and not re.search(r"\+\+|--|[^=!<>]=[^=]", found.group()):
                return True
        return False

    def included(self, file: str, headers: Iterable[str]) -> list[Edit]:
        """Edits that include what is not included yet."""
        texts = [source.text for source in self.seen_by(file)]
        out = []
        for header in dict.fromkeys(headers):
            pattern = rf'^[ \t]*#[ \t]*include[ \t]*[<"]{re.escape(header)}[>"]'
            if any(re.search(pattern, text, re.MULTILINE) for text in texts):
                continue
            out.append(Edit(file, first_include(self.source(file)), True, f"#include <{header}>"))
        return out
