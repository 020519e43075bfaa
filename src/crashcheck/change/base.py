"""The base of a change: built and searched in a worktree of its own, and which of a run's findings it has already.

`docs/policy.md` describes the rules. Its result is kept in the cache, its recording beside the runs of the project.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from crashcheck import pipeline
from crashcheck.change import kept_results
from crashcheck.change.diff import Diff, base_commit, changed_names, file_at, run_git
from crashcheck.change.removed_persists import explaining, one_bug, removed_persists
from crashcheck.checker.baseline import Known, matched, read_baseline
from crashcheck.checker.findings.counterpart import Counterpart, Signed, counterpart, parted
from crashcheck.checker.fixes.source.unit_compiles import UnitCompiles
from crashcheck.checker.oracles import prepare
from crashcheck.checker.oracles.executor import Executor
from crashcheck.checker.oracles.references import ReopenDifference
from crashcheck.checker.policy import in_order
from crashcheck.checker.results import Base, Compared, Earlier, Finding, RunResult, StopReason
from crashcheck.checker.store import FOLDER
from crashcheck.checker.token import Token, digest
from crashcheck.config import Config, parse
from crashcheck.errors import CrashcheckError
from crashcheck.source import repository_of
from crashcheck.stages.executor_setup import executor_of
from crashcheck.stages.recording import RecordedRun, built, earlier_recording, read_recording, record_run
from crashcheck.stages.run_summary import nothing_searched

KEPT_BASES = 2
MOST_COUNTERPARTS = 100  # findings of each side whose counterpart is run
_DOCUMENTS = (".md", ".rst", ".adoc", ".png", ".svg", ".jpg", ".jpeg", ".gif", ".webp")
_DOCUMENT_NAMES = ("LICENSE", "COPYING", "AUTHORS", "NOTICE", "CODEOWNERS")
_TREE, _RUN = "tree", "run"
_DECIDING = ("build", "setup", "workload", "pool", "check", "model", "strategy", "budget", "faults")

Configure = Callable[[Config], Config]


def documents_only(names: Sequence[str]) -> bool:
    """Whether all files of a change are documents by their name, so that nothing that is compiled or run changes."""
    return bool(names) and all(
        name.lower().endswith(_DOCUMENTS) or name.rsplit("/", 1)[-1] in _DOCUMENT_NAMES for name in names
    )


@dataclass(frozen=True, slots=True)
class _Searched:
    """The base as it was searched."""

    config: Config
    result: RunResult
    recording: Callable[[], Path]  # the folder that keeps one; with a result of another machine it is made now


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
    leaves findings that the change touches as introduced, and the others as not compared. Both count.
    """
    commit = base_commit(config.folder, ref)
    edits = rule_edits(config, configure, commit, change, baseline)
    result = ran.result
    try:
        if result.stop_reason is StopReason.INTERRUPTED:
            raise CrashcheckError("base-skipped", "the run was interrupted")
        base = _searched(config, commit, configure, jobs, depth, on_phase)
    except CrashcheckError as error:
        return _marked(result, {}, Base(ref, commit, f"the base was not searched: {_reason(error)}", (), edits))
    on_phase("comparing with the base")
    return _compared(config, ran, base, Base(ref, commit, "", (), edits), jobs, change)


def search(config: Config, ref: str, configure: Configure, *, jobs: int, depth: int) -> None:
    """Search the base and keep its result, for `compare` of another process. Raises CrashcheckError."""
    _searched(config, base_commit(config.folder, ref), configure, jobs, depth, lambda phase: None)


def is_kept(config: Config, ref: str, configure: Configure, depth: int) -> bool:
    """Whether the base was searched before, or cannot be."""
    try:
        return kept_results.load(_key(config, base_commit(config.folder, ref), configure, depth)[1]) is not None
    except CrashcheckError:
        return True


def _key(config: Config, commit: str, configure: Configure, depth: int) -> tuple[str, str]:
    """The text of the base's configuration, and what its result is kept under. Raises CrashcheckError."""
    repository = repository_of(config.folder)
    name = repository.name(config.path.name)
    text = file_at(repository.root, commit, name)
    if not text:
        raise CrashcheckError("base-unconfigured", f"the base has no {name}")
    return text, kept_results.key_of(commit, configure(parse(text, config.path)), name, depth)


