"""Names of functions in executable files, for call sites of programs that no crashcheck-cc built.

Which function a call site is in, the recorder knows from the frames' descriptions; programs in Go have none.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from elftools.elf.elffile import ELFFile
from numpy.typing import NDArray

from crashcheck.analyzer.compile.demangling import function_name
from crashcheck.analyzer.trace.go_table import read_go_table
from crashcheck.analyzer.trace.reader import CallSite

_SYMBOL = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
)
_FUNCTIONS = (2, 10)  # STT_FUNC, STT_GNU_IFUNC


@dataclass(frozen=True, eq=False)
class _Symbols:
    """Functions of one file, sorted by where they begin in it."""

    start: NDArray[np.int64]
    size: NDArray[np.int64]
    names: tuple[bytes, ...]


_NONE = _Symbols(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), ())


@dataclass(slots=True)
class FunctionNames:
    """Finds the names; each file is read once."""

    _files: dict[str, _Symbols] = field(default_factory=dict)

    def name(self, site: CallSite) -> str:
        """The function that holds a call site: its name, else "program+0x1234"; "" for code that no file holds."""
        if site.name or not site.module:
            return site.name
        symbols, at = self._find(site)
        if at >= 0:
            return function_name(symbols.names[at].decode("utf-8", "replace"))
        return f"{os.path.basename(site.module)}+{site.function or site.offset:#x}"

    def start(self, site: CallSite) -> int:
        """Where the function begins, as an offset in its file; 0 if that is not known."""
        if site.function or not site.module:
            return site.function
        symbols, at = self._find(site)
        return int(symbols.start[at]) if at >= 0 else 0

    def _find(self, site: CallSite) -> tuple[_Symbols, int]:
        """The symbols of a site's file, and which is its function's; -1: none."""
        symbols = self._files.get(site.module)
        if symbols is None:
            symbols = self._files[site.module] = _read(site.module)
        inside = site.function or site.offset - 1
        at = int(np.searchsorted(symbols.start, inside, side="right")) - 1
        return symbols, at if at >= 0 and inside < int(symbols.start[at]) + max(int(symbols.size[at]), 1) else -1


def _read(path: str) -> _Symbols:
    """The symbols of a file; none of one that is gone, or is no ELF file."""
    try:
        with open(path, "rb") as file:
            return _symbols(ELFFile(file))
    except Exception:  # of a damaged file pyelftools raises errors of its parser, of zlib, of Python's integers…
        return _NONE


def _symbols(elf: ELFFile) -> _Symbols:
    loads = [each for each in elf.iter_segments() if each["p_type"] == "PT_LOAD"]
    starts, sizes, names = [], [], []
    for name in (".symtab", ".dynsym"):
        section = elf.get_section_by_name(name)
        if section is None:
            continue
        data = section.data()
        rows = np.frombuffer(data[: len(data) // _SYMBOL.itemsize * _SYMBOL.itemsize], _SYMBOL)
        rows = rows[np.isin(rows["info"] & 15, _FUNCTIONS) & (rows["section"] != 0)]
        text = elf.get_section(section["sh_link"]).data()
        value = rows["value"].astype(np.int64)
        starts.append(_offsets(value, loads))
        sizes.append(rows["size"].astype(np.int64))
        names += [text[at : text.find(b"\0", at)] for at in rows["name"].tolist()]
    if go := read_go_table(elf):
        starts.append(_offsets(go.starts, loads))
        sizes.append(np.diff(go.starts, append=go.end))
        names += [go.name(at).encode() for at in range(len(go.starts))]
    if not starts:
        return _NONE
    start, size = np.concatenate(starts), np.concatenate(sizes)
    order = np.argsort(start, kind="stable")
    return _Symbols(start[order], size[order], tuple(names[at] for at in order.tolist()))


def _offsets(addresses: NDArray[np.int64], loads: Sequence[Any]) -> NDArray[np.int64]:
    """Where addresses are in a file; -1: nowhere."""
    offsets = np.full(len(addresses), -1, dtype=np.int64)
    for load in loads:
        inside = (addresses >= load["p_vaddr"]) & (addresses < load["p_vaddr"] + load["p_filesz"])
        offsets[inside] = addresses[inside] - load["p_vaddr"] + load["p_offset"]
    return offsets
