"""Small programs as nodes, and worlds of them."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from crashcheck.runtime.nodes.machines import NodeCommand
from crashcheck.runtime.nodes.world import NodeWorld
from support import compilers
from support.node_runs import Worlds

_PROGRAMS = Path(__file__).parent / "programs"


@pytest.fixture(scope="session")
def node_program(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """Compiles programs/<name>.c, once: its path."""
    folder = tmp_path_factory.mktemp("nodes")

    def build(name: str) -> str:
        target = folder / name
        if not target.exists():
            command = [*compilers.c_compiler(), "-O1", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-pthread"]
            subprocess.run([*command, str(_PROGRAMS / f"{name}.c"), "-o", str(target)], check=True)
        return str(target)

    return build


@pytest.fixture
def worlds(tmp_path: Path) -> Iterator[Worlds]:
    """Makes a world of commands, each words or a NodeCommand, and closes what a test leaves open."""
    numbers = itertools.count()
    made: list[NodeWorld] = []

    def make(*commands: tuple[str, ...] | NodeCommand, clock_error_ns: int | None = None) -> NodeWorld:
        nodes = [one if isinstance(one, NodeCommand) else NodeCommand(one) for one in commands]
        world = NodeWorld(nodes, tmp_path / f"world{next(numbers)}", clock_error_ns)
        made.append(world)
        return world

    yield make
    for world in made:
        world.close()
