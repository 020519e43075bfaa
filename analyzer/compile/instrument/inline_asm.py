"""Inline assembly: which statements flush, fence or write memory, in the encodings that persistent-memory code uses.

Seen in the field: `clflush`, `.byte 0x66; clflush` (clflushopt), `.byte 0x66; xsaveopt` (clwb), `xchg`, lock prefixes,
`movnti`, `movdir64b`, `rep movs`. What may write memory and is not known here is reported, never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from crashcheck.analyzer.compile.instrument import hooks
from crashcheck.analyzer.compile.ir.debuginfo import unescape
from crashcheck.analyzer.compile.ir.text import Operand, matching, operand, split_commas

if TYPE_CHECKING:
    from crashcheck.analyzer.compile.instrument.emitter import Emitter

_ELEMENT = re.compile(r"elementtype\(")
_FENCES = {"sfence": hooks.SFENCE, "mfence": hooks.MFENCE}
_FLUSHES = {"clflush": hooks.CLFLUSH, "clflushopt": hooks.CLFLUSHOPT, "clwb": hooks.CLWB}
# With an operand-size prefix (0x66) these are newer instructions for old assemblers.
_PREFIXED = {"clflush": "clflushopt", "xsaveopt": "clwb"}
# Raw bytes that stand alone: pcommit is an obsolete no-op on every processor that was sold.
_RAW = {
    (0x0F, 0xAE, 0xF8): "sfence",
    (0x0F, 0xAE, 0xF0): "mfence",
    (0x0F, 0xAE, 0xE8): "lfence",
    (0x66, 0x0F, 0xAE, 0xF8): "nop",
    (0xF3, 0x90): "nop",
    (0x90,): "nop",
}
_HARMLESS = re.compile(
    r"(?:nop[wlq]?|pause|lfence|cpuid|rdtscp?|rdpmc|rdrand[wlq]?|rdseed[wlq]?|xgetbv|prefetch\w*|hlt|ud2|int3|endbr64|serialize|tpause|"
    r"umwait|umonitor|vzeroupper|vzeroall|emms|cld|clc|stc|rdfsbase\w?|rdgsbase\w?|rdpkru|wrpkru|xbegin|xend|xabort|xtest|cpuidw|"
    r"verr|verw|lar\w?|lsl|lslw|sldt|str|sgdtl?|cmp[bwlq]?|test[bwlq]?|bt[wlq]?|ldmxcsr|fldcw|jmp[q]?|j[a-z]{1,3}|loop|"
    r"ptest|ucomis[sd]|comis[sd]|leave|popcnt[wlq]?|push[q]?|pushf[q]?|pop[q]?|popf[q]?)"
)
_LOCKABLE = re.compile(
    r"(?:add|adc|and|btc|btr|bts|cmpxchg|dec|inc|neg|not|or|sbb|sub|xadd|xor)([bwlq])?$|cmpxchg(8|16)b$"
)
_XCHG = re.compile(r"xchg([bwlq])?$")
_MOVE = re.compile(
    r"(?:mov|movabs|add|adc|and|dec|inc|neg|not|or|sbb|sub|xor|shl|shr|sal|sar|rol|ror|xadd|bts|btr|btc|cmpxchg)([bwlq])?$|set[a-z]+$"
)
_VECTOR_MOVE = {
    "movss": 4,
    "movsd": 8,
    "movlps": 8,
    "movhps": 8,
    "movlpd": 8,
    "movhpd": 8,
    "movd": 4,
    "movaps": 16,
    "movups": 16,
    "movapd": 16,
    "movupd": 16,
    "movdqa": 16,
    "movdqu": 16,
    "stmxcsr": 4,
    "fnstcw": 2,
}
_STACK = re.compile(r"-?\w*\(%+[re]?[sb]p\)")
_NT = {"movnti": 0, "movntil": 4, "movntiq": 8, "movntq": 8, "movntdq": 16, "movntps": 16, "movntpd": 16}
_SUFFIX = {"b": 1, "w": 2, "l": 4, "q": 8}
_WIDE = {"x": 16, "y": 32, "z": 64}


@dataclass(frozen=True, slots=True)
class AsmOperand:
    """What `$n` stands for."""

    constraint: str
    argument: Operand | None  # None for an output in a register
    element: str  # type behind an indirect operand


@dataclass(frozen=True, slots=True)
class AsmCall:
    template: str
    slots: tuple[AsmOperand, ...]
    clobbers: tuple[str, ...]
    intel: bool


@dataclass(frozen=True, slots=True)
class AsmStep:
    """One hook: `what` is "fence", "flush", "locked", "locked-local", "store", "movdir64b", "copy" or "fill"."""

    what: str
    kind: int = 0  # of a fence or flush; store flags
    address: Operand | None = None
    element: str = ""
    size: int = 0
    source: Operand | None = None
    count: Operand | None = None
    conditional: bool = False  # cmpxchg: stores only if it succeeds


@dataclass(slots=True)
class AsmPlan:
    steps: list[AsmStep] = field(default_factory=list)
    not_understood: bool = False
    targets: list[str] = field(default_factory=list)  # addresses that the assembly may write


def read_call(line: str, at: int) -> AsmCall:
    """Read what follows ` asm ` in a call."""
    first = line.index('"', at)
    middle = line.index('"', first + 1)
    second = line.index('"', middle + 1)
    last = line.index('"', second + 1)
    open_at = last + 1
    arguments = [operand(part) for part in split_commas(line[open_at + 1 : matching(line, open_at) - 1])]
    slots: list[AsmOperand] = []
    clobbers: list[str] = []
    for constraint in split_commas_plain(unescape(line[second + 1 : last])):
        if constraint.startswith("~"):
            clobbers.append(constraint[2:-1])
        elif constraint.startswith("=") and "*" not in constraint:
            slots.append(AsmOperand(constraint, None, ""))
        elif constraint.startswith("!"):
            continue
        else:
            argument = arguments.pop(0) if arguments else None
            slots.append(AsmOperand(constraint, argument, _element(argument)))
    return AsmCall(unescape(line[first + 1 : middle]), tuple(slots), tuple(clobbers), "inteldialect" in line[at:first])


def split_commas_plain(text: str) -> list[str]:
    return text.split(",") if text else []


def _element(argument: Operand | None) -> str:
    if argument is None:
        return ""
    found = _ELEMENT.search(argument.attributes)
    if found is None:
        return ""
    return argument.attributes[found.end() : matching(argument.attributes, found.end() - 1) - 1]


def _statements(template: str) -> list[str]:
    text = re.sub(r"\$\(([^|)]*)\|[^)]*\$\)", r"\1", template)  # dialect alternatives: the first is AT&T
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL)
    text = re.sub(r"#[^\n]*", "", text)
    return [part.strip() for part in re.split(r"[;\n]", text) if part.strip()]


def understand(call: AsmCall) -> AsmPlan:
    """Which hooks a piece of assembly needs, or that it is not understood."""
    plan = AsmPlan()
    plan.targets = [
        slot.argument.value
        for slot in call.slots
        if slot.argument is not None and "*" in slot.constraint and "=" in slot.constraint
    ]
    statements = _statements(call.template)
    if not statements:
        return plan
    writes = bool(plan.targets) or "memory" in call.clobbers
    if call.intel:
        plan.not_understood = writes
        return plan
    prefix: list[int] = []
    locked = repeat = False
    for statement in statements:
        found = re.match(r"(?:[\w.$]+:\s*)*(.*)$", statement, re.DOTALL)
        rest = found.group(1).strip() if found else statement
        if rest != statement and not rest:
            continue  # a label
        while rest:
            word, _, tail = rest.partition(" ") if " " in rest else rest.partition("\t")
            lowered = word.lower()
            if lowered == ".byte":
                numbers = [_integer(part) for part in tail.split(",")]
                if None in numbers:
                    plan.not_understood = writes
                    return plan
                prefix.extend(number for number in numbers if number is not None)
                rest = ""
            elif lowered in ("lock", "lock/"):
                locked, rest = True, tail.strip()
            elif lowered in ("rep", "repe", "repz", "repne", "repnz"):
                repeat, rest = True, tail.strip()
            elif lowered in ("data16", "data16/"):
                prefix.append(0x66)
                rest = tail.strip()
            else:
                if prefix and tuple(prefix) not in ((0x66,), (0xF0,), (0x3E,), (0xF3,)):
                    if not _raw(plan, prefix):
                        plan.not_understood = writes
                        return plan
                    prefix = []
                if prefix == [0xF0]:
                    locked, prefix = True, []
                if not _statement(plan, call, lowered, _operands(tail), prefix == [0x66], locked, repeat) and writes:
                    plan.not_understood = True
                    return plan
                prefix, locked, repeat, rest = [], False, False, ""
    if (prefix and not _raw(plan, prefix)) and writes:
        plan.not_understood = True
    return plan


def _raw(plan: AsmPlan, numbers: list[int]) -> bool:
    name = _RAW.get(tuple(numbers))
    if name is None:
        return False
    if name in _FENCES:
        plan.steps.append(AsmStep("fence", _FENCES[name]))
    return True


def _integer(text: str) -> int | None:
    try:
        return int(text.strip().lstrip("$"), 0)
    except ValueError:
        return None


def _operands(text: str) -> list[str]:
    return split_commas(text.strip()) if text.strip() else []


def _reference(call: AsmCall, text: str) -> AsmOperand | None:
    found = re.fullmatch(r"\$\{?(\d+)(?::\w)?\}?", text.strip())
    if found is None or int(found.group(1)) >= len(call.slots):
        return None
    return call.slots[int(found.group(1))]


_REGISTERS = {"a": "ax", "b": "bx", "c": "cx", "d": "dx", "S": "si", "D": "di"}


def _register(call: AsmCall, name: str) -> AsmOperand | None:
    """The operand that lives in a hardware register: `{di}`."""
    wanted = re.sub(r"^[re]", "", name.lstrip("%"))
    for slot in call.slots:
        inside = slot.constraint.strip("=&+")
        if inside == "{" + wanted + "}":
            if slot.argument is not None:
                return slot
            index = str(call.slots.index(slot))  # an output whose input is tied to it
            for other in call.slots:
                if other.constraint == index:
                    return other
    return None


def _memory(call: AsmCall, text: str) -> tuple[Operand, str] | None:
    """Address and element type of a memory operand; None if it is none or its address is not plain."""
    found = re.fullmatch(r"(?:0)?\(\s*(\$\{?\d+(?::\w)?\}?|%+[a-z0-9]+)\s*\)", text.strip())
    if found is not None:
        name = found.group(1)
        slot = _reference(call, name) if name.startswith("$") else _register(call, name)
        if slot is not None and slot.argument is None:
            index = str(call.slots.index(slot))
            slot = next((other for other in call.slots if other.constraint == index), None)
        return (slot.argument, "") if slot is not None and slot.argument is not None else None
    slot = _reference(call, text)
    if slot is None or slot.argument is None:
        return None
    if "*" in slot.constraint:
        return slot.argument, slot.element
    if re.search(r"\$\{\d+:a\}", text) or slot.constraint in ("p", "m"):
        return slot.argument, slot.element
    return None


def _is_memory(call: AsmCall, text: str) -> bool:
    slot = _reference(call, text)
    return "(" in text or (slot is not None and "*" in slot.constraint)


def _size(call: AsmCall, suffix: str | None, operands: list[str], element: str) -> int:
    if suffix:
        return _SUFFIX[suffix]
    for text in operands:
        width = re.search(r"\$\{\d+:([bwkq])\}", text)
        if width:
            return {"b": 1, "w": 2, "k": 4, "q": 8}[width.group(1)]
        slot = _reference(call, text)
        kind = (
            slot.argument.type if slot is not None and slot.argument is not None and "*" not in slot.constraint else ""
        )
        if kind.startswith("i") and kind[1:].isdigit():
            return int(kind[1:]) // 8
        if kind == "ptr" and not _is_memory(call, text):
            return 8
    kind = element
    if kind == "ptr":
        return 8
    return int(kind[1:]) // 8 if kind.startswith("i") and kind[1:].isdigit() else 0


def _statement(
    plan: AsmPlan, call: AsmCall, word: str, operands: list[str], prefixed: bool, locked: bool, repeat: bool
) -> bool:
    """Add the hooks of one statement; False if it may write memory in a way that is not known."""
    if word in _FENCES:
        plan.steps.append(AsmStep("fence", _FENCES[word]))
        return True
    name = _PREFIXED.get(word, word) if prefixed else word
    if name in _FLUSHES:
        memory = _memory(call, operands[0]) if len(operands) == 1 else None
        if memory is None:
            return False
        plan.steps.append(AsmStep("flush", _FLUSHES[name], memory[0]))
        return True
    if (
        word in ("pcommit",)
        or _HARMLESS.fullmatch(word)
        or (word.startswith(".") and word not in (".byte", ".long", ".quad"))
    ):
        return True
    exchange = _XCHG.match(word)
    lockable = _LOCKABLE.match(word)
    if (exchange or (locked and lockable)) and any(_is_memory(call, text) for text in operands):
        text = next(text for text in operands if _is_memory(call, text))
        if _STACK.fullmatch(text.strip()):
            plan.steps.append(AsmStep("locked-local"))  # the idiom of a cheap full fence
            return True
        memory = _memory(call, text)
        if memory is None:
            return False
        wide = lockable.group(2) if lockable else None
        found = exchange or lockable
        assert found is not None
        size = int(wide) if wide else _size(call, found.group(1), operands, memory[1])
        if not size:
            return False
        plan.steps.append(AsmStep("locked", 0, memory[0], memory[1], size, conditional=word.startswith("cmpxchg")))
        plan.targets.append(memory[0].value)
        return True
    if exchange or locked:
        return not locked
    if word == "movdir64b" and len(operands) == 2:
        destination, source = _reference(call, operands[1]), _memory(call, operands[0])
        if destination is None or destination.argument is None or source is None:
            return False
        plan.steps.append(AsmStep("movdir64b", hooks.STORE_NT, destination.argument, "", 64, source[0]))
        return True
    if re.fullmatch(r"(?:movs|stos)[bwlq]", word):
        return _string(plan, call, word, repeat)
    if not operands or not _is_memory(call, operands[-1]):
        # No memory operand last: nothing is written, unless the instruction is one that we do not know.
        return bool(
            _MOVE.match(word)
            or word in _VECTOR_MOVE
            or re.match(r"(?:lea|v?mov|cmov|bsf|bsr|bswap|mul|imul|div|idiv|cltq|cqto|rol|crc32|v?p)", word)
        )
    memory = _memory(call, operands[-1])
    if memory is None:
        return False
    flags = 0
    if word.removeprefix("v") in _NT:
        flags = hooks.STORE_NT
        size = _NT[word.removeprefix("v")] or _size(call, None, operands[:1], memory[1])
        size = _vector_size(call, operands, size)
    elif word.removeprefix("v") in _VECTOR_MOVE:
        size = _VECTOR_MOVE[word.removeprefix("v")]
        size = _vector_size(call, operands, size) if size == 16 else size
    elif found := _MOVE.match(word):
        size = 1 if word.startswith("set") else _size(call, found.group(1), operands[:-1], memory[1])
    else:
        return False
    if not size:
        return False
    plan.steps.append(AsmStep("store", flags, memory[0], memory[1], size))
    plan.targets.append(memory[0].value)
    return True


def _vector_size(call: AsmCall, operands: list[str], size: int) -> int:
    """ymm and zmm operands, written out or chosen by the compiler."""
    found = re.search(r"%+([xyz])mm\d", operands[0])
    if found:
        return _WIDE[found.group(1)]
    slot = _reference(call, operands[0])
    if slot is not None and slot.argument is not None and slot.argument.type.startswith("<"):
        from crashcheck.analyzer.compile.ir.text import Types

        return Types({}).store_size(slot.argument.type) or size
    return size


def _string(plan: AsmPlan, call: AsmCall, word: str, repeat: bool) -> bool:
    target, count = _register(call, "rdi"), _register(call, "rcx")
    if target is None or target.argument is None or not repeat or count is None or count.argument is None:
        return False
    size = _SUFFIX[word[-1]]
    if word.startswith("movs"):
        source = _register(call, "rsi")
        if source is None or source.argument is None:
            return False
        plan.steps.append(AsmStep("copy", 0, target.argument, "", size, source.argument, count.argument))
        return True
    value = _register(call, "rax")
    if value is None or value.argument is None:
        return False
    if size != 1 and value.argument.value not in ("0", "zeroinitializer", "null"):
        return False
    plan.steps.append(AsmStep("fill", 0, target.argument, "", size, value.argument, count.argument))
    return True


def emit_before(emitter: Emitter, line: str, plan: AsmPlan) -> list[Callable[[], None]]:
    """Emit the hooks that precede the assembly; returns those that follow it."""
    after: list[Callable[[], None]] = []
    for step in plan.steps:
        if step.what == "fence":
            emitter.fence(line, step.kind)
            continue
        if step.what == "locked-local":
            emitter.locked_elsewhere(line, True)
            continue
        assert step.address is not None
        pointer = _as_pointer(emitter, step.address)
        if step.what == "flush":
            emitter.flush(line, pointer, step.kind)
        elif step.what == "locked":
            after.append(emitter.locked_assembly(line, pointer, step.size, step.conditional))
        elif step.what == "store":
            finish = emitter.assembly_store(line, pointer, step.size, step.kind)
            if finish is not None:
                after.append(finish)
        elif step.what == "movdir64b":
            assert step.source is not None
            emitter.store_from(line, pointer, _as_pointer(emitter, step.source), str(step.size), step.kind)
        else:
            assert step.source is not None
            assert step.count is not None
            count = emitter.wide(_as_integer(emitter, step.count))
            if step.size > 1:
                scaled = emitter.fresh()
                emitter.emit(f"  {scaled} = mul i64 {count}, {step.size}")
                count = scaled
            if step.what == "copy":
                emitter.copy(line, pointer, _as_pointer(emitter, step.source), Operand("i64", count))
            else:
                emitter.fill(line, pointer, _as_byte(emitter, step.source), Operand("i64", count))
    return after


def _as_pointer(emitter: Emitter, value: Operand) -> str:
    if value.type == "ptr":
        return value.value
    name = emitter.fresh()
    emitter.emit(f"  {name} = inttoptr {value.text} to ptr")
    return name


def _as_integer(emitter: Emitter, value: Operand) -> Operand:
    if value.type != "ptr":
        return value
    name = emitter.fresh()
    emitter.emit(f"  {name} = ptrtoint {value.text} to i64")
    return Operand("i64", name)


def _as_byte(emitter: Emitter, value: Operand) -> str:
    if value.type == "i8":
        return value.value
    if not value.type.startswith("i"):
        return "0"
    name = emitter.fresh()
    emitter.emit(f"  {name} = trunc {value.text} to i8")
    return name
