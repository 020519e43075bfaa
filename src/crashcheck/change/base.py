"""The base of a change: built and searched in a worktree of its own, and which of a run's findings it has already.

`docs/policy.md` describes the rules. A result of the base is kept by commit beside the runs of the project.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from crashcheck import pipeline
from crashcheck.change.diff import Diff, base_commit, changed_names, file_at, run_git
from crashcheck.change.removed_persists import explaining, one_bug, removed_persists
from crashcheck.checker.baseline import Known, matched, read_baseline
from crashcheck.checker.findings.counterpart import Counterpart, Signed, counterpart, parted
from crashcheck.checker.fixes.unit_compiles import UnitCompiles
from crashcheck.checker.oracles import prepare
from crashcheck.checker.oracles.executor import Executor
from crashcheck.checker.policy import in_order
from crashcheck.checker.results import Base, Compared, Earlier, Finding, RunResult, StopReason
from crashcheck.checker.store import FOLDER
from crashcheck.checker.token import Token
from crashcheck.config import Config, load
from crashcheck.errors import CrashcheckError
from crashcheck.recording import RecordedRun, earlier_recording, read_recording
from crashcheck.reports.formats import json_report
from crashcheck.search_setup import executor_of
from crashcheck.source import repository_of

KEPT_BASES = 2
MOST_COUNTERPARTS = 100  # findings of each side whose counterpart is run
_DOCUMENTS = (".md", ".rst", ".adoc", ".png", ".svg", ".jpg", ".jpeg", ".gif", ".webp")
_DOCUMENT_NAMES = ("LICENSE", "COPYING", "AUTHORS", "NOTICE", "CODEOWNERS")
_TREE, _REPORT, _RUN = "tree", "report.json", "run"

Configure = Callable[[Config], Config]


def documents_only(names: Sequence[str]) -> bool:
    """Whether all files of a change are documents by their name, so that nothing that is compiled or run changes."""
    return bool(names) and all(
        name.lower().endswith(_DOCUMENTS) or name.rsplit("/", 1)[-1] in _DOCUMENT_NAMES for name in names
    )


@dataclass(frozen=True, slots=True)
class _Searched:
    """The base as it was searched. `folder`: of its kept recording."""

    config: Config
    result: RunResult
    folder: Path


def compare(
    config: Config,
    ran: pipeline.Ran,
    ref: str,
    configure: Configure,
    *,
    jobs: int,
    depth: int,
    change: Diff,
    baseline: Path | None,
    on_phase: Callable[[str], None],
) -> RunResult:
    """The result of `ran` with each finding marked as introduced, existing or not compared, and what is fixed.

    `configure` gives the base's configuration the options of the command line. A base that cannot be built or run
    leaves findings that the change touches as introduced, and the others as not compared.
    """
    commit = base_commit(config.folder, ref)
    edits = rule_edits(config, commit, change, baseline)
    result = ran.result
    try:
        if result.stop_reason is StopReason.INTERRUPTED:
            raise CrashcheckError("base-skipped", "the run was interrupted")
        base = _searched(config, commit, configure, jobs, depth, on_phase)
    except CrashcheckError as error:
        note = f"the base was not searched: {error.slug}: {error.message.splitlines()[0]}"
        return _marked(result, {}, Base(ref, commit, note, (), edits))
    on_phase("comparing with the base")
    return _compared(config, ran, base, Base(ref, commit, "", (), edits), jobs, change)


def _searched(
    config: Config,
    commit: str,
    configure: Configure,
    jobs: int,
    depth: int,
    on_phase: Callable[[str], None],
) -> _Searched:
    """The base's result: the kept one, or that of a new search. Raises CrashcheckError if there is none."""
    repository = repository_of(config.folder)
    key = hashlib.sha256(repr((config.path.name, replace(config, path=Path(), folder=Path()), depth)).encode())
    home = config.folder / FOLDER / "base" / f"{commit[:20]}-{key.hexdigest()[:12]}"
    tree = home / _TREE
    inside = tree / repository.prefix / config.path.name

    def base_config() -> Config:
        if not inside.is_file():
            raise CrashcheckError("base-unconfigured", f"the base has no {repository.name(config.path.name)}")
        return configure(load(inside))

    if (home / _REPORT).is_file():
        try:
            kept = json_report.load((home / _REPORT).read_text(encoding="utf-8"))
            folder = Path((home / _RUN).read_text(encoding="utf-8"))
            if folder.is_dir():
                return _Searched(base_config(), kept, folder)
        except (OSError, CrashcheckError):
            pass
    _prune(repository.root, home)
    home.mkdir(parents=True)
    run_git(repository.root, "worktree", "add", "--detach", "--force", str(tree), commit)
    there = base_config()
    ran = pipeline.run(
        replace(there, report=replace(there.report, fixes=False)),
        jobs=jobs,
        depth=depth,
        on_progress=lambda phase, progress: on_phase(f"base: {phase}"),
    )
    if ran.result.stop_reason is not StopReason.INTERRUPTED:
        (home / _RUN).write_text(str(ran.folder), encoding="utf-8")
        (home / _REPORT).write_text(json_report.render(ran.result), encoding="utf-8")
    return _Searched(there, ran.result, ran.folder)


