"""`crashcheck try -- COMMAND`: what could a crash lose of the files that a command writes? No configuration needed."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crashcheck.cache import cache_folder
from crashcheck.cli.options import add_depth, add_jobs, configured, jobs_of
from crashcheck.cli.report import add_format, parse_format, write_reports
from crashcheck.config import FILE_NAME, TRIED, Config, load, parse_fault
from crashcheck.config.faults import Fault
from crashcheck.errors import EXIT_FINDINGS, CrashcheckError
from crashcheck.models import FAMILIES
from crashcheck.wording import remark

if TYPE_CHECKING:
    from crashcheck.runtime.record import Recording

MOST_FILES = 2_000
MOST_BYTES = 256 << 20
_SCRIPT = "command.sh"
_SECONDS = 20.0
_FIRST_LOG_S = 1.0  # whoever waits longer sees what for
_MODELS = tuple(name for name, family in FAMILIES.items() if family.names)
_DESCRIPTION = (
    "Runs COMMAND in the working folder and records its system calls. Then looks for crashes after which the files "
    "hold less than before, or lack what was reported as done. The folder ends as COMMAND alone would leave it. "
    "Standard output is COMMAND's alone: the report is printed to standard error."
)

_EXAMPLE = """\
crashcheck try runs a command in the working folder, and shows what a crash could lose of the files that it writes.
  For example:

    mkdir /tmp/first && cd /tmp/first && echo old > settings
    crashcheck try -- sh -c 'echo new > settings'

  `crashcheck try --help` describes it."""


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "try", help="find out what a crash could lose of a command's files", description=_DESCRIPTION
    )
    parser.add_argument(
        "--folder",
        type=Path,
        metavar="DIR",
        help="run the command in this folder and watch it (default: the working folder)",
    )
    parser.add_argument("--model", choices=_MODELS, default="ext4", help="the file system (default: ext4)")
    parser.add_argument("--budget", metavar="TIME", help='how long to search, for example "10m" (default: 20s)')
    parser.add_argument(
        "--check",
        metavar="COMMAND",
        help="decides by its exit status whether what a crash left in {pool} is right, as --check './check {pool}'",
    )
    parser.add_argument(
        "--exit", action="store_true", help="a command that ended well has acknowledged all that it did"
    )
    parser.add_argument(
        "--fault",
        action="append",
        default=[],
        metavar="CALL=ERROR",
        help="make a call fail, for example fsync=EIO or write=ENOSPC,file=*.db,nth=3; may be repeated",
    )
    parser.add_argument(
        "--amplify", action="store_true", help="as if a sync followed each call that empties or creates a file"
    )
    parser.add_argument(
        "--io-uring", action="store_true", help="let the command use io_uring, which is not followed: no verdict"
    )
    parser.add_argument("--states", type=int, metavar="N", help="check at most N crash states")
    add_jobs(parser)
    add_depth(parser)
    add_format(parser, "terminal", "standard error")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND")


def main(args: argparse.Namespace) -> int:
    from crashcheck import pipeline
    from crashcheck.checker import policy
    from crashcheck.reports.progress import LiveProgress, progress_console
    from crashcheck.runtime.in_place import InPlaceCommand, record_in_place
    from crashcheck.stages.recording import prepare_recorder

    words = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not words:
        raise CrashcheckError("bad-option", "There is no command to try.", _EXAMPLE)
    if args.depth > 1 and not args.check:
        raise CrashcheckError(
            "bad-option", "--depth 2 crashes what a check does, and there is none: give --check COMMAND."
        )
    folder = (args.folder or Path.cwd()).resolve()
    _refuse(folder, named=args.folder is not None)
    faults = [parse_fault(text) for text in args.fault]
    config = configured(args, _config(folder, words, faults, args))
    wanted = [parse_format(text) for text in args.format or ()]
    command = InPlaceCommand(words, folder if args.folder is not None else None, faults, args.io_uring)
    prepare_recorder(remark)
    try:
        live = LiveProgress(progress_console(), config.budget, first_log_s=_FIRST_LOG_S)
        with contextlib.ExitStack() as shown:

            def record(work: Path) -> Recording:
                recording = record_in_place(command, work)
                shown.enter_context(live)  # not before: the terminal is the command's
                return recording

            options = pipeline.RunOptions(jobs_of(args), args.depth, record=record, on_progress=live.update)
            ran = pipeline.run(config, options)
    except CrashcheckError as error:
        raise _of_command(error, words, folder) from error
    with contextlib.redirect_stdout(sys.stderr):  # standard output is the command's alone, as under strace
        write_reports(ran.result, config.folder, wanted or [("terminal", None)], None, ran.folder / "report.html")
    code = policy.exit_code(ran.result)
    if code == EXIT_FINDINGS:
        where = shlex.quote(str(config.folder))
        remark(f"to replay a finding, add to its command: -c {where}")
    return code


def _of_command(error: CrashcheckError, words: Sequence[str], folder: Path) -> CrashcheckError:
    """An error of the recording, with the user's command and folder instead of the script and the copy made of them."""
    command = f"`{shlex.join(words)}`"
    if error.slug == "workload-failed":
        how = error.message.partition(": ")[0].removeprefix("the workload ")
        changed = f"What it did until then is done in {folder}."
        refused = " It was refused io_uring: --io-uring permits it." if "io_uring" in error.hint else ""
        return CrashcheckError(error.slug, f"{command} {how}: no crash state was checked.", changed + refused)
    if error.slug == "check-rejects-first":
        hint = f"A crash before {command} has written anything leaves these files, so the check must accept them."
        return CrashcheckError(error.slug, error.message, hint)
    if error.slug == "nothing-persistent":
        return CrashcheckError(
            error.slug, error.message, "Files elsewhere are not watched: name their folder with --folder."
        )
    return error


