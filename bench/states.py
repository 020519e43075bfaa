"""Crash states checked a second: a copy of the image and a new process each, against the executor."""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from bench.measure import Spread, interleaved, ratio, scratch
from bench.programs import compile_program
from crashcheck.checker.execution.check_command import CheckCommand, CheckSetup
from crashcheck.checker.execution.worker_pool import WorkerPool
from crashcheck.checker.images.piecewise import FilePatch
from crashcheck.checker.oracles.exit_status import ExitStatus
from crashcheck.checker.verdicts.executor import Executor
from crashcheck.command import Command

STATES = 2000
WRITES = 4
IMAGE_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Point:
    """The one crash point; as checker.states.CrashPoint."""

    acked: int = 0
    stdout_bytes: int = 0


@dataclass(frozen=True, slots=True)
class State:
    point: int
    number: int


@dataclass(frozen=True, slots=True)
class Content:
    """What checker.content gives for these states: `WRITES` writes of 8 bytes each, nothing durable."""

    writes: tuple[tuple[tuple[int, bytes], ...], ...]

    def patches(self, state: State) -> tuple[Any, ...]:
        return (FilePatch("image", True, IMAGE_BYTES, self.writes[state.number]),)

    def durable(self, _from: int | None, _to: int) -> tuple[Any, ...]:
        return ()

    def final(self) -> tuple[Any, ...]:
        return ()

    def near_full(self, _state: State) -> bool:
        return False

    def issued(self, _from: int | None, _to: int) -> tuple[Any, ...]:
        return ()


def measure(repetitions: int) -> dict[str, object]:
    # After a check that opened the image for writing, the executor compares all of it before the next state.
    return {f"check_maps_to_{access}": _measure(repetitions, access) for access in ("read", "write")} | {
        "image_bytes": IMAGE_BYTES,
        "writes_per_state": WRITES,
    }


def _measure(repetitions: int, access: str) -> dict[str, object]:
    random_ = random.Random(1)
    count = STATES // repetitions
    writes = tuple(
        tuple(sorted((random_.randrange(IMAGE_BYTES // 8) * 8, random_.randbytes(8)) for _ in range(WRITES)))
        for _ in range(count)
    )
    with scratch(20 * IMAGE_BYTES >> 20) as folder:
        first = folder / "first"
        first.mkdir()
        (first / "image").write_bytes(random_.randbytes(IMAGE_BYTES))
        check = (str(compile_program("cc", "lookup", folder / "lookup")), access)
        copying, spawning = folder / "copy", folder / "spawn"
        copying.mkdir()
        shutil.copytree(first, spawning)
        jobs = os.cpu_count() or 1
        content = Content(writes)
        with (
            _executor(content, first, folder / "one", check, 1) as one,
            _executor(content, first, folder / "all", check, jobs) as every,
        ):
            values = interleaved(
                repetitions,
                {
                    "spawn and copy": lambda: count / _copy_and_spawn(first, copying, check, writes),
                    "spawn and patch": lambda: count / _patch_and_spawn(first, spawning, check, writes),
                    "executor, 1 job": lambda: count / _execute(one, count),
                    f"executor, {jobs} jobs": lambda: count / _execute(every, count),
                },
            )
    return {
        "states_per_second": {name: Spread.of(numbers).json() for name, numbers in values.items()},
        "ratios_to_spawn_and_copy": {
            name: ratio(values, name, "spawn and copy").json() for name in values if name != "spawn and copy"
        },
    }


def _copy_and_spawn(
    first: Path, folder: Path, check: tuple[str, str], states: tuple[tuple[tuple[int, bytes], ...], ...]
) -> float:
    start = time.perf_counter()
    for writes in states:
        shutil.copyfile(first / "image", folder / "image")
        with open(folder / "image", "r+b") as image:
            for offset, data in writes:
                image.seek(offset)
                image.write(data)
        _spawn(check, folder)
    return time.perf_counter() - start


def _patch_and_spawn(
    first: Path, folder: Path, check: tuple[str, str], states: tuple[tuple[tuple[int, bytes], ...], ...]
) -> float:
    """What patching in place alone would give, with no way to notice that a check wrote to its image."""
    start = time.perf_counter()
    with open(first / "image", "rb") as original, open(folder / "image", "r+b", buffering=0) as image:
        for writes in states:
            for offset, data in writes:
                os.pwrite(image.fileno(), data, offset)
            _spawn(check, folder)
            for offset, data in writes:
                os.pwrite(image.fileno(), os.pread(original.fileno(), len(data), offset), offset)
    return time.perf_counter() - start


def _spawn(check: tuple[str, str], folder: Path) -> None:
    os.waitpid(os.posix_spawn(check[0], [*check, str(folder)], os.environ), 0)


@contextmanager
def _executor(content: Content, first: Path, work: Path, check: tuple[str, str], jobs: int) -> Iterator[Executor]:
    work.mkdir()
    words = (*check, "{pool}")
    command = CheckCommand.find(Command(" ".join(words), words), work)
    setup = CheckSetup(command, folder=work, first=first, work=work, patterns=("image",))
    # An executor asks its content and its points for nothing but what Content and Point have.
    with Executor(WorkerPool(cast(Any, content), cast(Any, [Point()]), setup, jobs=jobs), ExitStatus()) as executor:
        yield executor


def _execute(executor: Executor, count: int) -> float:
    start = time.perf_counter()
    tickets = [executor.submit(cast(Any, State(0, number))) for number in range(count)]
    for ticket in tickets:
        executor.result(ticket)
    return time.perf_counter() - start
