"""Finds checks that pass whatever the files hold, after a search in which every crash state passed."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from crashcheck.checker.budget import Left
from crashcheck.checker.execution.tasks import INVERTED
from crashcheck.checker.results import BLIND
from crashcheck.checker.subject import Subject
from crashcheck.checker.verdicts.executor import Executor
from crashcheck.checker.verdicts.other_files import run_changed
from crashcheck.runtime.sparse import CHUNK_BYTES, extents, write_all


def blind_check(executor: Executor, subject: Subject, left: Left) -> tuple[str, ...]:
    """A warning if the check passes on damaged files that no crash leaves, with all the workload acknowledged.

    Every file is damaged that the workload has changed, in whichever folder: a crash damages no other. Raises OutOfTime
    where what is `left` is too little to know.
    """
    whole = subject.space.full(len(subject.space.points) - 1)
    # Without LINKs, which name one of the other files again, and would have it inverted twice.
    written = sorted({patch.path for patch in subject.content.final() if patch.size > 0})
    damaged: list[str] = []

    short_s = None if executor.short is None else executor.short.wall_s

    def passes(damage: Callable[[Path], None]) -> bool:
        return run_changed(executor, whole, partial(_damage, written, damage, damaged), short_s, left=left).passed

    return (BLIND,) if passes(_fill_with_zeros) and damaged and passes(_invert) else ()


def _damage(written: list[str], damage: Callable[[Path], None], damaged: list[str], image: Path) -> None:
    for path in written:
        if (image / path).is_file() and (image / path).stat().st_size:
            damaged.append(path)
            damage(image / path)


def _fill_with_zeros(file: Path) -> None:
    size = file.stat().st_size
    os.truncate(file, 0)
    os.truncate(file, size)


def _invert(file: Path) -> None:
    with file.open("r+b", buffering=0) as opened:
        for low, high in extents(opened.fileno(), 0, file.stat().st_size):
            for at in range(low, high, CHUNK_BYTES):
                held = os.pread(opened.fileno(), min(CHUNK_BYTES, high - at), at)
                write_all(opened.fileno(), held.translate(INVERTED), at)
