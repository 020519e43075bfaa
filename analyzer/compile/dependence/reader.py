"""The dependences of functions, read from a unit's IR text.

Scalar slots that only loads and stores touch are followed flow-sensitively, as if promoted; other locals (arrays,
structs, those whose address a call gets) are one cell each, whatever the order of its uses.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import ClassVar

from crashcheck.analyzer.compile.dependence.collected import ACCESSES, LOCAL, Collected
from crashcheck.analyzer.compile.dependence.locals import read_locals
from crashcheck.analyzer.compile.dependence.summaries import (
    MOST_ARGUMENTS,
    PARAMETER,
    RESULT,
    SITE,
    THROWN,
    FunctionDependences,
    atom,
    out_atom,
)
from crashcheck.analyzer.compile.ir.atomic_calls import sized_first
from crashcheck.analyzer.compile.ir.text import NAME, IRSyntaxError, matching, split_commas, type_end, value_end

_HEADER = re.compile(rf"^define .*?@({NAME})\(")
_LABEL = re.compile(r'label (%(?:[-\w.$]+|"[^"]*"))')
_INCOMING = re.compile(r'\[ (.*?), (%(?:[-\w.$]+|"[^"]*")) \]')
_CALLEE = re.compile(rf"(?:(@(?:{NAME})|%(?:{NAME}))\(| asm )")
_STORE = re.compile(r"  store (?:atomic )?(?:volatile )?")
_SILENT = ("llvm.dbg.", "llvm.lifetime.", "llvm.assume", "llvm.donothing", "llvm.va_", "llvm.stackrestore")
_COPIES = ("llvm.memcpy.", "llvm.memmove.")


def read_functions(
    body: str,
    kinds: list[str],
    sites_of: Mapping[str, Mapping[int, int]],
    reads_of: Mapping[str, Mapping[int, tuple[int, ...]]],
) -> tuple[FunctionDependences, ...]:
    """The dependences of all functions in a module's text. `kinds`: of its sites; lines count from 0 after `define`.

    Raises IRSyntaxError.
    """
    lines = body.split("\n")
    result = []
    index = 0
    while index < len(lines):
        line = lines[index]
        index += 1
        if not line.startswith("define "):
            continue
        end = lines.index("}", index)
        found = _HEADER.match(line)
        if found is not None:
            name = found.group(1).strip('"')
            inner = line[found.end() : matching(line, found.end() - 1) - 1]
            parameters = [part.rsplit(" ", 1)[-1] for part in split_commas(inner) if part != "..."]
            reader = _Reader(name, parameters, lines[index:end], kinds, sites_of.get(name, {}), reads_of.get(name, {}))
            internal = line.startswith(("define internal ", "define private "))
            result.append(replace(reader.read(), internal=internal))
        index = end
    return tuple(result)


class _Reader(Collected):
    """One pass over a function's lines."""

    def __init__(
        self,
        name: str,
        parameters: list[str],
        lines: list[str],
        kinds: list[str],
        sites: Mapping[int, int],
        reads: Mapping[int, tuple[int, ...]],
    ) -> None:
        super().__init__(name, kinds)
        self.lines = lines
        self.site_at = sites
        self.reads_at = reads
        self.bases: dict[str, tuple[str, str | int]] = {}  # pointer → ("cell", local) or ("parameter", index)
        for index, parameter in enumerate(parameters):
            self.values[parameter] = self.bit(atom(PARAMETER, index))
            self.bases[parameter] = ("parameter", index)
        found = read_locals("\n" + "\n".join(lines))
        self.slots = found.slots
        self.slot_bases: dict[str, tuple[str, str | int] | None] = {}
        self.once = {name: self.new(0) for name in found.once}  # → its inner bit
        self.cells = {name: self.new(0) for name in found.cells}
        self.bases.update({name: ("cell", name) for name in found.cells})
        self.index = -1  # of the line that is read
        self.block = 0  # that it is in
        self.current = self.defined[0]  # what each slot holds there by now

    def read(self) -> FunctionDependences:
        """Raises IRSyntaxError with the line that could not be read."""
        while self.index + 1 < len(self.lines):
            self.index += 1
            line = self.lines[self.index]
            try:
                if line[:2] != "  ":
                    if line and line[0] != ";":
                        self._label(line)
                elif line[2] != " ":  # else a debug record, or what continues from the line before
                    self._instruction(line)
            except IRSyntaxError:
                raise
            except Exception as error:  # whatever a damaged line leads to
                raise IRSyntaxError(line) from error
        return self.finish()

    def _label(self, line: str) -> None:
        colon = line.rfind(":", 0, line.find(";")) if ";" in line else line.rfind(":")
        self.block = len(self.successors)
        self.labels["%" + line[:colon]] = self.block
        self.successors.append([])
        self.conditions.append(0)
        self.current = {}
        self.defined.append(self.current)

    def _instruction(self, line: str) -> None:
        result, start = "", 2
        if line[2] == "%":
            start = line.index(" = ") + 3
            result = line[2 : start - 3]
        space = line.find(" ", start)
        word = line[start:space] if space > 0 else line[start:]
        handler = self._HANDLERS.get(word)
        if handler is not None:
            meaning = handler(self, line, start, result)
            if result:
                self.values[result] = meaning
        elif result:
            self.values[result] = self.names(line[start:])

    # A handler reads an instruction and returns what its result depends on; 0 where there is none.

    def _independent(self, line: str, start: int, result: str) -> int:
        return 0

    def _address(self, line: str, start: int, result: str) -> int:
        """A getelementptr or a cast: the result points where its base points."""
        meaning = self.names(line[start:])
        at = line.find(" ptr ", start)
        base = LOCAL.findall(line[at:]) if at >= 0 else []  # a cast of a vector has none
        if base and base[0] in self.bases:
            self.bases[result] = self.bases[base[0]]
        return meaning

    def _any_call(self, line: str, start: int, result: str) -> int:
        first = self.index
        while self.index + 1 < len(self.lines) and self.lines[self.index + 1].startswith("          "):
            self.index += 1
            line += self.lines[self.index]
        ends_block = line.startswith(("invoke ", "callbr "), start)
        meaning = self._call(line, first, self.block, ends_block)
        if ends_block:
            self.successors[self.block] = _LABEL.findall(line)
        return meaning

    def _phi(self, line: str, start: int, result: str) -> int:
        meaning = self.new(0)
        self.phis.append((meaning, _INCOMING.findall(line)))
        return meaning

    def _return(self, line: str, start: int, result: str) -> int:
        self.returned |= self.names(line) | self.runs(self.block)
        return 0

    def _throw(self, line: str, start: int, result: str) -> int:
        self.thrown |= self.runs(self.block)
        return 0

    def _switch(self, line: str, start: int, result: str) -> int:
        whole = line
        while not line.startswith("  ]"):
            self.index += 1
            line = self.lines[self.index]
            whole += line
        return self._jump(whole, start, result)

    def _jump(self, line: str, start: int, result: str) -> int:
        targets = _LABEL.findall(line)
        self.successors[self.block] = targets
        if len(targets) > 1:
            # Metadata and constants name no local; labels are the last to be named.
            self.conditions[self.block] = self.names(line[: line.index("label ")])
        return 0

    def _pointer(self, line: str, at: int) -> str:
        found = LOCAL.match(line, at)
        return found.group() if found is not None else ""

    def _load(self, line: str, start: int, result: str) -> int:
        pointer = self._pointer(line, line.rfind(", ptr ") + 6)
        if pointer in self.slots:
            known = self.slot_bases.get(pointer)
            if known is not None:
                self.bases[result] = known
            if pointer in self.once:
                return self.once[pointer]
            local = self.current.get(pointer)
            return self.reaching(self.block, pointer) if local is None else local
        reads = self.reads_at.get(self.index)
        address = self.value(pointer) if pointer else 0
        if reads:
            made = 0
            for site in reads:
                made |= self.bit(atom(SITE, site))
                self.found.append((site, self.block, 0, address))
            return made
        base = self.bases.get(pointer)
        if base is not None and base[0] == "cell":
            return address | self.cells[str(base[1])]
        return address

    def _store(self, line: str, start: int, result: str) -> int:
        cut = line.rfind(", ptr ")
        if "(" in line:  # a constant expression, which has commas of its own
            found = _STORE.match(line)
            cut = value_end(line, type_end(line, found.end()) + 1) if found is not None else cut
        pointer = self._pointer(line, cut + 6)
        stored = line[8:cut]
        name = stored.rsplit(" ", 1)[-1]
        value = self.value(name) if name[0] == "%" else self.names(name) if "%" in name else 0
        if pointer in self.slots:
            base = self.bases.get(name)
            if pointer not in self.slot_bases:
                self.slot_bases[pointer] = base
            elif self.slot_bases[pointer] != base:
                self.slot_bases[pointer] = None
            if pointer in self.once:
                self.equations[self.once[pointer]] |= value
            else:
                self.current[pointer] = value
            return 0
        site = self.site_at.get(self.index)
        self._write(pointer, value, self.block)
        given = self.bases.get(name)
        if given is not None and given[0] == "cell":
            value |= self.cells[str(given[1])]
        if site is not None:
            self.found.append((site, self.block, value, self.value(pointer) if pointer else 0))
        return 0

    def _write(self, pointer: str, value: int, block: int) -> None:
        """Something writes `value` behind a pointer: into a cell, or into what a parameter points to."""
        base = self.bases.get(pointer)
        if base is None:
            return
        added = value | self.runs(block)
        if base[0] == "cell":
            self.equations[self.cells[str(base[1])]] |= added
        else:
            index = int(base[1])
            self.outs[index] = self.outs.get(index, 0) | added

    def _atomic(self, line: str, start: int, result: str) -> int:
        cut = line.index("ptr ")
        pointer = self._pointer(line, cut + 4)
        comma = line.index(",", cut)
        value = self.names(line[comma:])
        self._write(pointer, value, self.block)
        address = self.value(pointer) if pointer else 0
        site = self.site_at.get(self.index)
        if site is None:
            base = self.bases.get(pointer)
            return value | (self.cells[str(base[1])] if base is not None and base[0] == "cell" else address)
        self.found.append((site, self.block, value, address))
        return self.bit(atom(SITE, site)) | (value if "cmpxchg" in line else 0)

    _HANDLERS: ClassVar[dict[str, Callable[[_Reader, str, int, str], int]]] = {
        "load": _load,
        "store": _store,
        **dict.fromkeys(("br", "indirectbr"), _jump),
        "switch": _switch,
        **dict.fromkeys(("getelementptr", "bitcast"), _address),
        **dict.fromkeys(("call", "tail", "notail", "musttail", "invoke", "callbr"), _any_call),
        **dict.fromkeys(("alloca", "landingpad"), _independent),
        "phi": _phi,
        "ret": _return,
        **dict.fromkeys(("unreachable", "unreachable,", "resume"), _throw),
        **dict.fromkeys(("atomicrmw", "cmpxchg"), _atomic),
    }

    # -- calls -------------------------------------------------------------------------------------------------

    def _call(self, line: str, index: int, block: int, ends_block: bool) -> int:
        found = _CALLEE.search(line)
        site = self.site_at.get(index, -1)
        if found is None or found.group(1) is None:
            return self._assembly(line, site, block)
        callee = found.group(1)
        name = callee[1:].strip('"') if callee[0] == "@" else ""
        if name.startswith(_SILENT):
            return 0
        arguments = _arguments(line[found.end() : matching(line, found.end() - 1) - 1])
        sets = [self.value(argument) if argument.startswith("%") else 0 for argument in arguments]
        held = [self._held(argument) for argument in arguments]
        reads = self.reads_at.get(index, ())
        read = _union([self.bit(atom(SITE, number)) for number in reads])
        self.found += [(number, block, 0, _union(sets)) for number in reads]
        written = site if site >= 0 and self.kinds[site] in ACCESSES and site not in reads else -1
        if name.startswith("llvm."):
            return self._intrinsic(name, arguments, sets, held, read, written)
        if written >= 0:
            to = 1 if sized_first(name) else 0
            value = _union(sets[to + 1 :]) | _union(held[to + 1 :]) | read
            self.found.append((site, block, value, sets[to] if len(sets) > to else 0))
        number = len(self.calls)
        is_call = site >= 0 and self.kinds[site] == "call"
        target = self.value(callee) if callee[0] == "%" else 0
        passed = [own | behind for own, behind in zip(sets, held, strict=True)]
        self.calls.append((name, site if is_call else -1, block, passed, target))
        self._write_through(arguments, number, block)
        if ends_block:
            self.conditions[block] = self.bit(atom(THROWN, number))
        return self.bit(atom(RESULT, number)) | read

    def _write_through(self, arguments: list[str], call: int, block: int) -> None:
        """A call may write to what its arguments point to."""
        for position, argument in enumerate(arguments[:MOST_ARGUMENTS]):
            if argument in self.bases:
                self._write(argument, self.bit(out_atom(call, position)), block)

    def _assembly(self, line: str, site: int, block: int) -> int:
        value = self.names(line[line.rfind('"(') :])
        if site < 0:
            return value
        self.found.append((site, block, value, value))
        return value | self.bit(atom(SITE, site))

    def _intrinsic(
        self, name: str, arguments: list[str], sets: list[int], held: list[int], read: int, written: int
    ) -> int:
        """An LLVM intrinsic. `sets`, `held`: what its arguments and the locals that they point to depend on; `written`:
        the site of what it writes, -1 if there is none."""
        if name.startswith(_COPIES):
            value = read | held[1]
            self._write(arguments[0], value, self.block)
            if written >= 0:
                self.found.append((written, self.block, value | sets[2], sets[0]))
            return 0
        value = _union(sets) | read
        if name.startswith("llvm.memset."):
            self._write(arguments[0], sets[1], self.block)
            value = sets[1] | sets[2]
        if written >= 0:
            self.found.append((written, self.block, value, sets[0] if sets else 0))
        return value | _union(held)

    def _held(self, argument: str) -> int:
        """What is in the local that an argument points to: the callee may read it."""
        base = self.bases.get(argument)
        return self.cells[str(base[1])] if base is not None and base[0] == "cell" else 0


def _arguments(text: str) -> list[str]:
    """The values in an argument list, without types and attributes."""
    parts = split_commas(text) if re.search(r'[{\[<"]|captures\(|range\(', text) else text.split(", ")
    return [part.rsplit(" ", 1)[-1] for part in parts]


def _union(sets: list[int]) -> int:
    result = 0
    for bits in sets:
        result |= bits
    return result
