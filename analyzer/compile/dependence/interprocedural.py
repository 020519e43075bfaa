"""Which accesses of a program depend on which reads: its functions' own dependences, closed over their calls.

A result is followed into the callee and back to the arguments of the same call; a parameter and a function's entry to
all callers (the two phases of Horwitz, Reps and Binkley), so that two callers of one helper do not mix.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from crashcheck.analyzer.compile.dependence.summaries import (
    MOST_ARGUMENTS,
    OUT,
    PARAMETER,
    REGION,
    RESULT,
    SITE,
    SORT_BITS,
    THROWN,
    Atoms,
    CallSummary,
    FunctionDependences,
    unpack,
)
from crashcheck.analyzer.compile.facts import ProgramFacts, UnitFacts
from crashcheck.errors import CrashcheckError
from crashcheck.interruption import KeepOn, always

_SORT = (1 << SORT_BITS) - 1
_MOVED = ".operation."  # a named operation's code is in an internal function (instrument.operations)


@dataclass(frozen=True, slots=True, order=True)
class SiteRef:
    """A site of a program: its unit's key and its index among the unit's sites."""

    unit: int
    index: int


class SiteDependence(NamedTuple):  # there are millions: a dataclass takes three times as long to make
    """The access at `site` depends on what the access at `on` reads (Witcher 4.3.2), by registers and calls alone.

    A pair appears once; each flag shows that some path of that kind joins the two, so several may hold:
    `control`: a path with at least one control edge (`if (X) Y = 3`; RO2, RO3);
    `value`: only data edges, and what `on` reads is (part of) what `site` writes (`Y = X + 3`; RO1);
    `address`: only data edges, one of them into an address (`X->next->field = 1`, `a[X] = 1`).
    A load writes nothing: it has no `value` paths. No path leads through memory: each access on the way is
    an end of its own, so chains through memory nobody watches are for the reader of the trace to follow.
    """

    site: SiteRef  # a store, atomic, copy, fill, model call or load
    on: SiteRef  # a load, or an atomic operation
    control: bool
    address: bool
    value: bool
    inherited: bool  # every path comes from a caller: by an argument, or by what the call itself is guarded by

    @property
    def data(self) -> bool:
        """Some path has only data edges."""
        return self.address or self.value


class _Reads:
    """Sets of reads by kind of path, and sets of the function's parameters by the same kinds: one bit per member."""

    __slots__ = ("address", "control", "on_address", "on_control", "on_value", "value")

    def __init__(self) -> None:
        self.value = self.address = self.control = 0
        self.on_value = self.on_address = self.on_control = 0  # parameters

    def add(self, other: _Reads) -> None:
        self.value |= other.value
        self.address |= other.address
        self.control |= other.control
        self.on_value |= other.on_value
        self.on_address |= other.on_address
        self.on_control |= other.on_control

    def add_address(self, other: _Reads) -> None:
        """What follows a path whose last edge goes into an address."""
        self.address |= other.value | other.address
        self.control |= other.control
        self.on_address |= other.on_value | other.on_address
        self.on_control |= other.on_control

    def add_control(self, other: _Reads) -> None:
        self.control |= other.value | other.address | other.control
        self.on_control |= other.on_value | other.on_address | other.on_control

    def key(self) -> tuple[int, ...]:
        return (self.value, self.address, self.control, self.on_value, self.on_address, self.on_control)


@dataclass(frozen=True, slots=True)
class _Formula:
    """The value of some atoms of a function: what never changes, and what regions and calls add to it."""

    reads: int
    parameters: int
    regions: tuple[int, ...]
    calls: tuple[tuple[int, int, int], ...]  # sort, number of the call, and of OUT the argument


class _Function:
    """A function while the program is closed."""

    def __init__(self, unit: int, summary: FunctionDependences) -> None:
        self.unit = unit
        self.summary = summary
        self.callees: list[list[_Function]] = []
        self.callers: list[tuple[_Function, CallSummary, int]] = []
        self.regions = [_Reads() for _ in summary.regions]
        self.arguments = [[_Reads() for _ in call.arguments] for call in summary.calls]
        self.returned = _Reads()
        self.thrown = _Reads()
        self.outs = {index: _Reads() for index in summary.outs}
        self.parameters: dict[int, _Reads] = {}  # what callers give, as reads
        self.entry = 0  # reads that decide whether it is called
        # its unknowns: the regions, then its calls' arguments; for each its formula, and which unknowns depend on what
        self.formulas: list[_Formula] = []
        self.argument_at: list[tuple[int, int]] = []
        self.of_region: dict[int, list[int]] = {}
        self.of_call: dict[int, list[int]] = {}


