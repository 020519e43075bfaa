"""What explored runs decide of a mutant: its new states and no others, until one run contradicts it."""

from __future__ import annotations

import itertools
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given, settings

from crashcheck.analyzer.persistence import build
from crashcheck.checker.budget import Budget, Meter, OutOfTime, within
from crashcheck.checker.exploration.product import Product
from crashcheck.checker.images.image_folder import patch_image, write_image
from crashcheck.checker.images.transition import Content
from crashcheck.checker.mutation.common_space import CommonSpace
from crashcheck.checker.mutation.mutant_search import Fate
from crashcheck.checker.mutation.mutant_states import MutantStates
from crashcheck.checker.mutation.mutants import mutants, persists
from crashcheck.checker.mutation.product_exploration import (
    Covering,
    ProductEnd,
    _contents,
    matching,
    product_at,
)
from crashcheck.checker.states.granules import Granule, together
from crashcheck.checker.states.ideals import Ids
from crashcheck.checker.states.space import CrashState
from crashcheck.config import Config, load, override
from crashcheck.mutation_campaign import MutantResult, mutate
from crashcheck.runtime.exploration import OpenGranule, call_name
from support.examples_tried import examples
from support.random_programs import SETTINGS, memory_programs
from support.reference import First, Program
from support.worlds import World, explored, record

from .mutant_worlds import alone, common_of, image_of

PROGRAMS = Path(__file__).resolve().parent / "programs"


def line(number: int, *values: int) -> OpenGranule:
    """A line that holds one of some 8-byte values at its beginning."""
    return OpenGranule("a", 64 * number, 64, tuple(value.to_bytes(8, "little") + bytes(56) for value in values))


def test_what_was_shown_of_some_lines_shows_nothing_of_others_whose_contents_are_not_listed() -> None:
    def product(*granules: OpenGranule) -> Product:
        return Product(0, granules, tuple(range(len(granules))), tuple(((),) for _ in granules))

    unlisted = OpenGranule("a", 64, 64, ())
    covering = Covering(None, None)  # type: ignore[arg-type]
    for shown, asked, known in (
        ((line(0, 0, 1),), (line(0, 0, 1), unlisted), False),
        ((line(0, 0, 1), line(1, 0, 1)), (line(0, 0, 1), unlisted), False),
        ((line(0, 0, 1), unlisted), (line(0, 1), unlisted), True),
        ((line(0, 0, 1), unlisted), (line(1, 0, 1),), False),
    ):
        covering._passed = {1: [_contents(product(*shown))]}
        assert covering._is_known(1, product(*asked)) == known


def images_of(product: Product, pool: Path) -> Iterator[dict[str, bytes]]:
    base = {path.name: path.read_bytes() for path in pool.iterdir()}
    for chosen in itertools.product(*(granule.contents for granule in product.granules)):
        image = {name: bytearray(data) for name, data in base.items()}
        for granule, content in zip(product.granules, chosen, strict=True):
            image[granule.path][granule.offset : granule.offset + granule.length] = content
        yield {name: bytes(data) for name, data in image.items()}


def written(world: World, folder: Path, state: CrashState, target: Path) -> Path:
    """A state's image as files."""

    def plain(patches: tuple[object, ...]) -> tuple[tuple[str, bool, int, tuple[tuple[int, bytes], ...]], ...]:
        return tuple((p.path, p.exists, p.size, p.writes) for p in patches)  # type: ignore[attr-defined]

    write_image(folder / "first", plain(world.content.durable(None, state.point)), target)
    patch_image(target, plain(world.content.patches(state)))
    return target


@settings(SETTINGS, max_examples=examples(30))
@given(memory_programs())
def test_a_product_holds_each_new_state_of_its_stretch_and_only_states_of_the_mutant(
    program: tuple[First, Program],
) -> None:
    first, events = program
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        trace = record(folder, first, events).trace()
        whole = explored(trace, folder, first, "px86")
        ground = common_of(trace, folder, first, "px86")
        common = CommonSpace(ground.space, Content(ground.space, folder / "first"))
        number = 0
        for mutant in mutants(trace, persists(trace, alone)):
            world = explored(mutant.trace, folder, first, "px86")
            exposure = MutantStates(common, whole.space.graph, build(mutant.trace, "px86"))
            assert sorted(clock for some in exposure.stretches() for clock in some) == list(exposure.moments)
            for stretch in exposure.stretches():
                number += 1
                pool = written(ground, folder, common.state(stretch[-1], ()), folder / f"pool{number}")
                product = product_at(common.content, exposure, common, stretch[-1], pool)
                if isinstance(product, str):
                    continue
                images = [sorted(image.items()) for image in images_of(product, pool)]
                news = [image_of(ground, state) for clock in stretch for state in exposure.at(clock)]
                assert len(news) == sum(map(exposure.new_at, stretch))
                for image, _, _ in news:
                    assert sorted(present(image)) in images
                feasible = {(tuple(sorted(present(image))), *acknowledged) for image, *acknowledged in world.distinct}
                _, acked, printed = news[0]
                assert {(tuple(image), acked, printed) for image in images} <= feasible
                for chosen in islice(itertools.product(*(range(len(g.contents)) for g in product.granules)), 40):
                    state = matching(exposure, stretch[-1], product, chosen)
                    if state is not None:
                        at = images[
                            list(itertools.product(*(range(len(g.contents)) for g in product.granules))).index(chosen)
                        ]
                        assert sorted(present(image_of(ground, state)[0])) == at


