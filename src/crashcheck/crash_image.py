"""A finding's crash image as one compressed file, and the check run on it: no recording and no special build is needed.

The file is a tar archive of what the check is given: the files of the pool, what the workload had printed, where files
were mapped. It may come from anywhere: only plain files are taken out, below one folder, and holes stay holes.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from crashcheck.checker.execution.check_command import CheckCommand, CheckSetup
from crashcheck.checker.results import Finding
from crashcheck.checker.token import Token
from crashcheck.checker.verdicts.prepare import choose_oracle, compares_outputs
from crashcheck.config import Config
from crashcheck.errors import CrashcheckError
from crashcheck.runtime.build import build_runtime
from crashcheck.stages.executor_setup import executor_of
from crashcheck.stages.recording import earlier_recording, read_recording

MOST_IMAGES = 10
MOST_BYTES = 2 << 30  # of the files of one image, holes included
SUFFIX = ".crash.tar.gz"
_ABOUT, _POOL, _STDOUT, _ADDRESSES = "about.json", "pool", "stdout", "addresses"
_BLOCK = 1 << 16


@dataclass(frozen=True, slots=True)
class Rerun:
    """A check that was run on an image. `ended`: how, in words."""

    passed: bool
    ended: str
    output: str


def write_images(config: Config, run: Path, findings: Iterable[Finding], folder: Path, limit: int) -> tuple[str, ...]:
    """Write the images of the first findings to `folder`/ID.crash.tar.gz; why some were not written.

    `run`: the run's folder. `limit`: bytes of all files together.
    """
    wanted = [finding for finding in findings if finding.replay][:MOST_IMAGES]
    if wanted and config.nodes is not None:
        return ("a run of nodes: `crashcheck replay` makes it again from the token",)
    if not wanted or compares_outputs(config):
        return ("no crash image is kept of a run that compares outputs",) if wanted else ()
    refused: list[str] = []
    with ExitStack() as stack:
        recorded = read_recording(config, earlier_recording(run))
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=run)))
        oracle = choose_oracle(config, recorded.subject, recorded.folder)
        executor = stack.enter_context(executor_of(config, recorded, work, 1, oracle))
        folder.mkdir(parents=True, exist_ok=True)
        for finding in wanted:
            token = Token.parse(finding.replay)
            if len(token.levels) > 1:
                refused.append(f"{finding.id}: it needs a crash of the recovery as well")
                continue
            state = token.for_trace(recorded.subject.trace)
            pool = work / finding.id
            executor.images.write_image(state, pool)
            if (size := sum(path.stat().st_size for path in _files(pool))) > MOST_BYTES:
                refused.append(f"{finding.id}: its files have {size:,} bytes")
                continue
            point = recorded.subject.space.points[state.point]
            about = {"id": finding.id, "message": finding.message, "acked": int(point.acked)}
            recording = recorded.recording
            printed = recording.stdout.read_bytes()[: int(point.stdout_bytes)]
            target = folder / f"{finding.id}{SUFFIX}"
            _pack(target, pool, about, printed, recording.addresses)
            limit -= target.stat().st_size
            if limit < 0:
                target.unlink()
                refused.append(f"{finding.id}: with it the images exceed the limit")
                break
    return tuple(refused)


def run_check(config: Config, archive: Path, folder: Path) -> Rerun:
    """Run the check of a configuration on an archive's image, which is written to `folder`.

    Raises CrashcheckError: image-unreadable, check-not-started.
    """
    about = _unpack(archive, folder)
    pool, addresses = folder / _POOL, folder / _ADDRESSES
    pool.mkdir(exist_ok=True)
    setup = CheckSetup(
        command=CheckCommand.find(config.check.command, config.folder),
        folder=config.folder,
        first=pool,
        work=folder,
        addresses=addresses if addresses.exists() else None,
        preload=build_runtime().shared if addresses.exists() else None,
        patterns=config.pool.files,
        env={**config.check.env, **config.dax},
    )
    argv = setup.command.argv(str(pool), about, str(folder / _STDOUT))
    try:
        done = subprocess.run(
            [setup.command.program, *argv[1:]],
            cwd=config.folder,
            env=setup.environment(pool),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=config.check.timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        return Rerun(False, "the check timed out", (error.stdout or b"").decode("utf-8", "replace"))
    except OSError as error:
        raise CrashcheckError("check-not-started", f"{setup.command.program}: {error.strerror}") from error
    code = done.returncode
    ended = f"the check exited with status {code}" if code >= 0 else f"the check was killed by signal {-code}"
    return Rerun(code == 0, ended, done.stdout.decode("utf-8", "replace"))


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink())


def _pack(target: Path, pool: Path, about: dict[str, object], printed: bytes, addresses: Path) -> None:
    """The same image gives the same bytes."""
    with (
        target.open("wb") as raw,
        gzip.GzipFile(fileobj=raw, mode="wb", filename="", mtime=0, compresslevel=6) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):

        def add(name: str, size: int, data: IO[bytes]) -> None:
            member = tarfile.TarInfo(name)
            member.size, member.mode = size, 0o644
            archive.addfile(member, data)

        known = {_ABOUT: (json.dumps(about, sort_keys=True) + "\n").encode(), _STDOUT: printed}
        if addresses.is_file():
            known[_ADDRESSES] = addresses.read_bytes()
        for name, data in known.items():
            add(name, len(data), io.BytesIO(data))
        for path in _files(pool):
            with path.open("rb") as file:
                add(f"{_POOL}/{path.relative_to(pool).as_posix()}", path.stat().st_size, file)


def _unpack(archive: Path, folder: Path) -> int:
    """Write the archive's plain files below `folder`; the number of acknowledged operations."""
    left = MOST_BYTES
    try:
        with tarfile.open(archive, "r:gz") as packed:
            for member in packed:
                name = PurePosixPath(member.name)
                known = name.parts[:1] == (_POOL,) and len(name.parts) > 1
                if (
                    not member.isreg()
                    or ".." in name.parts
                    or not (known or str(name) in (_ABOUT, _STDOUT, _ADDRESSES))
                ):
                    raise _unreadable(archive, f"it holds {member.name!r}")
                left -= member.size
                data = packed.extractfile(member)
                if left < 0 or data is None:
                    raise _unreadable(archive, "its files are too large")
                target = folder / name
                target.parent.mkdir(parents=True, exist_ok=True)
                _write_sparse(target, data)
        about = json.loads((folder / _ABOUT).read_text(encoding="utf-8"))
        return int(about["acked"])
    except (OSError, EOFError, tarfile.TarError, ValueError, KeyError, TypeError) as error:
        raise _unreadable(archive, str(error)) from error


def _write_sparse(target: Path, data: IO[bytes]) -> None:
    with target.open("wb") as out:
        while block := data.read(_BLOCK):
            if block.strip(b"\0"):
                out.write(block)
            else:
                out.seek(len(block), os.SEEK_CUR)
        out.truncate()


def _unreadable(archive: Path, why: str) -> CrashcheckError:
    return CrashcheckError(
        "image-unreadable", f"{archive} is no crash image: {why}.", "`crashcheck run --images FOLDER` writes them."
    )
