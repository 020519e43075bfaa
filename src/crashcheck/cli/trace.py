"""`crashcheck trace dump`: a recorded trace as text."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("trace", help="look at a recorded trace")
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    dump = actions.add_parser("dump", help="print a trace as text, one event a line")
    dump.add_argument("file", type=Path, help="a trace file (trace.cct)")


def main(args: argparse.Namespace) -> int:
    from crashcheck.analyzer.trace.dump import dump

    dump(args.file, sys.stdout)
    return 0
