"""`crashcheck run`: build and record the program, check what crashes may leave of its files, and report the bugs."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crashcheck.cli.options import add_config, add_depth, add_jobs, add_model, add_tear, config_of, configured, jobs_of
from crashcheck.cli.report import add_format, parse_format, write_reports
from crashcheck.config import FAIL_ON, STRATEGIES, Config
from crashcheck.errors import EXIT_CLEAN, EXIT_FAILED, CrashcheckError

if TYPE_CHECKING:
    from rich.console import Console

    from crashcheck.change.base import BaseVersion
    from crashcheck.checker.baseline import Known
    from crashcheck.checker.kept.runs_file import Share
    from crashcheck.checker.remote.remote_machines import Cluster
    from crashcheck.checker.results import Finding, RunResult
    from crashcheck.pipeline import Ran, RunOptions
    from crashcheck.reports.formats.failure import Failure
    from crashcheck.reports.progress import LiveProgress

OPENED = "report.html"  # in the run's folder, for `crashcheck open`
_DESCRIPTION = (
    "Builds the program, records its workload, and runs the check on files as crashes may leave them. "
    "Each failure becomes a finding: which store may survive a crash without which other store."
)


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("run", help="find crash-consistency bugs", description=_DESCRIPTION)
    parser.add_argument(
        "--resume",
        action="store_true",
        help="continue the last run, if it was ended: search its recording, and do not run the check again on crash "
        "states that passed then",
    )
    parser.add_argument(
        "--shard",
        metavar="I/N",
        help="execute the I-th of N parts of the search of what `crashcheck record` has recorded, and write it to "
        "shard-I-of-N.crashcheck for `crashcheck merge`; no report",
    )
    parser.add_argument(
        "--executor",
        metavar="dask://HOST:PORT",
        help="execute crash states, or runs of nodes, on the workers of a dask.distributed cluster, whose scheduler is "
        "there",
    )
    parser.set_defaults(shards=())
    add_options(parser)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Those that `crashcheck merge` has as well."""
    add_config(parser)
    add_model(parser)
    add_tear(parser)
    parser.add_argument("--strategy", help=f"which crash states to check, and in which order: {', '.join(STRATEGIES)}")
    parser.add_argument(
        "--deviations",
        type=int,
        metavar="K",
        help="with --strategy bounded: at most K cache lines (or pages) differ from all or from nothing persisted",
    )
    parser.add_argument("--budget", metavar="TIME", help='how long to search, for example "60s" or "10m"')
    parser.add_argument("--states", type=int, metavar="N", help="check at most N crash states")
    parser.add_argument(
        "--no-explore",
        dest="explore",
        action="store_false",
        default=None,
        help="run the check once for each crash state, instead of once for many",
    )
    add_jobs(parser)
    add_depth(parser)
    parser.add_argument(
        "--notes",
        action="store_true",
        help="also report redundant flushes, fences and syncs: they made nothing durable",
    )
    parser.add_argument(
        "--diff",
        metavar="BASE",
        help="check first what changed since commit or branch BASE, and mark findings in the change",
    )
    parser.add_argument(
        "--base",
        metavar="BASE",
        help="build and search commit or branch BASE, too, and fail only on findings that it does not have; "
        "implies --diff BASE",
    )
    parser.add_argument(
        "--keep-for-base",
        action="store_true",
        help="keep the result in the cache folder for runs with --base of later commits; a fresh checkout only",
    )
    parser.add_argument(
        "--failing",
        type=Path,
        metavar="FILE",
        help="test first what failed in the last run, which FILE lists, and report what passes now; FILE is brought "
        "up to date",
    )
    parser.add_argument("--baseline", type=Path, metavar="FILE", help="findings listed in FILE do not fail the run")
    parser.add_argument(
        "--update-baseline",
        action="store_true",
        help="add new findings to the baseline FILE, and remove those that are fixed",
    )
    parser.add_argument(
        "--fail-on",
        metavar="LEVEL",
        help=f"exit with 1 for findings of this severity or a higher one: {', '.join(FAIL_ON)} (default: warning)",
    )
    parser.add_argument("--search-base", action="store_true", help=argparse.SUPPRESS)  # what BaseVersion starts
    parser.add_argument(
        "--no-fixes",
        dest="fixes",
        action="store_false",
        default=None,
        help="do not look for fixes (which takes at most 10 s)",
    )
    parser.add_argument("--name", default="", help="distinguishes runs of one configuration and model on GitHub")
    parser.add_argument(
        "--failure", type=Path, metavar="PATH", help="where to write why, if the run fails, for `crashcheck publish`"
    )
    parser.add_argument(
        "--images", type=Path, metavar="FOLDER", help="keep the crash images of findings there, for `replay --image`"
    )
    parser.add_argument(
        "--images-mib", type=int, default=25, metavar="N", help="how large these are in all (default: %(default)s)"
    )
    add_format(parser, "terminal; an HTML report is always kept for `crashcheck open`")


