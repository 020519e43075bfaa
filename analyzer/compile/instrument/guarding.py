"""The pass of `crashcheck learn` and `crashcheck guard`: a call before and after each access that threads may share.

Contract: runtime/include/guard.h. In a training build all such accesses are bracketed; in a guarded one those to
variables that training saw to be shared (AI §3.2, footnote) and those of code that training never ran. Not bracketed
are groups of hot sites, and where only marked accesses count all others (AI §3.3).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from crashcheck.analyzer.compile.facts import Site, UnhookedConstruct, UnitFacts
from crashcheck.analyzer.compile.instrument import hooks, inline_asm
from crashcheck.analyzer.compile.instrument.emitter import DBG
from crashcheck.analyzer.compile.instrument.rewriter import _LOAD, _STORE, Rewriter
from crashcheck.analyzer.compile.ir import addresses
from crashcheck.analyzer.compile.ir.atomic_calls import atomic_call
from crashcheck.analyzer.compile.ir.debuginfo import DebugInfo
from crashcheck.analyzer.compile.ir.text import ModuleText, call_arguments, operand, type_end, value_end
from crashcheck.analyzer.compile.ir.typemap import Target
from crashcheck.analyzer.compile.learned_sets import LearnedSets
from crashcheck.analyzer.compile.site_names import CHANGED, SETTLED, NamedSite, Namer, site_id

VERSION = 5  # CC_GUARD_VERSION

_DECLARED = """
declare void @cc_guard_begin(ptr, i64, ptr, i32) nounwind
declare void @cc_guard_begin_settled(ptr, i64, ptr, i32, i32) nounwind
declare void @cc_guard_end() nounwind
declare void @cc_guard_forget(ptr, i64) nounwind
"""
_NAME = re.compile(r'%(?:[-\w.$]+|"[^"]*")')
_KEEPS = re.compile(
    r"  (?:%[-\w.$]+ = load |%[-\w.$]+ = icmp |call void @llvm\.(?:lifetime|dbg|memcpy|memmove|memset)\b)|    #dbg_"
)
_ALIAS = re.compile(r"  (%[-\w.$]+) = (?:getelementptr|bitcast) .*?ptr (%[-\w.$]+)")
_STORED_TO = re.compile(r"  store .*, ptr (%[-\w.$]+)(?:, |$)")
_ALLOCA = re.compile(r"  (%[-\w.$]+) = alloca ")
_LIFETIME = re.compile(r"  call void @llvm\.lifetime\.start\.p0\(.*?(%[-\w.$]+)\)")
_GLOBAL = re.compile(r'^(@(?:[-\w.$]+|"[^"]*")) = [^\n"{\[]*?\bglobal (%[^\n]*)$', re.MULTILINE)  # of a struct's type
_ATOMIC_LOAD = " load atomic "
_BULK = ("llvm.memcpy", "llvm.memmove", "llvm.memset")
_MARKS = ("crashcheck_guard_function", "crashcheck_guard_block")  # of crashcheck.h
_LANES = ("llvm.masked.", "llvm.x86.")


def escaping_locals(body: Sequence[str]) -> set[str]:
    """The locals of a function whose address it keeps or passes on, so that other threads may access them."""
    roots: dict[str, str] = {}
    escaped: set[str] = set()
    for line in body:
        if found := _ALLOCA.match(line):
            roots[found[1]] = found[1]
            continue
        used = [name for name in _NAME.findall(line) if name in roots]
        if not used or _KEEPS.match(line):
            continue
        if (found := _ALIAS.match(line)) and used == [found[2]]:
            roots[found[1]] = roots[found[2]]
        elif (found := _STORED_TO.match(line)) is None or used != [found[1]]:
            escaped.update(roots[name] for name in used)
    return escaped


@dataclass(slots=True)
class _Bracket:
    """An access: its site, and in the output the places of the calls before and after it.

    `pointer` and `size` are what it accesses; `life` is the place in `Guarding._lives` if that is a local, else None;
    `dbg` is the number of its DILocation, 0 if it has none.
    """

    site: int
    begin: int
    end: int
    pointer: str
    size: str
    life: int | None
    dbg: int


# Facts of a unit from its sites, the hashes of its functions, and what was not understood.
Describe = Callable[[tuple[Site, ...], dict[str, str], tuple[UnhookedConstruct, ...]], UnitFacts]


class Guarding(Rewriter):
    """Brackets the accesses of one unit, and writes the tables of its sites.

    `learned`: the sets to guard with, in a training build those of an earlier one; `folder`: what their names are
    relative to; `training`: all accesses are bracketed, or if `marked` those that the program marks.
    """

    def __init__(
        self,
        module: ModuleText,
        debug: DebugInfo,
        models: frozenset[str],
        keep_debug: bool,
        describe: Describe,
        learned: LearnedSets,
        folder: str,
        training: bool = False,
        marked: bool = False,
    ) -> None:
        super().__init__(module, debug, models, keep_debug)
        self._describe = describe
        self._learned = learned
        self._left_alone = learned.left_alone()
        self._harmless = learned.harmless_reads()
        self._settled = learned.settled_reads()
        self._training = training
        self._only_marked = marked or learned.marked
        self._marks: set[int] = set()  # blocks and functions, by their number in the debug information
        self._namer = Namer(folder)
        self._globals = dict(_GLOBAL.findall(module.body)) if learned.objects else {}
        self._escaped: set[str] = set()
        self._brackets: list[_Bracket] = []
        self._lives: list[tuple[int, str]] = []  # where a local's life begins in the output, and the call there
        self._life_of: dict[str, int] = {}  # of the function's locals
        self._table: list[int] = []  # each site that is bracketed: its id, how many predecessors it has, and their ids
        self.facts: UnitFacts | None = None

    # -- accesses ----------------------------------------------------------------------------------------------

    def _begin_function(self, line: str, body: list[str]) -> bool:
        self._escaped = escaping_locals(body)
        self._life_of = {}
        return super()._begin_function(line, body)

    def _access(self, kind: str, line: str, pointer: str, type_text: str, size: str, alone: bool = True) -> None:
        """Bracket an access, and emit its instruction inside; `alone`: False if the instruction follows later."""
        target = self._shared_target(pointer, type_text, line) if pointer and size not in ("", "0") else None
        if target is not None and not self._learned.atomics and (kind == "atomic" or _ATOMIC_LOAD in line):
            self.site(kind, line, target)  # the others keep their names
            target = None
        if target is not None:
            base = addresses.base_of(pointer, self.definitions, self._slots)
            instance = self._instance(target, base) if self._learned.objects else ""
            if instance and (type_text or instance != pointer):  # a copy of all of it is to each byte
                pointer, size = instance, "1"
            begin = len(self.out)
            self.out += ["", line, ""] if alone else ["", ""]
            site = self.site(kind, line, target)
            found = DBG.search(line)
            dbg = int(found[1]) if found is not None else 0
            self._brackets.append(_Bracket(site, begin, len(self.out) - 1, pointer, size, self._life_of.get(base), dbg))
        elif alone:
            self.out.append(line)

    def _shared_target(self, pointer: str, type_text: str, line: str) -> Target | None:
        """What an access leads to; None if no other thread can access it."""
        target = self.types.resolve(pointer, self.definitions, self._slots, type_text, line, self.fresh)
        if not target.local:
            return target
        base = addresses.base_of(pointer, self.definitions, self._slots)
        if base in self._escaped:
            number = self._slots.variable(base)
            return Target(variable=self.debug.string(number, "name") if number is not None else "")
        target = self.shared_global(pointer)
        return None if target.local else target

    def _instance(self, target: Target, base: str) -> str:
        """The address of the outermost struct instance that an access is to a member of: all its members have the
        record of its first byte. "" if none is known."""
        if target.instance != "null":
            if target.prelude:
                self.emit(target.prelude)
            return target.instance
        line = self.definitions.get(base, "") if base.startswith("%") else self._globals.get(base, "")
        start = line.find(" = alloca ") + 10 if base.startswith("%") else 0
        is_struct = bool(line) and self.module.types.fields(line[start : type_end(line, start)]) is not None
        return base if is_struct else ""

    def _typed(self, kind: str, line: str, pointer: str, type_text: str) -> None:
        size = self.module.types.store_size(type_text)
        if size is None:
            self.unknown(line, f"{kind} of {type_text}")
        self._access(kind, line, pointer, type_text, str(size or ""))

    def _store(self, line: str) -> None:
        found = _STORE.match(line)
        assert found is not None
        end = type_end(line, found.end())
        pointer, _ = self._pointer(line, value_end(line, end + 1) + 2)
        self._typed("atomic" if found[1] else "store", line, pointer, line[found.end() : end])

    def _load(self, line: str) -> None:
        found = _LOAD.search(line)
        assert found is not None
        end = type_end(line, found.end())
        pointer, _ = self._pointer(line, end + 2)
        self._typed("load", line, pointer, line[found.end() : end])

    def _bracket(
        self, line: str, type_text: str, pointer: str, locked: bool, stored: str, read: int = hooks.ATOMIC_READ
    ) -> None:
        self._typed("atomic", line, pointer, type_text)

    def _library_atomic(self, line: str, callee: str, parenthesis: int) -> bool:
        arguments = call_arguments(line, parenthesis)
        call = atomic_call(callee, arguments)
        if call is not None:
            pointer = operand(arguments[call.pointer]).value
            self._access("atomic", line, pointer, f"i{8 * call.size_bytes}", str(call.size_bytes))
        return call is not None

    def _intrinsic(self, line: str, following: list[str], callee: str, parenthesis: int) -> None:
        if callee.startswith(_BULK):
            target, source, size = (operand(part) for part in call_arguments(line, parenthesis)[:3])
            size_bytes = self.wide(size)
            copies = not callee.startswith("llvm.memset")
            if copies:
                self._access("load", line, source.value, "", size_bytes, alone=False)
            self._access("copy" if copies else "fill", line, target.value, "", size_bytes)
            return
        if callee.startswith("llvm.threadlocal.address"):
            self.definitions[line[2 : line.index(" = ")]] = line
        elif callee.startswith(_LANES) and "ptr" in line[parenthesis:]:
            self.unknown(line, callee)
        elif callee.startswith("llvm.lifetime.start"):
            self._life_begins(line)
        self._plain(line, following)

    def _life_begins(self, line: str) -> None:
        """What a local's memory held before is no access to it."""
        found = _LIFETIME.match(line)
        allocated = self.definitions.get(found[1], "") if found is not None and found[1] in self._escaped else ""
        if found is None or not allocated:
            return
        start = allocated.index(" = alloca ") + 10
        size = self.module.types.store_size(allocated[start : type_end(allocated, start)])
        self._life_of[found[1]] = len(self._lives)
        self._lives.append((len(self.out), f"  call void @cc_guard_forget(ptr {found[1]}, i64 {size or 0})"))
        self.out.append("")

    def _assembly(self, line: str, following: list[str], at: int) -> None:
        """Inline assembly stays unobserved, and is noted if it may access memory that threads share."""
        whole = "".join([line, *following])
        call = inline_asm.read_call(line, at)
        accessed = [one.argument.value for one in call.operands if one.argument is not None and "*" in one.constraint]
        if call.template.strip() and accessed:
            if not all(self.is_local(pointer) and self.shared_global(pointer).local for pointer in accessed):
                self.unknown(whole, call.template)
        elif inline_asm.understand(call).not_understood:
            self.unknown(whole, call.template)
        self._plain(line, following)

    def _before_call(self, line: str, whole: str, callee: str, parenthesis: int, musttail: bool) -> None:
        """A mark of crashcheck.h is a call of a function that nobody defines, where its address is not null."""
        found = DBG.search(line) if callee in _MARKS else None
        if found is not None:
            scope: int | None = next(self.debug.scopes(int(found[1])), None)
            if callee == _MARKS[0]:
                scope = self.debug.function_of(int(found[1]))
            self._marks.update(() if scope is None else (scope,))

    # -- what only the recorder asks for -----------------------------------------------------------------------

    def _leave_here(self, left: bool) -> None:
        pass

    def read_by(self, line: str, callee: str, parenthesis: int) -> None:
        pass

    # -- which accesses stay bracketed -------------------------------------------------------------------------

    def _resolve_calls(self) -> None:
        facts = self.facts = self._describe(tuple(self.sites), self._hashes, tuple(self.not_understood))
        codes = self._namer.codes([facts])
        rows: dict[int, list[int]] = {}  # by bracket
        for index, bracket in enumerate(self._brackets):
            if self._training and not self._only_marked:
                self._emit_bracket(bracket, bracket.site)
                continue
            site = self._namer.named(facts, bracket.site)
            if self._only_marked and not self._is_marked(bracket, site, codes):
                continue
            if self._training:
                self._emit_bracket(bracket, bracket.site)
            elif row := guarded(site, codes, self._learned, self._left_alone, self._harmless):
                settled = self._settled.get(site.name, 0) * SETTLED if row[1] else 0
                rows[index] = [row[0] | settled, len(row[1]), *row[1]]
        places: dict[int, int] = {}  # in the table, by id: inlined copies have one row
        for index in sorted(rows, key=lambda index: not rows[index][1]):  # what is run is not among what is not
            entry = rows[index]
            if entry[0] not in places:
                places[entry[0]] = len(self._table)
                self._table += entry
            self._emit_bracket(self._brackets[index], places[entry[0]], entry[0] % CHANGED // SETTLED)

    def _is_marked(self, bracket: _Bracket, site: NamedSite, codes: Mapping[str, str]) -> bool:
        """Whether the site is in a block or function with a mark, or accessed a variable that the program named."""
        if bracket.dbg and not self._marks.isdisjoint(self.debug.scopes(bracket.dbg)):
            return True
        known = self._learned.sites.get(site.name)
        if known is None or not self._training:
            return known is not None
        return known.addressed and self._learned.codes.get(site.code) == codes[site.code]

    def _emit_bracket(self, bracket: _Bracket, number: int, settled: int = 0) -> None:
        """Fill in the calls around an access, and before it where its local begins to live.

        `number`: where its row is in the table, in a training build of its site; `settled`: of LearnedSets, or 0.
        """
        found = DBG.search(self.out[bracket.begin + 1]) if self.keep_debug else None
        at = found.group() if found else ""
        where = f"ptr {bracket.pointer}, i64 {bracket.size}, ptr {hooks.UNIT}, i32 {number}"
        begin = f"begin_settled({where}, i32 {settled * SETTLED >> 32})" if settled else f"begin({where})"
        self.out[bracket.begin] = f"  call void @cc_guard_{begin}{at}"
        self.out[bracket.end] = f"  call void @cc_guard_end(){at}"
        if bracket.life is not None:
            place, call = self._lives[bracket.life]
            self.out[place] = call

    def descriptor(self, key: int, blob: bytes, section: str) -> str:
        """The text of the unit's descriptor, its tables and its facts (`blob`, in an ELF section)."""
        words = [f"i64 {word}" for word in (*self._table, 0)]
        digest = 0 if self._training else self._learned.digest()
        sites = "null" if self._training else "@cc.guard.sites"
        facts = "".join(f"\\{byte:02X}" for byte in blob)
        return "\n".join(
            [
                _DECLARED,
                f"@cc.guard.sites = internal constant [{len(words)} x i64] [{', '.join(words)}], align 64",
                f'{hooks.FACTS} = internal constant [{len(blob)} x i8] c"{facts}", section "{section}", align 8',
                f"{hooks.UNIT} = internal global {{ i64, ptr, ptr, i32, i32, i64 }} "
                f"{{ i64 {key}, ptr {sites}, ptr {hooks.FACTS}, i32 {VERSION}, i32 0, i64 {digest} }}, align 8",
                "",
            ]
        )

    _HANDLERS: ClassVar[dict[str, Callable[[Any, str], None]]] = {
        **Rewriter._HANDLERS,
        "store": _store,
        "load": _load,
        "fence": Rewriter._plain,
    }


def guarded(
    site: NamedSite,
    codes: Mapping[str, str],
    learned: LearnedSets,
    left_alone: frozenset[str],
    harmless: Mapping[str, frozenset[str]],
) -> tuple[int, list[int]] | None:
    """The id of a site and the ids of what it may follow, nil first; no ids if training never ran it.

    `codes`: the hashes of the code now; `left_alone`: groups that are not guarded; `harmless`: of
    LearnedSets.harmless_reads. None: the site is not guarded.
    """
    number = site_id(site.name)
    if learned.codes.get(site.code) != codes[site.code]:
        return number | CHANGED, []
    known = learned.sites.get(site.name)
    if known is None:
        return number, []
    if not known.shared or known.group in left_alone:
        return None
    allowed = known.before | harmless.get(site.name, frozenset())
    return number, sorted(0 if name is None else site_id(name) for name in allowed)
