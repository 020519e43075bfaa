"""`crashcheck trace dump`: a recorded trace as text."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("trace", help="show a recorded trace")
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    dump = actions.add_parser("dump", help="print a trace as text, one event per line")
    dump.add_argument("file", type=Path, help="a trace file (trace.cct)")
    dump.add_argument("--loads", action="store_true", help="recorded reads, too")


def main(args: argparse.Namespace) -> int:
    from crashcheck.analyzer.compile.facts import ProgramFacts
    from crashcheck.analyzer.trace.dump import lines
    from crashcheck.analyzer.trace.reader import read

    trace = read(args.file)
    # Source places come from the program's binary; a trace is readable without it.
    facts = ProgramFacts.load(unit.module_path for unit in trace.units if Path(unit.module_path).is_file())
    for line in lines(trace, facts, args.loads):
        print(line)
    return 0
