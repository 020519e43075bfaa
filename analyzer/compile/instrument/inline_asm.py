"""Inline assembly: which statements flush, fence or write memory, in the encodings that persistent-memory code uses.

Seen in the field: `clflush`, `.byte 0x66; clflush` (clflushopt), `.byte 0x66; xsaveopt` (clwb), `xchg`, lock prefixes,
`movnti`, `movdir64b`, `rep movs`. What may write memory and is not known here is reported, never guessed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from crashcheck.analyzer.compile.instrument import hooks
from crashcheck.analyzer.compile.ir.debuginfo import unescape
from crashcheck.analyzer.compile.ir.text import Operand, Types, matching, operand, split_commas

if TYPE_CHECKING:
    pass

_ELEMENT = re.compile(r"elementtype\(")
_FENCES = {"sfence": hooks.SFENCE, "mfence": hooks.MFENCE}
_FLUSHES = {"clflush": hooks.CLFLUSH, "clflushopt": hooks.CLFLUSHOPT, "clwb": hooks.CLWB}
# With an operand-size prefix (0x66) these are newer instructions for old assemblers.
_WITH_SIZE_PREFIX = {"clflush": "clflushopt", "xsaveopt": "clwb"}
_PREFIX_BYTES = ((0x66,), (0xF0,), (0x3E,), (0xF3,))
# Raw bytes that are an instruction: pcommit is an obsolete no-op on every processor that was sold.
_RAW = {
    (0x0F, 0xAE, 0xF8): "sfence",
    (0x0F, 0xAE, 0xF0): "mfence",
    (0x0F, 0xAE, 0xE8): "lfence",
    (0x66, 0x0F, 0xAE, 0xF8): "nop",
    (0xF3, 0x90): "nop",
    (0x90,): "nop",
}
_HARMLESS = re.compile(
    r"(?:pcommit|nop[wlq]?|pause|lfence|cpuid|rdtscp?|rdpmc|rdrand[wlq]?|rdseed[wlq]?|xgetbv|prefetch\w*|hlt|ud2|int3|endbr64|serialize|tpause|"
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
# What writes a register where it has no memory operand last.
_TO_REGISTER = re.compile(r"(?:lea|v?mov|cmov|bsf|bsr|bswap|mul|imul|div|idiv|cltq|cqto|rol|crc32|v?p)")
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
_WIDTH = {"b": 1, "w": 2, "k": 4, "q": 8}  # modifiers of an operand: `${0:b}`
_WIDE = {"x": 16, "y": 32, "z": 64}


@dataclass(frozen=True, slots=True)
class AsmOperand:
    """An operand of the assembly: what `$n` in its template means."""

    constraint: str
    argument: Operand | None  # None for an output in a register
    element: str  # type behind an indirect operand


@dataclass(frozen=True, slots=True)
class AsmCall:
    template: str
    operands: tuple[AsmOperand, ...]
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
    operands: list[AsmOperand] = []
    clobbers: list[str] = []
    for constraint in split_commas_plain(unescape(line[second + 1 : last])):
        if constraint.startswith("~"):
            clobbers.append(constraint[2:-1])
        elif constraint.startswith("=") and "*" not in constraint:
            operands.append(AsmOperand(constraint, None, ""))
        elif constraint.startswith("!"):
            continue
        else:
            argument = arguments.pop(0) if arguments else None
            operands.append(AsmOperand(constraint, argument, _element(argument)))
    template, intel = unescape(line[first + 1 : middle]), "inteldialect" in line[at:first]
    return AsmCall(template, tuple(operands), tuple(clobbers), intel)


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
        for slot in call.operands
        if slot.argument is not None and "*" in slot.constraint and "=" in slot.constraint
    ]
    statements = _statements(call.template)
    writes = bool(plan.targets) or "memory" in call.clobbers
    understood = not statements or (not call.intel and _Reader(call, plan, writes).read(statements))
    plan.not_understood = writes and not understood
    return plan


@dataclass(frozen=True, slots=True)
class _Instruction:
    """A mnemonic with its operands and prefixes."""

    word: str
    operands: list[str]
    wide: bool  # with the operand-size prefix 0x66
    locked: bool
    repeated: bool

    @property
    def plain_word(self) -> str:
        """The mnemonic without the `v` of its AVX form."""
        return self.word.removeprefix("v")


class _Reader:
    """Reads statements in order and adds what they do to `plan`; prefixes may be statements of their own."""

    def __init__(self, call: AsmCall, plan: AsmPlan, writes: bool) -> None:
        self.call = call
        self.plan = plan
        self.writes = writes  # the compiler knows that the assembly writes memory
        self.bytes: list[int] = []  # raw bytes and prefixes that no instruction has followed yet
        self.locked = self.repeated = False

    def read(self, statements: list[str]) -> bool:
        """Whether all of it is understood."""
        return all(self._statement(text) for text in statements) and (not self.bytes or self._raw())

    def _statement(self, text: str) -> bool:
        rest = re.sub(r"^(?:[\w.$]+:\s*)*", "", text).strip()  # without labels
        while rest:
            word, _, tail = rest.partition(" ") if " " in rest else rest.partition("\t")
            word = word.lower()
            if word == ".byte":
                return self._raw_bytes(tail)
            if word in ("lock", "lock/"):
                self.locked = True
            elif word in ("rep", "repe", "repz", "repne", "repnz"):
                self.repeated = True
            elif word in ("data16", "data16/"):
                self.bytes.append(0x66)
            else:
                return self._mnemonic(word, tail)
            rest = tail.strip()
        return True

    def _raw_bytes(self, text: str) -> bool:
        for part in text.split(","):
            number = _integer(part)
            if number is None:
                return False
            self.bytes.append(number)
        return True

    def _raw(self) -> bool:
        """Take the raw bytes as an instruction of their own."""
        name = _RAW.get(tuple(self.bytes))
        if name in _FENCES:
            self.plan.steps.append(AsmStep("fence", _FENCES[name]))
        return name is not None

    def _mnemonic(self, word: str, tail: str) -> bool:
        if self.bytes and tuple(self.bytes) not in _PREFIX_BYTES:
            if not self._raw():
                return False
            self.bytes = []
        locked = self.locked or self.bytes == [0xF0]
        instruction = _Instruction(word, _operands(tail), self.bytes == [0x66], locked, self.repeated)
        self.bytes, self.locked, self.repeated = [], False, False
        for rule in self._RULES:
            known = rule(self, instruction)
            if known is not None:
                return known or not self.writes
        return not self.writes

    # Each rule adds the hooks of its instructions. It returns whether the effect on memory is known, None if the
    # instruction is not one of its own.

    def _fence(self, instruction: _Instruction) -> bool | None:
        if instruction.word not in _FENCES:
            return None
        self.plan.steps.append(AsmStep("fence", _FENCES[instruction.word]))
        return True

    def _flush(self, instruction: _Instruction) -> bool | None:
        name = _WITH_SIZE_PREFIX.get(instruction.word, instruction.word) if instruction.wide else instruction.word
        if name not in _FLUSHES:
            return None
        memory = _memory(self.call, instruction.operands[0]) if len(instruction.operands) == 1 else None
        if memory is None:
            return False
        self.plan.steps.append(AsmStep("flush", _FLUSHES[name], memory[0]))
        return True

    def _harmless(self, instruction: _Instruction) -> bool | None:
        directive = instruction.word.startswith(".") and instruction.word not in (".byte", ".long", ".quad")
        return True if directive or _HARMLESS.fullmatch(instruction.word) else None

    def _atomic(self, instruction: _Instruction) -> bool | None:
        exchange, lockable = _XCHG.match(instruction.word), _LOCKABLE.match(instruction.word)
        found = exchange or (lockable if instruction.locked else None)
        text = next((text for text in instruction.operands if _is_memory(self.call, text)), None)
        if found is None or text is None:
            return not instruction.locked if exchange or instruction.locked else None
        if _STACK.fullmatch(text.strip()):
            self.plan.steps.append(AsmStep("locked-local"))  # the idiom of a cheap full fence
            return True
        memory = _memory(self.call, text)
        if memory is None:
            return False
        wide = lockable.group(2) if lockable else None
        size = int(wide) if wide else _size(self.call, found.group(1), instruction.operands, memory[1])
        return self._writes(AsmStep("locked", 0, *memory, size, conditional=instruction.word.startswith("cmpxchg")))

    def _movdir64b(self, instruction: _Instruction) -> bool | None:
        if instruction.word != "movdir64b" or len(instruction.operands) != 2:
            return None
        destination, source = (
            _reference(self.call, instruction.operands[1]),
            _memory(self.call, instruction.operands[0]),
        )
        if destination is None or destination.argument is None or source is None:
            return False
        self.plan.steps.append(AsmStep("movdir64b", hooks.STORE_NT, destination.argument, "", 64, source[0]))
        return True

    def _string(self, instruction: _Instruction) -> bool | None:
        if not re.fullmatch(r"(?:movs|stos)[bwlq]", instruction.word):
            return None
        copies = instruction.word.startswith("movs")
        found = [_register(self.call, name) for name in ("rdi", "rcx", "rsi" if copies else "rax")]
        target, count, source = (place.argument if place is not None else None for place in found)
        if not instruction.repeated or target is None or count is None or source is None:
            return False
        size = _SUFFIX[instruction.word[-1]]
        self.plan.steps.append(AsmStep("copy" if copies else "fill", 0, target, "", size, source, count))
        return True

    def _no_destination(self, instruction: _Instruction) -> bool | None:
        """No memory operand last: nothing is written, unless the instruction is one that we do not know."""
        if instruction.operands and _is_memory(self.call, instruction.operands[-1]):
            return None
        return bool(
            _MOVE.match(instruction.word) or instruction.word in _VECTOR_MOVE or _TO_REGISTER.match(instruction.word)
        )

    def _store(self, instruction: _Instruction) -> bool | None:
        memory = _memory(self.call, instruction.operands[-1])
        if memory is None:
            return False
        flags, size = 0, 0
        if instruction.plain_word in _NT:
            flags = hooks.STORE_NT
            size = _NT[instruction.plain_word] or _size(self.call, None, instruction.operands[:1], memory[1])
            size = _vector_size(self.call, instruction.operands, size)
        elif instruction.plain_word in _VECTOR_MOVE:
            size = _VECTOR_MOVE[instruction.plain_word]
            size = _vector_size(self.call, instruction.operands, size) if size == 16 else size
        elif found := _MOVE.match(instruction.word):
            size = (
                1
                if instruction.word.startswith("set")
                else _size(self.call, found.group(1), instruction.operands[:-1], memory[1])
            )
        return self._writes(AsmStep("store", flags, *memory, size))

    def _writes(self, step: AsmStep) -> bool:
        """Add a step that writes to its address, if its size is known."""
        if not step.size or step.address is None:
            return False
        self.plan.steps.append(step)
        self.plan.targets.append(step.address.value)
        return True

    _RULES = (_fence, _flush, _harmless, _atomic, _movdir64b, _string, _no_destination, _store)


def _integer(text: str) -> int | None:
    try:
        return int(text.strip().lstrip("$"), 0)
    except ValueError:
        return None


def _operands(text: str) -> list[str]:
    return split_commas(text.strip()) if text.strip() else []


def _reference(call: AsmCall, text: str) -> AsmOperand | None:
    found = re.fullmatch(r"\$\{?(\d+)(?::\w)?\}?", text.strip())
    if found is None or int(found.group(1)) >= len(call.operands):
        return None
    return call.operands[int(found.group(1))]


def _register(call: AsmCall, name: str) -> AsmOperand | None:
    """The operand that lives in a hardware register: `{di}`."""
    wanted = re.sub(r"^[re]", "", name.lstrip("%"))
    for slot in call.operands:
        if slot.constraint.strip("=&+") == "{" + wanted + "}":
            found = _input_of(call, slot)
            if found is not None:
                return found
    return None


def _input_of(call: AsmCall, slot: AsmOperand) -> AsmOperand | None:
    """The operand that holds a register's value at the start: itself, or the input that is tied to an output."""
    if slot.argument is not None:
        return slot
    index = str(call.operands.index(slot))
    return next((other for other in call.operands if other.constraint == index), None)


