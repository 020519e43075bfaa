"""Small mutants, and their crash states by brute force."""

from __future__ import annotations

from pathlib import Path

from crashcheck.analyzer.persistence import build
from crashcheck.analyzer.trace.reader import Trace
from crashcheck.checker.images.transition import Content
from crashcheck.checker.mutation.common_space import CommonSpace
from crashcheck.checker.mutation.mutant_states import MutantStates
from crashcheck.checker.mutation.mutants import Change, Mutant, What, mutants, persists, without_persists
from crashcheck.checker.results import Location
from crashcheck.checker.states.space import CrashState, StateSpace
from support.reference import First, State
from support.worlds import World, apply, frozen


def place(line: int, function: str = "f") -> Location:
    return Location("a.c", line, 1, function, "", ())


def alone(row: int) -> tuple[Location, ...]:
    """Every event has a place of its own."""
    return (place(row),)


def described(mutant: Mutant) -> tuple[What, Change, int]:
    return mutant.persist.what, mutant.change, mutant.persist.location.line


def image_of(world: World, state: CrashState) -> State:
    """By brute force: patches, applied one after the other from the first image on."""
    image: dict[str, bytes | None] = dict(world.first)
    for at in range(state.point + 1):
        image = apply(image, world.content.durable(at - 1 if at else None, at))
    point = world.space.points[state.point]
    return frozen(apply(image, world.content.patches(state))), point.acked, point.stdout_bytes


def common_of(trace: Trace, folder: Path, first: First, model: str) -> World:
    space = StateSpace(build(without_persists(trace), model))
    return World(space, Content(space, folder / "first"), [], [], first)


def exposure_of(trace: Trace, what: What, change: Change = Change.DELETED) -> MutantStates:
    """Of the first such mutant."""
    space = StateSpace(build(without_persists(trace), "px86"))
    mutant = next(m for m in mutants(trace, persists(trace, alone)) if described(m)[:2] == (what, change))
    return MutantStates(CommonSpace(space, Content(space)), build(trace, "px86"), build(mutant.trace, "px86"))
