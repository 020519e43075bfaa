"""Operation files: random but repeatable insertions, updates, deletions, queries and scans, one per line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from crashcheck.errors import CrashcheckError

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


@dataclass(frozen=True, slots=True)
class OperationMix:
    """Which operations to generate, with which keys and values."""

    seed: int = 1
    length: int = 100  # operations
    keys: int = 0  # keys are 1 to `keys`; 0: as many as operations
    shares: Mapping[str, int] = field(default_factory=lambda: dict(SHARES))  # how often each operation, in proportion
    value_bytes: tuple[int, int] = (8, 8)  # least and most
    # How likely, in percent, an operation takes a key that an earlier one used; an insertion takes a new key as often.
    # (Witcher 4.1: used keys are likelier, so that queries, updates and deletions find something.)
    reuse: int = 80
    templates: Mapping[str, str] = field(default_factory=dict)  # the line of each operation, with {fields}
    read_back: bool = False  # end with a query of every key that was used


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
        likely = mix.reuse if op != "insert" else 100 - mix.reuse
        key = used[numbers.below(len(used))] if used and numbers.below(100) < likely else 1 + numbers.below(keys)
        if key not in seen:
            seen.add(key)
            used.append(key)
        out.append(_line(op, key, mix.value_bytes, templates, numbers))
    if mix.read_back:
        out += [_line("query", key, mix.value_bytes, templates, numbers) for key in sorted(seen)]
    return out


def _line(op: str, key: int, sizes: tuple[int, int], templates: Mapping[str, str], numbers: _Numbers) -> str:
    size = sizes[0] + numbers.below(sizes[1] - sizes[0] + 1)
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
    wanted = [*mix.shares, *(["query"] if mix.read_back else [])]
    for op in wanted:
        if op not in templates:
            raise CrashcheckError(
                "bad-option",
                f"--mix names {op!r}, which has no template.",
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