def _memory(call: AsmCall, text: str) -> tuple[Operand, str] | None:
    """Address and element type of a memory operand; None if it is none or its address is not plain."""
    found = re.fullmatch(r"(?:0)?\(\s*(\$\{?\d+(?::\w)?\}?|%+[a-z0-9]+)\s*\)", text.strip())
    if found is not None:
        name = found.group(1)
        slot = _reference(call, name) if name.startswith("$") else _register(call, name)
        slot = _input_of(call, slot) if slot is not None else None
        return (slot.argument, "") if slot is not None and slot.argument is not None else None
    slot = _reference(call, text)
    if slot is None or slot.argument is None:
        return None
    is_address = "*" in slot.constraint or slot.constraint in ("p", "m") or re.search(r"\$\{\d+:a\}", text)
    return (slot.argument, slot.element) if is_address else None


def _is_memory(call: AsmCall, text: str) -> bool:
    slot = _reference(call, text)
    return "(" in text or (slot is not None and "*" in slot.constraint)


def _size(call: AsmCall, suffix: str | None, operands: list[str], element: str) -> int:
    """Bytes that an instruction writes: by suffix, else operands, else the type behind its address; 0 if unknown."""
    if suffix:
        return _SUFFIX[suffix]
    for text in operands:
        width = re.search(r"\$\{\d+:([bwkq])\}", text)
        if width:
            return _WIDTH[width.group(1)]
        slot = _reference(call, text)
        if slot is None or slot.argument is None or "*" in slot.constraint:
            continue
        kind = slot.argument.type
        if _is_integer(kind) or (kind == "ptr" and not _is_memory(call, text)):
            return _bytes_of(kind)
    return _bytes_of(element)


def _is_integer(kind: str) -> bool:
    return kind.startswith("i") and kind[1:].isdigit()


def _bytes_of(kind: str) -> int:
    """The size of a pointer or an integer type; 0 for others."""
    if kind == "ptr":
        return 8
    return int(kind[1:]) // 8 if _is_integer(kind) else 0


def _vector_size(call: AsmCall, operands: list[str], size: int) -> int:
    """ymm and zmm operands, written out or chosen by the compiler."""
    found = re.search(r"%+([xyz])mm\d", operands[0])
    if found:
        return _WIDE[found.group(1)]
    slot = _reference(call, operands[0])
    if slot is not None and slot.argument is not None and slot.argument.type.startswith("<"):
        return Types({}).store_size(slot.argument.type) or size
    return size
