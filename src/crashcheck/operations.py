"""Operation files: random but repeatable insertions, updates, deletions, queries and scans, a line each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from crashcheck.errors import CrashcheckError

MIX = {"insert": 40, "update": 15, "delete": 15, "query": 25, "scan": 5}
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
class Plan:
    """What to generate. `reuse`: how likely, in percent, an operation takes a key that an earlier one took.

    Insertions take a new key with the same likelihood. (Witcher 4.1: used keys are likelier, so that queries,
    updates and deletions find something.)
    """

    seed: int = 1
    length: int = 100
    keys: int = 0  # of 1 to `keys`; 0: as many as operations
    mix: Mapping[str, int] = field(default_factory=lambda: dict(MIX))
    value_bytes: tuple[int, int] = (8, 8)  # least and most
    reuse: int = 80
    templates: Mapping[str, str] = field(default_factory=dict)
    read_back: bool = False  # end with a query of every key used


def generate(plan: Plan) -> list[str]:
    """The lines. The same plan gives the same lines, with any version of Python. CrashcheckError bad-option."""
    templates = {**TEMPLATES, **plan.templates}
    _check(plan, templates)
    numbers = _Numbers(plan.seed)
    keys = plan.keys or plan.length
    used: list[int] = []
    seen: set[int] = set()
    out: list[str] = []
    total = sum(plan.mix.values())
    for _ in range(plan.length):
        op = _choose(plan.mix, numbers.below(total))
        likely = plan.reuse if op != "insert" else 100 - plan.reuse
        key = used[numbers.below(len(used))] if used and numbers.below(100) < likely else 1 + numbers.below(keys)
        if key not in seen:
            seen.add(key)
            used.append(key)
        out.append(_line(op, key, plan.value_bytes, templates, numbers))
    if plan.read_back:
        out += [_line("query", key, plan.value_bytes, templates, numbers) for key in sorted(seen)]
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


def _choose(mix: Mapping[str, int], number: int) -> str:
    for op, share in mix.items():
        if number < share:
            return op
        number -= share
    raise AssertionError(number)


def _check(plan: Plan, templates: Mapping[str, str]) -> None:
    wanted = [*plan.mix, *(["query"] if plan.read_back else [])]
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
            what = f"{{{unknown[0]}}} is no field" if unknown else "it must be one line"
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
