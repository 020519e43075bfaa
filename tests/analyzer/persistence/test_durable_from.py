"""From which event on each byte is durable, in programs too long to list their states, by rules of pairs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from crashcheck.analyzer.persistence import Options, build
from crashcheck.analyzer.persistence.graph import NEVER, PersistenceGraph
from crashcheck.analyzer.persistence.pieces import DATA
from support.random_programs import with_syncs
from support.reference import PAGE, First, Order, Program, eadr_order, pieces, px86_order
from support.reference_page_cache import page_cache_order
from support.worlds import record

Byte = tuple[int, str, int]  # event, file, offset
BYTES = 2 * PAGE
FIRST: First = {"a": bytes(BYTES), "b": bytes(BYTES)}


def random_program(seed: int) -> Program:
    """Stores, flushes and syncs at both sides of the borders of words, lines and pages."""
    random = Random(seed)

    def somewhere() -> tuple[str, int]:
        line = random.choice((0, 1, 2, 3, PAGE // 64 - 1, PAGE // 64))
        return random.choice("ab"), line * 64 + random.choice((0, 0, 8, 56, 60, 63))

    steps: list[Any] = []
    for _ in range(60):
        thread = random.choice((1, 1, 2))
        file, at = somewhere()
        data = random.randbytes(random.choice((1, 8, 12, 70)))
        sync = random.choice(("msync", "msync", "fsync", "fdatasync", "sync", "dirsync", "async"))
        of = None if sync in ("sync", "dirsync") or not random.randrange(4) else file  # else: of a file not watched
        page = random.choice((0, PAGE, 2 * PAGE, at)), random.choice((0, 1, 64, PAGE, PAGE + 1))
        kinds = (
            "store",
            "store",
            "nt",
            "write",
            "flush",
            "flush",
            "flush",
            "fence",
            "fence",
            "mark",
            "sync",
            "size",
            "append",
        )
        end = BYTES + 100 * len(steps)  # files grow only
        steps.append(
            {
                "store": (thread, "store", file, at, data, False),
                "nt": (thread, "store", file, at, data, True),
                "write": (thread, "write", file, at, data),
                "append": (thread, "write", file, end, data),
                "flush": (
                    thread,
                    random.choice(("clwb", "clwb", "clflush")),
                    file,
                    at,
                    random.choice((0, 1, 2, 8, 64, 200)),
                ),
                "fence": (thread, "fence"),
                "mark": (thread, "mark"),
                "size": (thread, "truncate", file, end),
                "sync": (
                    thread,
                    "sync-call",
                    (sync, of, *(page if sync == "msync" else (0, 0)), random.random() < 0.3),
                    random.randrange(4),
                ),
            }[random.choice(kinds if seed % 2 else kinds[:-3])]
        )
    return with_syncs(steps)


def found(graph: PersistenceGraph, program: Program) -> dict[Byte, int]:
    unnamed = len(graph.trace.events) - len(program)  # files are named first
    out: dict[Byte, int] = {}
    for piece in np.flatnonzero(graph.kind == DATA).tolist():
        file, begin = graph.trace.files[int(graph.file[piece])].path, int(graph.offset[piece])
        durable_from = int(graph.durable_from[piece])
        for at in range(begin, begin + int(graph.size[piece])):
            out[int(graph.event[piece]) - unnamed, file, at] = durable_from - unnamed * (durable_from < NEVER)
    return out


def expected(program: Program, order: Order) -> dict[Byte, int]:
    """What must persist before something durable is durable, too."""
    before, durable_after = order
    needed: dict[Any, list[Any]] = {}
    for earlier, later in before:
        needed.setdefault(later, []).append(earlier)
    everything = pieces(program, len(program))
    for later in sorted(everything, reverse=True):  # from the last one on: it persists after earlier ones only
        if later in durable_after:
            for earlier in needed.get(later, ()):
                durable_after[earlier] = min(durable_after[later], durable_after.get(earlier, NEVER))
    return {
        (piece[0], file, at): durable_after[piece] + 1 if piece in durable_after else NEVER
        for piece, (file, begin, data, _) in everything.items()
        for at in range(begin, begin + len(data))
    }


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize(
    ("model", "order"), [("px86", px86_order), ("eadr", partial(eadr_order, FIRST))], ids=["px86", "eadr"]
)
def test_a_byte_is_durable_from_the_first_event_that_promises_it(
    model: str, order: Callable[[Program], Order], seed: int, tmp_path: Path
) -> None:
    program = random_program(seed)
    graph = build(record(tmp_path, FIRST, program).trace(), model)
    assert found(graph, program) == expected(program, order(program))
    changes_of_size = graph.kind != DATA
    assert (graph.durable_from == graph.event + 1)[changes_of_size].all()


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("tear", [0, 512])
def test_a_page_is_durable_from_the_first_sync_that_no_failed_one_has_spoilt(
    tear: int, seed: int, tmp_path: Path
) -> None:
    program = random_program(seed)
    graph = build(record(tmp_path, FIRST, program).trace(), "page-cache", Options(tear))
    assert found(graph, program) == expected(program, page_cache_order(program))
