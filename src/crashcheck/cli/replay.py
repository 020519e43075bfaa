"""`crashcheck replay`: make the crash image of a finding again, and run the check on it."""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crashcheck.cli.options import add_config
from crashcheck.config import load
from crashcheck.errors import EXIT_CLEAN, EXIT_FINDINGS, CrashcheckError

if TYPE_CHECKING:
    from crashcheck.checker.replay import Replayed
    from crashcheck.checker.token import OrderToken, ReopenToken, Token
    from crashcheck.config import Config
    from crashcheck.stages.recording import RecordedRun


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "replay",
        help="make the crash image of a finding again, and run the check on it",
        description="Makes the crash image of a finding again and runs the check on it. "
        "Exit codes: 0 the check passes; 1 it fails; 2 the image could not be made.",
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("token", nargs="?", help="the replay token of the finding, from the report")
    source.add_argument(
        "--image",
        type=Path,
        metavar="FILE",
        help="a crash image that `crashcheck run --images` kept, or the action uploaded; runs the check only",
    )
    add_config(parser)
    parser.add_argument(
        "--steer",
        action="store_true",
        help="of a run of nodes: follow the token as far as these programs can, though it belongs to others",
    )
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the image in FOLDER, for a debugger")


def main(args: argparse.Namespace) -> int:
    from crashcheck.checker.execution.check_script import files_beside
    from crashcheck.checker.token import OrderToken, ReopenToken, parse
    from crashcheck.runtime.sparse import let_enter

    config, keep = load(args.config, nodes=True), args.keep
    for path in () if keep is None else (keep, *files_beside(keep).values()):
        if path.exists():
            raise CrashcheckError("replay-exists", f"{path} already exists.", "Name a folder that does not exist yet.")
    token = None if args.image is not None else parse(args.token)
    if config.nodes is not None and not isinstance(token, OrderToken):
        message = "the token is of one program, and the configuration describes nodes ([[node]])"
        raise CrashcheckError("token-other-nodes", message, "Name the configuration of the run that found it: -c FILE.")
    if isinstance(token, OrderToken):
        return _order(config, token, keep, steer=args.steer)
    if args.steer:
        raise CrashcheckError("bad-option", "--steer works on tokens of nodes (order:…) only.", "Leave it out.")
    if isinstance(token, ReopenToken) and keep is not None:
        raise CrashcheckError("token-no-state", "a clean reopen leaves no crash image", "Omit --keep.")
    with tempfile.TemporaryDirectory(
        prefix="crashcheck-replay-" if keep is None else f".{keep.name}-", dir=None if keep is None else _parent(keep)
    ) as folder:
        let_enter(Path(folder), config.folder)
        if isinstance(token, ReopenToken):
            return _reopen(config, token, Path(folder))
        image = Path(folder) / "image"
        code = _on_image(config, args.image, image, keep) if token is None else _replay(config, token, image, keep)
        if keep is not None:
            image.rename(keep)
    return code


def _order(config: Config, token: OrderToken, keep: Path | None, *, steer: bool) -> int:
    """Make a run of nodes once more, and print its actions."""
    from crashcheck.reports.view.text import line
    from crashcheck.stages.node_replays import departure, happened, replay_order, steer_by

    if keep is not None:
        raise CrashcheckError("token-no-state", "a run of nodes leaves no crash image", "Omit --keep.")
    with tempfile.TemporaryDirectory(prefix="crashcheck-replay-") as folder:
        if steer:
            steered = steer_by(config, token, Path(folder))
            run, describer, departs = steered.run, steered.describer, [departure(steered, token)]
        else:
            run, describer = replay_order(config, token, Path(folder))
            departs = []
    for text in (*happened(run, describer), *departs):
        print(line(text, 1000) if not text.startswith(" ") else f"{text[:6]}{line(text[6:], 1000)}")
    return EXIT_CLEAN if run.failure is None else EXIT_FINDINGS


def _on_image(config: Config, archive: Path, image: Path, keep: Path | None) -> int:
    from crashcheck.crash_image import run_check

    image.mkdir()
    rerun = run_check(config, archive, image)
    _print(rerun.output, rerun.ended)
    if keep is not None:
        print(f"The image, as the check left it, is in {keep}.")
    return EXIT_CLEAN if rerun.passed else EXIT_FINDINGS


def _print(output: str, ended: str) -> None:
    from crashcheck.reports.view.text import block

    for text in block(output)[0]:
        print(f"  | {text}")
    print(f"The check on the crash image: {ended}.")


