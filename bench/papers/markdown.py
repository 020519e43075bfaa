"""What the sections of the page are written with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """The lines of a table."""
    cells: Callable[[Sequence[str]], str] = lambda row: "| " + " | ".join(row) + " |"  # noqa: E731
    yield cells(header)
    yield cells(["---"] * len(header))
    yield from map(cells, rows)


def terms(**meanings: str) -> Iterator[str]:
    """A list of what the columns of a table, or other words, mean."""
    for name, meaning in meanings.items():
        yield f"* *{name[0].upper()}{name[1:].replace('_', ' ')}*: {meaning}"


def scientific(value: int) -> str:
    """A count that may be astronomical."""
    if value < 1_000_000:
        return f"{value:,}"
    digits = str(value)
    return f"{digits[0]}.{digits[1]}×10^{len(digits) - 1}"
