"""The crash states that only a mutant has, against an enumeration of all states."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from unittest.mock import patch

from hypothesis import given, settings

from crashcheck.checker.mutation.common_space import CommonSpace
from crashcheck.checker.mutation.mutant_search import Fate, MutantProgress
from crashcheck.checker.mutation.mutant_states import MutantStates, NewStates
from crashcheck.checker.mutation.mutants import What, mutants, persists
from crashcheck.checker.states.space import CrashState
from support.examples_tried import examples
from support.random_programs import SETTINGS, memory_programs, page_programs
from support.reference import First, Program
from support.tracing import TraceBuilder
from support.worlds import explored, record

from .mutant_worlds import alone, common_of, exposure_of, image_of


def all_of(exposure: MutantStates) -> Iterator[CrashState]:
    """Every new state."""
    return chain.from_iterable(map(exposure.lacking, range(1, exposure.granules + 1)))


def states_agree(first: First, program: Program, model: str) -> None:
    """MutantStates agrees for each mutant with an enumeration of all states of both."""
    with tempfile.TemporaryDirectory() as folder:
        trace = record(Path(folder), first, program).trace()
        whole = explored(trace, Path(folder), first, model)
        ground = common_of(trace, Path(folder), first, model)
        common = CommonSpace(ground.space, ground.content)
        for mutant in mutants(trace, persists(trace, alone)):
            world = explored(mutant.trace, Path(folder), first, model)
            exposure = MutantStates(common, whole.space.graph, world.space.graph)
            every = list(all_of(exposure))
            assert len(set(every)) == len(every), "each once"
            assert exposure.count(1 << 30) == NewStates(len(every), True)
            images = {state: image_of(ground, state) for state in every}
            assert set(images.values()) <= world.distinct, "all are states of the mutant"
            assert world.distinct - whole.distinct <= set(images.values()), "and no new one is missing"
            assert (exposure.count(0).value == 0) == (not every)
            assert {image_of(ground, state) for state in exposure.aimed()} <= set(images.values())
            for state, image in zip(world.states, world.images, strict=True):
                moment = common.clock(world.space.graph, world.space.moment(state.point))
                named = exposure._named(int(moment), world.space.lost(state))
                if named is None:
                    assert image in whole.distinct
                else:
                    assert image_of(ground, named) == image
                    assert image in images.values()


@SETTINGS
@given(memory_programs())
def test_a_state_that_loses_nothing_exposed_is_one_of_the_original(program: tuple[First, Program]) -> None:
    states_agree(*program, "px86")


@SETTINGS
@given(page_programs())
def test_the_same_holds_of_pages(program: tuple[First, Program]) -> None:
    states_agree(*program, "page-cache")


@settings(SETTINGS, max_examples=examples(12))
@given(memory_programs())
def test_the_same_holds_where_contents_are_too_many_to_be_distinguished(program: tuple[First, Program]) -> None:
    with patch("crashcheck.checker.states.granules._MOST_CHOICES", 0):
        states_agree(*program, "px86")


def test_a_flush_of_what_was_written_as_it_was_is_not_missed(builder: TraceBuilder) -> None:
    for value in (0, 1):
        builder.store("a", 0, 8, value)
        builder.clwb("a", 0)
        builder.sfence()
        builder.store("a", 64, 8, 1)
    exposure = exposure_of(builder.trace(), What.FLUSH)
    assert exposure.pieces() == 1
    assert exposure.count(0).value == 0
    assert list(exposure.aimed()) == []


def test_a_lock_that_is_free_again_is_as_if_it_had_never_been_taken(builder: TraceBuilder) -> None:
    for value in (1, 0):
        builder.store("a", 0, 8, value)
    builder.clwb("a", 0)
    builder.sfence()
    builder.store("a", 64, 8, 1)
    exposure = exposure_of(builder.trace(), What.FENCE)
    assert exposure.count(100) == NewStates(1, True), "locked, and the store after it persisted"
    (state,) = all_of(exposure)
    assert state.pieces == (1,)


def test_a_state_that_the_program_has_a_moment_earlier_is_not_new(builder: TraceBuilder) -> None:
    builder.store("a", 0, 8, 1)
    builder.clwb("a", 0)
    builder.sfence()
    assert exposure_of(builder.trace(), What.FENCE).count(0).value == 0
    builder.end(1)
    assert exposure_of(builder.trace(), What.FENCE).count(100) == NewStates(1, True), "lost although it was promised"


def test_counting_stops_where_there_are_too_many(builder: TraceBuilder) -> None:
    for line in range(12):
        builder.store("a", 64 * line, 8, 1)
        builder.clwb("a", 64 * line)
    builder.sfence()
    builder.end(1)
    exposure = exposure_of(builder.trace(), What.FENCE)
    assert exposure.count(1 << 12) == NewStates((1 << 12) - 1, True)
    assert not exposure.count(1000).whole
    assert sum(1 for _ in exposure.lacking(2)) == 66


def test_states_are_gone_through_by_how_many_granules_they_lack_something_of(builder: TraceBuilder) -> None:
    for line in range(3):
        builder.store("a", 64 * line, 8, 1)
        builder.clwb("a", 64 * line)
    builder.sfence()
    builder.end(1)
    exposure = exposure_of(builder.trace(), What.FENCE)
    one = MutantProgress(exposure)
    assert list(one.choices()) == list(all_of(exposure))
    assert one.because(Fate.SURVIVED) == "all with losses in at most 3 granules among them"


def test_nothing_is_reported_on_the_states_of_a_mutant_that_none_was_run_of(builder: TraceBuilder) -> None:
    builder.store("a", 0, 8, 1)
    builder.clwb("a", 0)
    builder.sfence()
    builder.end(1)
    trace = builder.trace()
    one = MutantProgress(exposure_of(trace, What.FENCE))
    assert one.because(Fate.SURVIVED) == ""
