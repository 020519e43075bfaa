"""The baseline: the findings that a project knows already, in a file that it commits (docs/policy.md).

An entry matches a finding by its id or a former id of it, or else by one of its further fingerprints
(findings/identity.py), so that it survives renamed functions and files. Reading, matching and writing are functions of
values; the two at the end do the work on files.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from crashcheck.checker.results import Finding, RunResult, StopReason
from crashcheck.errors import CrashcheckError

VERSION = 1


@dataclass(frozen=True, slots=True)
class Known:
    """A finding that the baseline has. `note` is the user's and is kept."""

    id: Annotated[str, Meta(min_length=1)]
    likenesses: tuple[str, ...] = ()
    kind: str = ""
    message: str = ""
    note: str = ""


class _Document(msgspec.Struct):
    version: int
    findings: tuple[Known, ...]


def read_baseline(text: str, name: str) -> tuple[Known, ...]:
    """The findings of a baseline file `name`. Raises CrashcheckError(baseline-unreadable)."""
    try:
        document = msgspec.json.decode(text, type=_Document)
        if document.version == VERSION:
            return document.findings
        why = f"it is of version {document.version!r:.40}; this crashcheck reads version {VERSION}"
    except (ValueError, RecursionError) as error:  # of which msgspec's errors are some
        why = str(error)[:200]
    hint = "`crashcheck run --baseline FILE --update-baseline` writes one."
    raise CrashcheckError("baseline-unreadable", f"{name} is no baseline of crashcheck: {why}.", hint)


def write_baseline(known: Iterable[Known]) -> str:
    """The file's text: the same findings give the same bytes."""
    rows = [
        {
            "id": each.id,
            "kind": each.kind,
            "message": each.message,
            "note": each.note,
            "likenesses": list(each.likenesses),
        }
        for each in sorted(known, key=lambda each: each.id)
    ]
    return json.dumps({"version": VERSION, "findings": rows}, ensure_ascii=False, indent=2) + "\n"


def matched(findings: Sequence[Finding], baseline: Sequence[Known]) -> dict[int, int]:
    """Which finding (index) is which of the baseline (index), each at most once.

    By id first; then by the id of something that either was merged with, or by a former id; then by likeness.
    """
    out: dict[int, int] = {}
    left = dict(enumerate(baseline))

    def pair(fits: Callable[[Finding, Known], bool]) -> None:
        for at, finding in enumerate(findings):
            if at not in out:
                found = next((number for number, known in left.items() if fits(finding, known)), None)
                if found is not None:
                    out[at] = found
                    del left[found]

    def same_likeness(which: int) -> Callable[[Finding, Known], bool]:
        wanted = slice(which, which + 1)
        return lambda finding, known: finding.likenesses[wanted] == known.likenesses[wanted] != ()

    pair(lambda finding, known: finding.id == known.id)
    pair(lambda finding, known: known.id in finding.likenesses or finding.id in known.likenesses)
    for which in range(max((len(finding.likenesses) for finding in findings), default=0)):
        pair(same_likeness(which))
    return out


def updated(result: RunResult, baseline: Sequence[Known]) -> tuple[tuple[Known, ...], tuple[str, ...]]:
    """The baseline that knows what `result` has, and what was changed, in sentences.

    What was not met is dropped, unless the search was cut short: then it may well be there. What a suppression covers
    needs no entry.
    """
    found = result.all_findings
    pairs = matched(found, baseline)
    kept: list[Known] = []
    changes: list[str] = []
    for at, finding in enumerate(found):
        if at in pairs or not finding.suppressed:
            note = baseline[pairs[at]].note if at in pairs else ""
            kept.append(Known(finding.id, finding.likenesses, finding.kind.value, finding.message, note))
        if at not in pairs and not finding.suppressed:
            changes.append(f"added {finding.id}: {finding.message}")
    for number, known in enumerate(baseline):
        if number in set(pairs.values()):
            continue
        if result.stop_reason is StopReason.EXHAUSTED:
            changes.append(f"dropped {known.id}, which is fixed: {known.message}")
        else:
            kept.append(known)
            changes.append(
                f"kept {known.id}, which was not met in this run, but the search was cut short: {known.message}"
            )
    return tuple(kept), tuple(changes)


def load_baseline(path: Path, may_be_missing: bool) -> tuple[Known, ...]:
    """The findings that `path` knows. Raises CrashcheckError(baseline-missing, baseline-unreadable)."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        if may_be_missing:
            return ()
        raise CrashcheckError(
            "baseline-missing", f"There is no baseline {path}.", "--update-baseline writes a new one."
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise CrashcheckError("baseline-unreadable", f"{path} cannot be read: {error}.") from None
    except MemoryError:  # a device that never ends
        raise CrashcheckError("baseline-unreadable", f"{path} cannot be read: it is too large.") from None
    return read_baseline(text, str(path))


def save_baseline(path: Path, known: tuple[Known, ...]) -> None:
    """Writes `path` as a whole or not at all. Raises CrashcheckError(baseline-unwritable)."""
    temporary = path.with_name(f"{path.name}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(write_baseline(known), encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise CrashcheckError("baseline-unwritable", f"{path} cannot be written: {error.strerror}.") from error