def _refuse(folder: Path, *, named: bool) -> None:
    """Raise CrashcheckError try-folder if a copy of the folder is a surprise for its size, or would be in it."""
    if cache_folder().resolve().is_relative_to(folder):
        raise CrashcheckError(
            "try-folder",
            f"{folder} holds crashcheck's own cache, {cache_folder()}, and the copy of it would be there.",
            "Give a folder inside it, or another cache: CRASHCHECK_CACHE=/var/tmp/crashcheck crashcheck try ...",
        )
    if named:
        return
    files = size = 0
    for status in _statuses(folder):
        files, size = files + 1, size + status.st_blocks * 512
        if files > MOST_FILES or size > MOST_BYTES:
            raise CrashcheckError(
                "try-folder",
                f"{folder} holds more than {MOST_FILES} files or {MOST_BYTES >> 20} MiB, and would be copied.",
                f"Give a smaller folder to run the command in, or this one, with --folder {shlex.quote(str(folder))}",
            )


def _statuses(folder: Path) -> Iterator[os.stat_result]:
    """Of all that can be seen below a folder, in its file system."""
    device = folder.stat().st_dev
    for top, folders, files in os.walk(folder):
        for name in (*folders, *files):
            with contextlib.suppress(OSError):  # removed meanwhile
                status = os.lstat(os.path.join(top, name))
                if status.st_dev == device:
                    yield status
                else:
                    folders[:] = [other for other in folders if other != name]


def _check(command: str | None) -> str:
    """The settings of [check]: a command of the user's that runs in the working folder, or none."""
    if command is None:
        return 'oracle = "snapshot"'
    if "{pool}" not in command and "{folders}" not in command:
        raise CrashcheckError(
            "bad-option",
            f"--check {shlex.quote(command)} names no folder to check.",
            "Write {pool} for their folder: --check './check {pool}'",
        )
    return f"command = {json.dumps(f'cd {shlex.quote(str(Path.cwd()))} && {command}')}"


def project_of(folder: Path) -> Path:
    """Where the configuration and the recordings of a folder are kept."""
    from crashcheck.checker.findings.identity import digest_of

    return cache_folder() / "try" / digest_of([str(folder.resolve())])


def projects() -> list[Path]:
    """The same of all folders in which something was tried, sorted."""
    return sorted(path.parent for path in (cache_folder() / "try").glob(f"*/{FILE_NAME}"))


def _config(folder: Path, words: list[str], faults: Sequence[Fault], args: argparse.Namespace) -> Config:
    """A configuration for one command, kept with its recordings in the user's cache."""
    project = project_of(folder)
    project.mkdir(parents=True, exist_ok=True)
    project.chmod(0o700)  # copies of the folder are here, and who may read those depends on the folders above it, too
    link = project / TRIED
    link.unlink(missing_ok=True)
    link.symlink_to(folder)
    script = project / _SCRIPT
    script.write_text(f'cd "$1" && exec {shlex.join(words)}\n', encoding="utf-8", errors="surrogateescape")
    again = ["cp", "-a", "--reflink=auto", "--", f"{folder}/.", "{pool}"]  # for a replay without its recording
    toml = f"""# written by `crashcheck try`: {json.dumps(shlex.join(words))}
[setup]
command = {json.dumps(again)}

[workload]
command = {json.dumps(["/bin/sh", str(script), "{pool}"])}
recorder = "syscalls"
timeout_s = 3600

[pool]
files = ["*"]

[record]
io_uring = "{"allow" if args.io_uring else "refuse"}"

[check]
{_check(args.check)}
acknowledged = "{"exit" if args.exit else "output"}"

[model]
name = "ext4"

[budget]
seconds = {_SECONDS:g}
"""
    for fault in faults:
        keys = ("call", "error", "file", "nth", "times")
        toml += "\n[[faults]]\n" + "".join(f"{key} = {json.dumps(getattr(fault, key))}\n" for key in keys)
    (project / FILE_NAME).write_text(toml, encoding="utf-8", errors="surrogateescape")
    return load(project)
