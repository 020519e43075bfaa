"""Debug metadata out of IR text: units whose user asked for no -g get objects without DWARF, and parse faster."""

from __future__ import annotations

import re

from crashcheck.analyzer.compile.ir.debuginfo import DebugInfo

_REFERENCE = re.compile(r"!(\d+)")
_ATTACHED = re.compile(r", ![a-zA-Z_.]+ !(\d+)|metadata !(\d+)")
_DEBUG_NODE = re.compile(r"(?:distinct )?!DI[A-Z]")
_NAMED_DEBUG = ("!llvm.dbg.cu", "!llvm.gcov")


def metadata_without_debug(body: str, debug: DebugInfo) -> str:
    """The metadata that `body` (already without `!dbg`) needs, references to debug nodes taken out."""
    wanted = {int(a or b) for a, b in _ATTACHED.findall(body)}
    named = {name: value for name, value in debug.named.items() if not name.startswith(_NAMED_DEBUG)}
    for value in named.values():
        wanted.update(map(int, _REFERENCE.findall(value)))
    kept: dict[int, str] = {}
    while wanted:
        number = wanted.pop()
        text = debug.node(number)
        if not text or number in kept:
            continue
        if _DEBUG_NODE.match(text):
            kept[number] = "!{}"  # an attachment may name one; nothing reads it
            continue
        for reference in set(_REFERENCE.findall(text)):
            if _DEBUG_NODE.match(debug.node(int(reference))):
                text = re.sub(rf"(?:, )?!{reference}(?!\d)", "", text)
        kept[number] = text
        wanted.update(map(int, _REFERENCE.findall(text)))
    lines = [f"{name} = {value}" for name, value in named.items()]
    lines += [f"!{number} = {text}" for number, text in sorted(kept.items())]
    return "\n".join(lines) + "\n"
