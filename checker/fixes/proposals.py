"""The fixes that a run proposed, kept in its folder, and applied to the source later."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

from crashcheck.checker.fixes.source.patch import applied
from crashcheck.checker.results import Fix, RunResult
from crashcheck.checker.store import Store
from crashcheck.errors import CrashcheckError
from crashcheck.source import repository_of

_FILE = "fixes.json"
_VERSION = 1


@dataclass(frozen=True, slots=True)
class Proposed:
    """A finding and its suggested fix, if there is one."""

    id: str
    kind: str
    message: str
    fix: Fix | None
    likenesses: tuple[str, ...] = ()  # also ids of findings that are one bug with it


@dataclass(frozen=True, slots=True)
class Proposals:
    """Of one run. `sources`: hashes of the files that the edits are for, as they were."""

    findings: tuple[Proposed, ...]
    sources: dict[str, str]


def of(result: RunResult, folder: Path) -> Proposals:
    """What a run in `folder` proposed just now."""
    findings = tuple(Proposed(one.id, one.kind.value, one.message, one.fix, one.likenesses) for one in result.findings)
    files = {edit.file for one in findings if one.fix is not None for edit in one.fix.edits}
    return Proposals(findings, {file: _hash(folder / file) for file in sorted(files)})


def save(proposals: Proposals, run: Path) -> None:
    document = {"version": _VERSION, **asdict(proposals)}
    (run / _FILE).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def newest(config: Path) -> Proposals | None:
    """What the newest run of a configuration file that came to its end proposed; None if there is none."""
    for run in Store(config.parent).newest(config.name):
        try:
            document = json.loads((run / _FILE).read_text(encoding="utf-8"))
            if document["version"] == _VERSION:
                return msgspec.convert(document, Proposals)
        except (OSError, ValueError, KeyError, TypeError, RecursionError):  # of which msgspec's errors are some
            continue
    return None


def chosen(proposals: Proposals, id_: str | None) -> tuple[Proposed, ...]:
    """All findings, or the one whose id begins with `id_`. Raises CrashcheckError(fix-no-finding)."""
    if id_ is None:
        return proposals.findings
    found = [one for one in proposals.findings if one.id == id_] or [
        one for one in proposals.findings if one.id.startswith(id_)
    ]
    if len(found) != 1:
        known = ", ".join(one.id for one in proposals.findings) or "none"
        raise CrashcheckError(
            "fix-no-finding",
            f"{'no finding' if not found else 'more than one finding'} of the newest run is {id_}",
            f"It found: {known}. `crashcheck run` searches again.",
        )
    return tuple(found)


def changes(proposals: Proposals, wanted: Iterable[Proposed], folder: Path) -> dict[str, tuple[str, str]]:
    """The text of each file before and after all wanted edits.

    Raises CrashcheckError: fix-outside for a file outside of the repository, fix-source-changed for one that is not as
    it was when the run read it.
    """
    root = repository_of(folder).root
    edits = [edit for one in wanted if one.fix is not None and not one.fix.after_failing for edit in one.fix.edits]

    def read(file: str) -> str:
        path = folder / file
        if root not in Path(os.path.realpath(path)).parents:
            raise CrashcheckError(
                "fix-outside", f"{file} is outside of {root}", "Fix it by hand: the report shows the change."
            )
        if _hash(path) != proposals.sources.get(file):
            raise CrashcheckError(
                "fix-source-changed",
                f"{file} is not what it was when the program was run",
                "Run `crashcheck run` again, and then `crashcheck fix`.",
            )
        return path.read_bytes().decode("utf-8")

    return applied(edits, read)


def write(changed: dict[str, tuple[str, str]], folder: Path) -> None:
    """Replaces each file as a whole; none where one cannot be written. Raises CrashcheckError(fix-unwritable)."""
    ready: list[tuple[str, Path]] = []
    file = ""
    try:
        for file, (_, after) in changed.items():
            path = Path(os.path.realpath(folder / file))
            with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as new:
                ready.append((new.name, path))
                new.write(after.encode("utf-8"))
            os.chmod(new.name, path.stat().st_mode & 0o7777)
        for new_name, path in ready:
            file = path.name
            os.replace(new_name, path)
    except OSError as error:
        raise CrashcheckError("fix-unwritable", f"{file} cannot be written: {error.strerror}.") from error
    finally:
        for new_name, _ in ready:
            Path(new_name).unlink(missing_ok=True)


def left(known: Sequence[Proposed], result: RunResult) -> tuple[str, ...]:
    """Ids of those findings that a new run still has, or a part of."""
    now = {one.id for one in result.all_findings}
    return tuple(one.id for one in known if not now.isdisjoint((one.id, *one.likenesses)))


def _hash(path: Path) -> str:
    try:
        return hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()
    except OSError:
        return ""