class Dependences:
    """All dependences of a program, kept as sets of bits; one access's are listed when asked for."""

    def __init__(self, reads: list[SiteRef], sets: dict[SiteRef, tuple[int, int, int, int]]) -> None:
        self._reads = reads
        self._sets = sets  # site → reads by value, address, control; and those met without a caller
        order = sorted(range(len(reads)), key=lambda bit: reads[bit])
        self._place = sorted(range(len(reads)), key=order.__getitem__)  # of each read, in the order of all

    def of(self, site: SiteRef) -> tuple[SiteDependence, ...]:
        """What the access at `site` depends on, by (unit, index) of `on`; () for a site that nothing is known of."""
        value, address, control, own = self._sets.get(site, (0, 0, 0, 0))
        bits = []
        whole = value | address | control
        while whole:
            low = whole & -whole
            whole ^= low
            bits.append(low.bit_length() - 1)
        bits.sort(key=self._place.__getitem__)
        return tuple(
            SiteDependence(
                site,
                self._reads[bit],
                bool(control >> bit & 1),
                bool(address >> bit & 1),
                bool(value >> bit & 1),
                not own >> bit & 1,
            )
            for bit in bits
        )

    def __iter__(self) -> Iterator[SiteDependence]:
        """By (unit, index) of the site, then of what it depends on."""
        for site in sorted(self._sets):
            yield from self.of(site)

    def __len__(self) -> int:
        """The number of pairs."""
        return sum((value | address | control).bit_count() for value, address, control, _ in self._sets.values())


def site_dependences(
    facts: ProgramFacts,
    indirect: Mapping[SiteRef, frozenset[str]],
    ran: Collection[SiteRef] | None = None,
    keep_on: KeepOn = always,
) -> Dependences:
    """Close the units' dependences over the program.

    `ran`: the reads that matter, None for all; a library has many more that did not run, and each costs its bits.

    `indirect`: for call sites without a static callee, the functions that they were seen to call, by symbol or by the
    name in the source. The result of a call whose callee has no facts depends on its arguments. `keep_on` is called for
    each function: a large program takes a minute. Raises CrashcheckError `facts-corrupt`.
    """
    return _Closure(facts, indirect, ran).run(keep_on)


def _name_in_source(summary: FunctionDependences, unit: UnitFacts) -> str:
    """The function's qualified name, as the first of its sites that is there has it."""
    for index in [*(one.site for one in summary.sites), *(call.site for call in summary.calls)]:
        if 0 <= index < len(unit.sites):
            return unit.sites[index].positions[-1].function
    return ""


