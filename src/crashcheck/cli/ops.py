"""`crashcheck ops`: write a file of random operations for a driver. The same options give the same file."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from crashcheck.errors import CrashcheckError
from crashcheck.operations import DISTRIBUTIONS, KEY_TYPES

MOST = (1 << 31) - 1  # operations, and keys
MOST_VALUE = 1 << 24  # bytes


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "ops",
        help="write a file of random operations for a driver",
        description="Writes a file of random operations, one per line, for a driver to run. "
        "The same options give the same file.",
        epilog="Fields of a template: {op}, {key}, {value} (letters, digits), {number} (below 2^31), {count} (1 to 8).",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=1,
        metavar="S",
        help="start of the random numbers: another seed gives another file (default: 1)",
    )
    parser.add_argument("--length", type=int, default=100, metavar="N", help="how many operations (default: 100)")
    parser.add_argument("--keys", type=int, default=0, metavar="K", help="keys are 1 to K (default: N)")
    parser.add_argument(
        "--mix",
        default="",
        metavar="OP=SHARE,…",
        help="how often each operation (default: insert=40,update=15,delete=15,query=25,scan=5)",
    )
    parser.add_argument(
        "--value-size", default="8", metavar="BYTES", help='length of values: "8", or "8-64" for a range (default: 8)'
    )
    parser.add_argument(
        "--reuse",
        type=int,
        default=80,
        metavar="PERCENT",
        help="how often an operation takes a key that was used before (default: 80)",
    )
    parser.add_argument(
        "--template",
        action="append",
        default=[],
        metavar="OP=LINE",
        help="how to write an operation, for example 'insert=put {key} {value}'; may be repeated",
    )
    parser.add_argument(
        "--distribution",
        choices=DISTRIBUTIONS,
        default="uniform",
        help="which keys: uniform, drawn at random; sequential, 1 to K in order; clustered, 4 to 16 neighbours at a "
        "time; zipf, few keys most of the time (default: uniform)",
    )
    parser.add_argument(
        "--key-type",
        choices=KEY_TYPES,
        default="number",
        help="how a key is written: number, or text: with beginnings that keys share, and keys that begin others, so "
        "that a radix tree splits prefixes (default: number)",
    )
    parser.add_argument(
        "--read-back",
        nargs="?",
        const="query",
        metavar="OP",
        help="end with an operation OP for every key that was used (default: query)",
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="file to write (default: standard output)")


def main(args: argparse.Namespace) -> int:
    from crashcheck.operations import SHARES, OperationMix, generate

    if not 1 <= args.length <= MOST or not 0 <= args.keys <= MOST or not 0 <= args.reuse <= 100:
        raise CrashcheckError(
            "bad-option",
            f"a number is out of range: --length {args.length} --keys {args.keys} --reuse {args.reuse}"[:200],
            f"--length is 1 to {MOST}, --keys 0 to {MOST}, --reuse 0 to 100.",
        )
    mix = OperationMix(
        seed=args.seed,
        length=args.length,
        keys=args.keys,
        shares=parse_mix(args.mix) if args.mix else SHARES,
        value_bytes=parse_size(args.value_size),
        reuse=args.reuse,
        templates=parse_templates(args.template),
        distribution=args.distribution,
        key_type=args.key_type,
        read_back=args.read_back is not None,
        read_back_by=args.read_back or "query",
    )
    text = "".join(line + "\n" for line in generate(mix))
    if args.output is None:
        sys.stdout.write(text)
        return 0
    try:
        args.output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CrashcheckError("ops-unwritable", f"{args.output} cannot be written: {error.strerror}.") from None
    return 0


def parse_mix(text: str) -> dict[str, int]:
    """ "insert=50,query=50" as shares by operation. CrashcheckError bad-option."""
    mix: dict[str, int] = {}
    for part in text.split(","):
        name, equals, share = part.strip().partition("=")
        if not name or not equals or not _is_number(share) or name in mix:
            raise CrashcheckError(
                "bad-option", f"--mix {text!r}: {part!r} is not OP=SHARE.", "For example: insert=50,query=50"
            )
        mix[name] = int(share)
    if not sum(mix.values()):
        raise CrashcheckError("bad-option", f"--mix {text!r} asks for no operation at all.")
    return {name: share for name, share in mix.items() if share}


def parse_size(text: str) -> tuple[int, int]:
    """ "8" or "8-64" as (least, most). CrashcheckError bad-option."""
    least, dash, most = text.partition("-")
    if _is_number(least) and (_is_number(most) if dash else True):
        sizes = int(least), int(most or least)
        if 1 <= sizes[0] <= sizes[1] <= MOST_VALUE:
            return sizes
    raise CrashcheckError("bad-option", f"--value-size {text!r} is not a size above zero.", 'Write "8" or "8-64".')


def _is_number(text: str) -> bool:
    """Digits, and not more of them than a line of an operation file may hold."""
    return text.isascii() and text.isdecimal() and len(text) < 10


def parse_templates(texts: Sequence[str]) -> dict[str, str]:
    """ "insert=put {key}" as templates by operation. CrashcheckError bad-option."""
    out: dict[str, str] = {}
    for text in texts:
        name, equals, template = text.partition("=")
        if not name or not equals:
            raise CrashcheckError("bad-option", f"--template {text!r} names no operation.", "Write OP=LINE.")
        out[name] = template
    return out
