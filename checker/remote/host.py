"""What a machine of a cluster does for a search: it keeps files by content hash, and executes what it is sent.

Its functions may be called in any thread. A machine that has restarted, or that nobody has asked anything for a while,
has no session: it answers that, and is sent what it needs again.
"""

from __future__ import annotations

import hashlib
import pickle
import shutil
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple, Protocol

import crashcheck
from crashcheck.checker.execution.process import Ended
from crashcheck.checker.execution.worker import Task, Trouble
from crashcheck.checker.execution.worker_pool import AHEAD, STOPPED_S
from crashcheck.checker.execution.worker_process import WorkerDied, WorkerProcess
from crashcheck.checker.images import image_folder
from crashcheck.checker.kept.keys import sources
from crashcheck.checker.remote.packing import Packed, digests, unpack
from crashcheck.checker.remote.shipment import Description, setup_below, unfit
from crashcheck.checker.remote.shipped_files import FILES
from crashcheck.runtime import sparse

BATCH_S = 0.5  # after so long no further task of a batch is begun
_IDLE_S = 600.0  # after so long a session ends whose owner has probably been killed
_PIECES = "crashcheck-pieces"

Versions = tuple[str, str, str]  # of Python, of crashcheck, the hash of crashcheck's sources


class Begun(NamedTuple):
    """The check of the uncrashed image. `why`: or why this machine cannot be used; `names`: as Run has it, by slot."""

    why: str
    names: tuple[dict[str, str], ...] = ()
    ended: Ended | None = None


class BatchOutcome(NamedTuple):
    """How the first tasks of a batch ended. `why`: what hindered the others, if it was not time."""

    ended: tuple[Ended, ...]
    why: str = ""


def versions() -> Versions:
    """What must be equal on all machines of a search."""
    python = ".".join(map(str, sys.version_info[:2]))
    return python, crashcheck.__version__, sources()


class HostSession(Protocol):
    """What one search has on this machine, made of its folder, which is not there yet, and a description.

    `begin` and `run` are what the functions of that name do below.
    """

    folder: Path

    @property
    def entries(self) -> Sequence[Packed]:
        """The files that it needs."""
        ...

    def begin(self, pieces: Path, first: Any, slots: int) -> Any: ...

    def run(self, slot: int, tasks: Sequence[Any]) -> Any: ...

    def close(self) -> None: ...


class StateSession:
    """The files and worker processes of a search over crash states."""

    def __init__(self, folder: Path, description: Description) -> None:
        # constant
        self.folder = folder
        self.description = description
        # changing
        self._ending = ExitStack()
        self.workers: list[WorkerProcess] = []

    @property
    def entries(self) -> Sequence[Packed]:
        return self.description.entries

    def begin(self, pieces: Path, first: Task, slots: int) -> Begun:
        """Start `slots` workers, and run the check of the uncrashed image."""
        self.folder.mkdir()
        unpack(self.description.entries, self.folder, lambda digest: (pieces / digest.hex()).read_bytes())
        setup = setup_below(self.description, self.folder)
        setup.folder.mkdir(parents=True, exist_ok=True)
        if why := unfit(self.description, setup, self.folder):
            return Begun(why)
        held = image_folder.held_home(self.folder, sparse.data_bytes(setup.first), slots)
        home = self._ending.enter_context(held)
        for index in range(slots):
            self.workers.append(WorkerProcess(index, home, setup, self.description.limits))
        for worker in self.workers:
            if isinstance(trouble := _answer(worker), Trouble):
                return Begun(trouble.text)
        batch = self.run(0, [first])
        files = {str(self.folder / FILES): ""}  # below it everything has the path that it has where it came from
        names = tuple({**worker.names, **files} for worker in self.workers)
        return Begun(batch.why, names, batch.ended[0] if batch.ended else None)

    def run(self, slot: int, tasks: Sequence[Task]) -> BatchOutcome:
        """Run tasks on one worker for a while, at least one. Nothing else may be under way on that worker."""
        worker, until = self.workers[slot], monotonic() + BATCH_S
        ended: list[Ended] = []
        sent = 0
        try:
            while True:
                while sent < len(tasks) and sent - len(ended) < AHEAD and (not sent or monotonic() < until):
                    with suppress(OSError):  # it is gone: `_answer` raises the reason
                        worker.send(tasks[sent])
                    sent += 1
                if len(ended) == sent:
                    return BatchOutcome(tuple(ended))
                answer = _answer(worker)
                if isinstance(answer, Trouble):
                    return BatchOutcome(tuple(ended), answer.text)
                assert answer is not None
                ended.append(answer[1])
        except (WorkerDied, OSError) as error:
            return BatchOutcome(tuple(ended), str(error))

    def close(self) -> None:
        """End the workers, and remove all that was written."""
        for worker in self.workers:
            worker.close()
        for worker in self.workers:
            worker.end()
        self.workers.clear()
        self._ending.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def _answer(worker: WorkerProcess) -> Trouble | tuple[int, Ended] | None:
    while not worker.connection.poll(STOPPED_S):
        worker.continue_if_stopped()
    return worker.receive()


