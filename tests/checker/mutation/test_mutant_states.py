"""The crash states that only a mutant has, against an enumeration of all states."""

from __future__ import annotations

import tempfile
from itertools import islice
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given, settings

from crashcheck.checker.mutation.common_space import CommonSpace
from crashcheck.checker.mutation.mutant_search import Fate, MutantProgress
from crashcheck.checker.mutation.mutant_states import MutantStates, NewStates
from crashcheck.checker.mutation.mutants import What, mutants, persists
from support.examples_tried import examples
from support.random_programs import SETTINGS, memory_programs, page_programs
from support.reference import First, Program
from support.tracing import TraceBuilder
from support.worlds import explored, record

from .mutant_worlds import alone, common_of, exposure_of, image_of


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
            every = list(exposure.all())
            assert len(set(every)) == len(every), "each once"
            assert exposure.count(1 << 30) == NewStates(len(every), True)
            images = {state: image_of(ground, state) for state in every}
            assert set(images.values()) <= world.distinct, "all are states of the mutant"
            assert world.distinct - whole.distinct <= set(images.values()), "and no new one is missing"
            assert (exposure.count(0).value == 0) == (not every)
            assert set(islice(exposure.drawn(), 20)) - {None} <= set(every)
            assert {state for many in range(1, exposure.granules + 1) for state in exposure.losses(many)} <= set(every)
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
    (state,) = exposure.all()
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


def test_each_new_loss_is_tried_with_all_else_and_with_nothing_else(builder: TraceBuilder) -> None:
    for line in range(4):  # never flushed
        builder.store("a", 1024 + 64 * line, 8, 1)
    for line in range(2):
        builder.store("a", 64 * line, 8, 1)
        builder.clwb("a", 64 * line)
    builder.sfence()
    builder.end(1)
    exposure = exposure_of(builder.trace(), What.FENCE)
    assert exposure.count(100) == NewStates(3 * 16, True)
    lost = [state.pieces for many in (1, 2, 3) for state in exposure.losses(many)]
    never = (0, 1, 2, 3)
    assert lost == [(4,), (*never, 4), (5,), (*never, 5), (4, 5), (*never, 4, 5)]


def test_what_no_image_shows_is_drawn_from_as_well(builder: TraceBuilder) -> None:
    builder.store("a", 0, 8, 1)
    builder.clwb("a", 0)
    builder.sfence()
    builder.nt_store("a", 128, 8, 0)  # what was there already, and never fenced
    builder.end(1)
    exposure = exposure_of(builder.trace(), What.FENCE)
    assert set(islice(exposure.drawn(), 100)) - {None} == set(exposure.all()) != set()


@pytest.mark.parametrize("few", [True, False])
def test_states_are_gone_through_once_whether_they_are_few_or_many(builder: TraceBuilder, few: bool) -> None:
    for line in range(3):
        builder.store("a", 64 * line, 8, 1)
        builder.clwb("a", 64 * line)
    builder.sfence()
    builder.end(1)
    trace = builder.trace()
    exposure = exposure_of(trace, What.FENCE)
    one = MutantProgress(exposure)
    with patch("crashcheck.checker.mutation.mutant_search._FEW", 7 if few else 6):
        chosen = list(one.choices())
    every = list(exposure.all())
    assert len(every) == 7
    if few:
        assert chosen == every
    else:
        losses = [state for many in (1, 2, 3) for state in exposure.losses(many)]
        assert chosen[::2] == losses + every
    assert "with nothing else" in one.because(Fate.SURVIVED) or few


def test_nothing_is_reported_on_the_states_of_a_mutant_that_none_was_run_of(builder: TraceBuilder) -> None:
    builder.store("a", 0, 8, 1)
    builder.clwb("a", 0)
    builder.sfence()
    builder.end(1)
    trace = builder.trace()
    one = MutantProgress(exposure_of(trace, What.FENCE))
    assert one.because(Fate.SURVIVED) == ""
