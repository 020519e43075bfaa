"""`crashcheck report`: make other reports of an earlier run from its JSON report."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crashcheck.cli.streams import unwritable
from crashcheck.errors import EXIT_CLEAN, CrashcheckError

if TYPE_CHECKING:
    from crashcheck.change.diff import Diff
    from crashcheck.checker.results import RunResult
    from crashcheck.reports.formats.registry import Rendering
    from crashcheck.reports.view.run_view import RunView

FORMATS = ("terminal", "json", "html", "markdown", "sarif", "junit", "github")
Wanted = tuple[str, Path | None]
"""A format and where it goes; None: standard output."""


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "report",
        help="make other reports from a JSON report",
        description="Makes reports of an earlier run from its JSON report, which holds all that they show. "
        "Exit codes: 0 made, 2 failed, with the reason.",
    )
    parser.add_argument(
        "--from",
        dest="source",
        required=True,
        metavar="PATH",
        help="the JSON report of `crashcheck run --format json`; - for standard input",
    )
    add_format(parser, "terminal")
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path("."),
        help="where crashcheck.toml was: source lines are read from there (default: the current folder)",
    )
    parser.add_argument(
        "--diff", metavar="BASE", help="github: annotate lines that differ from BASE, as a pull request shows"
    )


def add_format(parser: argparse.ArgumentParser, default: str, output: str = "standard output") -> None:
    parser.add_argument(
        "--format",
        action="append",
        metavar="FMT[=PATH]",
        help=f"a report: {', '.join(FORMATS)}; to PATH or {output}; may be given again (default: {default})",
    )


def main(args: argparse.Namespace) -> int:
    from crashcheck.change.diff import git_diff
    from crashcheck.reports.formats import json_report

    wanted = [parse_format(text) for text in args.format or ("terminal",)]
    result = json_report.load(_read(args.source))
    write_reports(result, args.folder, wanted, git_diff(args.folder, args.diff) if args.diff else None)
    return EXIT_CLEAN


def _read(source: str) -> str:
    from crashcheck.reports.formats import json_report

    try:
        # one character more than is allowed, at least: what has no end (a device) is refused, too
        with sys.stdin.buffer if source == "-" else Path(source).open("rb") as file:
            raw = file.read(4 * (json_report.MOST_CHARS + 1))
    except OSError as error:
        raise CrashcheckError("report-unreadable", f"{source} cannot be read: {error.strerror}.") from error
    return raw.decode("utf-8", "replace")


def parse_format(text: str) -> Wanted:
    """ "json=out.json" → ("json", Path("out.json")). Raises CrashcheckError(bad-format)."""
    name, equals, path = text.partition("=")
    if name not in FORMATS or (equals and not path):
        hint = f"Write FMT or FMT=PATH, with FMT one of {', '.join(FORMATS)}."
        raise CrashcheckError("bad-format", f"--format {text!r} is not a report format.", hint)
    return name, Path(path) if equals else None


def write_reports(
    result: RunResult, folder: Path, wanted: Sequence[Wanted], diff: Diff | None = None, kept: Path | None = None
) -> None:
    """Each report to its file, or to standard output; `diff` holds the lines that a pull request shows.

    `kept`: where an HTML report is kept for `crashcheck open`, if that is possible. A report that cannot be written
    does not stop the others. Raises CrashcheckError: report-unwritable, output-unwritable.
    """
    from crashcheck.masking import Mask
    from crashcheck.reports.formats.registry import Rendering
    from crashcheck.reports.view.run_view import build_view
    from crashcheck.reports.view.source_lines import read_sources
    from crashcheck.source import repository_of

    mask = Mask(os.environ)
    sources = {name: tuple(map(mask.text, rows)) for name, rows in read_sources(result, folder).items()}
    result = mask.value(result)
    view = build_view(result, sources)
    rendering = Rendering(result, view, repository_of(folder).name, sources, diff)
    rendering, refusals = _to_files(rendering, wanted, kept)
    try:
        for name in sorted((name for name, path in wanted if path is None), key=lambda name: name == "terminal"):
            _to_output(rendering, name)
    except BrokenPipeError:
        raise
    except OSError as error:
        refusals.append(unwritable(error, _briefly(view, rendering.html_path)))
    for refusal in refusals[:-1]:
        print(f"crashcheck: {refusal}", file=sys.stderr)
    if refusals and all(path is not None for _, path in wanted):
        refusals[-1].hint = _briefly(view, rendering.html_path)  # what was found is printed nowhere else
    if refusals:
        raise refusals[-1]


def _to_files(
    rendering: Rendering, wanted: Sequence[Wanted], kept: Path | None
) -> tuple[Rendering, list[CrashcheckError]]:
    """Write the reports that have a path; a rendering that names the HTML report, and why some were not written."""
    refusals: list[CrashcheckError] = []
    # Terminal's last: it names the HTML report.
    for name, path in sorted((*wanted, ("html", kept)), key=lambda item: item[0] == "terminal"):
        if path is None:
            continue
        try:
            _write(path, rendering.text(name))
            if name == "html" and not rendering.html_path:
                rendering = replace(rendering, html_path=str(path))
        except CrashcheckError as error:
            if path is not kept:
                refusals.append(error)
                continue
            print(f"crashcheck: {error}\n  `crashcheck open` cannot show this run.", file=sys.stderr)
            path.unlink(missing_ok=True)
    return rendering, refusals


def _to_output(rendering: Rendering, name: str) -> None:
    from rich.console import Console

    from crashcheck.reports.formats import terminal
    from crashcheck.reports.formats.workflow_commands import silence

    # On GitHub the output of a step is read for commands, and only those of our own are meant.
    before, after = silence() if name != "github" and os.environ.get("GITHUB_ACTIONS") == "true" else ("", "")
    sys.stdout.write(before)
    if name == "terminal":
        # A log in CI shows colours, and has no edge. A file gets no escape at all, whatever rich makes of FORCE_COLOR.
        log = not sys.stdout.isatty() and bool(before or os.environ.get("FORCE_COLOR"))
        if log and not os.environ.get("NO_COLOR"):
            console = Console(highlight=False, force_terminal=True, color_system="standard")
        else:
            console = Console(highlight=False, force_terminal=None if sys.stdout.isatty() else False)
        terminal.print_report(rendering.view, console, rendering.html_path, edge=False if log else None)
    else:
        sys.stdout.flush()
        # these formats are UTF-8, whatever the terminal's encoding is
        sys.stdout.buffer.write(rendering.text(name).encode("utf-8"))
    sys.stdout.write(after)
    sys.stdout.flush()


def _briefly(view: RunView, html_path: str) -> str:
    """The findings in a few lines, for standard error."""
    out = [view.headline, *(f"{finding.id}  {finding.message}" for finding in view.findings)]
    return "\n  ".join([*out, f"HTML report: {html_path}"] if html_path else out)


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("utf-8"))
    except OSError as error:
        raise CrashcheckError("report-unwritable", f"{path} cannot be written: {error.strerror}.") from error
