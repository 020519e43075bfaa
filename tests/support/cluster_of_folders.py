"""A cluster whose machines are folders: their calls are made at once, in this process, if a test lets them."""

from __future__ import annotations

import os
import pickle
import select
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from crashcheck.checker.remote import host
from crashcheck.checker.remote.remote_machines import ClusterWorker, Returned

OnCall = Callable[[str, str, int], bool]  # worker, function, how often it was called there before; whether to answer


class Machines:
    """A cluster of machines, each a folder."""

    name = "machines"

    def __init__(self, folder: Path, names: str = "ab") -> None:
        self.folders = {name: folder / name for name in names}
        for each in self.folders.values():
            each.mkdir(parents=True, exist_ok=True)
        self.there = dict.fromkeys(names, 1)  # with their threads
        self.calls: Counter[tuple[str, str]] = Counter()
        self.on_call: OnCall = lambda worker, function, before: True
        self._returned: list[Returned] = []
        self._wake = os.eventfd(0, os.EFD_NONBLOCK)

    def workers(self) -> Mapping[str, ClusterWorker]:
        return {name: ClusterWorker(f"machine {name}", threads) for name, threads in self.there.items()}

    def call(self, worker: str, function: str, *arguments: object) -> int:
        before = self.calls[worker, function]
        self.calls[worker, function] += 1
        number = self.calls.total()
        if not self.on_call(worker, function, before):
            return number
        try:
            value = getattr(host, function)(self.folders[worker], *pickle.loads(pickle.dumps(arguments)))
            self._returned.append(Returned(number, pickle.loads(pickle.dumps(value))))
        except OSError as error:
            self._returned.append(Returned(number, None, str(error)))
        os.eventfd_write(self._wake, 1)
        return number

    def returned(self) -> list[Returned]:
        if self._returned:
            os.eventfd_read(self._wake)
        returned, self._returned = self._returned, []
        return returned

    def fileno(self) -> int:
        return self._wake

    def wait(self, seconds: float) -> None:
        select.select([self._wake], [], [], seconds)

    def close(self) -> None:
        os.close(self._wake)