class _NeverNew(Granule):
    """Much may be lost of it, of which nothing is exposed but at the very end."""

    def __init__(self) -> None:
        self.newest = frozenset()
        self.all, self.alike = 1 << 40, (1 << 40) - 1

    def __iter__(self) -> Iterator[Ids]:
        return iter(lambda: (0,), ())

    def exposes(self, lost: Ids) -> bool:
        return False


def test_states_of_which_none_is_new_are_gone_through_within_the_budget() -> None:
    seconds = iter(range(1000))
    meter = Meter(Budget(seconds=500), lambda: next(seconds))
    with pytest.raises(OutOfTime):
        next(together([_NeverNew()], 1, keep_on=within(lambda: meter.left_s)))


def present(image: object) -> list[tuple[str, bytes]]:
    return [(name, data) for name, data in dict(image).items() if data is not None]  # type: ignore[call-overload]


@pytest.fixture
def ledger(tmp_path: Path, environment: dict[str, str]) -> Callable[..., Config]:
    """A program whose one record is written while 14 lines are open, with one of its checks."""

    def built(check: int, states: int = 250) -> Config:
        shutil.copy(PROGRAMS / "ledger.c", tmp_path)
        for name, flags in (("ledger", []), ("check", [f"-DCHECK={check}"])):
            command = ["crashcheck-cc", "-O1", "-g", "-mclflushopt", *flags, "-o", name, "ledger.c"]
            subprocess.run(command, cwd=tmp_path, env=environment, check=True)
        (tmp_path / "crashcheck.toml").write_text(
            '[workload]\ncommand = "./ledger {pool}/a"\n[pool]\nfiles = ["a"]\n'
            '[check]\ncommand = "./check {pool}/a {acked}"\n[model]\nname = "px86"\n'
        )
        return override(load(tmp_path), states=states)

    return built


def of_the_record(config: Config, **more: bool) -> tuple[MutantResult, str]:
    """The exploration of the program without its last fence."""
    text = (config.folder / "ledger.c").read_text(encoding="utf-8").splitlines()
    last = max(number for number, line in enumerate(text, 1) if "_mm_sfence" in line)
    done = mutate(config, jobs=2, wanted=lambda p: p.location.line == last, moves=False, **more)
    (result,) = done.results
    return result, done.note


def test_what_the_check_does_not_read_is_harmless_after_few_runs(ledger: Callable[..., Config]) -> None:
    result, note = of_the_record(ledger(1))
    assert (result.fate, note) == (Fate.HARMLESS, "")
    assert result.new is not None
    assert result.new >= 1 << 14
    assert result.proved <= result.new
    assert result.states <= 250
    assert 0 < result.ends < 10
    assert result.states + result.proved >= result.new


def test_without_exploring_it_survives(ledger: Callable[..., Config]) -> None:
    result, _ = of_the_record(ledger(1), explore=False)
    assert (result.fate, result.states, result.proved) == (Fate.SURVIVED, 250, 0)


def test_a_combination_that_fails_is_found_by_what_the_check_reads(ledger: Callable[..., Config]) -> None:
    with patch.object(MutantStates, "aimed", lambda self: iter(())):
        result, _ = of_the_record(ledger(2))
    assert result.fate is Fate.FOUND
    assert result.states < 20


def test_a_check_that_writes_to_the_file_by_a_system_call_is_not_explored(ledger: Callable[..., Config]) -> None:
    result, note = of_the_record(ledger(3))
    assert (result.fate, result.proved) == (Fate.SURVIVED, 0)
    assert f"it changes the file by a system call ({call_name(18)})" in note
    assert f"it changes the file by a system call ({call_name(18)})" in result.because


def all_pass(self: Covering, exposure: MutantStates, clocks: list[int], timeout_s: float) -> list[ProductEnd]:
    return [ProductEnd("", False, 1) for _ in clocks]


def test_states_that_are_run_between_what_is_explored_find_what_that_has_not_shown(
    ledger: Callable[..., Config],
) -> None:
    unaimed = patch.object(MutantStates, "aimed", lambda self: iter(()))
    unsampled = patch("crashcheck.mutation_campaign._SAMPLED", 0)
    with unaimed, unsampled, patch.object(Covering, "decide", all_pass):
        with patch("crashcheck.mutation_campaign._BESIDE", 0):
            result, _ = of_the_record(ledger(2))
        assert result.fate is Fate.HARMLESS
        with patch("crashcheck.mutation_campaign._BESIDE", 200):
            result, _ = of_the_record(ledger(2))
        assert result.fate is Fate.FOUND


def test_one_run_that_contradicts_it_ends_the_use_of_what_was_explored(ledger: Callable[..., Config]) -> None:
    unaimed = patch.object(MutantStates, "aimed", lambda self: iter(()))
    alone = patch("crashcheck.mutation_campaign._BESIDE", 0)
    with unaimed, alone, patch.object(Covering, "decide", all_pass):
        result, note = of_the_record(ledger(2))
    assert result.fate is Fate.FOUND, "by one of the states that are run as a sample"
    assert note.startswith("what was explored does not count")
