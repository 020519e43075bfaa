"""Explores products, several at once, and picks the explored runs that fail."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from crashcheck.checker.execution.process import captured
from crashcheck.checker.execution.tasks import FIRST
from crashcheck.checker.exploration.product import Product
from crashcheck.checker.results import Verdict
from crashcheck.checker.verdicts.executor import Executor
from crashcheck.runtime.exploration import MOST_ENDS, TABLE, End, Explored, read_table, write_table

_FAILING = 4  # ends of a product that are examined


class ExploredLimit(NamedTuple):
    """What the runs of one product may take."""

    seconds: float
    ends: int = MOST_ENDS


def explored_runs(
    executor: Executor,
    products: Sequence[tuple[Product | None, Path]],
    limit: ExploredLimit,
    until_s: float | None = None,
) -> list[Explored | None]:
    """The results for some products, whose images are in these folders, as `pool`; None for None.

    The check is run with each combination of the granules' contents. Other files in the folders may be overwritten.
    `limit`: for each product; `until_s`: when the time of all is over, by the monotonic clock. All take about the
    time of one if there are no more than workers.
    """
    begun = [None if one is None else _begun(executor, one, folder, limit, until_s) for one, folder in products]
    return [
        None if one is None or each is None else _ended(executor, each, len(one.granules), folder)
        for each, (one, folder) in zip(begun, products, strict=True)
    ]


def _begun(executor: Executor, one: Product, folder: Path, limit: ExploredLimit, until_s: float | None) -> int | str:
    """The ticket of the runs of a product; a text: why it cannot be explored."""
    workers = executor.workers
    stages, setup, limits = executor.oracle.stages(one.point), workers.setup, workers.limits
    if len(stages) > 1:
        return "it runs more than once"
    acked, printed = executor.images.acknowledged(one.point)
    pool, stdout, ops, table = (folder / name for name in ("pool", "stdout", "ops", "table"))
    ops.write_bytes(b"".join(stages))
    recorded = setup.recorded_stdout
    stdout.write_bytes(recorded.read_bytes()[:printed] if printed and recorded is not None else b"")
    memory_bytes, outputs = limits.memory_bytes, limits.compared_apart
    write_table(table, pool, one.granules, memory_bytes=memory_bytes, outputs=outputs, most_ends=limit.ends)
    argv = setup.command.argv(str(pool), acked, str(stdout), str(ops) if stages else None)
    env = {**setup.environment(pool), TABLE: str(table)}
    return workers.submit_exploration(one.point, argv, env, limit.seconds, until_s)


def writers_to_outputs(executor: Executor, operations: bytes, timeout_s: float) -> tuple[int, ...] | None:
    """Through how many open files an uncrashed check writes to each output that is compared; None: not known.

    It is explored on the image after the workload, where no file has to be made, and changes none.
    """
    workers, folder = executor.workers, executor.home / "writers"
    pool, stdout, ops, table = (folder / name for name in ("pool", "stdout", "ops", "table"))
    folder.mkdir()
    try:
        executor.images.write_final(pool)
        ops.write_bytes(operations)
        stdout.write_bytes(b"")
        outputs = workers.limits.compared_apart
        write_table(table, pool, (), memory_bytes=workers.limits.memory_bytes, outputs=outputs)
        argv = workers.setup.command.argv(str(pool), 0, str(stdout), str(ops))
        env = {**workers.setup.environment(pool), TABLE: str(table)}
        run = workers.ended(workers.submit_exploration(FIRST, argv, env, timeout_s, None))
        done = read_table(table, 0, timed_out=run.ended.timed_out)
        return None if done.why else done.writers[1:] or done.writers
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _ended(executor: Executor, begun: int | str, granules: int, folder: Path) -> Explored:
    """Wait for the result of what has begun, of so many granules; each once."""
    if isinstance(begun, str):
        return Explored((), 0, 0, begun, final=True)
    run = executor.workers.ended(begun)
    return read_table(folder / "table", granules, timed_out=run.ended.timed_out)


def failing_ends(executor: Executor, explored: Explored, point: int, folder: Path) -> list[tuple[End, Verdict]]:
    """The first ends of what was explored in `folder` that fail, with their verdicts."""
    names = {str(folder / name): "{" + name + "}" for name in ("pool", "stdout", "ops")}
    failing: list[tuple[End, Verdict]] = []
    for end in explored.ends:
        ended = captured(end.status, end.output, end.compared, executor.workers.limits)
        verdict = executor.oracle.judge(ended, names, point)
        if not verdict.passed:
            failing.append((end, verdict))
        if len(failing) == _FAILING:
            break
    return failing
