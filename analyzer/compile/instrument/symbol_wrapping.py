"""References to library functions that have a model: to the model, and linked only where the function is there."""

from __future__ import annotations

import re
from collections.abc import Set

# In no libc, or not in every one that is in use: `configure` asks for them by linking a call.
_MAYBE_ABSENT = re.compile(r"pmem2?_\w+|strlcpy|strlcat")

_ATTACHED = re.compile(r"^declare (?:!\w+ !\d+ )*")
_WEAK = re.compile(_ATTACHED.pattern + r"extern_weak [^\n]*?@([\w.]+)\(", re.MULTILINE)

# Passes on every register and the stack, for a declaration may be wrong (`char pmem_persist();`). What follows the
# jump is never executed: it asks the linker for the function itself. As code that is dropped where nothing refers to
# it.
_THUNK = """
$cc.linked.{name} = comdat any
define linkonce_odr hidden void @cc.linked.{name}() naked noinline uwtable comdat {{
  call void asm sideeffect "jmp cc_wrap_{name}@PLT\\0Amovq {name}@GOTPCREL(%rip), %rax", ""()
  unreachable
}}
"""


def wrapped(text: str, models: Set[str]) -> str:
    """IR in which each function of `models`, which it declares, is `cc_wrap_<name>` (runtime/include/hooks.h).

    What a library may lack goes by way of a function that refers to it, so that a program that lacks it does not link;
    not where it is declared weak, for then plain code links without it too: there only calls go to the model, and its
    address is the function's own, null where it is not there.
    """
    if not models:
        return text
    names = "|".join(re.escape(name) for name in sorted(models))
    absent: set[str] = set()
    weak = set(_WEAK.findall(text)) & models
    declared = [line for name in sorted(weak) for line in _declared(name, text)]

    def other(found: re.Match[str]) -> str:
        name = found.group()[1:]
        if name in weak and found.string[found.end() : found.end() + 1] != "(":
            return found.group()
        if name in weak or _MAYBE_ABSENT.fullmatch(name) is None:
            return "@cc_wrap_" + name
        absent.add(name)
        return "@cc.linked." + name

    text = re.sub(rf"@(?:{names})(?![-\w.$])", other, text)
    if absent:
        text = re.sub(r"^declare [^\n]*@cc\.linked\.[^\n]*\n?", "", text, flags=re.MULTILINE)
    return text + "".join(declared) + "".join(_THUNK.format(name=name) for name in sorted(absent))


def _declared(name: str, text: str) -> list[str]:
    """A second declaration for what is called by another name; of debug information there is one."""
    found = re.findall(rf"^declare [^\n]*@{re.escape(name)}\([^\n]*", text, re.MULTILINE)
    return [_ATTACHED.sub("declare ", line) + "\n" for line in found]
