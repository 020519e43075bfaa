"""`crashcheck fix`: show the suggested fixes of the newest run as a diff, or apply them to the source."""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crashcheck.cli.options import add_config, add_jobs, jobs_of
from crashcheck.config import load
from crashcheck.errors import EXIT_CLEAN, EXIT_FINDINGS, CrashcheckError
from crashcheck.source import repository_of

if TYPE_CHECKING:
    from crashcheck.checker.fixes.proposals import Proposals, Proposed
    from crashcheck.config import Config


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "fix",
        help="show or apply suggested fixes",
        description="Prints the suggested fixes of the configuration's newest run as a diff. Each was tried on the "
        "recorded run, which is no proof. Exit code 1: a finding has no fix that made its failing states pass, or "
        "--verify still finds it.",
    )
    parser.add_argument(
        "finding", nargs="?", help="the id of a finding, or its first characters (default: all findings)"
    )
    add_config(parser)
    parser.add_argument("--apply", action="store_true", help="edit the source files")
    parser.add_argument("--verify", action="store_true", help="with --apply: then run crashcheck again")
    add_jobs(parser)


def main(args: argparse.Namespace) -> int:
    from crashcheck.checker.fixes import proposals
    from crashcheck.checker.fixes.source.patch import diff
    from crashcheck.reports.view.text import line

    if args.verify and not args.apply:
        raise CrashcheckError("bad-option", "--verify needs --apply: it checks the edited source.")
    jobs = jobs_of(args)
    config = load(args.config)
    known = proposals.newest(config.path) or _run(config, jobs)
    wanted = proposals.chosen(known, args.finding)
    for one in wanted:
        print("\n  ".join([f"{one.id}  {one.kind}: {line(one.message)}", *map(line, _lines(one))]))
    changed = proposals.changes(known, wanted, config.folder)
    if not changed:
        print("no edit is suggested" if wanted else "the newest run has no findings")
        return EXIT_FINDINGS if wanted else EXIT_CLEAN
    fixed = [one for one in wanted if one.fix is not None and one.fix.edits and not one.fix.after_failing]
    if args.apply:
        proposals.write(changed, config.folder)
        print(f"edited {', '.join(sorted(changed))}")
    else:
        sys.stdout.write(f"\n{diff(_from_one_folder(changed, config.folder))}")
    if not args.verify:
        return EXIT_CLEAN if len(fixed) == len(wanted) else EXIT_FINDINGS
    return _verify(config, jobs, wanted)


def _from_one_folder(changed: Mapping[str, tuple[str, str]], folder: Path) -> Mapping[str, tuple[str, str]]:
    """The changes by paths that `patch -p1` and `git apply` take: from the repository's folder, which is printed, where
    one is not below the configuration's."""
    if not any(file.startswith("../") for file in changed):
        return changed
    repository = repository_of(folder)
    print(f"apply it in {os.path.relpath(repository.root)}: `git apply` and `patch -p1` take its paths from there")
    return {repository.name(file): texts for file, texts in changed.items()}


def _lines(one: Proposed) -> list[str]:
    """What to print of a finding's fix."""
    if one.fix is None:
        return ["no fix is suggested"]
    out = [one.fix.words]
    if one.fix.no_edit:
        out.append(f"not written as an edit: {one.fix.no_edit}")
    if one.fix.verified:
        out.append(one.fix.verified)
    return out


def _verify(config: Config, jobs: int, wanted: Sequence[Proposed]) -> int:
    """Run crashcheck on the edited source."""
    from crashcheck import pipeline
    from crashcheck.checker import policy
    from crashcheck.checker.fixes import proposals
    from crashcheck.reports.view import sentences
    from crashcheck.reports.view.text import line

    ran = pipeline.run(config, pipeline.RunOptions(jobs))
    remaining = proposals.left(wanted, ran.result)
    known = {name for one in wanted for name in (one.id, *one.likenesses)}
    print(f"after the edit: {sentences.headline(ran.result)}")
    print(
        f"{len(wanted) - len(remaining)} of {len(wanted)} fixed"
        + (f"; still found: {', '.join(remaining)}" if remaining else "")
    )
    for other in ran.result.findings:
        if other.id not in known:
            print(f"also found: {other.id}  {other.kind.value}: {line(other.message)}")
    return EXIT_FINDINGS if ran.result.findings else policy.exit_code(ran.result)


def _run(config: Config, jobs: int) -> Proposals:
    """Run crashcheck, because no earlier run was kept."""

    from crashcheck import pipeline
    from crashcheck.checker.fixes import proposals
    from crashcheck.reports.progress import LiveProgress, progress_console

    wanted = dataclasses.replace(config, report=dataclasses.replace(config.report, fixes=True))
    with LiveProgress(progress_console(), config.budget) as live:
        ran = pipeline.run(wanted, pipeline.RunOptions(jobs, on_progress=live.update))
    return proposals.of(ran.result, config.folder)
