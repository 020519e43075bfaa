"""Counts of crash states, which grow past what a reader, or a number in JSON, can hold."""

from __future__ import annotations

import math
import re

SAFE_INTEGER = 2**53 - 1  # the largest integer that every JSON reader keeps exactly (RFC 8259, section 6)
_CHUNK_DIGITS = 4000  # below the limit that Python sets on conversions between int and str (4300 digits)
_CHUNK = 10**_CHUNK_DIGITS
_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def digits(value: int) -> str:
    """All decimal digits of a number ≥ 0 of any size."""
    parts: list[str] = []
    while value >= _CHUNK:
        value, low = divmod(value, _CHUNK)
        parts.append(f"{low:0{_CHUNK_DIGITS}d}")
    return str(value) + "".join(reversed(parts))


def from_digits(text: str) -> int:
    """The number of which `text` holds the decimal digits: the inverse of `digits`."""
    total = 0
    for start in range(0, len(text), _CHUNK_DIGITS):
        part = text[start : start + _CHUNK_DIGITS]
        total = total * 10 ** len(part) + int(part)
    return total


def exponent(value: int) -> int:
    """The greatest e with 10**e ≤ value, for value ≥ 1."""
    guess = int((value.bit_length() - 1) * math.log10(2))
    while 10 ** (guess + 1) <= value:
        guess += 1
    while 10**guess > value:
        guess -= 1
    return guess


def human(value: int) -> str:
    """`1,234,567` below ten million, `3.2×10^12` above; rounded to two digits there."""
    if value < 10_000_000:
        return f"{value:,}"
    power = exponent(value)
    tenths = (value // 10 ** (power - 2) + 5) // 10
    if tenths >= 100:
        tenths, power = 10, power + 1
    if tenths == 10:
        return f"10^{power}"
    return f"{tenths // 10}.{tenths % 10}×10^{power}" if tenths % 10 else f"{tenths // 10}×10^{power}"


def superscript(text: str) -> str:
    """`10^77` set as a printed page does it."""
    return re.sub(r"10\^(\d+)", lambda match: "10" + match.group(1).translate(_SUPERSCRIPTS), text)


def json_count(value: int) -> int | str:
    """An integer where JSON readers keep it exactly, else its decimal digits."""
    return value if value <= SAFE_INTEGER else digits(value)


def percent(part: int, whole: int) -> str:
    """A share that is never rounded to 100 % or to 0 % unless it is so."""
    if whole <= 0 or part >= whole:
        return "100 %"
    if part == 0:
        return "0 %"
    thousandths = min(max(part * 1000 // whole, 1), 999)
    if part * 1000 < whole:
        return "< 0.1 %"
    return f"{thousandths // 10}.{thousandths % 10} %"


def bytes_text(value: int) -> str:
    """A size in bytes with its unit: `640 B`, `12.5 KiB`."""
    if value < 1024:
        return f"{value} B"
    size = float(value)
    for unit in ("KiB", "MiB", "GiB"):
        size /= 1024
        if size < 1024 or unit == "GiB":
            return f"{size:,.1f} {unit}"
    raise AssertionError("unreachable")


def seconds_text(value: float) -> str:
    """A duration: `0.8 s`, `12 s`, `3 min 05 s`."""
    if value < 10:
        return f"{value:.1f} s"
    whole = round(value)
    return f"{whole} s" if whole < 120 else f"{whole // 60} min {whole % 60:02d} s"
