"""Small C programs that call the hooks by hand, built once and recorded for real."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from crashcheck.runtime.build import RuntimeLibrary, build_runtime, find_compiler
from crashcheck.runtime.record import Recording, Workload, record
from support.decode import Decoded, decode
from support.paths import RUNTIME_PROGRAMS


@pytest.fixture(scope="session")
def library() -> RuntimeLibrary:
    return build_runtime()


@pytest.fixture(scope="session")
def program(library: RuntimeLibrary, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Compiles programs/<name>.c against the recorder: `program("basic", "-DX")`."""
    folder = tmp_path_factory.mktemp("programs")
    built: dict[tuple[str, ...], Path] = {}

    def build(name: str, *flags: str) -> Path:
        key = (name, *flags)
        if key not in built:
            target = folder / f"{name}-{len(built)}"
            libraries = [flag for flag in flags if flag.startswith("-l")]
            subprocess.run(
                [
                    *find_compiler(), "-std=gnu11", "-D_GNU_SOURCE", "-O1", "-g", "-Wall", "-Wextra", "-Werror",
                    f"-I{library.include}", str(RUNTIME_PROGRAMS / f"{name}.c"), "-o", str(target),
                    *(flag for flag in flags if not flag.startswith("-l")),
                    f"-L{library.link.parent}", "-lcrashcheck", f"-Wl,-rpath,{library.shared.parent}",
                    *libraries, "-lpthread", "-ldl",
                ],
                check=True,
            )  # fmt: skip
            built[key] = target
        return built[key]

    return build


@pytest.fixture
def recorded(tmp_path: Path, program: Callable[..., Path]) -> Callable[..., tuple[Decoded, Recording]]:
    """Records a program in a fresh folder and decodes the trace: `recorded("basic")`."""
    count = 0

    def run(name: str, *arguments: str, **options: object) -> tuple[Decoded, Recording]:
        nonlocal count
        count += 1
        files = options.pop("files", ["*.db"])
        flags = options.pop("flags", ())
        options.setdefault("timeout_s", 60.0)
        command = [str(program(name, *flags)), "{pool}", *arguments]  # type: ignore[misc]
        recording = record(Workload(command, files, **options), tmp_path / f"run{count}")  # type: ignore[arg-type]
        return decode(recording.trace), recording

    return run
