"""The workers of a dask.distributed cluster, for remote_machines.py: each call is a task that is tied to one worker.

dask moves no data and decides nothing here: a task that is tied to a lost worker would wait for it for ever, so who is
there is asked for once a second. All of dask's own work is done in the thread of its event loop.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import os
import pickle
import secrets
import select
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from crashcheck.checker.remote import host
from crashcheck.checker.remote.remote_machines import ClusterWorker, Returned
from crashcheck.errors import CrashcheckError

SCHEME = "dask://"
_CONNECT_S = 10.0
_WORKERS_S = 10.0  # for the first worker to be there
_LOOK_S = 1.0  # between two questions who is there
_CLOSE_S = 5.0


class DaskCluster:
    """A connection to a scheduler. A context manager."""

    def __init__(self, address: str) -> None:
        """`address`: HOST:PORT. Raises CrashcheckError: executor-missing, executor-unreachable."""
        try:
            import distributed
            from dask import config
        except ImportError as error:
            raise CrashcheckError(
                "executor-missing", f"dask.distributed is not installed: {error}", "pip install 'crashcheck[dask]'"
            ) from error
        for name in logging.root.manager.loggerDict:
            if name.partition(".")[0] == "distributed":
                logging.getLogger(name).setLevel(logging.CRITICAL)  # what matters is printed in our words
        # constant
        self.name = f"{SCHEME}{address}"
        self._key = secrets.token_hex(8)
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        # changing; the loop's thread replaces or appends, this one takes
        self._workers: dict[str, ClusterWorker] = {}
        self._returned: deque[Returned] = deque()
        self._number = 0
        scheme = "tls" if config.get("distributed.comm.tls.ca-file", None) else "tcp"
        try:
            self._client: Any = distributed.Client(f"{scheme}://{address}", timeout=_CONNECT_S, set_as_default=False)
        except (OSError, ValueError, RuntimeError) as error:
            os.close(self._wake)
            raise CrashcheckError(
                "executor-unreachable",
                f"no dask scheduler answers at {address} (within {_CONNECT_S:.0f} s): {error}",
                "Give the address that `dask scheduler` prints, such as --executor dask://127.0.0.1:8786.",
            ) from error
        self._loop: asyncio.AbstractEventLoop = self._client.loop.asyncio_loop
        with suppress(TimeoutError, OSError):
            self._client.wait_for_workers(1, timeout=_WORKERS_S)
        with suppress(TimeoutError, OSError):
            self._workers = _workers(self._client.nthreads())
        self._watching = asyncio.run_coroutine_threadsafe(self._watch(), self._loop)

    def __enter__(self) -> DaskCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._watching.cancel()
        with suppress(Exception):
            self._client.close(timeout=_CLOSE_S)
            os.close(self._wake)  # unless the loop, which writes to it, has not ended

    # -- remote_machines.Cluster

    def workers(self) -> Mapping[str, ClusterWorker]:
        return self._workers

    def call(self, worker: str, function: str, *arguments: object) -> int:
        self._number += 1
        data = pickle.dumps(arguments, pickle.HIGHEST_PROTOCOL)
        try:
            future = self._client.submit(
                on_worker,
                function,
                data,
                key=f"crashcheck-{self._key}-{self._number}",
                workers=[worker],
                allow_other_workers=False,
                pure=False,
            )
        except Exception:  # the connection to the scheduler has ended
            self._returned.append(Returned(self._number, None, lost=True))
            os.eventfd_write(self._wake, 1)
            return self._number
        asyncio.run_coroutine_threadsafe(self._fetch(self._number, future), self._loop)
        return self._number

    def returned(self) -> list[Returned]:
        with suppress(BlockingIOError):
            os.eventfd_read(self._wake)
        return [self._returned.popleft() for _ in range(len(self._returned))]

    def fileno(self) -> int:
        return self._wake

    def wait(self, seconds: float) -> None:
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        poll.poll(seconds * 1000)

    # -- in the thread of the loop

    async def _fetch(self, number: int, future: Any) -> None:
        try:
            returned = Returned(number, *pickle.loads(await future))
        except (asyncio.CancelledError, concurrent.futures.CancelledError, OSError):
            returned = Returned(number, None, lost=True)
        except Exception as error:
            returned = Returned(number, None, f"{type(error).__name__}: {' '.join(str(error).split())}")
        self._returned.append(returned)
        os.eventfd_write(self._wake, 1)

    async def _watch(self) -> None:
        while True:
            try:
                threads: dict[str, int] = await asyncio.wait_for(self._client.nthreads(), _CONNECT_S)
            except (OSError, TimeoutError, RuntimeError):
                threads = {}
            now = _workers(threads)
            if now != self._workers:
                self._workers = now
                os.eventfd_write(self._wake, 1)
            await asyncio.sleep(_LOOK_S)


def _workers(threads: Mapping[str, int]) -> dict[str, ClusterWorker]:
    return {address: ClusterWorker(f"worker {address}", count) for address, count in threads.items()}


def on_worker(function: str, arguments: bytes) -> bytes:
    """Call a function of host.py in a worker, with a folder that dask removes after the worker's end.

    Its value, and why there is none, so that what it raises is not taken for an error of dask.
    """
    from distributed import get_worker

    call: Any = getattr(host, function)
    try:
        returned = call(Path(get_worker().local_directory), *pickle.loads(arguments)), ""
    except Exception as error:
        returned = None, f"{type(error).__name__}: {error}"
    return pickle.dumps(returned, pickle.HIGHEST_PROTOCOL)