def main(args: argparse.Namespace) -> int:
    from crashcheck.reports.formats.failure import Failure
    from crashcheck.stages import run_summary

    if args.failure is None or args.search_base:
        return _run(args, lambda config: None)
    failure = Failure(str(Path(args.config).absolute()), model=args.model or "", name=args.name)

    def note(now: Failure) -> None:
        nonlocal failure
        failure = now
        _write_failure(args.failure, now)

    def on_config(config: Config) -> None:
        note(replace(failure, config_path=str(config.path), model=run_summary.model_text(config)))

    note(failure)  # now: what kills this process leaves no time for it
    try:
        code = _run(args, on_config)
    except CrashcheckError as error:
        note(replace(failure, slug=error.slug, message=str(error)))
        raise
    args.failure.unlink(missing_ok=True)
    return code


def _write_failure(path: Path, failure: Failure) -> None:
    from crashcheck.masking import Mask
    from crashcheck.reports.formats.failure import render

    try:
        path.write_text(render(Mask(os.environ).value(failure)), encoding="utf-8", errors="replace")
    except OSError as error:
        raise CrashcheckError("report-unwritable", f"{path} cannot be written: {error.strerror}.") from error


def _check_options(args: argparse.Namespace) -> None:
    if args.base is not None and args.diff not in (None, args.base):
        raise CrashcheckError("bad-option", "--base and --diff name two bases.", "Leave out --diff: --base implies it.")
    if args.update_baseline and args.baseline is None:
        raise CrashcheckError("bad-option", "--update-baseline needs a baseline.", "Add --baseline FILE.")
    if args.executor is not None and args.shard is not None:
        raise CrashcheckError(
            "bad-option", "--executor and --shard both divide the search.", "Leave out one: docs/more-machines.md."
        )
    if args.resume and args.shard is not None:
        raise CrashcheckError("bad-option", "a shard cannot be resumed.", "Leave out --resume.")


def _check_options_of_nodes(args: argparse.Namespace) -> None:
    """Of the options those that work on crash states have no meaning for runs of nodes."""
    names = ("shard", "shards", "resume")
    given = [name for name in names if getattr(args, name)] + ["depth"] * (args.depth > 1)
    if given:
        option = f"--{given[0].replace('_', '-')}"
        raise CrashcheckError("bad-option", f"{option} does not work on nodes ([[node]]) yet.", "Leave it out.")


def _run(args: argparse.Namespace, on_config: Callable[[Config], None]) -> int:
    from crashcheck import pipeline
    from crashcheck.change.diff import git_diff
    from crashcheck.checker import policy
    from crashcheck.checker.baseline import load_baseline
    from crashcheck.reports.progress import LiveProgress, progress_console

    wanted = [parse_format(text) for text in args.format or ("terminal",)]
    jobs = jobs_of(args)
    config = config_of(args, nodes=True)
    on_config(config)
    _check_options(args)
    if config.nodes is not None:
        _check_options_of_nodes(args)
    since = args.diff if args.base is None else args.base
    change = git_diff(config.folder, since) if since is not None else None
    console = progress_console()
    live = LiveProgress(console, config.budget)
    options = pipeline.RunOptions(jobs, args.depth, on_progress=live.update)
    if args.shard is not None:
        return _run_shard(args.shard, config, replace(options, change=change), live)
    base = _base_version(args, config, options)
    if base is not None and (nothing := base.unchanged(args.name)) is not None:
        write_reports(nothing, config.folder, wanted, change)
        return EXIT_CLEAN
    baseline = load_baseline(args.baseline, args.update_baseline) if args.baseline is not None else None
    if base is not None and args.search_base:
        base.result()
        return EXIT_CLEAN
    keep = _keeper(config, args.depth, console) if args.keep_for_base else lambda result: None
    with _cluster(args.executor) as cluster, live:
        options = replace(options, change=change, baseline=baseline, resume=args.resume, cluster=cluster)
        options = replace(options, shards=args.shards, failing=args.failing)
        with nullcontext(options) if base is None else base.searched_beside(options) as beside:
            ran = pipeline.run(config, beside)
            keep(ran.result)
        if base is not None and change is not None:
            from crashcheck.change.comparison import compare

            ran = compare(ran, base, change, args.baseline)
    result = replace(policy.accepted(ran.result) if args.update_baseline else ran.result, name=args.name)
    write_reports(result, config.folder, wanted, change, ran.folder / OPENED)
    if args.images is not None:
        _write_images(args, ran, filter(policy.counts, result.findings), console)
    if args.update_baseline and baseline is not None:
        # After the reports: a finding that nobody was shown must not become a known one.
        _update_baseline(args.baseline, baseline, ran.result, console)
    return policy.exit_code(result)


