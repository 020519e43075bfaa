"""Keeps runs on disk: one folder per run beside crashcheck.toml, found again by the digest of its trace."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from crashcheck.errors import CrashcheckError

FOLDER = ".crashcheck"
KEPT_RUNS = 5
_MANIFEST = "run.json"
_CONFIG = "config"  # in a run's folder: the name of the configuration file
_USUAL_CONFIG = "crashcheck.toml"


@dataclass(slots=True)
class RunFolder:
    """A run's own folder, locked while the run lasts so that another run's clean-up leaves it alone."""

    path: Path
    _lock: int = field(repr=False)
    waited_s: float = 0.0  # for another run of the project

    def register(self, digest: str, recording: Path) -> None:
        """Makes the recording in `recording` (this folder or one below it) findable by its trace's digest."""
        manifest = _read_manifest(self.path)
        manifest[digest] = os.path.relpath(recording, self.path)
        temporary = self.path / f"{_MANIFEST}.new"
        temporary.write_text(json.dumps(manifest, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        temporary.replace(self.path / _MANIFEST)

    def close(self) -> None:
        os.close(self._lock)


@dataclass(frozen=True, slots=True)
class Programs:
    """What [build] makes, held: alone while it is made, together with other runs while it is used."""

    _lock: int = field(repr=False)

    def alone(self, on_wait: Callable[[], None]) -> float:
        """Wait until no other run of the folder uses them: how many seconds. `on_wait` is called before a wait."""
        return self._hold(fcntl.LOCK_EX, on_wait)

    def together(self, on_wait: Callable[[], None]) -> float:
        """Let others use them too, and nobody make them again; wait as `alone` does."""
        return self._hold(fcntl.LOCK_SH, on_wait)

    def _hold(self, how: int, on_wait: Callable[[], None]) -> float:
        try:
            fcntl.flock(self._lock, how | fcntl.LOCK_NB)
            return 0.0
        except BlockingIOError:
            started = time.monotonic()
            on_wait()
            fcntl.flock(self._lock, how)
            return time.monotonic() - started


@dataclass(frozen=True, slots=True)
class Store:
    """The runs of one project folder."""

    project: Path

    @property
    def folder(self) -> Path:
        return self.project / FOLDER

    @contextmanager
    def programs(self) -> Iterator[Programs]:
        """The programs of the folder, not held yet; a run of it must have been made."""
        lock = os.open(self.folder / "programs.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
        try:
            yield Programs(lock)
        finally:
            os.close(lock)

    def new_run(self, config: str = _USUAL_CONFIG) -> RunFolder:
        """A new, empty, locked folder; older runs beyond KEPT_RUNS that nobody holds are removed first.

        `config`: the name of the configuration file, beside which the folder is.
        Raises CrashcheckError(work-folder) where the project's folder cannot be written.
        """
        try:
            self.folder.mkdir(exist_ok=True)
            ignore = self.folder / ".gitignore"
            if not ignore.exists():
                ignore.write_text("*\n", encoding="utf-8")
            self._prune()
            # Names sort by age; two runs that start in the same instant differ by their random part.
            path = self.folder / f"{time.time_ns():020d}-{secrets.token_hex(4)}"
            path.mkdir()
            lock = os.open(path / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
            fcntl.flock(lock, fcntl.LOCK_EX)
            (path / _CONFIG).write_bytes(os.fsencode(config))
        except OSError as error:
            hint = "crashcheck keeps its recordings beside crashcheck.toml: make that folder writable."
            raise CrashcheckError("work-folder", f"{self.folder} cannot be written: {error.strerror}.", hint) from error
        return RunFolder(path, lock)

    def find(self, digest: str) -> Path:
        """The folder of the newest recording whose trace has `digest`. Raises CrashcheckError(replay-no-recording)."""
        for run in self.newest():
            place = _read_manifest(run).get(digest)
            if place is not None and os.path.isdir(run / place):
                return run / place
        hint = f"The last {KEPT_RUNS} runs are kept; run `crashcheck run` again and take the token it prints."
        raise CrashcheckError("replay-no-recording", f"No recording in {self.folder} has the trace {digest}.", hint)

    def newest(self, config: str | None = None) -> Iterator[Path]:
        """The folders of the runs that are kept, from the newest to the oldest; `config`: only those of that file."""
        for run in reversed(list(self._runs())):
            if config is None or config_of(run) == config:
                yield run

    def _runs(self) -> Iterator[Path]:
        if self.folder.is_dir():
            yield from sorted(entry for entry in self.folder.iterdir() if entry.is_dir() and entry.name[:1].isdigit())

    def _prune(self) -> None:
        for run in list(self._runs())[: -(KEPT_RUNS - 1)]:
            if _is_free(run):
                shutil.rmtree(run, ignore_errors=True)


def ended_beside(run: Path) -> list[Path]:
    """The folders of the other runs of a run's project that have ended, or were killed."""
    return [other for other in Store(run.parent.parent).newest() if other != run and _is_free(other)]


def config_of(run: Path) -> str:
    """The name of the configuration file of a run. Earlier versions did not keep it."""
    try:
        return os.fsdecode((run / _CONFIG).read_bytes())
    except OSError:
        return _USUAL_CONFIG


def _read_manifest(run: Path) -> dict[str, str]:
    try:
        manifest = json.loads((run / _MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return {str(digest): str(place) for digest, place in manifest.items()} if isinstance(manifest, dict) else {}


def _is_free(run: Path) -> bool:
    try:
        lock = os.open(run / "lock", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        # Either half made by a run that starts now, or left by one that died before it could lock: its age decides.
        return time.time() - run.stat().st_mtime > 60
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(lock)
    return True
