"""`crashcheck try -- COMMAND`: what could a crash lose of the files that a command writes? No configuration needed."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from crashcheck.cli.options import add_jobs, jobs_of
from crashcheck.cli.report import add_format, parse_format, write_reports
from crashcheck.config import FILE_NAME, Config, load, override, parse_fault
from crashcheck.config.faults import Fault
from crashcheck.errors import EXIT_CLEAN, EXIT_FAILED, EXIT_FINDINGS, CrashcheckError
from crashcheck.models import FAMILIES

MOST_FILES = 2_000
MOST_BYTES = 256 << 20
_SCRIPT = "command.sh"
_SECONDS = 20.0
_MODELS = tuple(name for name, family in FAMILIES.items() if family.names)
_DESCRIPTION = (
    "Runs COMMAND in a copy of the working folder and records its system calls. Then looks for crashes after which the "
    "files hold less than before, or lack what was reported as done. The folder ends as COMMAND alone would leave it."
)


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
    add_format(parser, "terminal")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND")


def main(args: argparse.Namespace) -> int:
    from crashcheck import pipeline
    from crashcheck.checker import policy
    from crashcheck.checker.store import Store
    from crashcheck.copied_folder import apply_changes

    words = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not words:
        raise CrashcheckError(
            "bad-option", "There is no command to try.", "For example: crashcheck try -- gzip big.txt"
        )
    folder = (args.folder or Path.cwd()).resolve()
    if args.folder is None:
        _refuse_much(folder)
    faults = [parse_fault(text) for text in args.fault]
    config = override(
        _config(folder, words, faults, exits=args.exit, io_uring=args.io_uring),
        model=args.model,
        amplify=args.amplify,
        budget=args.budget,
        states=args.states,
    )
    wanted = [parse_format(text) for text in args.format or ()]
    try:
        ran = pipeline.run(config, jobs=jobs_of(args))
    except CrashcheckError as error:
        raise _of_command(error, words, folder) from error
    finally:
        newest = next(iter(Store(config.folder).newest()), None)
        if newest is not None and (newest / "first").is_dir():
            _show_output(newest)
            apply_changes(newest / "first", newest / "pool", folder, newest / "trace.cct")
    write_reports(ran.result, config.folder, wanted or [("terminal", None)], None, ran.folder / "report.html")
    if policy.fails(ran.result, ran.result.fail_on):
        where = shlex.quote(str(config.folder))
        print(f"crashcheck: to replay a finding, add to its command: -c {where}", file=sys.stderr)
        return EXIT_FINDINGS
    broken_off = ran.result.stop_reason.broken_off
    return EXIT_FAILED if broken_off or policy.undecided(ran.result) else EXIT_CLEAN


def _of_command(error: CrashcheckError, words: Sequence[str], folder: Path) -> CrashcheckError:
    """An error of the recording, with the user's command and folder instead of the script and the copy made of them."""
    command = f"`{shlex.join(words)}`"
    if error.slug == "workload-failed":
        how = error.message.partition(": ")[0].removeprefix("the workload ")
        changed = (
            f"What it did until then is done in {folder}. It ran in a copy of this folder: if it needs files of "
            "the folders above, run it in one that holds all of them, with --folder."
        )
        refused = " It was refused io_uring: --io-uring permits it." if "io_uring" in error.hint else ""
        return CrashcheckError(error.slug, f"{command} {how}: no crash state was checked.", changed + refused)
    if error.slug == "nothing-persistent":
        elsewhere = "Files elsewhere are not watched: name their folder with --folder."
        return CrashcheckError(error.slug, f"{command} changed nothing in {folder}.", elsewhere)
    return error


def _refuse_much(folder: Path) -> None:
    """Raise CrashcheckError try-folder if the working folder holds so much that a copy of it is a surprise."""
    files = size = 0
    for path in folder.rglob("*"):
        status = path.lstat()
        files, size = files + 1, size + status.st_blocks * 512
        if files > MOST_FILES or size > MOST_BYTES:
            raise CrashcheckError(
                "try-folder",
                f"{folder} holds more than {MOST_FILES} files or {MOST_BYTES >> 20} MiB, and would be copied.",
                f"Give a smaller folder to run the command in, or this one, with --folder {shlex.quote(str(folder))}",
            )


def _config(folder: Path, words: list[str], faults: Sequence[Fault], *, exits: bool, io_uring: bool) -> Config:
    """A configuration for one command, kept with its recordings in the user's cache."""
    from crashcheck.cache import cache_folder
    from crashcheck.checker.findings.identity import digest_of

    project = cache_folder() / "try" / digest_of([str(folder)])
    project.mkdir(parents=True, exist_ok=True)
    # Paths into the folder lead into the copy.
    inside = [f"$1{word[len(str(folder)) :]}" if word.startswith(f"{folder}/") else "" for word in words]
    line = " ".join(
        '"$1"' + shlex.quote(path[2:]) if path else shlex.quote(word) for word, path in zip(words, inside, strict=True)
    )
    script = project / _SCRIPT
    script.write_text(f'cd "$1" && exec {line}\n', encoding="utf-8", errors="surrogateescape")
    toml = f"""# written by `crashcheck try`: {json.dumps(shlex.join(words))}
[setup]
command = {json.dumps(["cp", "-a", "--reflink=auto", "--", f"{folder}/.", "{pool}"])}

[workload]
command = {json.dumps(["/bin/sh", str(script), "{pool}"])}
recorder = "syscalls"
timeout_s = 3600

[pool]
files = ["*"]

[record]
io_uring = "{"allow" if io_uring else "refuse"}"

[check]
oracle = "snapshot"
acknowledged = "{"exit" if exits else "output"}"

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


def _show_output(run: Path) -> None:
    """Pass on what the command printed."""
    for name, stream in (("stdout", sys.stdout), ("stderr", sys.stderr)):
        path = run / name
        if path.is_file():
            stream.write(path.read_text(encoding="utf-8", errors="replace"))
            stream.flush()
