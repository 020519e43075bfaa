"""Decides all new crash states of one moment at once, by a few runs of the check instead of one run per state.

The images of a moment's states differ only in what each granule has lost. The check is run on that image with every
combination of the granules' contents, explored at once (explorer/explore.c): it forks where it touches a granule, and
two runs that reach the same state continue as one. So each image of the product ends like one of few runs.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from random import Random

from crashcheck.checker.images.transition import Content
from crashcheck.checker.mutation.common_space import CommonSpace
from crashcheck.checker.mutation.mutant_states import MutantStates
from crashcheck.checker.oracles.executor import Executor
from crashcheck.checker.results import Verdict
from crashcheck.checker.states.ideals import Ids
from crashcheck.checker.states.space import CrashState
from crashcheck.runtime.exploration import MOST_BYTES, MOST_GRANULES, Explored, OpenGranule

_LINE = 64
_TRIED = 16  # contents of a granule, for one that makes a state new
_FAILING = 4  # ends of a moment that are examined
_Range = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class Product:
    """The images of a moment's states: those of `granules` in each combination, and all else as it is in one image.

    `places` and `losses`: the place of each of them among the moment's granules, and what is lost of it for each of its
    contents.
    """

    clock: int
    point: int
    granules: tuple[OpenGranule, ...]
    places: tuple[int, ...]
    losses: tuple[tuple[Ids, ...], ...]


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


def product_of(content: Content, exposure: MutantStates, common: CommonSpace, clock: int, pool: Path) -> Product | str:
    """The product of a moment, whose image with nothing lost is in `pool`; or why it is none."""
    point = common.point(clock)
    whole = [piece for some in exposure.whole_at(clock) for piece in some]
    if not content.near_full(common.state(clock, whole)):
        return "sizes or names of files are among what may be lost"
    found: list[tuple[OpenGranule, int, tuple[Ids, ...]]] = []
    for place, (losses, all_) in enumerate(zip(exposure.losses_at(clock), exposure.whole_at(clock), strict=True)):
        opened = _opened(content, point, pool, losses, all_)
        if isinstance(opened, str):
            return opened
        if opened is not None:
            granule, lost = opened
            found.append((granule, place, lost))
    found.sort(key=lambda each: (each[0].path, each[0].offset))
    if len(found) > MOST_GRANULES:
        return f"more than {MOST_GRANULES} lines or pages are open at once"
    for (one, _, _), (two, _, _) in pairwise(found):
        if one.path == two.path and one.offset + one.length > two.offset:
            return "lines or pages that are lost separately overlap"
    return Product(clock, point, *(tuple(column) for column in zip(*found, strict=True)) if found else ((), (), ()))


def _opened(
    content: Content, point: int, pool: Path, losses: Sequence[Ids] | None, all_: Ids
) -> tuple[OpenGranule, tuple[Ids, ...]] | str | None:
    """A granule with its contents, and what is lost of it for each of them; or why it cannot be opened.

    None if its content is the same whatever is lost. `losses`: None where there are too many to list; `all_`: all that
    it may lose.
    """
    patches = [_writes(content, point, lost) for lost in (losses[1:] if losses is not None else (all_,))]
    touched = [(path, at, at + len(data)) for patch in patches for path, at, data in patch]
    if not touched:
        return None
    paths = {path for path, _, _ in touched}
    if len(paths) > 1:
        return "a line or page belongs to several files"
    (path,) = paths
    low = min(at for _, at, _ in touched) // _LINE * _LINE
    high = max(end for _, _, end in touched)
    if high - low > MOST_BYTES:
        return f"more than {MOST_BYTES} bytes are lost or kept in order"
    with (pool / path).open("rb") as file:
        file.seek(low)
        base = file.read(-(-high // _LINE) * _LINE - low)
    if losses is None:
        return OpenGranule(path, low, len(base), ()), ((),)
    by_content: dict[bytes, Ids] = {base: ()}
    for lost, patch in zip(losses[1:], patches, strict=True):
        data = bytearray(base)
        for _, at, new in patch:
            data[at - low : at - low + len(new)] = new
        by_content.setdefault(bytes(data), lost)
    if len(by_content) == 1:
        return None
    return OpenGranule(path, low, len(base), tuple(by_content)), tuple(by_content.values())


def _writes(content: Content, point: int, lost: Ids) -> list[tuple[str, int, bytes]]:
    patches = content.lost(CrashState(point, True, tuple(sorted(lost))))
    return [(patch.path, offset, data) for patch in patches for offset, data in patch.writes]


def matching(exposure: MutantStates, product: Product, choices: Sequence[int | None]) -> CrashState | None:
    """A new state whose granules have these contents, with as little lost else as can be; None if none is found."""
    clock = product.clock
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


def drawn(exposure: MutantStates, clock: int, many: int) -> Iterator[CrashState]:
    """Up to `many` new states of a moment, always the same ones; some may come more than once."""
    drawing = Random(clock)
    every = exposure.losses_at(clock)
    for _ in range(many):
        share = drawing.random()
        chosen = [drawing.choice(losses) if losses is not None and drawing.random() < share else () for losses in every]
        state = exposure.combined(clock, chosen)
        if state is not None:
            yield state


class Covering:
    """Explores moments, several at once, and remembers what it has shown: other mutants have the same moments."""

    def __init__(self, common: CommonSpace, executor: Executor, jobs: int) -> None:
        self._common = common
        self._executor = executor
        self._jobs = jobs
        self._passed: dict[int, list[dict[_Range, frozenset[bytes]]]] = {}

    def decide(self, exposure: MutantStates, clocks: Sequence[int], timeout_s: float) -> list[ProductEnd]:
        """The results for some moments; all in about the time of one if there are no more than jobs."""
        folders = [self._executor.home / f"explored{number}" for number in range(len(clocks))]
        try:
            prepared = [self._prepare(exposure, *each) for each in zip(clocks, folders, strict=True)]
            asked = [self._executor.stages(one.point) if isinstance(one, Product) else () for one in prepared]
            with ThreadPoolExecutor(self._jobs) as pool:
                futures = [
                    pool.submit(self._executor.explored, one.point, stages, one.granules, folder, timeout_s)
                    if isinstance(one, Product) and not self._is_known(one)
                    else None
                    for one, stages, folder in zip(prepared, asked, folders, strict=True)
                ]
                explored = [None if future is None else future.result() for future in futures]
        finally:
            for folder in folders:
                shutil.rmtree(folder, ignore_errors=True)
        return [
            self._outcome(exposure, one, what, folder)
            for one, what, folder in zip(prepared, explored, folders, strict=True)
        ]

    def _prepare(self, exposure: MutantStates, clock: int, folder: Path) -> Product | str:
        folder.mkdir()
        self._executor.write_image(self._common.state(clock, ()), folder / "pool")
        return product_of(self._common.content, exposure, self._common, clock, folder / "pool")

    def _outcome(
        self, exposure: MutantStates, product: Product | str, explored: Explored | None, folder: Path
    ) -> ProductEnd:
        if isinstance(product, str):
            return ProductEnd(product, False, 0)
        if explored is None:
            return ProductEnd("", False, 0)
        failing: list[tuple[Verdict, CrashState | None]] = []
        for end in explored.ends:
            verdict = self._executor.judged(end, product.point, folder)
            if not verdict.passed:
                failing.append((verdict, matching(exposure, product, end.choices)))
            if len(failing) == _FAILING:
                break
        outcome = ProductEnd(explored.why, explored.final, len(explored.ends), tuple(failing))
        if outcome.passes:
            self._passed.setdefault(product.clock, []).append(_contents(product))
        return outcome

    def _is_known(self, product: Product) -> bool:
        """Whether a product that holds this one was decided before."""
        mine = _contents(product)
        return any(
            all(
                range_ in known and (contents <= known[range_] if contents else not known[range_])
                for range_, contents in mine.items()
            )
            for known in self._passed.get(product.clock, ())
        )


def _contents(product: Product) -> dict[_Range, frozenset[bytes]]:
    """Of each granule; none where they are too many to be listed, and none was read."""
    return {(each.path, each.offset, each.length): frozenset(each.contents) for each in product.granules}
