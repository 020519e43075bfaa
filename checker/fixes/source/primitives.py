"""The functions and macros with which a program flushes, fences and syncs, as its own calls show them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from crashcheck.analyzer.trace.reader import Trace
from crashcheck.checker.findings.call_chains import CallChains, outside_helpers, storing_functions
from crashcheck.checker.fixes.source.c_source import NotEditable, calls_in
from crashcheck.checker.fixes.source.c_targets import Region
from crashcheck.checker.fixes.source.program_source import ProgramSource
from crashcheck.checker.results import Location, SourcePoint
from crashcheck.runtime.trace_format import FenceKind
from crashcheck.runtime.trace_format import Kind as Event

SYSTEM = ("msync", "fsync", "fdatasync", "sync", "syncfs")
_ANY_ADDRESS = r"\b(void|char|u?int8_t|byte|uintptr_t|size_t|T)\b"
_ADDRESS = re.compile(
    r"(?:(?:const|volatile|unsigned|signed)\s+)*(?:(?:void|char|u?int8_t|byte|T)\b[\s\w]*\*(?!\s*\*)|uintptr_t\b(?!\s*\*))"
)
_SIZE = re.compile(r"(?:(?:const|std::)\s*)*(?:s?size_t|u?int\d*_t|unsigned|int|long|short|ptrdiff_t|off_t)\b[^*&]*$")
_LIBRARIES = ("_mm_", "pmem_", "__builtin_ia32_")
_HEADERS = {"pmem_": "libpmem.h", "pmemobj_": "libpmemobj.h", "_mm_": "immintrin.h"}  # of what begins so


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
class Called:
    """A call that flushed, fenced or synced. `inside`: of how many helpers that do nothing else."""

    file: str
    name: str
    arguments: tuple[str, ...]
    does: frozenset[str]
    inside: int


class Primitives:
    """Finds what to call at a place. What does not compile there is in `refused`, what was proposed in `used`."""

    def __init__(self, trace: Trace, chain: CallChains, program: ProgramSource) -> None:
        self._trace = trace
        self._chain = chain
        self._program = program
        self.refused: set[tuple[SourcePoint, str]] = set()
        self.used: set[tuple[SourcePoint, str]] = set()

    @cached_property
    def calls(self) -> list[Called]:
        trace = self._trace
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
                call = self._program.source(file).call(line, column)
            except NotEditable:
                continue
            if call is not None and not call[0].startswith("__asm"):
                calls.append(Called(file, *call, frozenset(does), inside[place]))
        return calls

    def find(self, place: Location, does: set[str]) -> Primitive | None:
        """The one most often called, of those that are declared before a place; None if there is none.

        What only helpers call is taken after what others call, and only if it takes a range or is a fence: of a helper
        that flushes one line there may be several, for one kind of machine each.
        """
        near = [call for call in self.calls if call.does == does and self._takes_any(place, call.name)]
        often = Counter((call.inside, call.name) for call in near)
        for inside, name in sorted(often, key=lambda one: (one[0], -often[one], one[1])):
            calls = [call for call in near if (call.inside, call.name) == (inside, name)]
            primitive = self._as_called(place.file, calls, does)
            fits = primitive is not None and (not inside or primitive.ranged or does == {"fence"})
            if fits and self.may_use(place, name):
                return primitive
        return None

    def _as_called(self, file: str, calls: list[Called], does: set[str]) -> Primitive | None:
        """The function that all these calls name, with arguments as they give them; None where that is not settled."""
        declared = self._program.declared(file, calls[0].name)
        primitive = _by_parameters(calls, declared[1]) if declared is not None and does != {"fence"} else None
        if primitive is None and (declared is None or does == {"fence"} or "&" not in declared[1]):
            primitive = _pattern(calls, does)  # what takes a reference would flush the pointer that it is given
        unclear = primitive is not None and primitive.ranged and self._ends_in_address(file, calls[0].name)
        return None if unclear else primitive

    def may_use(self, place: Location, name: str) -> bool:
        """Whether a name compiles at a place, as far as is known; it counts as used there."""
        if (place.point, name) in self.refused:
            return False
        self.used.add((place.point, name))
        return True

    def headers(self, place: Location, name: str) -> list[str]:
        """The header that declares a function of a library; none for one that the program declares."""
        if self._program.declared(place.file, name) is not None or name in self._program.macros(place.file):
            return []
        return [header for start, header in _HEADERS.items() if name.startswith(start)]

    def _takes_any(self, place: Location, name: str) -> bool:
        """Whether a function or macro is declared before a place, and takes the address of any object."""
        if name in SYSTEM or name.startswith(_LIBRARIES):
            return True
        here = self._program.source(place.file).position(place.line, 1)
        if name in self._program.macros(place.file):
            defined = re.search(
                rf"^[ \t]*#[ \t]*define[ \t]+{name}\(", self._program.source(place.file).text, re.MULTILINE
            )
            used = [
                self._program.declared(place.file, one) for one in calls_in(self._program.macros(place.file)[name][1])
            ]
            starts = [defined.start() if defined else 0, *(one[0] for one in used if one is not None)]
            return max(starts) < here
        first = self._program.declared(place.file, name)
        if first is None or first[0] > here:
            return False
        return first[1].strip() in ("", "void") or re.search(_ANY_ADDRESS, first[1]) is not None

    def _ends_in_address(self, file: str, name: str) -> bool:
        """Whether what a function takes last is where a range ends, and not how long it is."""
        declared = self._program.declared(file, name)
        return declared is not None and "*" in declared[1].rpartition(",")[2]


def _by_parameters(calls: Sequence[Called], parameters: str) -> Primitive | None:
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


def _pattern(calls: Sequence[Called], does: set[str]) -> Primitive | None:
    """What the arguments of one function's calls are; None where they are not understood."""
    name, counts = calls[0].name, {len(call.arguments) for call in calls}
    if len(counts) != 1:
        return None
    (count,) = counts
    if does == {"fence"}:
        same = len({call.arguments for call in calls}) == 1
        return Primitive(name, calls[0].arguments, False) if same and count <= 1 else None
    if does == {"sync"} and name in SYSTEM:
        return Primitive(name)
    if count == 1:
        return Primitive(name, (), False)
    firsts = {call.arguments[0] for call in calls if call.arguments}
    shared = tuple(firsts) if len(firsts) == 1 else None
    if count == 2:
        return Primitive(name, shared, False) if shared and _second_is_address(calls) else Primitive(name)
    return Primitive(name, shared) if count == 3 and shared else None


def _second_is_address(calls: Sequence[Called]) -> bool:
    """Whether the address is the second of two arguments, as `&` shows, and not the first."""
    first, second = (any(call.arguments[at].startswith("&") for call in calls) for at in (0, 1))
    return second and not first
