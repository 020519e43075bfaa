"""The C files are layers: what one calls or reads of another is in a lower one, in each of the programs."""

from __future__ import annotations

import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from crashcheck.runtime import build
from support import compilers, elf

PROGRAMS = {
    "the recorder": (build.c_sources, ["-DCC_SHARED"], "recorder/base.h"),
    "the guard": (build.guard_sources, [], "guard/base.h"),
    "the recorder of system calls": (build.syscalls_sources, [], "syscalls/recorder.h"),
    "the controller of nodes": (build.nodes_sources, [], "nodes/parts.h"),
}


@pytest.fixture(scope="module", params=PROGRAMS)
def program(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, dict[str, set[str]]]:
    """The header that lists the layers; and by the file that needs them, from which files it needs symbols."""
    sources, flags, header = PROGRAMS[request.param]
    folder = tmp_path_factory.mktemp("objects")
    command = [*compilers.c_compiler(), *build.FLAGS, "-O0", "-g0", *flags, f"-I{build.INCLUDE}", "-c"]

    def compiled(source: Path) -> Path:
        target = folder / f"{source.stem}.o"
        subprocess.run([*command, str(source), "-o", str(target)], check=True)
        return target

    with ThreadPoolExecutor(2) as pool:
        objects = list(pool.map(compiled, sources()))
    home = {symbol: path.stem for path in objects for symbol in elf.offered(path)}
    uses = {path.stem: {home[symbol] for symbol in elf.needed(path) & home.keys()} for path in objects}
    return header, uses


def listed(header: str) -> list[str]:
    """The parts as a header lists them, lowest first."""
    text = (build.INCLUDE / header).read_text(encoding="utf-8")
    lines = re.findall(r"^ \*   (\w+(?:, \w+)*)  ", text, re.M)
    return [part for line in lines for part in line.split(", ")]


def test_no_two_files_need_each_other(program: tuple[str, dict[str, set[str]]]) -> None:
    try:
        TopologicalSorter(program[1]).prepare()
    except CycleError as error:
        pytest.fail(" needs ".join(reversed(error.args[1])))


def test_a_file_needs_only_what_is_above_it_in_the_list_of_layers(program: tuple[str, dict[str, set[str]]]) -> None:
    header, uses = program
    order = listed(header)
    assert (
        set(order)
        >= {source.stem for source in (build.INCLUDE.parent / Path(header).parent).rglob("*.c")} & uses.keys()
    )
    for number, part in enumerate(order):
        assert uses.get(part, set()) & set(order) <= set(order[:number]), part
