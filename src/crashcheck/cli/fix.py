"""`crashcheck fix`: the edits that would mend what the newest run found, as a diff; or in the source."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from typing import TYPE_CHECKING, Any

from crashcheck.cli.options import add_config, add_jobs
from crashcheck.config import load
from crashcheck.errors import EXIT_CLEAN, EXIT_FINDINGS, CrashcheckError

if TYPE_CHECKING:
    from crashcheck.checker.fixes.proposals import Proposals, Proposed
    from crashcheck.checker.search.crash_states import Progress
    from crashcheck.config import Config


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "fix",
        help="show or apply the edits that would mend what was found",
        description="Prints, as a diff, the edits that would mend what the newest run found. An edit was tried on the "
        "recorded run: that is no proof. Exit code 1: a finding has no edit that mends it, or --verify still finds it.",
    )
    parser.add_argument("finding", nargs="?", help="the id of one finding, or its beginning (default: all)")
    add_config(parser)
    parser.add_argument("--apply", action="store_true", help="edit the source")
    parser.add_argument("--verify", action="store_true", help="with --apply: build, record and explore anew")
    add_jobs(parser)


def main(args: argparse.Namespace) -> int:
    from crashcheck.checker.fixes import proposals
    from crashcheck.checker.fixes.patch import diff
    from crashcheck.reports.view.text import line

    if args.verify and not args.apply:
        raise CrashcheckError("bad-option", "--verify says whether an edit helps: it needs --apply.")
    config = load(args.config)
    known = proposals.newest(config.folder) or _run(config, args.jobs)
    wanted = proposals.chosen(known, args.finding)
    for one in wanted:
        print(f"{one.id}  {one.kind}: {line(one.message)}")
        for told in _told(one):
            print(f"  {line(told)}")
    changed = proposals.changes(known, wanted, config.folder)
    if not changed:
        print("no edit to make" if wanted else "the newest run found nothing")
        return EXIT_FINDINGS if wanted else EXIT_CLEAN
    mended = [one for one in wanted if one.fix is not None and one.fix.edits and not one.fix.after_failing]
    if not args.apply:
        sys.stdout.write(f"\n{diff(changed)}")
        return EXIT_CLEAN if len(mended) == len(wanted) else EXIT_FINDINGS
    proposals.write(changed, config.folder)
    print(f"edited {', '.join(sorted(changed))}")
    if not args.verify:
        return EXIT_CLEAN if len(mended) == len(wanted) else EXIT_FINDINGS
    return _verify(config, args.jobs, [one.id for one in wanted])


def _told(one: Proposed) -> list[str]:
    if one.fix is None:
        return ["nothing is proposed"]
    out = [one.fix.words]
    if one.fix.no_edit:
        out.append(f"not written as an edit: {one.fix.no_edit}")
    if one.fix.verified:
        out.append(one.fix.verified)
    return out


def _verify(config: Config, jobs: int, ids: list[str]) -> int:
    """Build, record and explore what is there now."""
    from crashcheck import pipeline
    from crashcheck.checker.fixes import proposals
    from crashcheck.reports.view import sentences
    from crashcheck.reports.view.text import line

    ran = pipeline.run(config, jobs=jobs)
    remaining = proposals.left(ids, ran.result)
    print(f"explored anew: {sentences.headline(ran.result)}")
    print(
        f"{len(ids) - len(remaining)} of {len(ids)} mended"
        + (f"; still there: {', '.join(remaining)}" if remaining else "")
    )
    for other in ran.result.findings:
        if other.id not in ids:
            print(f"also found: {other.id}  {other.kind.value}: {line(other.message)}")
    return EXIT_FINDINGS if ran.result.findings else EXIT_CLEAN


def _run(config: Config, jobs: int) -> Proposals:
    """Where no run is kept: one is made."""
    from rich.console import Console

    from crashcheck import pipeline
    from crashcheck.checker.fixes import proposals
    from crashcheck.reports.progress import LiveProgress, ProgressState

    wanted = dataclasses.replace(config, report=dataclasses.replace(config.report, fixes=True))
    with LiveProgress(Console(stderr=True, highlight=False)) as live:

        def show(phase: str, progress: Progress | None) -> None:
            live.update(ProgressState(phase, progress.elapsed_s if progress is not None else 0.0))

        ran = pipeline.run(wanted, jobs=jobs, on_progress=show)
    return proposals.of(ran.result, config.folder)