def _prune(root: Path, home: Path) -> None:
    """Remove the place of the new worktree, and the oldest of the others beyond KEPT_BASES."""
    known = sorted(home.parent.iterdir(), key=lambda path: path.stat().st_mtime) if home.parent.is_dir() else []
    others = [path for path in known if path != home]
    for old in (home, *others[: max(0, len(others) - KEPT_BASES + 1)]):
        shutil.rmtree(old, ignore_errors=True)
    run_git(root, "worktree", "prune")


class _Side:
    """One version's recording, and the check to run on its crash states."""

    def __init__(self, config: Config, folder: Path, jobs: int, work: Path, stack: ExitStack) -> None:
        self.config = config
        self.run: RecordedRun = read_recording(config, earlier_recording(folder))
        self.signed = Signed(self.run.subject)
        oracle = prepare.choose_oracle(config, self.run.subject, self.run.folder)
        work.mkdir(exist_ok=True)
        self.executor: Executor = stack.enter_context(executor_of(config, self.run, work, jobs, oracle))
        prepare.prepare_oracle(oracle, self.executor, lambda phase: None)

    def fails(self, found: Counterpart) -> bool:
        """Whether the check fails on one of the states, twice: a state that fails once only is no evidence."""
        return any(
            not self.executor.run(state).passed and not self.executor.run(state).passed for state in found.states
        )


def _compared(config: Config, ran: pipeline.Ran, base: _Searched, what: Base, jobs: int, change: Diff) -> RunResult:
    result = ran.result
    every = (*result.findings, *result.uncertain)
    earlier = (*base.result.findings, *base.result.uncertain)
    pairs = matched(every, [Known(one.id, one.likenesses, one.kind.value, one.message) for one in earlier])
    verdicts: dict[int, Compared] = dict.fromkeys(pairs, "existing")
    fresh = [at for at in range(len(every)) if at not in pairs][:MOST_COUNTERPARTS]
    gone = [at for at in range(len(earlier)) if at not in set(pairs.values())][:MOST_COUNTERPARTS]
    fixed: list[Earlier] = []
    bugs: dict[int, Finding | None] = {}
    if fresh or gone:
        with ExitStack() as stack:
            here = _Side(config, ran.folder, jobs, ran.folder / "compared", stack)
            there = _Side(base.config, base.folder, jobs, base.folder / "compared", stack)
            impossible: list[int] = []
            for at in fresh:
                found = _counterpart(every[at], here, there)
                if found.states:
                    verdicts[at] = "existing" if there.fails(found) else "introduced"
                elif found.impossible:
                    verdicts[at] = "introduced"
                    impossible.append(at)
            proved = {at: every[at] for at in impossible if at < len(result.findings)}
            bugs = _by_removed_persists(proved, here, there, change)
            for at in gone:
                one = earlier[at]
                found = _counterpart(one, there, here)
                if found.states and here.fails(found):
                    continue  # it is there still; this search did not come to it
                state = "fixed" if found.states or found.impossible else "not-seen"
                fixed.append(Earlier(one.id, one.kind, one.message, state))
    return _marked(result, verdicts, replace(what, earlier=tuple(fixed)), bugs)


