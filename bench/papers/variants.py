"""The ranked search without one of its parts, or with one weighed otherwise: what does each part earn?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain

from crashcheck.analyzer.invariants.ranking import SCORES
from crashcheck.checker.strategies.numbers import WEIGHTS
from crashcheck.checker.strategies.ranked import Ranked

# Phases whose states come from groups of behaviours; the others know none.
OF_GROUPS = ("cheap", "members", "all sets", "carry")
SEEDS = (2, 3, 4, 5)  # beside 1, which the search itself has
_REPEATED = 2  # of these: with one seed alone the difference of a part would be chance


@dataclass(frozen=True, slots=True)
class Variant:
    """A search to compare with `ranked`. `of`: what was changed, as a key of the page's table."""

    name: str
    of: str
    strategy: Ranked


def variants(base: Ranked, weights: bool) -> Iterator[Variant]:
    """All of them, each with a name of its own; those of weights, which are most of them, only if `weights`."""
    for seed in (base.seed, *SEEDS[:_REPEATED]):
        for variant in without_one(replace(base, seed=seed)):
            yield replace(variant, name=variant.name + (f", seed {seed}" if seed != base.seed else ""))
    for seed in SEEDS:
        yield Variant(f"seed {seed}", "seed", replace(base, seed=seed))
    if not weights:
        return
    for phase, weight in WEIGHTS.items():
        yield Variant(f"{phase} ½", "weight", replace(base, weights=_doubled_but(phase)))
        yield Variant(f"{phase} ×2", "weight", replace(base, weights={**WEIGHTS, phase: 2 * weight}))
    for part in ("violates", "small"):  # nothing is changed code here
        for text, factor in (("½", 0.5), ("×2", 2.0), ("0", 0.0)):
            scores = replace(SCORES, **{part: factor * getattr(SCORES, part)})
            yield Variant(f"score of {part} {text}", "weight", replace(base, scores=scores))


def without_one(base: Ranked) -> Iterator[Variant]:
    """The search without one of its parts or phases."""
    yield Variant("without groups", "part", replace(base, weights=_without(OF_GROUPS)))
    yield Variant("without invariants", "part", replace(base, infer=None))
    yield Variant("without site signatures", "part", replace(base, similar_wait=False))
    for phase in WEIGHTS:
        if phase != "rest":  # without it the search is not whole, and it is the last
            yield Variant(f"without phase {phase}", "phase", replace(base, weights=_without((phase,))))


def _without(phases: tuple[str, ...]) -> dict[str, int]:
    return {**WEIGHTS, **dict.fromkeys(phases, 0)}


def _doubled_but(phase: str) -> dict[str, int]:
    """Turns are whole numbers: half of one phase is twice as many of all others."""
    return dict(chain(((name, 2 * weight) for name, weight in WEIGHTS.items()), [(phase, WEIGHTS[phase])]))
