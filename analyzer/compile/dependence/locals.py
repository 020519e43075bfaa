"""A function's locals in memory, by how its IR text uses them: those that only loads and stores touch, and the rest."""

from __future__ import annotations

import re
from dataclasses import dataclass

_ALLOCA = re.compile(r"\n  (%[-\w.$]+) = alloca ")
_USE = re.compile(r"ptr (?:[a-z_]+(?:\([^)]*\))? |align \d+ )*(%[-\w.$]+)")
_HARMLESS = re.compile(
    r"\n(?:  %[-\w.$]+ = load (?:volatile )?[^@%\n,]*, ptr |  store (?:volatile )?[^\n]*?, ptr |"
    r"    #dbg_\w+\(ptr |  call void @llvm\.lifetime\.(?:start|end)\.p0\((?:i64 -?\d+, )?ptr (?:nonnull )?)"
    r"(%[-\w.$]+)[,)\n]"
)
# Old bitcode casts a local for its lifetime markers; the cast itself is dead.
_CAST = re.compile(r"\n  (%[-\w.$]+) = bitcast ptr (%[-\w.$]+) to ptr")
_STORED = re.compile(r"\n  store (?:volatile )?[^\n]*?, ptr (%[-\w.$]+)[,\n]")


@dataclass(frozen=True, slots=True)
class Locals:
    """Names of `alloca`s. `slots`: only loads and stores touch them; `once`: those of them that at most one store
    writes; `cells`: all others (arrays, structs, what a call gets the address of)."""

    slots: frozenset[str]
    once: tuple[str, ...]
    cells: tuple[str, ...]


def read_locals(text: str) -> Locals:
    """Those of a function's lines, each of which begins with a line break; in the order of the text."""
    kept = dict.fromkeys(_ALLOCA.findall(text), 0)  # → uses that are no load or store
    if not kept:
        return Locals(frozenset(), (), ())
    casts = {cast: name for cast, name in _CAST.findall(text) if name in kept}
    for name in _USE.findall(text):
        if name in kept:
            kept[name] += 1
        casts.pop(name, None)
    for name in casts.values():
        kept[name] -= 1
    for name in _HARMLESS.findall(text):
        if name in kept:
            kept[name] -= 1
    stores: dict[str, int] = {}
    for name in _STORED.findall(text):
        stores[name] = stores.get(name, 0) + 1
    slots = [name for name, uses in kept.items() if uses <= 0]
    once = tuple(name for name in slots if stores.get(name, 0) <= 1)
    return Locals(frozenset(slots), once, tuple(name for name, uses in kept.items() if uses > 0))
