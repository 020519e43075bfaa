"""`crashcheck ops`: write a file of random operations for a driver. The same options give the same file."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crashcheck.errors import CrashcheckError

MOST = (1 << 31) - 1  # operations, and keys
MOST_VALUE = 1 << 24  # bytes
SHARES = {"insert": 40, "update": 15, "delete": 15, "query": 25, "scan": 5}
TEMPLATES = {
    "insert": "{op} {key} {value}",
    "update": "{op} {key} {value}",
    "delete": "{op} {key}",
    "query": "{op} {key}",
    "scan": "{op} {key} {count}",
}
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
_MOST_SCANNED = 8
_FIELD = re.compile(r"\{([a-z]+)\}")
_FIELDS = ("op", "key", "value", "number", "count")


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
        "--read-back",
        nargs="?",
        const="query",
        metavar="OP",
        help="end with an operation OP for every key that was used (default: query)",
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="file to write (default: standard output)")


def main(args: argparse.Namespace) -> int:
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
        raise CrashcheckError("bad-option", f"--mix {text!r} has no operation with a share above zero.")
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


@dataclass(frozen=True, slots=True)
class OperationMix:
    """Which operations to generate, with which keys and values."""

    seed: int = 1
    length: int = 100  # operations
    keys: int = 0  # keys are 1 to `keys`; 0: as many as operations
    shares: Mapping[str, int] = field(default_factory=lambda: dict(SHARES))  # how often each operation, in proportion
    value_bytes: tuple[int, int] = (8, 8)  # least and most
    # How likely, in percent, an operation takes a key that an earlier one used; an insertion takes a new key as often.
    # (Witcher 4.1: used keys are more likely, so that queries, updates and deletions find something.)
    reuse: int = 80
    templates: Mapping[str, str] = field(default_factory=dict)  # the line of each operation, with {fields}
    read_back: bool = False  # end with a query of every key that was used
    read_back_by: str = "query"  # the operation that does it


def generate(mix: OperationMix) -> list[str]:
    """The lines of the file. The same mix gives the same lines, with any version of Python.

    Raises CrashcheckError bad-option.
    """
    templates = {**TEMPLATES, **mix.templates}
    _check(mix, templates)
    numbers = _Numbers(mix.seed)
    keys = mix.keys or mix.length
    used: list[int] = []
    seen: set[int] = set()
    out: list[str] = []
    total = sum(mix.shares.values())
    for _ in range(mix.length):
        op = _choose(mix.shares, numbers.below(total))
        likely = mix.reuse if op != "insert" else min(mix.reuse, 100 - mix.reuse)
        reuses = used and numbers.below(100) < likely
        key = used[numbers.below(len(used))] if reuses else 1 + numbers.below(keys)
        if key not in seen:
            seen.add(key)
            used.append(key)
        out.append(_line(op, key, mix, templates, numbers))
    if mix.read_back:
        out += [_line(mix.read_back_by, key, mix, templates, numbers) for key in sorted(seen)]
    return out


def _line(op: str, key: int, mix: OperationMix, templates: Mapping[str, str], numbers: _Numbers) -> str:
    least, most = mix.value_bytes
    size = least + numbers.below(most - least + 1)
    values = {
        "op": op,
        "key": str(key),
        "value": "".join(_LETTERS[numbers.below(len(_LETTERS))] for _ in range(size)),
        "number": str(numbers.below(1 << 31)),
        "count": str(1 + numbers.below(_MOST_SCANNED)),
    }
    return _FIELD.sub(lambda found: values[found[1]], templates[op])


def _choose(shares: Mapping[str, int], number: int) -> str:
    for op, share in shares.items():
        if number < share:
            return op
        number -= share
    raise AssertionError(number)


def _check(mix: OperationMix, templates: Mapping[str, str]) -> None:
    wanted = {**dict.fromkeys(mix.shares, "--mix"), **({mix.read_back_by: "--read-back"} if mix.read_back else {})}
    for op, option in wanted.items():
        if op not in templates:
            raise CrashcheckError(
                "bad-option",
                f"{option} names {op!r}, which has no template.",
                f"Give one: --template '{op}={{op}} {{key}}'. Known without: {', '.join(TEMPLATES)}.",
            )
    for op, template in templates.items():
        unknown = [name for name in _FIELD.findall(template) if name not in _FIELDS]
        if unknown or "\n" in template or not template.strip():
            what = f"{{{unknown[0]}}} is not a field" if unknown else "it must be one line"
            raise CrashcheckError(
                "bad-option",
                f"--template {op}={template!r}: {what}.",
                f"Fields: {', '.join(f'{{{name}}}' for name in _FIELDS)}.",
            )


class _Numbers:
    """SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): the same sequence everywhere."""

    _MASK = (1 << 64) - 1

    def __init__(self, seed: int) -> None:
        self._state = seed & self._MASK

    def below(self, limit: int) -> int:
        self._state = (self._state + 0x9E3779B97F4A7C15) & self._MASK
        mixed = self._state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & self._MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & self._MASK
        return ((mixed ^ (mixed >> 31)) * limit) >> 64
