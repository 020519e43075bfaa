"""Operation files: random but repeatable insertions, updates, deletions, queries and scans, one per line."""

from __future__ import annotations

import re
from bisect import bisect_right
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
DISTRIBUTIONS = ("uniform", "sequential", "clustered", "zipf")
KEY_TYPES = ("number", "text")
MOST_ZIPF_KEYS = 1 << 22  # a weight of each is kept
_LEAST_CLUSTER, _MOST_CLUSTER = 4, 16  # neighbouring keys
# What a digit of a key's number in base 4 becomes. None begins another, so that the texts of two numbers differ; two of
# them share nine characters, one more than trees keep of a compressed path (ART, ICDE 2013).
_SYLLABLES = ("a", "bcdefghijk", "bcdefghijl", "bcdm")


@dataclass(frozen=True, slots=True)
class OperationMix:
    """Which operations to generate, with which keys and values."""

    seed: int = 1
    length: int = 100  # operations
    keys: int = 0  # keys are 1 to `keys`; 0: as many as operations
    distribution: str = "uniform"  # of DISTRIBUTIONS: which keys come, and in which order
    key_type: str = "number"  # of KEY_TYPES: how a key is written
    shares: Mapping[str, int] = field(default_factory=lambda: dict(SHARES))  # how often each operation, in proportion
    value_bytes: tuple[int, int] = (8, 8)  # least and most
    # How likely, in percent, an operation takes a key that an earlier one used; an insertion takes a new key as often.
    # (Witcher 4.1: used keys are likelier, so that queries, updates and deletions find something.)
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
    fresh = _Keys(mix.distribution, keys, numbers)
    used: list[int] = []
    seen: set[int] = set()
    out: list[str] = []
    total = sum(mix.shares.values())
    for _ in range(mix.length):
        op = _choose(mix.shares, numbers.below(total))
        likely = mix.reuse if op != "insert" else 100 - mix.reuse
        key = used[fresh.rank(len(used))] if used and numbers.below(100) < likely else fresh.next()
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
        "key": key_text(key) if mix.key_type == "text" else str(key),
        "value": "".join(_LETTERS[numbers.below(len(_LETTERS))] for _ in range(size)),
        "number": str(numbers.below(1 << 31)),
        "count": str(1 + numbers.below(_MOST_SCANNED)),
    }
    return _FIELD.sub(lambda found: values[found[1]], templates[op])


def key_text(number: int) -> str:
    """A key as text: keys share beginnings of different lengths, and some are the beginning of others.

    So a radix tree has to split compressed paths, which numbers drawn at random never make it do.
    """
    text = ""
    while number:
        number, digit = divmod(number, len(_SYLLABLES))
        text = _SYLLABLES[digit] + text
    return text


def _choose(shares: Mapping[str, int], number: int) -> str:
    for op, share in shares.items():
        if number < share:
            return op
        number -= share
    raise AssertionError(number)


def _check(mix: OperationMix, templates: Mapping[str, str]) -> None:
    if mix.distribution == "zipf" and (mix.keys or mix.length) > MOST_ZIPF_KEYS:
        raise CrashcheckError("bad-option", f"--distribution zipf takes at most {MOST_ZIPF_KEYS} keys.")
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


class _Keys:
    """Keys 1 to `keys` in one of DISTRIBUTIONS."""

    def __init__(self, distribution: str, keys: int, numbers: _Numbers) -> None:
        self._distribution = distribution
        self._keys = keys
        self._numbers = numbers
        self._last = 0
        self._left = 0  # keys of a cluster that are still to come
        self._weights: list[int] = []  # Zipf: the sum of the weights of ranks 0 to r, in integers: equal on any machine

    def next(self) -> int:
        """A key that need not have come before."""
        match self._distribution:
            case "sequential":
                self._last = self._last % self._keys + 1
            case "clustered" if self._left:
                self._last = self._last % self._keys + 1
                self._left -= 1
            case "clustered":
                self._last = 1 + self._numbers.below(self._keys)
                self._left = _LEAST_CLUSTER - 1 + self._numbers.below(_MOST_CLUSTER - _LEAST_CLUSTER + 1)
            case "zipf":
                self._last = 1 + self.rank(self._keys)
            case _:
                self._last = 1 + self._numbers.below(self._keys)
        return self._last

    def rank(self, count: int) -> int:
        """A number below `count`; of Zipf's distribution, r has the share 1 / (r + 1)."""
        if self._distribution != "zipf":
            return self._numbers.below(count)
        while len(self._weights) < count:
            self._weights.append((self._weights[-1] if self._weights else 0) + (1 << 32) // (len(self._weights) + 1))
        return bisect_right(self._weights, self._numbers.below(self._weights[count - 1]), 0, count)


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
