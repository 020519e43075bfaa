"""Where the rules on findings come from: comments in the program's sources, crashcheck.toml, the baseline file."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from crashcheck.analyzer.compile.facts import ProgramFacts
from crashcheck.checker.policy import Known, Suppression, in_comments, read_baseline, write_baseline
from crashcheck.checker.results import Location, RunResult
from crashcheck.config import Config
from crashcheck.errors import CrashcheckError
from crashcheck.repository import repository_of
from crashcheck.source import SourceTree, source_lines


@dataclass(frozen=True, slots=True)
class Rules:
    """The suppressions of a run, and what is wrong with others."""

    suppressions: tuple[Suppression, ...]
    warnings: tuple[str, ...]


def rules(config: Config, facts: ProgramFacts, result: RunResult) -> Rules:
    """Suppressions of `config`, and those of comments in the sources that the program was made of.

    Only files of the repository are read: names of sources come from debug information.
    """
    found = [
        Suppression(f"[[suppress]] {number}", each.reason, frozenset(each.kinds), each.id, each.file)
        for number, each in enumerate(config.suppress, 1)
    ]
    warnings: list[str] = []
    root = repository_of(config.folder).root
    for file in _sources(config.folder, facts, result):
        path = Path(os.path.realpath(config.folder / file))
        if path.is_relative_to(root):
            comments, remarks = in_comments(file, source_lines(path))
            found += comments
            warnings += remarks
    return Rules(tuple(found), tuple(warnings))


def _sources(folder: Path, facts: ProgramFacts, result: RunResult) -> list[str]:
    """As findings name them, in order."""
    tree = SourceTree(folder)
    told = {place.file for unit in facts.units.values() for site in unit.sites for place in site.positions}
    told |= {unit.source for unit in facts.units.values()}
    named = {tree.relative(file) for file in told if file}
    return sorted(named | {place.file for place in _culprits(result) if place.file})


def _culprits(result: RunResult) -> Iterable[Location]:
    for finding in (*result.findings, *result.uncertain):
        yield finding.location
        if finding.other is not None:
            yield finding.other


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