def _reason(error: CrashcheckError | ReopenDifference) -> str:
    if isinstance(error, ReopenDifference):
        return "a clean reopen changes the output"
    return f"{error.slug}: {error.message.splitlines()[0]}"


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
    homes = config.folder / FOLDER / "base"
    # Parsed twice: which folder it is depends on what the configuration holds.
    text, key = _key(config, commit, configure, depth)
    home = homes / f"{commit[:20]}-{key[:12]}"
    there = configure(parse(text, home / _TREE / repository.prefix / config.path.name))

    def in_new_tree() -> None:
        _prune(repository.root, home)
        home.mkdir(parents=True)
        run_git(repository.root, "worktree", "add", "--detach", "--force", str(home / _TREE), commit)

    def recording() -> Path:
        try:
            folder = Path((home / _RUN).read_text(encoding="utf-8"))
            # what is committed there comes with the change: it is no recording of the base
            if folder.is_dir() and not run_git(repository.root, "ls-files", "--", str(homes)):
                return folder
        except OSError:
            pass
        in_new_tree()
        with built(there, lambda phase: on_phase(f"base: {phase}")) as run_folder:
            record_run(there, run_folder.path, lambda phase: on_phase(f"base: {phase}"))
        (home / _RUN).write_text(str(run_folder.path), encoding="utf-8")
        return run_folder.path

    kept = kept_results.load(key)
    if kept is not None:
        return _Searched(there, kept, recording)
    in_new_tree()
    ran = pipeline.run(
        replace(there, report=replace(there.report, fixes=False)),
        jobs=jobs,
        depth=depth,
        on_progress=lambda phase, progress: on_phase(f"base: {phase}"),
    )
    (home / _RUN).write_text(str(ran.folder), encoding="utf-8")
    kept_results.save(key, ran.result)
    return _Searched(there, ran.result, lambda: ran.folder)


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
    fresh = [at for at in range(len(every)) if at not in pairs]
    gone = [at for at in range(len(earlier)) if at not in set(pairs.values())]
    fixed: list[Earlier] = []
    bugs: dict[int, Finding | None] = {}
    if fresh or gone:
        try:
            folder = base.recording()
            with ExitStack() as stack:
                here = _Side(config, ran.folder, jobs, ran.folder / "compared", stack)
                there = _Side(base.config, folder, jobs, folder / "compared", stack)
                impossible: list[int] = []
                for at in fresh[:MOST_COUNTERPARTS]:
                    found = _counterpart(every[at], here, there)
                    if found.states:
                        verdicts[at] = "existing" if there.fails(found) else "introduced"
                    elif found.impossible:
                        verdicts[at] = "introduced"
                        impossible.append(at)
                proved = {at: every[at] for at in impossible if at < len(result.findings)}
                bugs = _by_removed_persists(proved, here, there, change)
                fixed = [*_not_met([earlier[at] for at in gone], here, there)]
        except (CrashcheckError, ReopenDifference) as error:
            what = replace(what, note=f"of the base, a kept result alone was compared: {_reason(error)}")
    if base.result.stop_reason is StopReason.EXHAUSTED:  # it would have found them
        verdicts = dict.fromkeys(fresh, "introduced") | verdicts
    return _marked(result, verdicts, replace(what, earlier=tuple(fixed)), bugs)


def _not_met(findings: Iterable[Finding], here: _Side, there: _Side) -> Iterator[Earlier]:
    """Findings of the base that are fixed here, or were not seen again."""
    for number, one in enumerate(findings):
        found = _counterpart(one, there, here) if number < MOST_COUNTERPARTS else Counterpart()
        if found.states and here.fails(found):
            continue  # it is there still; this search did not come to it
        fate = "fixed" if found.states or found.impossible else "not-seen"
        yield Earlier(one.id, one.kind, one.message, fate, len(found.states))


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
    """None where the finding's state is not one of `here`: a program that is recorded again may do other things."""
    token = Token.parse(finding.replay)
    trace = here.run.subject.trace
    if len(token.levels) > 1 or token.levels[0].digest != digest(trace):
        return Counterpart()
    return counterpart(finding, token.for_trace(trace), here.signed, there.signed)


def _marked(
    result: RunResult, verdicts: Mapping[int, Compared], base: Base, bugs: Mapping[int, Finding | None] = {}
) -> RunResult:
    """Findings without a verdict: introduced where the change touches them, else not compared, which they name.

    `bugs`: what some of them become.
    """

    def mark(findings: tuple[Finding, ...], first: int) -> tuple[Finding, ...]:
        return in_order(
            _compared_as(shown, verdicts.get(at, "introduced" if one.in_diff else "not-compared"))
            for at, one in enumerate(findings, first)
            if (shown := bugs.get(at, one)) is not None
        )

    proved = len(result.findings)
    return replace(result, findings=mark(result.findings, 0), uncertain=mark(result.uncertain, proved), base=base)


def _compared_as(finding: Finding, verdict: Compared) -> Finding:
    why = "it counts because it could not be compared with the base" if verdict == "not-compared" else ""
    return replace(finding, compared=verdict, note="; ".join(filter(None, (finding.note, why))))


def unchanged(config: Config, ref: str, name: str) -> RunResult | None:
    """A result without a search where the change holds documents only; None if there is something to search."""
    names = changed_names(config.folder, base_commit(config.folder, ref))
    if not documents_only(names):
        return None
    return nothing_searched(config, Base(ref, base_commit(config.folder, ref), documents=tuple(sorted(names))), name)


def rule_edits(
    config: Config, configure: Configure, commit: str, change: Diff, baseline: Path | None
) -> tuple[str, ...]:
    """What the change does to what decides: the baseline, suppressions, what is run, checked and modelled."""
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
    with suppress(CrashcheckError):  # the base's configuration may be one of another version
        before_config = configure(parse(text, config.path))
        other = [name for name in _DECIDING if getattr(config, name) != getattr(before_config, name)]
        if text and other:
            out.append(f"{config.path.name}: {', '.join(f'[{name}]' for name in other)} changed.")
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
