"""`crashcheck invariants`: the orders of updates that the program's own reads rely on."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from crashcheck.cli.options import add_config, add_model, config_of
from crashcheck.config import Config

if TYPE_CHECKING:
    from crashcheck.analyzer.invariants import Inferred, LikelyInvariant, ReadEvidence
    from crashcheck.analyzer.trace.reader import Trace
    from crashcheck.source import SourceTree


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "invariants",
        help="list the likely invariants of a run, and how often a crash may violate them",
        description="Builds, records with the loads of watched files, and lists likely invariants, the strongest "
        "first. The check is run once, for what it reads, and on no crash state.",
    )
    add_config(parser)
    add_model(parser)
    parser.add_argument("--violated", action="store_true", help="only those that a crash state may violate")
    parser.add_argument("--json", action="store_true", help="all that is known of them, as one JSON document")


def main(args: argparse.Namespace) -> int:
    from crashcheck.source import SourceTree

    config = config_of(args)
    inferred = infer_afresh(config)
    tree = SourceTree(config.folder)
    chosen = [one for one in inferred.invariants if one.violated or not args.violated]
    if args.json:
        print(json.dumps(document(inferred, chosen, tree), indent=2, ensure_ascii=False))
    else:
        for text in lines(inferred, chosen, tree):
            print(text)
    return 0


def infer_afresh(config: Config) -> Inferred:
    """The invariants of a fresh recording. Its folder is gone afterwards: `queries` is empty."""
    from crashcheck.analyzer.behaviours import find_behaviours
    from crashcheck.analyzer.invariants import Inferred, infer
    from crashcheck.stages.recording import built, record_check_reads, record_run

    with built(config) as run_folder:
        run = record_run(config, run_folder.path, loads=True)
        run = record_check_reads(config, run, wanted=True)
        inferred = infer(find_behaviours(run.subject.graph, run.facts), run.facts, run.reads)
        notes = inferred.note, run.unread.note, _sampled(run.subject.trace)
        return Inferred(inferred.invariants, (), "; ".join(filter(None, notes)))


def _sampled(trace: Trace) -> str:
    if not len(trace.gaps):
        return ""
    return f"the run's {len(trace.loads)} recorded loads are a sample: evidence counts what is in it"


def lines(inferred: Inferred, chosen: list[LikelyInvariant], tree: SourceTree) -> Iterator[str]:
    """One line per invariant, below it one line per read."""
    if inferred.note:
        yield inferred.note
    many = len(inferred.invariants)
    violated = sum(1 for one in inferred.invariants if one.violated)
    yield f"{many} likely invariant{'s' * (many != 1)}, {violated} of which a crash state may violate"
    width = len(str(many))
    for one in chosen:
        yield f"{one.number:>{width}}  {one.text}"
        for read in one.reads:
            yield f"{' ' * width}    {_read(read, tree)}"


def _read(read: ReadEvidence, tree: SourceTree) -> str:
    times = f"{read.times} time{'s' * (read.times != 1)}"
    return f"{_place(read.access, tree)} depends on {_place(read.on, tree)} by {read.how}, {times}"


def _place(place: Any, tree: SourceTree) -> str:
    return f"{tree.relative(place.file)}:{place.line} {place.function}" if place.file else "an unknown place"


def document(inferred: Inferred, chosen: list[LikelyInvariant], tree: SourceTree) -> dict[str, Any]:
    """What `--json` prints."""

    def place(at: Any) -> dict[str, Any]:
        return {"file": tree.relative(at.file) if at.file else "", "line": at.line, "function": at.function}

    return {
        "note": inferred.note,
        "invariants": [
            {
                "number": one.number,
                "rule": one.rule,
                "first": one.first.text,
                "then": one.then.text,
                "shared": one.shared,
                "times": one.times,
                "held": one.held,
                "violated": one.violated,
                "text": one.text,
                "reads": [
                    {"access": place(read.access), "on": place(read.on), "how": read.how, "times": read.times}
                    for read in one.reads
                ],
            }
            for one in chosen
        ],
    }
