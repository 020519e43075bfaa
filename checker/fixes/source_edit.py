"""A fix as an edit of the source: with the program's own flush, fence and sync where it has some (docs/fixes.md)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path

import numpy as np

from crashcheck.checker.findings.call_chains import CallChains, outside_helpers, storing_functions
from crashcheck.checker.fixes.c_source import Macro, NotEditable, Source, Statement, calls_in, macros_of, visible
from crashcheck.checker.fixes.c_targets import Region, SideEffect, assignment, common_object, stored, whole
from crashcheck.checker.fixes.candidates import Step
from crashcheck.checker.fixes.line_edits import first_include, put_instead, put_lines
from crashcheck.checker.fixes.patch import in_order
from crashcheck.checker.results import Edit, Location, SourcePoint
from crashcheck.checker.subject import Subject
from crashcheck.runtime.trace_format import FenceKind, SyncKind
from crashcheck.runtime.trace_format import Kind as Event

_PURE = r"\b{}\s*\([^;{{}}]*\)\s*\{{\s*return\s[^;{{}}]*;\s*\}}"
_ANY_ADDRESS = r"\b(void|char|u?int8_t|byte|uintptr_t|size_t|T)\b"
_ADDRESS = re.compile(
    r"(?:(?:const|volatile|unsigned|signed)\s+)*(?:(?:void|char|u?int8_t|byte|T)\b[\s\w]*\*(?!\s*\*)|uintptr_t\b(?!\s*\*))"
)
_SIZE = re.compile(r"(?:(?:const|std::)\s*)*(?:s?size_t|u?int\d*_t|unsigned|int|long|short|ptrdiff_t|off_t)\b[^*&]*$")
_LIBRARIES = ("_mm_", "pmem_", "__builtin_ia32_")
_HEADERS = {"pmem_": "libpmem.h", "pmemobj_": "libpmemobj.h", "_mm_": "immintrin.h"}  # of what begins so
_SYSTEM = ("msync", "fsync", "fdatasync", "sync", "syncfs")
_LINE_BYTES = 64


@dataclass(frozen=True, slots=True)
class Primitive:
    """How the program flushes or syncs: `before` and `after` are arguments that all calls share, around the address
    and, if it is `ranged`, a size; `cast` is what an address is converted to.
    """

    name: str
    before: tuple[str, ...] = ()
    ranged: bool = True
    after: tuple[str, ...] = ()
    cast: str = ""

    def call(self, region: Region, spaced: bool) -> str:
        size = region.size if spaced else re.sub(r"\bsizeof ([^(].*)$", r"sizeof(\1)", region.size)
        address = region.address
        if self.cast:
            address = self.cast + (address if re.fullmatch(r"&?\w[^-+*/?]*(->[^-+*/?]*)*", address) else f"({address})")
        return f"{self.name}({', '.join((*self.before, address, *((size,) if self.ranged else ()), *self.after))});"


@dataclass(frozen=True, slots=True)
class _Called:
    """A call that flushed, fenced or synced. `inside`: of how many helpers that do nothing else."""

    file: str
    name: str
    arguments: tuple[str, ...]
    does: frozenset[str]
    inside: int


class EditWriter:
    """Writes the steps of remedies into the source of one program; nothing is changed on disk.

    `why_not`: why edits cannot be shown, as they do not compile; "" if they can.
    """

    def __init__(
        self, subject: Subject, chain: CallChains, folder: Path, why_not: Callable[[Sequence[Edit]], str] = lambda _: ""
    ) -> None:
        self._subject = subject
        self._chain = chain
        self._folder = folder
        self._why_not = why_not
        self._refused: set[tuple[SourcePoint, str]] = set()  # functions and macros that do not compile at a place
        self._used: set[tuple[SourcePoint, str]] = set()  # since this was emptied
        self._sources: dict[str, Source | None] = {}
        self._seen: dict[str, list[Source]] = {}
        self._macros_of: dict[str, Mapping[str, Macro]] = {}
        self._functions: dict[tuple[str, str], tuple[int, str] | None] = {}

    def write(self, steps: Sequence[Step]) -> tuple[tuple[Edit, ...], str]:
        """The edits, or none and the reason."""
        made: list[Edit] = []
        try:
            for step in steps:
                made += self._step(step)
        except NotEditable as error:
            return (), f"{step.place.file}:{step.place.line}: {error}"
        edits = in_order(made)
        changed: dict[tuple[str, int], str] = {}
        for edit in edits:
            if edit.replaces and changed.setdefault((edit.file, edit.line), edit.text) != edit.text:
                return (), f"{edit.file}:{edit.line}: it would have to be changed in two ways"
        return tuple(edits), ""

    def compiled(self, steps: Sequence[Step]) -> tuple[tuple[Edit, ...], str]:
        """The edits with which the program compiles, or none and the reason.

        Where a function of the program does not compile at a place, the next one is tried, at last an intrinsic.
        """
        while True:
            edits, why = self.write(steps)
            refused = self._why_not(edits) if edits else ""
            if not refused:
                return edits, why
            if not sum(self._refuse(step) for step in steps):
                place = steps[0].place
                return (), f"{place.file}:{place.line}: {refused}"

    def _refuse(self, step: Step) -> bool:
        """Refuse what one step calls, where it does not compile on its own; False if there is nothing to refuse."""
        self._used.clear()
        edits, _ = self.write([step])
        used = self._used - self._refused
        if not edits or not used or not self._why_not(edits):
            return False
        self._refused |= used
        return True

    # -- one step

    def _step(self, step: Step) -> list[Edit]:
        if Path(step.place.file).is_absolute():
            raise NotEditable("it lies outside of the project")
        source = self._source(step.place.file)
        statement = source.statement(step.place.line, step.place.column)
        try:
            lines, includes = self._lines(step, source, statement)
        except SideEffect:
            if step.after_loop or step.sync is not None or step.together:
                raise
            return self._once(step, source, statement)
        if step.after_loop:
            loop = source.loop_around(statement)
            if step.flush and loop is None and source.in_loop(statement):
                raise NotEditable("its loop does more than that")
            while loop is not None:
                statement = loop.statement
                loop = source.loop_around(statement) if not step.flush else None
        first, last = source.line_of(statement.start), source.line_of(statement.end - 1)
        tail = source.code[statement.end : source.position(last, 1) + len(source.line(last))]
        if tail.strip():
            raise NotEditable("other code follows on the line")
        return [*self._included(step.place.file, includes), *put_lines(step, source, statement, first, last, lines)]

    def _once(self, step: Step, source: Source, statement: Statement) -> list[Edit]:
        """Where the address that is stored to must not be found twice, it is kept in a variable."""
        file, (left, right) = step.place.file, assignment(source, statement)
        self._has_address(file, left)
        first, last = source.line_of(statement.start), source.line_of(statement.end - 1)
        line, name = source.line(first), "stored"
        start = statement.start - source.position(first, 1)
        if first != last or line[:start].strip() or re.search(rf"\b{name}\b", left + right):
            raise SideEffect(f"`{left}` has a side effect")
        in_c = Path(file).suffix in (".c", ".h")
        if not in_c and "(" in right:
            raise SideEffect(f"`{left}` has a side effect, and is found after what is stored there")
        kind = f"__typeof__({left}) *" if in_c else "auto *"
        after, includes = self._persisted(step, Region(name, f"sizeof *{name}", f"*{name}"))
        rest = line[statement.end - source.position(first, 1) :]
        block = [f"{kind}{name} = &{left};", f"*{name} = {right};{rest}", *after]
        return [*self._included(file, includes), *put_instead(file, source, statement, first, block)]

    def _lines(self, step: Step, source: Source, statement: Statement) -> tuple[list[str], list[str]]:
        """What is put in, and the headers that it needs."""
        if step.sync is not None:
            return self._sync(step, source, statement)
        if not step.flush:
            return self._fence(step.place)
        return self._persisted(step, self._region(step, source, statement))

    def _persisted(self, step: Step, region: Region) -> tuple[list[str], list[str]]:
        """The flush of a region, with the fence if the step has one, and the headers that they need."""
        both = self._primitive(step.place, {"flush", "fence"})
        flush = self._primitive(step.place, {"flush"}) if not step.fence or both is None else None
        chosen = flush or both
        volatile = self._volatile(step.place.file, region)
        if chosen is None:
            cast = "(const void *)" if volatile else ""
            lines = [f"_mm_clflush({cast}{one.address});" for one in self._by_line(step, region)]
            fence, headers = self._fence(step.place) if step.fence else ([], [])
            return lines + fence, ["immintrin.h", *headers]
        declared = self._declared(step.place.file, chosen.name)
        if volatile and (declared is None or "volatile" not in declared[1]):
            raise NotEditable(f"what is stored to is volatile, and `{chosen.name}` may not take such an address")
        if not chosen.ranged:
            # A macro around what takes a size gives that itself.
            sized = "sizeof" in self._macros(step.place.file).get(chosen.name, ((), ""))[1]
            at_once = sized and bool(region.lvalue) and not step.after_loop
            lines = [chosen.call(one, True) for one in ([region] if at_once else self._by_line(step, region))]
        else:
            lines = [chosen.call(region, self._spaced(step.place.file))]
        if step.fence and chosen is flush:
            fence, headers = self._fence(step.place)
            return lines + fence, [*self._headers(step.place, chosen.name), *headers]
        return lines, self._headers(step.place, chosen.name)

    def _region(self, step: Step, source: Source, statement: Statement) -> Region:
        if step.together:
            return self._object(step, source, statement)
        at = source.position(step.place.line, step.place.column)
        region = stored(source, statement, at, self._macros(step.place.file))
        self._has_address(step.place.file, region.lvalue)
        for name in (*calls_in(region.address), *calls_in(region.size)):
            if name != "sizeof" and not self._harmless(step.place.file, name):
                raise SideEffect(f"`{region.address}` calls `{name}`, which may have side effects")
        loop = source.loop_around(statement) if step.after_loop else None
        return region if loop is None else whole(region, loop)

    def _object(self, step: Step, source: Source, statement: Statement) -> Region:
        """The object that all stores of a step name in the same words."""
        file, macros = step.place.file, self._macros(step.place.file)
        parts, first = [], statement.start
        for place in step.together:
            if place.file != file:
                raise NotEditable("its parts are stored in several files")
            theirs = source.statement(place.line, place.column)
            region = stored(source, theirs, source.position(place.line, place.column), macros)
            parts.append(region.lvalue or region.address)
            first = min(first, theirs.start)
        found = common_object(parts)
        between = source.code[first : statement.start]
        for name in re.findall(r"[A-Za-z_]\w*", found.lvalue):
            if re.search(
                rf"(?<![.>])\b{name}\s*(?:[-+*/%&|^]|<<|>>)?=(?!=)|\b{name}\s*(?:\+\+|--)|(?:\+\+|--)\s*{name}\b",
                between,
            ):
                raise NotEditable(f"`{name}` changes between the stores")
        if calls_in(found.address):
            raise NotEditable(f"`{found.lvalue}` calls a function")
        return found

    def _has_address(self, file: str, lvalue: str) -> None:
        """Raises NotEditable for a bit-field."""
        member = re.search(r"(?:\.|->)\s*(\w+)$", lvalue)
        if member is None:
            return
        width = re.compile(rf"[\w,]\s+{member.group(1)}\s*:(?!:)\s*\w+\s*[;,]")
        if any(width.search(source.code) for source in self._seen_by(file)):
            raise NotEditable(f"`{member.group(1)}` is a bit-field, which has no address")

    def _volatile(self, file: str, region: Region) -> bool:
        """Whether a name of what is stored to is declared volatile somewhere: C++ converts no such address."""
        names = "|".join(re.findall(r"[A-Za-z_]\w*", region.lvalue or region.address)) or "$"
        declared = re.compile(
            rf"\bvolatile\b[^;{{}}=(),]*\b(?:{names})\b|^[\s\w]*\bvolatile\b[^;{{}}=()]*\b(?:{names})\b", re.MULTILINE
        )
        return any(declared.search(source.code) for source in self._seen_by(file))

    def _by_line(self, step: Step, region: Region) -> list[Region]:
        """For a primitive that flushes one line: once, or for the first and the last byte if it may be on two."""
        if step.after_loop:
            raise NotEditable("the program flushes one cache line at a time")
        if step.together:
            if step.object_bytes > _LINE_BYTES:
                raise NotEditable("it spans several cache lines, and the program flushes one at a time")
            return [region, Region(f"(char *)({region.address} + 1) - 1", "1")]
        events = self._subject.trace.events
        rows = list(step.rows)
        offset, size = events["offset"][rows].astype(np.int64), np.maximum(events["size"][rows].astype(np.int64), 1)
        most = int(((offset + size - 1) // _LINE_BYTES - offset // _LINE_BYTES).max())
        if most == 0:
            return [region]
        if most == 1 and region.lvalue:
            return [region, Region(f"(char *)(&{region.lvalue} + 1) - 1", "1")]
        raise NotEditable("it spans several cache lines, and the program flushes one at a time")

    def _fence(self, place: Location) -> tuple[list[str], list[str]]:
        own = self._primitive(place, {"fence"})
        if own is not None:
            return [f"{own.name}({', '.join(own.before)});"], self._headers(place, own.name)
        if any(call.name.startswith("pmem_") for call in self._calls) and self._may_use(place, "pmem_drain"):
            return ["pmem_drain();"], self._headers(place, "pmem_drain")
        return ["_mm_sfence();"], ["immintrin.h"]

    def _sync(self, step: Step, source: Source, statement: Statement) -> tuple[list[str], list[str]]:
        if step.sync != SyncKind.MSYNC:
            code = source.text[statement.start : statement.end]
            found = re.search(r"\b(?:pwrite|write|writev|pwritev|ftruncate|fallocate)(?:64)?\s*\(\s*(\w+)\s*,", code)
            if found is None:
                raise NotEditable("which file descriptor it writes to is not known")
            return [f"fsync({found.group(1)});"], ["unistd.h"]
        region = self._region(step, source, statement)
        own = self._primitive(step.place, {"sync"})
        if own is not None and own.name not in _SYSTEM:
            return [own.call(region, self._spaced(step.place.file))], self._headers(step.place, own.name)
        simple = bool(region.lvalue) or re.fullmatch(r"&?\w+(?:(?:\.|->)\w+|\[\w+\])*", region.address)
        address = f"(uintptr_t){region.address}" if simple else f"(uintptr_t)({region.address})"
        size = f"({region.size})" if re.search(r"[?|&^=!]|<|(?<!-)>", region.size) else region.size
        call = f"msync((void *)({address} & ~(uintptr_t)4095), ({address} & 4095) + {size}, MS_SYNC);"
        return [call], ["sys/mman.h", "stdint.h"]

    # -- what the program has

    @cached_property
    def _calls(self) -> list[_Called]:
        trace = self._subject.trace
        events = trace.events
        storing = storing_functions(trace, self._chain)
        kinds = {
            "flush": events["kind"] == Event.FLUSH,
            "fence": (events["kind"] == Event.FENCE) & (events["aux"] != FenceKind.LOCKED),
            "sync": events["kind"] == Event.SYNC_BEGIN,
        }
        found: dict[tuple[str, int, int], set[str]] = {}
        inside: dict[tuple[str, int, int], int] = {}
        for what, chosen in kinds.items():
            for row in trace.one_of_each_call(np.flatnonzero(chosen)):
                places = self._chain(row)
                at = outside_helpers(places, storing)
                for level, here in enumerate(places[at::-1] if at >= 0 else ()):
                    place = here.file, here.line, here.column
                    found.setdefault(place, set()).add(what)
                    inside[place] = min(level, inside.get(place, level))
        calls = []
        for place, does in sorted(found.items()):
            file, line, column = place
            try:
                call = self._source(file).call(line, column)
            except NotEditable:
                continue
            if call is not None and not call[0].startswith("__asm"):
                calls.append(_Called(file, *call, frozenset(does), inside[place]))
        return calls

    def _primitive(self, place: Location, does: set[str]) -> Primitive | None:
        """The one most often called, of those that are declared before a place; None if there is none.

        What only helpers call is taken after what others call, and only if it takes a range or is a fence: of a helper
        that flushes one line there may be several, for one kind of machine each.
        """
        near = [call for call in self._calls if call.does == does and self._takes_any(place, call.name)]
        often = Counter((call.inside, call.name) for call in near)
        for inside, name in sorted(often, key=lambda one: (one[0], -often[one], one[1])):
            calls = [call for call in near if (call.inside, call.name) == (inside, name)]
            primitive = self._as_called(place.file, calls, does)
            fits = primitive is not None and (not inside or primitive.ranged or does == {"fence"})
            if fits and self._may_use(place, name):
                return primitive
        return None

    def _as_called(self, file: str, calls: list[_Called], does: set[str]) -> Primitive | None:
        """The function that all these calls name, with arguments as they give them; None where that is not settled."""
        declared = self._declared(file, calls[0].name)
        primitive = _by_parameters(calls, declared[1]) if declared is not None and does != {"fence"} else None
        primitive = primitive or _pattern(calls, does)
        unclear = primitive is not None and primitive.ranged and self._ends_in_address(file, calls[0].name)
        return None if unclear else primitive

    def _may_use(self, place: Location, name: str) -> bool:
        """Whether a name compiles at a place, as far as is known; it counts as used there."""
        if (place.point, name) in self._refused:
            return False
        self._used.add((place.point, name))
        return True

    def _headers(self, place: Location, name: str) -> list[str]:
        """The header that declares a function of a library; none for one that the program declares."""
        if self._declared(place.file, name) is not None or name in self._macros(place.file):
            return []
        return [header for start, header in _HEADERS.items() if name.startswith(start)]

    def _takes_any(self, place: Location, name: str) -> bool:
        """Whether a function or macro is declared before a place, and takes the address of any object."""
        if name in _SYSTEM or name.startswith(_LIBRARIES):
            return True
        here = self._source(place.file).position(place.line, 1)
        if name in self._macros(place.file):
            defined = re.search(rf"^[ \t]*#[ \t]*define[ \t]+{name}\(", self._source(place.file).text, re.MULTILINE)
            used = [self._declared(place.file, one) for one in calls_in(self._macros(place.file)[name][1])]
            starts = [defined.start() if defined else 0, *(one[0] for one in used if one is not None)]
            return max(starts) < here
        first = self._declared(place.file, name)
        if first is None or first[0] > here:
            return False
        return first[1].strip() in ("", "void") or re.search(_ANY_ADDRESS, first[1]) is not None

    def _ends_in_address(self, file: str, name: str) -> bool:
        """Whether what a function takes last is where a range ends, and not how long it is."""
        declared = self._declared(file, name)
        return declared is not None and "*" in declared[1].rpartition(",")[2]

    def _declared(self, file: str, name: str) -> tuple[int, str] | None:
        """Where in a file a function is declared first, 0 if in a header of the project; and its parameters."""
        if (file, name) not in self._functions:
            found = None
            pattern = re.compile(rf"(\w+|[*&>])\s*\b{re.escape(name)}\s*\(([^()]*)\)\s*[;{{]")
            for number, source in enumerate(self._seen_by(file)):
                every = (one for one in pattern.finditer(source.code) if one.group(1) not in ("else", "return", "do"))
                for one in islice(every, 1):
                    if found is None or number:
                        found = (one.start() if number == 0 else 0, one.group(2))
            self._functions[file, name] = found
        return self._functions[file, name]

    def _spaced(self, file: str) -> bool:
        """Whether the program writes `sizeof x` rather than `sizeof(x)`."""
        return any(re.search(r"\bsizeof [^(]", source.code) for source in self._seen_by(file))

    def _macros(self, file: str) -> Mapping[str, Macro]:
        if file not in self._macros_of:
            out: dict[str, Macro] = {}
            for source in self._seen_by(file):
                out.update(macros_of(source.text))
            self._macros_of[file] = out
        return self._macros_of[file]

    def _harmless(self, file: str, name: str) -> bool:
        """A macro, or a function of one return statement that assigns nothing."""
        if name in self._macros(file):
            return True
        for source in self._seen_by(file):
            found = re.search(_PURE.format(re.escape(name)), source.code)
            if found and not re.search(r"\+\+|--|[^=!<>]=[^=]", found.group()):
                return True
        return False

    def _seen_by(self, file: str) -> list[Source]:
        """A file and the headers of the project that it includes."""

        def read(path: Path) -> Source | None:
            try:
                return self._source(str(path))
            except NotEditable:
                return None

        if file not in self._seen:
            self._seen[file] = visible(self._folder / file, read)
        return self._seen[file]

    def _included(self, file: str, headers: Iterable[str]) -> list[Edit]:
        """Edits that include what is not included yet."""
        texts = [source.text for source in self._seen_by(file)]
        out = []
        for header in dict.fromkeys(headers):
            pattern = rf'^[ \t]*#[ \t]*include[ \t]*[<"]{re.escape(header)}[>"]'
            if any(re.search(pattern, text, re.MULTILINE) for text in texts):
                continue
            out.append(Edit(file, first_include(self._source(file)), True, f"#include <{header}>"))
        return out

    def _source(self, file: str) -> Source:
        if file not in self._sources:
            path = self._folder / file
            try:
                # What the program was built from was there before it ran.
                if path.stat().st_mtime_ns > self._subject.trace.path.stat().st_mtime_ns:
                    raise NotEditable(f"{file} has changed since the program ran")
                self._sources[file] = Source(path.read_bytes().decode("utf-8").replace("\r\n", "\n"))
            except (OSError, UnicodeDecodeError):
                self._sources[file] = None
        found = self._sources[file]
        if found is None:
            raise NotEditable("the source file cannot be read")
        return found


def _by_parameters(calls: Sequence[_Called], parameters: str) -> Primitive | None:
    """What a function's parameters and the arguments of its calls show; None where that does not settle it.

    The address is what any pointer may be given to and a size follows; all else is the same in all calls.
    """
    types = [one.strip() for one in parameters.split(",")]
    if len(types) < 2 or any(len(call.arguments) != len(types) for call in calls):
        return None
    at = next((i for i, one in enumerate(types[:-1]) if _ADDRESS.match(one) and _SIZE.match(types[i + 1])), -1)
    ranged = at >= 0
    if not ranged:
        if sum("*" in one for one in types) > 1:
            return None
        at = next((i for i, one in enumerate(types) if _ADDRESS.match(one)), -1)
    if at < 0:
        return None
    end = at + 1 + ranged
    around = {(call.arguments[:at], call.arguments[end:]) for call in calls}
    if len(around) > 1:
        return None
    ((before, after),) = around
    if not all(re.fullmatch(r"-?\w+|nullptr", one) for one in after):
        return None
    return Primitive(calls[0].name, before, ranged, after, _cast(types[at]))


def _cast(parameter: str) -> str:
    """What an address is converted to for a parameter that takes one of bytes; "" where none is needed."""
    bytes_ = re.match(r"((?:const\s+)?(?:volatile\s+)?(?:unsigned\s+|signed\s+)?(?:char|u?int8_t)\s*\*)", parameter)
    if bytes_ is not None:
        return f"({bytes_.group(1).rstrip('*').rstrip()} *)"
    return "(uintptr_t)" if re.match(r"(?:const\s+)?uintptr_t\b(?!\s*\*)", parameter) else ""


def _pattern(calls: Sequence[_Called], does: set[str]) -> Primitive | None:
    """What the arguments of one function's calls are; None where they are not understood."""
    name, counts = calls[0].name, {len(call.arguments) for call in calls}
    if len(counts) != 1:
        return None
    (count,) = counts
    firsts = {call.arguments[0] for call in calls if call.arguments}
    if does == {"fence"}:
        same = len({call.arguments for call in calls}) == 1
        return Primitive(name, calls[0].arguments, False) if same and count <= 1 else None
    if does == {"sync"} and name in _SYSTEM:
        return Primitive(name)
    if count == 1:
        return Primitive(name, (), False)
    if count == 2:
        second = any(call.arguments[1].startswith("&") for call in calls)
        first = any(call.arguments[0].startswith("&") for call in calls)
        return Primitive(name, tuple(firsts), False) if second and not first and len(firsts) == 1 else Primitive(name)
    if count == 3 and len(firsts) == 1:
        return Primitive(name, tuple(firsts))
    return None