def _by_removed_persists(
    findings: Mapping[int, Finding], here: _Side, there: _Side, change: Diff
) -> dict[int, Finding | None]:
    """What each finding becomes that a deleted flush, fence or sync explains; None where another one names it, too.

    `findings`: those that the base cannot have, by their place in the result.
    """
    removed = removed_persists((there.config, there.run), (here.config, here.run), change) if findings else []
    explained: dict[tuple[int, ...], list[int]] = {}
    for at, finding in findings.items():
        state = Token.parse(finding.replay).for_trace(here.run.subject.trace)
        pair = parted(finding, state, here.signed, there.signed)
        by = explaining(pair, removed) if pair is not None else ()
        if by:
            explained.setdefault(by, []).append(at)
    compiles = UnitCompiles(here.run.facts, here.config.folder)
    bugs: dict[int, Finding | None] = {}
    for by, members in explained.items():
        bugs |= dict.fromkeys(members)
        bugs[members[0]] = one_bug([findings[at] for at in members], [removed[each] for each in by], compiles)
    return bugs


def _counterpart(finding: Finding, here: _Side, there: _Side) -> Counterpart:
    token = Token.parse(finding.replay)
    if len(token.levels) > 1:
        return Counterpart()
    return counterpart(finding, token.for_trace(here.run.subject.trace), here.signed, there.signed)


def _marked(
    result: RunResult, verdicts: Mapping[int, Compared], base: Base, bugs: Mapping[int, Finding | None] = {}
) -> RunResult:
    """Findings without a verdict: introduced where the change touches them. `bugs`: what some of them become."""

    def mark(findings: tuple[Finding, ...], first: int) -> tuple[Finding, ...]:
        return in_order(
            replace(shown, compared=verdicts.get(at, "introduced" if one.in_diff else "not-compared"))
            for at, one in enumerate(findings, first)
            if (shown := bugs.get(at, one)) is not None
        )

    proved = len(result.findings)
    return replace(result, findings=mark(result.findings, 0), uncertain=mark(result.uncertain, proved), base=base)


def unchanged(config: Config, ref: str, name: str) -> RunResult | None:
    """A result without a search where the change holds documents only; None if there is something to search."""
    names = changed_names(config.folder, base_commit(config.folder, ref))
    if not documents_only(names):
        return None
    return pipeline.skipped(config, Base(ref, base_commit(config.folder, ref), documents=tuple(sorted(names))), name)


def rule_edits(config: Config, commit: str, change: Diff, baseline: Path | None) -> tuple[str, ...]:
    """What the change does to the rules by which findings count: the baseline, and suppressions."""
    repository = repository_of(config.folder)
    out: list[str] = []
    if baseline is not None:
        before = _known_at(
            repository.root, commit, repository.name(os.path.relpath(baseline.absolute(), config.folder))
        )
        try:
            after = {one.id for one in read_baseline(baseline.read_text(encoding="utf-8"), str(baseline))}
        except (OSError, UnicodeDecodeError, CrashcheckError):
            after = set()
        if before != after:
            out.append(f"The baseline: {len(after - before)} added, {len(before - after)} removed.")
    text = file_at(repository.root, commit, repository.name(config.path.name))
    suppressed = len(config.suppress) - text.count("[[suppress]]")
    if suppressed:
        out.append(f"{config.path.name}: {abs(suppressed)} [[suppress]] {'added' if suppressed > 0 else 'removed'}.")
    for path, lines in sorted((path, sorted(one.added)) for path, one in change.files.items()):
        try:
            rows = (repository.root / path).read_text(encoding="utf-8", errors="replace").split("\n")
        except OSError:
            continue
        comments = [number for number in lines if number <= len(rows) and "crashcheck: ignore" in rows[number - 1]]
        out += [f"{path}:{number}: a comment `crashcheck: ignore` added." for number in comments]
    return tuple(out)


def _known_at(root: Path, commit: str, name: str) -> set[str]:
    try:
        return {one.id for one in read_baseline(file_at(root, commit, name), name)}
    except CrashcheckError:
        return set()
