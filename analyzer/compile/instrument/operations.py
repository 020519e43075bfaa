"""Operations by name: a named function's outermost entry and exit become the marks of an operation.

The function's code moves to an internal function, and its name goes to a wrapper that begins the operation, calls that
function, and ends the operation on return and when an exception passes. The wrapper is not instrumented: in
call stacks there is one frame, as in the source.

Of a pair of names, separated by a tab, the first function only begins the operation (unless an exception leaves it),
and the second only ends it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from crashcheck.analyzer.compile.ir.debuginfo import DebugInfo
from crashcheck.analyzer.compile.ir.text import NAME, IRSyntaxError, matching, read_module, split_commas

PAIR = "\t"  # between the function that begins an operation and the one that ends it
_INFIX = ".operation."  # in the name of the moved function, before the name that was asked for
_HEADER = re.compile(rf"^(define .*?)@({NAME})(\(.*)$", re.MULTILINE)
_LINKAGE = re.compile(
    r"^define (?:(?:private|internal|available_externally|linkonce|linkonce_odr|weak|weak_odr|extern_weak|external|"
    r"common|dso_local|dso_preemptable|default|hidden|protected|dllexport) )*"
)
_TYPE = re.compile(r'(?:[\w]+(?: addrspace\(\d+\))?|%[-\w.$]+|%"[^"]*"|\{.*\}|<.*>|\[.*\])$')
_OF_THE_SYMBOL = re.compile(
    r' (?:local_unnamed_addr|unnamed_addr|comdat(?:\(\$[^)]*\))?|section "[^"]*"|partition "[^"]*")'
)
_PERSONALITY = re.compile(rf" personality (ptr @{NAME})")


def wrap(text: str, names: Iterable[str]) -> tuple[str, str]:
    """(the module with named functions moved, the wrappers' text, to be added once hooks are in place).

    A name is a symbol, or a function's qualified name from the debug information. Variadic functions stay as they are.
    """
    pairs = [name.partition(PAIR) for name in names]
    mover = _Mover(
        text,
        opening={first for first, tab, _ in pairs if tab},
        closing={second for _, tab, second in pairs if tab},
        wanted={name for first, tab, second in pairs for name in (first, *([second] if tab else ()))},
    )
    return mover.moved() if pairs else (text, "")


class _Mover:
    """Moves the named functions of one module away from their symbols, and writes a wrapper in place of each."""

    def __init__(self, text: str, opening: set[str], closing: set[str], wanted: set[str]) -> None:
        self._text = text
        self._opening, self._closing, self._wanted = opening, closing, wanted
        self._module = read_module(text)
        self._debug = DebugInfo(self._module.metadata)
        self._quiet = self._groups_with("nounwind")
        self._unfit = self._groups_with("naked")
        self._wrappers: list[str] = []
        self._personality = ""  # of wrappers whose function has none

    def _groups_with(self, attribute: str) -> set[str]:
        groups = self._module.attributes.items()
        return {number for number, words in groups if re.search(rf"\b{attribute}\b", words)}

    def moved(self) -> tuple[str, str]:
        """As `wrap`."""
        body = _HEADER.sub(self._move, self._module.body)
        if not self._wrappers:
            return self._text, ""
        declared = ["declare void @cc_operation_enter()", "declare void @cc_operation_leave()"]
        if self._personality and f"{self._personality[4:]}(" not in body:
            declared.append(f"declare i32 {self._personality[4:]}(...)")
        return body + self._module.metadata, "\n".join([*declared, *self._wrappers, ""])

    def _move(self, found: re.Match[str]) -> str:
        prefix, symbol, rest = found.group(1), found.group(2).strip('"'), found.group(3)
        scope = re.search(r"!dbg !(\d+)", rest)
        known = {symbol, self._debug.subprogram(int(scope.group(1))).function} if scope else {symbol}
        asked = sorted(self._wanted & known)
        end = matching(rest, 0)
        parameters = split_commas(rest[1 : end - 1])
        groups = set(re.findall(r"#(\d+)", rest[end:]))
        if not asked or "..." in parameters or groups & self._unfit or " available_externally " in prefix:
            return found.group()
        moved = f'@"{symbol}{_INFIX}{asked[0]}"'
        returned = _LINKAGE.sub("", prefix).strip()
        kind = _TYPE.search(returned)
        if kind is None:
            raise IRSyntaxError(found.group())
        handler = "" if groups & self._quiet else self._handler(rest[end:])
        self._wrappers.append(
            _wrapper(
                *(found.group(), kind.group(), returned, moved, rest[1 : end - 1], handler),
                begins=asked[0] not in self._closing,
                ends=asked[0] not in self._opening,
            )
        )
        return f"define internal {returned} {moved}{rest[:end]}{_OF_THE_SYMBOL.sub('', rest[end:])}"

    def _handler(self, attributes: str) -> str:
        """The personality of a wrapper around what may raise: its function's own, else the module's."""
        given = _PERSONALITY.search(attributes)
        if given:
            return given.group(1)
        self._personality = self._personality or _personality_of(self._text)
        return self._personality


def found_operations(functions: Iterable[str]) -> frozenset[str]:
    """The names asked for that some unit's functions (UnitFacts.functions) show as moved."""
    return frozenset(name.rpartition(_INFIX)[2] for name in functions if _INFIX in name)


def _wrapper(
    header: str, kind: str, returned: str, moved: str, parameters: str, handler: str, *, begins: bool, ends: bool
) -> str:
    """`handler`: the personality routine if exceptions may pass, else ""."""
    header = re.sub(r" !\w+ !\d+", "", _PERSONALITY.sub("", header)).removesuffix("{").rstrip()
    value = "" if kind == "void" else "%cc.value = "
    back = "ret void" if kind == "void" else f"ret {kind} %cc.value"
    call = f"{returned} {moved}({parameters})"
    leave = "  call void @cc_operation_leave()"
    after = [leave] if ends else []
    lines = ["  call void @cc_operation_enter()"] if begins else []
    if handler:
        header += f" personality {handler}"
        lines.append(f"  {value}invoke {call} to label %cc.done unwind label %cc.unwound")
        lines += ["cc.done:", *after, f"  {back}"]
        lines += ["cc.unwound:", "  %cc.caught = landingpad { ptr, i32 } cleanup", leave]
        lines.append("  resume { ptr, i32 } %cc.caught")
    else:
        lines += [f"  {value}call {call}", *after, f"  {back}"]
    return "\n".join([f"{header} {{", *lines, "}"])


def _personality_of(text: str) -> str:
    cxx = "DW_LANG_C_plus_plus" in text
    return "ptr @__gxx_personality_v0" if cxx else "ptr @__gcc_personality_v0"
