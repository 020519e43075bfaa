"""Names of C++ as its sources have them. Without libstdc++ on the machine they stay mangled."""

from __future__ import annotations

import ctypes
from functools import cache


@cache
def _demangler() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL("libstdc++.so.6")
        library.__cxa_demangle.restype = ctypes.c_void_p
        library.__cxa_demangle.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    except (OSError, AttributeError):
        return None
    return library


def function_name(name: str) -> str:
    """A C++ function as its source has it, without its parameters; any other name as it is."""
    whole = _demangled(name)
    return name if whole == name else whole.removesuffix(" const").partition("(")[0] or whole


def variable_name(name: str) -> str:
    """A C++ variable as its source has it, of a function's static one the last name; any other name as it is."""
    whole = _demangled(name)
    return whole.rpartition("::")[2] if "(" in whole or name.startswith("_ZZ") else whole


def _demangled(name: str) -> str:
    library = _demangler() if name.startswith("_Z") else None
    if library is None:
        return name
    found = library.__cxa_demangle(name.encode(), None, None, None)
    if not found:
        return name
    text = ctypes.string_at(found).decode("utf-8", "replace")
    free = ctypes.CDLL(None).free
    free.argtypes = [ctypes.c_void_p]
    free(found)
    return text
