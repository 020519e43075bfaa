"""A fix as an edit of the source: with the program's own flush, fence and sync where it has some (docs/fixes.md)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from crashcheck.checker.findings.call_chains import CallChains
from crashcheck.checker.fixes.candidates import Step
from crashcheck.checker.fixes.source.c_source import NotEditable, Source, Statement, calls_in
from crashcheck.checker.fixes.source.c_targets import Region, SideEffect, assignment, common_object, stored, whole
from crashcheck.checker.fixes.source.line_edits import put_instead, put_lines
from crashcheck.checker.fixes.source.patch import in_order
from crashcheck.checker.fixes.source.primitives import SYSTEM, Primitive, Primitives
from crashcheck.checker.fixes.source.program_source import ProgramSource
from crashcheck.checker.results import Edit, Location
from crashcheck.checker.subject import Subject
from crashcheck.runtime.trace_format import SyncKind

_LINE_BYTES = 64
_WRITES = "p?writev?2?|ftruncate|(?:posix_)?fallocate"


class EditWriter:
    """Writes the steps of remedies into the source of one program; nothing is changed on disk.

    `why_not`: why edits cannot be shown, as they do not compile; "" if they can.
    """

    def __init__(
        self, subject: Subject, chain: CallChains, folder: Path, why_not: Callable[[Sequence[Edit]], str] = lambda _: ""
    ) -> None:
        self._subject = subject
        # What the program was built from was there before it ran.
        self._program = ProgramSource(folder, subject.trace.path.stat().st_mtime_ns)
        self._primitives = Primitives(subject.trace, chain, self._program)
        self._why_not = why_not

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
        self._primitives.used.clear()
        edits, _ = self.write([step])
        used = self._primitives.used - self._primitives.refused
        if not edits or not used or not self._why_not(edits):
            return False
        self._primitives.refused |= used
        return True

    # -- one step

    def _step(self, step: Step) -> list[Edit]:
        if Path(step.place.file).is_absolute():
            raise NotEditable("it is outside of the project")
        source = self._program.source(step.place.file)
        stores, statement, step = self._places(step, source)
        try:
            lines, includes = self._lines(step, source, stores)
        except SideEffect:
            if step.after_loop or step.sync is not None or step.together or stores is not statement:
                raise
            return self._once(step, source, statement)
        if step.after_loop:
            loop = source.loop_around(statement)
            if not step.fence_only and loop is None and source.in_loop(statement):
                raise NotEditable("its loop does more than that")
            while loop is not None:
                statement = loop.statement
                loop = source.loop_around(statement) if step.fence_only else None
        first, last = source.line_of(statement.start), source.line_of(statement.end - 1)
        tail = source.code[statement.end : source.position(last, 1) + len(source.line(last))]
        if tail.strip():
            raise NotEditable("other code follows on the line")
        return [
            *self._program.included(step.place.file, includes),
            *put_lines(step, source, statement, first, last, lines),
        ]

    def _places(self, step: Step, source: Source) -> tuple[Statement, Statement, Step]:
        """What stores, what the lines are put beside, and the step with the side on which they are."""
        place = step.place
        guard = source.guard(place.line, place.column) if step.sync not in (None, SyncKind.MSYNC) else None
        swap = None if step.before or step.after_loop or step.together else source.swap(place.line, place.column)
        if swap is not None:
            call, statement, before = swap
            return call, statement, replace(step, before=before)
        statement = guard if guard is not None else source.statement(place.line, place.column)
        return statement, statement, step

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
        return [*self._program.included(file, includes), *put_instead(file, source, statement, first, block)]

    def _lines(self, step: Step, source: Source, statement: Statement) -> tuple[list[str], list[str]]:
        """What is put in, and the headers that it needs."""
        if step.sync is not None:
            return self._sync(step, source, statement)
        if not step.flush:
            return self._fence(step.place)
        return self._persisted(step, self._region(step, source, statement))

    def _persisted(self, step: Step, region: Region) -> tuple[list[str], list[str]]:
        """The flush of a region, with the fence if the step has one, and the headers that they need."""
        both = self._primitives.find(step.place, {"flush", "fence"})
        flush = self._primitives.find(step.place, {"flush"}) if not step.fence or both is None else None
        chosen = flush or both
        volatile = self._volatile(step.place.file, region)
        if chosen is None:
            cast = "(const void *)" if volatile else ""
            lines = [f"_mm_clflush({cast}{one.address});" for one in self._by_line(step, region)]
            fence, headers = self._fence(step.place) if step.fence else ([], [])
            return lines + fence, ["immintrin.h", *headers]
        declared = self._program.declared(step.place.file, chosen.name)
        if volatile and (declared is None or "volatile" not in declared[1]):
            raise NotEditable(f"what is stored to is volatile, and `{chosen.name}` may not take such an address")
        lines, headers = self._calls_of(chosen, step, region), self._primitives.headers(step.place, chosen.name)
        if step.fence and chosen is flush:
            fence, others = self._fence(step.place)
            return lines + fence, [*headers, *others]
        return lines, headers

    def _calls_of(self, chosen: Primitive, step: Step, region: Region) -> list[str]:
        if chosen.ranged:
            return [chosen.call(region, self._program.spaced(step.place.file))]
        # A macro around what takes a size gives that itself.
        sized = "sizeof" in self._program.macros(step.place.file).get(chosen.name, ((), ""))[1]
        at_once = sized and bool(region.lvalue) and not step.after_loop
        return [chosen.call(one, True) for one in ([region] if at_once else self._by_line(step, region))]

    def _region(self, step: Step, source: Source, statement: Statement) -> Region:
        if step.together:
            return self._object(step, source, statement)
        at = source.position(step.place.line, step.place.column)
        region = stored(source, statement, at, self._program.macros(step.place.file))
        self._has_address(step.place.file, region.lvalue)
        self._is_the_object(step.place.file, region.lvalue)
        for name in (*calls_in(region.address), *calls_in(region.size)):
            if name != "sizeof" and not self._program.harmless(step.place.file, name):
                raise SideEffect(f"`{region.address}` calls `{name}`, which may have side effects")
        loop = source.loop_around(statement) if step.after_loop else None
        return region if loop is None else whole(region, loop)

    def _object(self, step: Step, source: Source, statement: Statement) -> Region:
        """The object that all stores of a step name in the same words."""
        file, macros = step.place.file, self._program.macros(step.place.file)
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
        if any(width.search(source.code) for source in self._program.seen_by(file)):
            raise NotEditable(f"`{member.group(1)}` is a bit-field, which has no address")

    def _is_the_object(self, file: str, lvalue: str) -> None:
        """Raises NotEditable for a variable that refers to what is stored to and has an address of its own."""
        refers = re.compile(rf"\batomic_ref\b[^;{{}}]*\b{re.escape(lvalue)}\b")
        if re.fullmatch(r"\w+", lvalue) and any(refers.search(source.code) for source in self._program.seen_by(file)):
            raise NotEditable(f"`{lvalue}` only refers to what is stored to")

    def _volatile(self, file: str, region: Region) -> bool:
        """Whether a name of what is stored to is declared volatile somewhere: C++ converts no such address."""
        names = "|".join(re.findall(r"[A-Za-z_]\w*", region.lvalue or region.address)) or "$"
        declared = re.compile(
            rf"\bvolatile\b[^;{{}}=(),]*\b(?:{names})\b|^[\s\w]*\bvolatile\b[^;{{}}=()]*\b(?:{names})\b", re.MULTILINE
        )
        return any(declared.search(source.code) for source in self._program.seen_by(file))

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
        own = self._primitives.find(place, {"fence"})
        if own is not None:
            return [f"{own.name}({', '.join(own.before)});"], self._primitives.headers(place, own.name)
        if any(call.name.startswith("pmem_") for call in self._primitives.calls) and self._primitives.may_use(
            place, "pmem_drain"
        ):
            return ["pmem_drain();"], self._primitives.headers(place, "pmem_drain")
        return ["_mm_sfence();"], ["immintrin.h"]

    def _sync(self, step: Step, source: Source, statement: Statement) -> tuple[list[str], list[str]]:
        if step.sync != SyncKind.MSYNC:
            code = source.text[statement.start : statement.end]
            found = re.search(rf"\b(?:{_WRITES})(?:64)?\s*\(\s*(\w+(?:(?:\.|->)\w+|\[\w+\])*)\s*,", code)
            if found is None:
                raise NotEditable("which file descriptor it writes to is not known")
            return [f"fsync({found.group(1)});"], ["unistd.h"]
        region = self._region(step, source, statement)
        own = self._primitives.find(step.place, {"sync"})
        if own is not None and own.name not in SYSTEM:
            return [own.call(region, self._program.spaced(step.place.file))], self._primitives.headers(
                step.place, own.name
            )
        simple = bool(region.lvalue) or re.fullmatch(r"&?\w+(?:(?:\.|->)\w+|\[\w+\])*", region.address)
        address = f"(uintptr_t){region.address}" if simple else f"(uintptr_t)({region.address})"
        size = f"({region.size})" if re.search(r"[?|&^=!]|<|(?<!-)>", region.size) else region.size
        call = f"msync((void *)({address} & ~(uintptr_t)4095), ({address} & 4095) + {size}, MS_SYNC);"
        return [call], ["sys/mman.h", "stdint.h"]