@dataclass(eq=False)
class _Use:
    """Who uses a session. `calls`: under way; `used`: when the last one ended."""

    session: HostSession
    used: float = field(default_factory=monotonic)
    calls: int = 0


@dataclass(eq=False)
class _Host:
    """The sessions of this process, by folder: it may be several machines of a cluster."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    sessions: dict[Path, _Use] = field(default_factory=dict)
    cleaning: bool = False  # whether a thread ends idle sessions

    @contextmanager
    def using(self, folder: Path) -> Iterator[HostSession | None]:
        """A session that is not idle meanwhile; None if there is none."""
        with self.lock:
            use = self.sessions.get(folder)
            if use is not None:
                use.calls += 1
        try:
            yield None if use is None else use.session
        finally:
            with self.lock:
                if use is not None:
                    use.calls -= 1
                    use.used = monotonic()

    def add(self, session: HostSession) -> None:
        with self.lock:
            self.sessions[session.folder] = _Use(session)
            if not self.cleaning:
                self.cleaning = True
                threading.Thread(target=self._clean, daemon=True).start()

    def needed(self) -> set[str]:
        """The hashes of all pieces that sessions name."""
        with self.lock:
            return {digest.hex() for one in self.sessions.values() for digest in digests(one.session.entries)}

    def pop(self, folder: Path) -> HostSession | None:
        with self.lock:
            use = self.sessions.pop(folder, None)
        return None if use is None else use.session

    def _clean(self) -> None:
        """End sessions whose owner has not asked anything for a while."""
        while not threading.Event().wait(_IDLE_S / 10):
            for session in self.pop_idle():
                session.close()

    def pop_idle(self) -> list[HostSession]:
        with self.lock:
            latest = monotonic() - _IDLE_S
            idle = [folder for folder, one in self.sessions.items() if not one.calls and one.used < latest]
            return [self.sessions.pop(folder).session for folder in idle]


_host = _Host()


def _below(folder: Path, name: bytes) -> Path:
    return folder / f"crashcheck-{name.hex()}"


def hello(folder: Path, name: bytes, theirs: Versions, description: bytes) -> tuple[str, list[bytes]]:
    """Begin a session: why this machine cannot be used, or the hashes of pieces that it lacks.

    `folder`: where files may be kept; `description`: the class of the session and what it is made of, encoded, as
    another version may have other types.
    """
    own = versions()
    for what, here, there in zip(("Python", "crashcheck"), theirs, own, strict=False):
        if here != there:
            return f"it has {what} {there}, not {here}", []
    if own != theirs:
        return f"its crashcheck {crashcheck.__version__} has other sources", []
    make, wanted = pickle.loads(description)
    end(folder, name)
    pieces = folder / _PIECES
    pieces.mkdir(exist_ok=True)
    session: HostSession = make(_below(folder, name), wanted)
    _host.add(session)
    kept = _host.needed()
    for path in pieces.iterdir():
        if path.suffix == "" and path.name not in kept:
            path.unlink(missing_ok=True)
    return "", [digest for digest in digests(session.entries) if not (pieces / digest.hex()).exists()]


def put(folder: Path, name: bytes, pieces: Sequence[bytes]) -> None:
    """Keep pieces, which a session lacks, under their hashes."""
    for data in pieces:
        path = folder / _PIECES / hashlib.sha256(data).hexdigest()
        new = path.with_name(f"{path.name}.{threading.get_ident()}")
        new.write_bytes(data)
        new.replace(path)


def begin(folder: Path, name: bytes, first: Any, slots: int) -> Any:
    """Prepare `slots` executions at a time, and execute what is first; None if there is no such session."""
    with _host.using(_below(folder, name)) as session:
        if session is None:
            return None
        try:
            return session.begin(folder / _PIECES, first, slots)
        except BaseException:
            session.close()
            raise


def run(folder: Path, name: bytes, slot: int, tasks: Sequence[Any]) -> Any:
    """Execute tasks in the place `slot`, as many as there is time for; None as `begin`."""
    with _host.using(_below(folder, name)) as session:
        return None if session is None else session.run(slot, tasks)


def end(folder: Path, name: bytes) -> None:
    """End a session, if there is one of that name."""
    session = _host.pop(_below(folder, name))
    if session is not None:
        session.close()
