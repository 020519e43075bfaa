"""Decides all new crash states of a mutant at one moment, by a few explored runs (checker/exploration/product.py)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from crashcheck.checker.exploration.product import Losses, Product, product_of
from crashcheck.checker.exploration.runs import ExploredLimit, explored_runs, failing_ends
from crashcheck.checker.images.transition import Content
from crashcheck.checker.mutation.common_space import CommonSpace
from crashcheck.checker.mutation.mutant_states import MutantStates
from crashcheck.checker.results import Verdict
from crashcheck.checker.states.ideals import Ids
from crashcheck.checker.states.space import CrashState
from crashcheck.checker.verdicts.executor import Executor
from crashcheck.runtime.exploration import Explored

_TRIED = 16  # contents of a granule, for one that makes a state new
_Range = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class ProductEnd:
    """The result of exploring a product. `why`: why it is not decided; `final`: and no other will be.

    `failing`: for the first ends that failed their verdict and, if there is one, a new state that should end so.
    """

    why: str
    final: bool
    ends: int
    failing: tuple[tuple[Verdict, CrashState | None], ...] = ()

    @property
    def passes(self) -> bool:
        return not self.why and not self.failing

    @property
    def suspects(self) -> Iterator[CrashState | None]:
        """The states to be run because an explored run of them failed."""
        return (state for _, state in self.failing)


def product_at(content: Content, exposure: MutantStates, common: CommonSpace, clock: int, pool: Path) -> Product | str:
    """The product of a moment, whose image with nothing lost is in `pool`; or why it is none."""
    every = map(Losses, exposure.losses_at(clock), exposure.whole_at(clock))
    return product_of(content, common.point(clock), every, pool)


def matching(exposure: MutantStates, clock: int, product: Product, choices: Sequence[int | None]) -> CrashState | None:
    """A new state whose granules have these contents, with as little lost else as can be; None if none is found."""
    every = exposure.losses_at(clock)
    fixed = {
        place: losses[which]
        for place, losses, which in zip(product.places, product.losses, choices, strict=True)
        if which is not None
    }
    chosen: list[Ids] = [fixed.get(place, ()) for place in range(len(every))]
    state = exposure.combined(clock, chosen)
    if state is not None:
        return state
    for place, losses in enumerate(every):
        if place in fixed:
            continue
        for lost in (losses or ())[1:_TRIED]:
            state = exposure.combined(clock, [*chosen[:place], lost, *chosen[place + 1 :]])
            if state is not None:
                return state
    return None


def drawn(exposure: MutantStates, clock: int, most: int) -> Iterator[CrashState]:
    """Up to `most` new states of a moment, always the same ones; some may come more than once."""
    drawing = Random(clock)
    every = exposure.losses_at(clock)
    for _ in range(most):
        share = drawing.random()
        chosen = [drawing.choice(losses) if losses is not None and drawing.random() < share else () for losses in every]
        state = exposure.combined(clock, chosen)
        if state is not None:
            yield state


class Covering:
    """Explores moments, several at once, and remembers what it has shown: other mutants have the same moments."""

    def __init__(self, common: CommonSpace, executor: Executor) -> None:
        self._common = common
        self._executor = executor
        self._passed: dict[int, list[dict[_Range, frozenset[bytes]]]] = {}

    def decide(self, exposure: MutantStates, clocks: Sequence[int], timeout_s: float) -> list[ProductEnd]:
        """The results for some moments; all in about the time of one if there are no more than jobs."""
        folders = [self._executor.home / f"explored{number}" for number in range(len(clocks))]
        try:
            prepared = [self._prepare(exposure, *each) for each in zip(clocks, folders, strict=True)]
            unknown = [
                one if isinstance(one, Product) and not self._is_known(clock, one) else None
                for clock, one in zip(clocks, prepared, strict=True)
            ]
            explored = explored_runs(self._executor, list(zip(unknown, folders, strict=True)), ExploredLimit(timeout_s))
        finally:
            for folder in folders:
                shutil.rmtree(folder, ignore_errors=True)
        return [
            self._outcome(exposure, clock, one, what, folder)
            for clock, one, what, folder in zip(clocks, prepared, explored, folders, strict=True)
        ]

    def _prepare(self, exposure: MutantStates, clock: int, folder: Path) -> Product | str:
        folder.mkdir()
        self._executor.images.write_image(self._common.state(clock, ()), folder / "pool")
        return product_at(self._common.content, exposure, self._common, clock, folder / "pool")

    def _outcome(
        self, exposure: MutantStates, clock: int, product: Product | str, explored: Explored | None, folder: Path
    ) -> ProductEnd:
        if isinstance(product, str):
            return ProductEnd(product, False, 0)
        if explored is None:
            return ProductEnd("", False, 0)
        failing = tuple(
            (verdict, matching(exposure, clock, product, end.choices))
            for end, verdict in failing_ends(self._executor, explored, product.point, folder)
        )
        outcome = ProductEnd(explored.why, explored.final, len(explored.ends), failing)
        if outcome.passes:
            self._passed.setdefault(clock, []).append(_contents(product))
        return outcome

    def _is_known(self, clock: int, product: Product) -> bool:
        """Whether a product that holds this one was decided before."""
        mine = _contents(product)
        return any(
            all(
                range_ in known and (contents <= known[range_] if contents else not known[range_])
                for range_, contents in mine.items()
            )
            for known in self._passed.get(clock, ())
        )


def _contents(product: Product) -> dict[_Range, frozenset[bytes]]:
    """Of each granule; none where they are too many to be listed, and none was read."""
    return {(each.path, each.offset, each.length): frozenset(each.contents) for each in product.granules}
