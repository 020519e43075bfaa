"""A dask scheduler and workers on the loopback interface, each a process that a test may kill.

All of them are forked from one process that has imported dask: that takes most of their start.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class DaskProcesses:
    """`address`: HOST:PORT of the scheduler; `scheduler`, `workers`: process numbers, of workers by their address."""

    address: str
    scheduler: int
    workers: dict[str, int]


@contextmanager
def dask_processes(folder: Path, workers: int) -> Iterator[DaskProcesses]:
    """A cluster that keeps its files in `folder`, until the end of the context."""
    command = [sys.executable, __file__, str(folder), str(workers)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        words = process.stdout.readline().split()
        assert words, process.communicate()[1].decode()
        address, scheduler, *pairs = map(bytes.decode, words)
        numbers = dict(zip(pairs[::2], map(int, pairs[1::2]), strict=True))
        yield DaskProcesses(address.removeprefix("tcp://"), int(scheduler), numbers)
        process.communicate()  # the end of its input ends it


def _serve(folder: str, count: int) -> None:
    import logging

    import dask
    from distributed import Scheduler, Worker

    logging.disable(logging.CRITICAL)
    dask.config.set({"distributed.worker.memory.terminate": False, "distributed.admin.system-monitor.interval": "1m"})

    async def serve(server: Scheduler | Worker, ready: int) -> None:
        async with server:
            os.write(ready, f"{server.address} {os.getpid()}\n".encode())
            await server.finished()

    async def scheduler(ready: int) -> None:
        await serve(Scheduler(host="127.0.0.1", port=0, dashboard=False, dashboard_address=None), ready)

    async def worker(ready: int, address: str) -> None:
        await serve(Worker(address, host="127.0.0.1", nthreads=1, dashboard=False, local_directory=folder), ready)

    started, ready = os.pipe()
    lines = os.fdopen(started, encoding="ascii")
    processes = [_forked(lambda: asyncio.run(scheduler(ready)))]
    address = lines.readline().split()[0]
    processes += [_forked(lambda: asyncio.run(worker(ready, address))) for _ in range(count)]
    workers = [word for _ in range(count) for word in lines.readline().split()]
    print(address, processes[0], *workers, flush=True)
    sys.stdin.read()
    for process in processes:
        os.kill(process, signal.SIGKILL)  # one that has ended is not waited for yet, so the number is its own
        os.waitpid(process, 0)


def _forked(work: Callable[[], None]) -> int:
    process = os.fork()
    if process == 0:
        try:
            work()
        finally:
            os._exit(1)
    return process


if __name__ == "__main__":
    _serve(sys.argv[1], int(sys.argv[2]))
