"""`crashcheck open`: show the report of the configuration's newest run, or of the newest `crashcheck try`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from crashcheck.cli.options import add_config
from crashcheck.config import FILE_NAME, load
from crashcheck.errors import CrashcheckError


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("open", help="show the newest run's report in a browser", description=__doc__)
    add_config(parser)
    parser.add_argument("--try", action="store_true", dest="tried", help="the newest `crashcheck try`'s, of any folder")
    parser.add_argument("--print", action="store_true", help="print the file's path and open nothing")


def main(args: argparse.Namespace) -> int:
    import webbrowser

    usual = args.config == FILE_NAME and not Path(FILE_NAME).exists()
    tried = newest_try(None if args.tried else Path.cwd()) if args.tried or usual else None
    if args.tried and tried is None:
        raise CrashcheckError(
            "open-no-report", "No `crashcheck try` has left a report.", "`crashcheck try -- COMMAND` makes one."
        )
    report = tried or newest_report(load(args.config, nodes=True).path)
    # A text browser would take over the terminal: without a desktop, the path is what helps.
    if args.print or not _has_desktop() or not webbrowser.open(report.as_uri()):
        print(report)
    return 0


def newest_try(folder: Path | None) -> Path | None:
    """The HTML report of the newest `crashcheck try` in `folder`, or in any if that is None; None if there is none."""
    from crashcheck.checker.store import Store
    from crashcheck.cli.run import OPENED
    from crashcheck.cli.try_command import project_of, projects

    found = []
    for project in projects() if folder is None else [project_of(folder)]:
        reports = (run / OPENED for run in Store(project).newest(FILE_NAME))
        found.append(next((report for report in reports if report.is_file()), None))
    return max(
        (report.resolve() for report in found if report), key=lambda report: report.stat().st_mtime_ns, default=None
    )


def newest_report(config: Path) -> Path:
    """The HTML report of a configuration file's newest run that wrote one. Raises CrashcheckError(open-no-report)."""
    from crashcheck.checker.store import Store, config_of
    from crashcheck.cli.run import OPENED

    store = Store(config.parent)
    for run in store.newest(config.name):
        if (run / OPENED).is_file():
            return (run / OPENED).resolve()
    others = sorted({config_of(run) for run in store.newest() if (run / OPENED).is_file()})
    hint = f"`crashcheck run -c {config.name}` makes one."
    if others:
        hint += f" There are reports of {', '.join(others)}: name one with -c."
    raise CrashcheckError("open-no-report", f"No run of {config} has left a report.", hint)


def _has_desktop() -> bool:
    import os
    import sys

    return sys.platform == "darwin" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))
