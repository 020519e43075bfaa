"""How a parser is tried: it returns, or raises an error for users (or one of `allowed`, which its caller handles)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from crashcheck.errors import CrashcheckError


@dataclass(frozen=True, slots=True)
class Parser:
    """`documents` are made in the folder that it is given, once; `parse` has an empty folder for each document."""

    parse: Callable[[bytes, Path], object]
    documents: Callable[[Path], Iterable[bytes]]
    allowed: tuple[type[BaseException], ...] = ()


def of_text(parse: Callable[[str], object], *documents: bytes, allowed: tuple[type[BaseException], ...] = ()) -> Parser:
    return Parser(lambda data, _: parse(data.decode("utf-8", "replace")), lambda _: documents, allowed)


def of_bytes(
    parse: Callable[[bytes], object], *documents: bytes, allowed: tuple[type[BaseException], ...] = ()
) -> Parser:
    return Parser(lambda data, _: parse(data), lambda _: documents, allowed)


def attempt(parse: Callable[..., object], *values: object) -> None:
    with contextlib.suppress(CrashcheckError):
        parse(*values)
