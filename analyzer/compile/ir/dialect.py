"""IR text that an older clang reads: the spellings that changed since, undone.

The binding's own optimiser and code generator are built with assertions and take nearly twice as long as those of a
distribution's clang. So a unit that the binding verified is emitted by the clang that made its bitcode, where that
clang is known to read this text; if it does not, the binding emits it.
"""

from __future__ import annotations

import re

# Only what was tried. Older clangs know neither debug records nor some attributes.
READERS = frozenset({19})

_LIFETIME_CALL = re.compile(r"(call void @llvm\.lifetime\.(?:start|end)\.p0\()ptr")
_LIFETIME_DECLARATION = re.compile(r"^(declare void @llvm\.lifetime\.(?:start|end)\.p0\()ptr", re.MULTILINE)
_LIFETIME_LEFTOVER = re.compile(r"^declare void @llvm\.lifetime\.(?:start|end)\.i64\(i64\).*$", re.MULTILINE)
_MEMORY = re.compile(r",? ?(?:target_mem\d+|errnomem): \w+")
_CAPTURES = re.compile(r"captures\(none\)")
_NEW_ATTRIBUTE = re.compile(r"\bnocreateundeforpoison ")


def for_clang_19(text: str) -> str:
    """The text in the dialect of LLVM 19."""
    text = _LIFETIME_CALL.sub(r"\1i64 -1, ptr", text)
    text = _LIFETIME_DECLARATION.sub(r"\1i64, ptr", text)
    text = _LIFETIME_LEFTOVER.sub("", text)
    text = _CAPTURES.sub("nocapture", text)
    cut = max(text.rfind("\nattributes #"), 0)
    first = text.find("\nattributes #")
    if first < 0:
        return text
    end = text.find("\n", cut + 1)
    groups = _NEW_ATTRIBUTE.sub("", _MEMORY.sub("", text[first:end]))
    return text[:first] + groups + text[end:]