def _base_version(args: argparse.Namespace, config: Config, options: RunOptions) -> BaseVersion | None:
    """What --base names."""
    if args.base is None:
        return None
    from crashcheck.change.base import BaseVersion

    return BaseVersion(config, args.base, partial(configured, args), options)


def _write_images(args: argparse.Namespace, ran: Ran, findings: Iterable[Finding], console: Console) -> None:
    from crashcheck.crash_image import write_images
    from crashcheck.reports.view.text import line

    for why in write_images(ran.config, ran.folder, findings, args.images, args.images_mib << 20):
        console.print(f"crashcheck: no crash image of {line(why)}", markup=False, soft_wrap=True)


def _cluster(executor: str | None) -> AbstractContextManager[Cluster | None]:
    """The cluster that --executor names. Raises CrashcheckError."""
    if executor is None:
        return nullcontext()
    from crashcheck.checker.remote.dask_cluster import SCHEME, DaskCluster

    address = executor.removeprefix(SCHEME)
    host, _, port = address.rpartition(":")
    if address == executor or not host or not port.isdecimal():
        raise CrashcheckError(
            "bad-option", f"--executor {executor!r} is no address.", f"Write {SCHEME}HOST:PORT, of a scheduler."
        )
    return DaskCluster(address)


def _run_shard(text: str, config: Config, options: RunOptions, live: LiveProgress) -> int:
    """Search a share, and leave what was found to `crashcheck merge`."""
    from crashcheck import pipeline

    share = _share(text)
    path = Path(f"shard-{share.index}-of-{share.of}.crashcheck")
    with live:
        shard, stop = pipeline.run_shard(config, share, path, options)
    print(
        f"shard {share}: {shard.runs:,} crash states executed, {shard.explored:,} stretches explored; "
        f"{f'ended early ({stop.value})' if stop.cut_short else 'complete'}: {path}"
    )
    return EXIT_FAILED if stop.broken_off else EXIT_CLEAN


def _share(text: str) -> Share:
    """Raises CrashcheckError(bad-option)."""
    from crashcheck.checker.kept.runs_file import Share

    index, _, of = text.partition("/")
    if index.isdecimal() and of.isdecimal() and len(text) < 10 and 1 <= int(index) <= int(of):
        return Share(int(index), int(of))
    raise CrashcheckError("bad-option", f"--shard {text!r} is not a part of a search.", "Write I/N, such as 1/3.")


def _keeper(config: Config, depth: int, console: Console) -> Callable[[RunResult], None]:
    """Keeps a result for the commit that is checked out now, as nothing is built yet; the console shows why not."""
    from crashcheck.change import kept_results
    from crashcheck.source import repository_of

    try:
        commit = kept_results.commit_of(config.folder)
    except CrashcheckError as error:
        console.print(f"crashcheck: {error.message}", markup=False, soft_wrap=True)
        return lambda result: None
    key = kept_results.key_of(commit, config, repository_of(config.folder).name(config.path.name), depth)
    return partial(kept_results.save, key)


def _update_baseline(path: Path, baseline: Sequence[Known], result: RunResult, console: Console) -> None:
    from crashcheck.checker.baseline import save_baseline, updated
    from crashcheck.reports.view.text import line

    known, changes = updated(result, baseline)
    save_baseline(path, known)
    for sentence in changes:
        console.print(f"{path}: {line(sentence)}", markup=False, soft_wrap=True)
