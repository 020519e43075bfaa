"""Collects the dependences of one function while its text is read, and resolves them at its end."""

from __future__ import annotations

import re

from crashcheck.analyzer.compile.dependence.equations import Equations
from crashcheck.analyzer.compile.dependence.postdominance import control_dependence, predecessors_of
from crashcheck.analyzer.compile.dependence.summaries import (
    REGION,
    CallSummary,
    FunctionDependences,
    SiteSummary,
    atom,
)

LOCAL = re.compile(r'%(?:[-\w.$]+|"[^"]*")')
ACCESSES = frozenset({"store", "copy", "fill", "atomic", "model", "load", "asm"})


class Collected:
    """What a reader adds to. Sets of atoms are integers, a bit for each atom of the function."""

    def __init__(self, name: str, kinds: list[str]) -> None:
        self.name = name
        self.kinds = kinds
        self.atoms: list[int] = []  # number of each bit's atom; -1: inner, resolved at the end
        self.bit_of: dict[int, int] = {}
        self.equations: dict[int, int] = {}  # inner bit → what it represents
        self.inner = 0
        self.values: dict[str, int] = {}
        self.awaited: dict[str, int] = {}
        # Blocks, by number: where each leads, on what that depends, and what each slot holds at its end.
        self.labels: dict[str, int] = {}
        self.successors: list[list[str]] = [[]]
        self.conditions: list[int] = [0]
        self.defined: list[dict[str, int]] = [{}]
        self.block_bits: dict[int, int] = {}
        self.joins: dict[tuple[int, str], int] = {}
        self.phis: list[tuple[int, list[tuple[str, str]]]] = []
        # The result.
        self.found: list[tuple[int, int, int, int]] = []  # site, block, value, address
        self.calls: list[tuple[str, int, int, list[int], int]] = []
        self.outs: dict[int, int] = {}
        self.returned = 0
        self.thrown = 0

    def bit(self, number: int) -> int:
        known = self.bit_of.get(number)
        if known is None:
            known = self.bit_of[number] = 1 << len(self.atoms)
            self.atoms.append(number)
        return known

    def new(self, meaning: int) -> int:
        """An inner bit, to be resolved when all is read."""
        made = 1 << len(self.atoms)
        self.atoms.append(-1)
        self.inner |= made
        self.equations[made] = meaning
        return made

    def runs(self, block: int) -> int:
        """The bit for what decides whether `block` runs."""
        known = self.block_bits.get(block)
        if known is None:
            known = self.block_bits[block] = self.new(0)
        return known

    def value(self, name: str) -> int:
        known = self.values.get(name)
        if known is None:
            if name[0] != "%":
                return 0
            known = self.awaited.get(name)
            if known is None:
                known = self.awaited[name] = self.new(0)
        return known

    def names(self, text: str) -> int:
        """What all locals named in `text` depend on."""
        result = 0
        values = self.values
        for name in LOCAL.findall(text):
            known = values.get(name)
            result |= self.value(name) if known is None else known
        return result

    def reaching(self, block: int, slot: str) -> int:
        """The inner bit for what a slot holds where `block` begins."""
        known = self.joins.get((block, slot))
        if known is None:
            known = self.joins[block, slot] = self.new(0)
        return known

    def _join(self, predecessors: list[list[int]]) -> None:
        """Find for each slot at each block that asks which definitions reach it, and what decides between them."""
        waiting = list(self.joins)
        while waiting:
            block, slot = waiting.pop()
            mine = self.joins[block, slot]
            arriving: dict[tuple[int, bool], int] = {}
            for before in predecessors[block]:
                at = self._definer(before, block, slot, predecessors)
                if slot in self.defined[at]:
                    arriving[at, True] = self.defined[at][slot]
                elif (at, False) not in arriving and predecessors[at]:
                    if (at, slot) not in self.joins:
                        waiting.append((at, slot))
                    arriving[at, False] = self.reaching(at, slot)
            arriving = {key: bits for key, bits in arriving.items() if bits != mine}
            meaning = 0
            for (at, here), bits in arriving.items():
                meaning |= bits | (self.runs(at) if here and len(arriving) > 1 else 0)
            self.equations[mine] = meaning

    def _definer(self, before: int, block: int, slot: str, predecessors: list[list[int]]) -> int:
        """The block that defines a slot for `block`, from its predecessor `before` up while there is one way only."""
        at, passed = before, {block}
        while slot not in self.defined[at] and len(predecessors[at]) == 1 and at not in passed:
            passed.add(at)
            at = predecessors[at][0]
        return at

    def finish(self) -> FunctionDependences:
        successors = [list(dict.fromkeys(self.labels[name] for name in names)) for names in self.successors]
        self._join(predecessors_of(successors))
        regions = _Regions(control_dependence(successors))
        self._settle_phis(successors, regions)
        for name, made in self.awaited.items():
            self.equations[made] = self.values.get(name, 0)
        for block in list(self.block_bits):
            number = regions.of(block)
            self.equations[self.block_bits[block]] = 0 if number < 0 else self.bit(atom(REGION, number))
        for _, block, _, _ in self.found:
            regions.of(block)
        for _, _, block, _, _ in self.calls:
            regions.of(block)
        raw = self._meanings(regions)
        resolve = Equations(self.atoms, self.equations, self.inner).resolve
        return FunctionDependences(
            self.name,
            False,
            tuple(resolve(bits) for bits in raw),
            tuple(
                SiteSummary(site, regions.of(block), resolve(value), resolve(address))
                for site, block, value, address in sorted(self.found)
                if self.kinds[site] in ACCESSES
            ),
            tuple(
                CallSummary(
                    callee, site, regions.of(block), tuple(resolve(bits) for bits in arguments), resolve(target)
                )
                for callee, site, block, arguments, target in self.calls
            ),
            resolve(self.returned),
            resolve(self.thrown),
            {index: resolve(bits) for index, bits in sorted(self.outs.items())},
        )

    def _settle_phis(self, successors: list[list[int]], regions: _Regions) -> None:
        """A phi depends on its values, and on what decides by which edge its block is reached."""
        for made, incoming in self.phis:
            meaning = 0
            for name, label in incoming:
                before = self.labels.get(label, 0)
                meaning |= self.value(name) if name[0] == "%" else 0
                meaning |= self.runs(before)
                if len(successors[before]) > 1:
                    meaning |= self.bit(atom(REGION, regions.numbered(frozenset({before}))))
            self.equations[made] = meaning

    def _meanings(self, regions: _Regions) -> list[int]:
        """What the branches of each region depend on; regions met on the way are added."""
        raw: list[int] = []
        while len(raw) < len(regions.order):
            meaning = 0
            for block in sorted(regions.order[len(raw)]):
                meaning |= self.conditions[block]
                number = regions.of(block)
                if number >= 0:
                    meaning |= self.bit(atom(REGION, number))
            raw.append(meaning)
        return raw


class _Regions:
    """Numbers the sets of blocks whose branches decide whether other blocks run, in the order in which they are met."""

    def __init__(self, deciding: list[frozenset[int]]) -> None:
        self._deciding = deciding
        self._numbers: dict[frozenset[int], int] = {}
        self.order: list[frozenset[int]] = []

    def numbered(self, blocks: frozenset[int]) -> int:
        if blocks not in self._numbers:
            self._numbers[blocks] = len(self.order)
            self.order.append(blocks)
        return self._numbers[blocks]

    def of(self, block: int) -> int:
        """Number of the block's region, -1 if nothing decides it."""
        return self.numbered(self._deciding[block]) if self._deciding[block] else -1
