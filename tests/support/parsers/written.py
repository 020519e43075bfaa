"""Parsers of what users write: configuration, options, sources, compiler arguments."""

from __future__ import annotations

import contextlib
import io
from functools import cache, partial
from pathlib import Path
from typing import Any

from crashcheck import config
from crashcheck.analyzer.compile.driver import arguments
from crashcheck.analyzer.persistence.graph import Options
from crashcheck.checker import policy
from crashcheck.checker.fixes.source import patch
from crashcheck.checker.fixes.source.c_source import NotEditable, Source, known_macros
from crashcheck.checker.oracles.histories import Operations
from crashcheck.checker.results import Edit
from crashcheck.checker.states.space import CrashState
from crashcheck.checker.token import Level, Token
from crashcheck.checker.token import parse as parse_token
from crashcheck.cli import build_parser
from crashcheck.cli.init import TEMPLATE
from crashcheck.cli.ops import parse_mix, parse_size, parse_templates
from crashcheck.command import Command
from support.parsers.parser import Parser, attempt, of_bytes, of_text

CONFIG = (
    TEMPLATE.encode()
    + b"""
[[suppress]]
file = "src/*.c"
reason = "old"
"""
)
_LEVELS = (Level(bytes(8), CrashState(7, True, (1, 2, 9))), Level(bytes(8), CrashState(1, False, ())))
TOKEN = str(Token("px86", Options(0, "ext4"), _LEVELS)).encode()
SOURCE = b"""\
#include <string.h>
#define FLUSH(p, n) do { flush((p), \\
    (n)); } while (0)
typedef struct { int x; } unnamed;
struct part { char a[4]; unsigned b : 3, c : 5; };
struct node { struct node *next; struct part part[2]; union { long l; double d; } u; unnamed t; };
struct node pool[4]; /* crashcheck: ignore[ordering] known */
static inline void put(struct node *n, long v) { n->u.l = v; n->part[1].a[2] = 1; }
void change(struct node *n, int k)
{
    put(n, k);
    if (k > 3)
        n[k].next = &pool[k & 3]; // crashcheck: ignore[*] a reason
    else for (int i = 0; i < k; i++) { n->part[0].b = (unsigned)i; }
    switch (k) { case 1: pool[2].t.x = k; break; default: memcpy(n + 1, "a\\"b", 3); }
    __asm__ volatile("clwb %0; lock xaddl %1, %2" : "+m"(*n), "+r"(k), "+m"(pool[1].t.x) : : "memory");
}
"""
EDIT = Edit("a.c", 12, True, "    flush(n);\n    fence();")


def _options(text: str) -> None:
    words = text.split("\n")
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        _parser().parse_args(words)


@cache
def _parser() -> Any:
    return build_parser()


def _values(text: str) -> None:
    for parse in (config.parse_duration, parse_mix, parse_size, lambda text: parse_templates([text])):
        attempt(parse, text)
    with contextlib.suppress(ValueError):
        Command.of_text(text).argv(pool="/a b")


def _operations(data: bytes) -> None:
    operations = Operations.of(data)
    for ordinal in range(len(operations.lines)):
        operations.shown(ordinal + 1)


def _source(data: bytes, _: Path) -> None:
    """The first bytes choose places."""
    text = data[8:].decode("utf-8", "replace")
    policy.in_comments("a.c", text.split("\n"))
    source = Source(text)
    known_macros([source])
    for line, column in zip(data[:8:2], data[1:8:2], strict=False):
        with contextlib.suppress(NotEditable):
            statement = source.statement(line % 64, column % 64)
            source.loop_around(statement)
            source.in_loop(statement)
        with contextlib.suppress(NotEditable):
            source.call(line % 64, column % 64)
    edits = [
        EDIT,
        *(
            Edit("a.c", line % 40, bool(column % 2), "flush();")
            for line, column in zip(data[:4], data[4:8], strict=False)
        ),
    ]
    patch.diff(patch.applied(edits, lambda file: text))


def _arguments(data: bytes, folder: Path) -> None:
    line, _, rest = data.partition(b"\xff\xff")
    (folder / "rest").write_bytes(rest)
    words = line.decode("utf-8", "surrogateescape").replace("\0", "").split()
    arguments.parse(arguments.expand(words, str(folder)))


_LINE = b"-O2 -g -x c++ -MD -MF d -o out -Wl,-z,now -fsanitize=address -DX='a b' in.c -std=c11 -c -- - @rest"
_OPTIONS = (b"run\n--budget\n5m\n--jobs\n2\n--format\njson=a", b"try\n--\nls", b"ops\n--mix\ninsert=3")
_VALUES = (b"5m30s", b"insert=3,delete=1", b"10..20", b"insert=put {key} {value}", b"./a {pool}/b 'c d'")

PARSERS = {
    "configuration": of_text(partial(config.parse, path=Path("/project/crashcheck.toml")), CONFIG),
    "options": of_text(_options, *_OPTIONS, allowed=(SystemExit,)),
    "option values": of_text(_values, *_VALUES),
    "token": of_text(parse_token, TOKEN),
    "operations": of_bytes(_operations, b"insert 1 a\nquery 1\n\ndelete 1\n"),
    "source": Parser(_source, lambda _: [bytes(range(3, 11)) + SOURCE]),
    "compiler arguments": Parser(_arguments, lambda _: [_LINE + b"\xff\xff" + b'-Iinclude "a b.c" -DY=\\"x\\" @rest']),
}
