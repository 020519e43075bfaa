"""The base of a change, which the pipeline builds and searches as it does the change: in a worktree of its own.

Its result is kept in the cache, its recording beside the runs of the project.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from crashcheck import pipeline
from crashcheck.change import kept_results
from crashcheck.change.diff import Diff, base_commit, changed_names, file_at, run_git
from crashcheck.checker.baseline import read_baseline
from crashcheck.checker.budget import Progress
from crashcheck.checker.results import Base, RunResult
from crashcheck.checker.store import FOLDER
from crashcheck.config import Config, parse
from crashcheck.errors import CrashcheckError
from crashcheck.source import repository_of
from crashcheck.stages.recording import built, record_run
from crashcheck.stages.run_summary import nothing_searched

KEPT_BASES = 2
SEARCHING = "checking"  # the phase of a run in which the base may be searched
LEAST_JOBS = 4  # with fewer, half of them would test too little of the change in the same budget
_DOCUMENTS = (".md", ".rst", ".adoc", ".png", ".svg", ".jpg", ".jpeg", ".gif", ".webp")
_DOCUMENT_NAMES = ("LICENSE", "COPYING", "AUTHORS", "NOTICE", "CODEOWNERS")
_TREE, _RUN = "tree", "run"
_DECIDING = ("build", "setup", "workload", "pool", "check", "model", "strategy", "budget", "faults")
_OF_NODES = {  # by the field of NodesConfig
    "nodes": "[[node]]",
    "bounds": "[bounds]",
    "clock_error_ns": "[time]",
    "check": "[check]",
    "strategy": "[strategy]",
    "faults": "[[faults]]",
}

Configure = Callable[[Config], Config]


class BaseVersion:
    """The version that a change is compared with, and how to run it."""

    def __init__(self, head: Config, ref: str, configure: Configure, options: pipeline.RunOptions) -> None:
        """`head`: of the change; `configure` gives the base's configuration the options of the command line.

        Raises CrashcheckError as `base_commit` does; a configuration that cannot be read is met later.
        """
        self.ref = ref
        self.commit = base_commit(head.folder, ref)
        self.options = options
        self._as_base = replace(options, on_progress=lambda phase, _: options.on_phase(f"base: {phase}"))
        self._head = head
        self._configure = configure
        self._repository = repository_of(head.folder)
        self._name = self._repository.name(head.path.name)
        self._text = file_at(self._repository.root, self.commit, self._name)

    @cached_property
    def key(self) -> str:
        """What its result is kept under. Raises CrashcheckError."""
        if not self._text:
            raise CrashcheckError("base-unconfigured", f"the base has no {self._name}")
        config = self._configure(parse(self._text, self._head.path))
        return kept_results.key_of(self.commit, config, self._name, self.options.depth)

    @cached_property
    def config(self) -> Config:
        """As the base has it, in its worktree. Raises CrashcheckError."""
        # Parsed once more: which folder it is depends on what the configuration holds.
        path = self._home / _TREE / self._repository.prefix / self._head.path.name
        return self._configure(parse(self._text, path))

    @property
    def _homes(self) -> Path:
        return self._head.folder / FOLDER / "base"

    @property
    def _home(self) -> Path:
        return self._homes / f"{self.commit[:20]}-{self.key[:12]}"

    def is_kept(self) -> bool:
        """Whether it was searched before, or cannot be."""
        try:
            return kept_results.load(self.key) is not None
        except CrashcheckError:
            return True

    def result(self) -> RunResult:
        """The kept result, or that of a new search. Raises CrashcheckError if there is none."""
        kept = kept_results.load(self.key)
        if kept is not None:
            return kept
        self._check_out()
        ran = pipeline.run(replace(self.config, report=replace(self.config.report, fixes=False)), self._as_base)
        self._keep_recording(ran.folder)
        kept_results.save(self.key, ran.result)
        return ran.result

    @contextmanager
    def searched_beside(self, options: pipeline.RunOptions) -> Iterator[pipeline.RunOptions]:
        """Options for the run of the change: while it lasts, another process searches the base where there are jobs for
        both, and keeps the result in the cache; if it fails, the base is searched afterwards, which shows why.

        It begins when the change is built and recorded: two builds, or two workloads, at once may use one port or file.
        """
        jobs = jobs_beside(options.workers) if not options.shards and not self.is_kept() else 0
        started: list[subprocess.Popen[bytes]] = []

        def on_progress(phase: str, progress: Progress | None) -> None:
            if phase == SEARCHING and jobs and not started:
                same = [sys.executable, "-P", "-m", "crashcheck", *sys.argv[1:]]
                null = subprocess.DEVNULL
                words = [*same, "--search-base", "--jobs", str(jobs)]
                started.append(subprocess.Popen(words, stdin=null, stdout=null, stderr=null))
            options.on_progress(phase, progress)

        try:
            yield replace(options, jobs=options.workers - jobs, on_progress=on_progress)
            for process in started:
                process.wait()  # its budget is that of the run
        finally:
            for process in started:
                if process.poll() is None:
                    process.terminate()  # it ends its workers
                    process.wait()

    def recording(self) -> Path:
        """The folder that keeps one; with a result of another machine it is made now. Raises CrashcheckError.

        Of nodes nothing is recorded: then their programs are there once this returns.
        """
        with suppress(OSError):
            folder = Path((self._home / _RUN).read_text(encoding="utf-8"))
            # what is committed there comes with the change: it is no recording of the base
            if folder.is_dir() and not run_git(self._repository.root, "ls-files", "--", str(self._homes)):
                return folder
        self._check_out()
        with built(self.config, self._as_base.on_phase) as run_folder:
            if self.config.nodes is None:
                record_run(self.config, run_folder.path, self._as_base.on_phase)
        self._keep_recording(run_folder.path)
        return run_folder.path

    def _keep_recording(self, folder: Path) -> None:
        (self._home / _RUN).write_text(str(folder), encoding="utf-8")

    def _check_out(self) -> None:
        """Make a new worktree of it, and remove the oldest of the others beyond KEPT_BASES."""
        root, homes = self._repository.root, self._homes
        known = sorted(homes.iterdir(), key=lambda path: path.stat().st_mtime) if homes.is_dir() else []
        others = [path for path in known if path != self._home]
        for old in (self._home, *others[: max(0, len(others) - KEPT_BASES + 1)]):
            shutil.rmtree(old, ignore_errors=True)
        run_git(root, "worktree", "prune")
        self._home.mkdir(parents=True)
        run_git(root, "worktree", "add", "--detach", "--force", str(self._home / _TREE), self.commit)

    def unchanged(self, name: str) -> RunResult | None:
        """A result without a search where the change holds documents only; None if there is something to search."""
        names = changed_names(self._head.folder, self.commit)
        if not documents_only(names):
            return None
        return nothing_searched(self._head, Base(self.ref, self.commit, documents=tuple(sorted(names))), name)

    def rule_edits(self, change: Diff, baseline: Path | None) -> tuple[str, ...]:
        """What the change does to what decides: the baseline, suppressions, what is run, checked and modelled."""
        config, repository = self._head, self._repository
        out: list[str] = []
        if baseline is not None:
            name = repository.name(os.path.relpath(baseline.absolute(), config.folder))
            before = _known(lambda: file_at(repository.root, self.commit, name), name)
            after = _known(lambda: baseline.read_text(encoding="utf-8"), str(baseline))
            if before != after:
                out.append(f"The baseline: {len(after - before)} added, {len(before - after)} removed.")
        suppressed = len(config.suppress) - self._text.count("[[suppress]]")
        if suppressed:
            edited = "added" if suppressed > 0 else "removed"
            out.append(f"{config.path.name}: {abs(suppressed)} [[suppress]] {edited}.")
        with suppress(CrashcheckError):  # the base's configuration may be one of another version
            earlier = self._configure(parse(self._text, config.path))
            other = [f"[{name}]" for name in _DECIDING if getattr(config, name) != getattr(earlier, name)]
            other += _changed_of_nodes(earlier, config)
            if self._text and other:
                out.append(f"{config.path.name}: {', '.join(dict.fromkeys(other))} changed.")
        for path, file in sorted(change.files.items()):
            with suppress(OSError):
                rows = (repository.root / path).read_text(encoding="utf-8", errors="replace").split("\n")
                marked = [at for at in sorted(file.added) if "crashcheck: ignore" in "".join(rows[at - 1 : at])]
                out += [f"{path}:{at}: a comment `crashcheck: ignore` added." for at in marked]
        return tuple(out)


def jobs_beside(jobs: int) -> int:
    """How many of the jobs search the base while the others search the change; 0: it is searched afterwards."""
    return jobs // 2 if jobs >= LEAST_JOBS else 0


def documents_only(names: Sequence[str]) -> bool:
    """Whether all files of a change are documents by their name, so that nothing that is compiled or run changes."""
    return bool(names) and all(
        name.lower().endswith(_DOCUMENTS) or name.rsplit("/", 1)[-1] in _DOCUMENT_NAMES for name in names
    )


def _changed_of_nodes(earlier: Config, config: Config) -> list[str]:
    """The tables about nodes that differ."""
    if earlier.nodes is None or config.nodes is None:
        return ["[[node]]"] if earlier.nodes != config.nodes else []
    return [table for name, table in _OF_NODES.items() if getattr(earlier.nodes, name) != getattr(config.nodes, name)]


def _known(read: Callable[[], str], name: str) -> set[str]:
    """The ids of a baseline; none if it cannot be read."""
    try:
        return {one.id for one in read_baseline(read(), name)}
    except (OSError, UnicodeDecodeError, CrashcheckError):
        return set()