class _Closure:
    """A program's functions, linked by their calls; closed in two phases: from callees up, then from callers down."""

    def __init__(
        self,
        facts: ProgramFacts,
        indirect: Mapping[SiteRef, frozenset[str]],
        ran: Collection[SiteRef] | None,
    ) -> None:
        self.ran = ran
        self.functions: list[_Function] = []
        self.reads: list[SiteRef] = []
        self.bit_of: dict[SiteRef, int] = {}
        self.at_home: dict[tuple[int, str], list[_Function]] = {}
        self.anywhere: dict[str, list[_Function]] = {}
        self.by_name: dict[str, list[_Function]] = {}  # by symbol, and by the name in the source
        for key in sorted(facts.units):
            self._add_unit(key, facts.units[key])
        for function in self.functions:
            self._link(function, indirect)

    def _add_unit(self, key: int, unit: UnitFacts) -> None:
        try:
            summaries = unpack(unit.dependences)
        except ValueError as error:
            raise CrashcheckError(
                "facts-corrupt", f"{unit.source}: {error}", "rebuild the program with crashcheck-cc"
            ) from error
        for summary in summaries:
            function = _Function(key, summary)
            self.functions.append(function)
            symbol, moved, _ = summary.symbol.partition(_MOVED)
            if summary.internal and not moved:
                self.at_home.setdefault((key, symbol), []).append(function)
            else:
                self.anywhere.setdefault(symbol, []).append(function)
            for name in {symbol, _name_in_source(summary, unit) or symbol}:
                self.by_name.setdefault(name, []).append(function)

    def _link(self, function: _Function, indirect: Mapping[SiteRef, frozenset[str]]) -> None:
        """Find the callees of a function's calls."""
        for number, call in enumerate(function.summary.calls):
            if call.callee:
                callees = self.at_home.get((function.unit, call.callee)) or self.anywhere.get(call.callee, [])
            else:
                seen = indirect.get(SiteRef(function.unit, call.site), frozenset())
                found = {id(one): one for name in sorted(seen) for one in self.by_name.get(name, ())}
                callees = list(found.values())
            function.callees.append(callees)
            for callee in callees:
                callee.callers.append((function, call, number))

    # -- inside a function -------------------------------------------------------------------------------------

    def _read(self, unit: int, index: int) -> int:
        ref = SiteRef(unit, index)
        if self.ran is not None and ref not in self.ran:
            return 0
        known = self.bit_of.get(ref)
        if known is None:
            known = self.bit_of[ref] = 1 << len(self.reads)
            self.reads.append(ref)
        return known

    def _formula(self, function: _Function, atoms: Atoms) -> _Formula:
        reads = parameters = 0
        regions, calls = [], []
        for one in atoms:
            sort, number = one & _SORT, one >> SORT_BITS
            if sort == SITE:
                reads |= self._read(function.unit, number)
            elif sort == PARAMETER:
                parameters |= 1 << number
            elif sort == REGION:
                regions.append(number)
            else:
                calls.append((sort, *(divmod(number, MOST_ARGUMENTS) if sort == OUT else (number, 0))))
        return _Formula(reads, parameters, tuple(regions), tuple(calls))

    def _evaluate(self, function: _Function, atoms: Atoms) -> _Reads:
        return self._value(function, self._formula(function, atoms))

    def _value(self, function: _Function, formula: _Formula) -> _Reads:
        result = _Reads()
        result.value, result.on_value = formula.reads, formula.parameters
        for region in formula.regions:
            result.control |= function.regions[region].control
            result.on_control |= function.regions[region].on_control
        for sort, call, argument in formula.calls:
            self._from_call(function, sort, call, argument, result)
        return result

    def _from_call(self, function: _Function, sort: int, call: int, argument: int, result: _Reads) -> None:
        """Add what a call returns, throws or leaves behind a pointer; without facts, what its arguments depend on."""
        if not function.callees[call] and sort != THROWN:
            self._unknown(function, call, result)
        for callee in function.callees[call]:
            ended = (
                callee.returned if sort == RESULT else callee.thrown if sort == THROWN else callee.outs.get(argument)
            )
            if ended is not None:
                self._give(ended, function.arguments[call], result)

    @staticmethod
    def _unknown(function: _Function, call: int, result: _Reads) -> None:
        for argument in function.arguments[call]:
            result.add(argument)

    @staticmethod
    def _give(summary: _Reads, arguments: list[_Reads], result: _Reads) -> None:
        """A callee's summary with this call's arguments in the place of its parameters."""
        result.value |= summary.value
        result.address |= summary.address
        result.control |= summary.control
        either = summary.on_value | summary.on_address | summary.on_control
        for index, argument in enumerate(arguments):
            if not either >> index & 1:
                continue
            if summary.on_value >> index & 1:
                result.add(argument)
            if summary.on_address >> index & 1:
                result.add_address(argument)
            if summary.on_control >> index & 1:
                result.add_control(argument)

    def _list_unknowns(self, function: _Function) -> None:
        summary = function.summary
        function.formulas = [self._formula(function, atoms) for atoms in summary.regions]
        for number, call in enumerate(summary.calls):
            for index, atoms in enumerate(call.arguments):
                if atoms:
                    function.formulas.append(self._formula(function, atoms))
                    function.argument_at.append((number, index))
        for at, formula in enumerate(function.formulas):
            for region in set(formula.regions):
                function.of_region.setdefault(region, []).append(at)
            for number in {call for _, call, _ in formula.calls}:
                function.of_call.setdefault(number, []).append(at)

    def _update(self, function: _Function, at: int) -> Iterable[int]:
        """Evaluate one unknown; those that have to be evaluated after it."""
        made = self._value(function, function.formulas[at])
        regions = len(function.regions)
        if at < regions:
            known, users = function.regions, function.of_region.get(at, ())
            place, all_of_it = at, made
            made = _Reads()  # a region only decides whether something is done
            made.add_control(all_of_it)
        else:
            call, place = function.argument_at[at - regions]
            known, users = function.arguments[call], function.of_call.get(call, ())
        if made.key() == known[place].key():
            return ()
        known[place] = made
        return users

    def _settle(self, function: _Function, changed: Collection[int] | None) -> bool:
        """Evaluate a function's sets until they stay; whether what its callers see has changed.

        `changed`: the calls whose callees have changed since it was last done; None: it is the first time.
        """
        summary = function.summary
        if changed is None:
            self._list_unknowns(function)
            todo = set(range(len(function.formulas)))
        else:
            todo = {at for call in changed for at in function.of_call.get(call, ())}
        while todo:
            for at in sorted(todo):
                todo.discard(at)
                todo.update(self._update(function, at))
        before = [function.returned.key(), function.thrown.key(), *(one.key() for one in function.outs.values())]
        function.returned = self._evaluate(function, summary.returned)
        function.thrown = self._evaluate(function, summary.thrown)
        function.outs = {index: self._evaluate(function, atoms) for index, atoms in summary.outs.items()}
        after = [function.returned.key(), function.thrown.key(), *(one.key() for one in function.outs.values())]
        return before != after

    # -- the program -------------------------------------------------------------------------------------------

    def run(self, keep_on: KeepOn) -> Dependences:
        self._summarise(keep_on)
        keep_on()
        self._hand_down()
        sets: dict[SiteRef, tuple[int, int, int, int]] = {}
        for function in self.functions:
            keep_on()
            for site in function.summary.sites:
                own = self._evaluate(function, site.value)
                own.add_address(self._evaluate(function, site.address))
                if site.region >= 0:
                    own.add_control(function.regions[site.region])
                met = own.value | own.address | own.control
                value, address, control = self._inherit(function, own)
                control |= function.entry
                if value | address | control:
                    sets[SiteRef(function.unit, site.site)] = (value, address, control, met)
        return Dependences(self.reads, sets)

    def _summarise(self, keep_on: KeepOn) -> None:
        """Summaries from callees to callers, until none changes."""
        order = self._callees_first()
        place = {id(function): at for at, function in enumerate(order)}
        waiting: dict[int, set[int] | None] = dict.fromkeys(range(len(order)))
        while waiting:
            for at in sorted(waiting):
                keep_on()
                if not self._settle(order[at], waiting.pop(at)):
                    continue
                for caller, _, number in order[at].callers:
                    changed = waiting.setdefault(place[id(caller)], set())
                    if changed is not None:
                        changed.add(number)

    def _callees_first(self) -> list[_Function]:
        """Depth first; a function of a cycle may precede one of its callees."""
        seen: set[int] = set()
        order: list[_Function] = []
        for root in self.functions:
            if id(root) not in seen:
                self._visit(root, seen, order)
        return order

    @staticmethod
    def _visit(root: _Function, seen: set[int], order: list[_Function]) -> None:
        """Append `root` to `order`, after what it reaches and nobody has seen."""
        seen.add(id(root))
        stack = [(root, chain.from_iterable(root.callees))]
        while stack:
            function, rest = stack[-1]
            unseen = next((callee for callee in rest if id(callee) not in seen), None)
            if unseen is None:
                stack.pop()
                order.append(function)
            else:
                seen.add(id(unseen))
                stack.append((unseen, chain.from_iterable(unseen.callees)))

    def _inherit(self, function: _Function, kinds: _Reads) -> tuple[int, int, int]:
        """Reads by value, address and control, parameters replaced by what callers give."""
        value, address, control = kinds.value, kinds.address, kinds.control
        either = kinds.on_value | kinds.on_address | kinds.on_control
        while either:
            low = either & -either
            either ^= low
            given = function.parameters.get(low.bit_length() - 1)
            if given is None:
                continue
            if kinds.on_value & low:
                value |= given.value
                address |= given.address
                control |= given.control
            if kinds.on_address & low:
                address |= given.value | given.address
                control |= given.control
            if kinds.on_control & low:
                control |= given.value | given.address | given.control
        return value, address, control

    def _hand_down(self) -> None:
        """Parameters and entries from callers to callees, until none changes."""
        order = self._callees_first()[::-1]
        place = {id(function): at for at, function in enumerate(order)}
        waiting = set(range(len(order)))
        while waiting:
            for at in sorted(waiting):
                waiting.discard(at)
                function = order[at]
                for number, call in enumerate(function.summary.calls):
                    for callee in function.callees[number]:
                        if self._enter(function, number, call, callee):
                            waiting.add(place[id(callee)])

    def _enter(self, function: _Function, number: int, call: CallSummary, callee: _Function) -> bool:
        changed = False
        guard = _Reads()
        if call.region >= 0:
            guard.add_control(function.regions[call.region])
        guard.add_control(self._evaluate(function, call.target))
        entry = callee.entry | function.entry | self._inherit(function, guard)[2]
        if entry != callee.entry:
            callee.entry = entry
            changed = True
        for index, argument in enumerate(function.arguments[number]):
            value, address, control = self._inherit(function, argument)
            known = callee.parameters.setdefault(index, _Reads())
            before = known.key()
            known.value |= value
            known.address |= address
            known.control |= control
            changed = changed or known.key() != before
        return changed
