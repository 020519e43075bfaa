"""Random compiled programs, recorded for real: exactly the crash states that a reference computes from their steps.

The reference (`support/generated/states.py`) follows docs/crash-model.md and knows neither traces nor graphs: compiler,
recorder, reader and models are covered at once.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from crashcheck.analyzer.persistence import Options
from crashcheck.analyzer.trace.completeness import check
from crashcheck.analyzer.trace.reader import read
from crashcheck.runtime.record import Workload, record
from support.examples_tried import seeds_in_parts
from support.generated import programs
from support.generated.states import Model, State
from support.generated.steps import WATCHED, text
from support.worlds import explored

MEMORY = (Model("px86"), Model("eadr"))
FILES = tuple(Model("page-cache", tear, files) for tear in (0, 512, 4096) for files in ("ext4", "posix"))
DRIVER = Path(programs.__file__).with_name("driver.c")


@pytest.fixture(scope="module")
def driver(commands: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("driver") / "driver"
    compiler = [str(commands / "crashcheck-cc"), "-O1", "-g", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([*compiler, "-o", str(target), str(DRIVER), "-pthread"], check=True)
    return target


def crash_states(driver: Path, folder: Path, program: programs.Program, models: tuple[Model, ...]) -> list[set[State]]:
    """What crashcheck makes of a recorded run of the program, under each model."""
    image = folder / "image"
    image.mkdir()
    for name, content in program.first.items():
        (image / name).write_bytes(content)
    steps = folder / "steps"
    steps.write_text(text(program.steps), encoding="ascii")
    workload = Workload([str(driver), "{pool}", str(steps)], WATCHED, first_image=image, must_update=False)
    recording = record(workload, folder / "run")
    trace = read(recording.trace)
    assert check(trace, recording.first, recording.pool).whole
    found = []
    for model in models:
        first = dict(program.first)
        world = explored(trace, folder / "run", first, model.name, Options(model.tear, model.files))
        images = [(dict(files), acked, printed) for files, acked, printed in world.images]
        found.append(
            {
                (tuple((name, files[name]) for name in WATCHED if files.get(name) is not None), acked, printed)
                for files, acked, printed in images
            }
        )
    return found


def compare(driver: Path, tmp_path: Path, seed: int, models: tuple[Model, ...]) -> int:
    """Compares the sets of states of one generated program; how many states they have."""
    return compare_program(driver, tmp_path, programs.generate(seed, models, programs.features()), models)


def compare_program(driver: Path, tmp_path: Path, program: programs.Program, models: tuple[Model, ...]) -> int:
    folder = tmp_path / str(program.seed)
    folder.mkdir()
    total = 0
    for model, found in zip(models, crash_states(driver, folder, program, models), strict=True):
        expected = programs.expected(program, model)
        counts = f"{len(expected - found)} missed, {len(found - expected)} too many"
        assert found == expected, f"seed {program.seed}, {model}: {counts}\n{text(program.steps)}"
        total += len(expected)
    shutil.rmtree(folder)
    return total


def test_programs_that_map_memory_have_the_states_of_the_reference(driver: Path, tmp_path: Path) -> None:
    assert sum(compare(driver, tmp_path, seed, MEMORY) for seed in range(10)) > 1000


def test_programs_that_write_files_have_the_states_of_the_reference(driver: Path, tmp_path: Path) -> None:
    def model(seed: int) -> tuple[Model, ...]:
        return (FILES[seed % len(FILES)],)

    assert sum(compare(driver, tmp_path, seed, model(seed)) for seed in range(2 * len(FILES))) > 100


def test_a_store_that_begins_below_the_lowest_watched_mapping_is_recorded(driver: Path, tmp_path: Path) -> None:
    maps = [(0, "open", 1, "a.db", ""), (0, "open", 2, "u", ""), (0, "map", 3, 2, 0, 1), (0, "map", 4, 1, 0, 1)]
    program = programs.Program(0, {"a.db": bytes(4096), "u": bytes(4096)}, [*maps, (0, "store", 16376, b"\1" * 14)])
    assert compare_program(driver, tmp_path, program, MEMORY) == 2 + 2


@pytest.mark.slow
@pytest.mark.parametrize("models", [MEMORY, FILES], ids=["memory", "files"])
@pytest.mark.parametrize("seeds", seeds_in_parts(1000, 50), ids=str)
def test_a_thousand_programs_of_each_kind_have_the_states_of_the_reference(
    driver: Path, tmp_path: Path, seeds: range, models: tuple[Model, ...]
) -> None:
    for seed in seeds:
        compare(driver, tmp_path, seed, models)