def _parent(path: Path) -> Path:
    path.absolute().parent.mkdir(parents=True, exist_ok=True)
    return path.absolute().parent


def replay_token(config: Config, token: Token, image: Path) -> Replayed:
    """Write the image of a crash state's token to `image`, which must not exist, and run the check on a copy of it.

    Raises CrashcheckError: token-other-trace, replay-no-recording and others.
    """
    from crashcheck.checker.replay import replay
    from crashcheck.checker.verdicts import prepare
    from crashcheck.stages.executor_setup import executor_of
    from crashcheck.stages.recoveries import recovery_search_of
    from crashcheck.stages.strategy_setup import strategy_of

    options = token.options
    config = replace(
        config,
        model=replace(config.model, name=token.model, tear=options.tear, files=options.files, amplify=options.amplify),  # type: ignore[arg-type]
    )
    run = _recorded(config, token.levels[0].digest)
    image.parent.mkdir(parents=True, exist_ok=True)
    work = image.with_name(image.name + ".work")
    work.mkdir()
    oracle = prepare.choose_oracle(config, run.subject, run.folder)
    with executor_of(config, run, work, 1, oracle) as executor:
        prepare.use_executor(oracle, executor)
        recovery_search = recovery_search_of(config, run, work, 1, strategy_of(config, run), oracle)
        return replay(token, run.subject, executor, image, recovery_search)


def _reopen(config: Config, token: ReopenToken, work: Path) -> int:
    """Run the driver once more with a clean reopen after the token's operation, and print what differs."""
    from crashcheck.checker.oracles.output_equivalence import OutputEquivalence
    from crashcheck.checker.token import must_be_of
    from crashcheck.checker.verdicts import prepare
    from crashcheck.stages.executor_setup import executor_of

    run = _recorded(config, token.digest)
    must_be_of(run.subject.trace, token.digest)
    oracle = prepare.choose_oracle(config, run.subject, run.folder)
    if not isinstance(oracle, OutputEquivalence) or not 0 <= token.ordinal <= len(oracle.operations):
        raise CrashcheckError(
            "token-no-state",
            f"the token reopens a driver after operation {token.ordinal}, and [check] runs none with so many",
            "Replay it with the crashcheck.toml of the run that found it.",
        )
    with executor_of(config, run, work, 1, oracle) as executor:
        prepare.use_executor(oracle, executor)
        how = oracle.references.reopened_after(token.ordinal)
    after = f"operation {token.ordinal} ({oracle.operations.shown(token.ordinal)})" if token.ordinal else "no operation"
    print(f"Closed and reopened after {after}: {how or 'the rest of the output is as without it'}.")
    return EXIT_FINDINGS if how else EXIT_CLEAN


def _recorded(config: Config, digest: bytes) -> RecordedRun:
    """The recording that a token belongs to, or a new one where it is not kept."""
    from crashcheck.checker.store import Store
    from crashcheck.stages.recording import earlier_recording, read_recording

    try:
        return read_recording(config, earlier_recording(Store(config.folder).find(digest.hex())))
    except CrashcheckError as error:
        if error.slug != "replay-no-recording":
            raise
        return _record_again(config)


def _record_again(config: Config) -> RecordedRun:
    """Build and record the program, as on a fresh clone; the token fits if the program does the same each time."""
    from crashcheck.checker.token import digest
    from crashcheck.stages.recording import built, record_run

    print("crashcheck: no recording is kept here, so the program is built and recorded again", file=sys.stderr)
    with built(config) as run_folder:
        run = record_run(config, run_folder.path)
        run_folder.register(digest(run.subject.trace).hex(), run_folder.path)
        return run


def _replay(config: Config, token: Token, image: Path, keep: Path | None) -> int:
    from crashcheck.reports.view.sentences import outcome

    replayed = replay_token(config, token, image)
    _print(replayed.verdict.output, outcome(replayed.verdict))
    if keep is None:
        print("`--keep FOLDER` keeps the image there, for a debugger.")
    elif replayed.check is None:
        print(f"The image is in {keep}: compare it with the files that the command leaves.")
    else:
        script = shlex.quote(str(replayed.check.write_script(keep.absolute())))
        print(f"The image is in {keep}. To run the check on a copy of it, from any folder, and in a debugger:")
        print(f"  {script}\n  {script} gdb --args")
    return EXIT_CLEAN if replayed.verdict.passed else EXIT_FINDINGS
