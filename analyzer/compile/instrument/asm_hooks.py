"""Hooks around inline assembly: what `inline_asm` found in it, reported to the recorder."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from crashcheck.analyzer.compile.instrument.hooks import STORE_BULK
from crashcheck.analyzer.compile.instrument.inline_asm import AsmPlan, AsmStep
from crashcheck.analyzer.compile.ir.text import Operand

if TYPE_CHECKING:
    from crashcheck.analyzer.compile.instrument.emitter import Emitter


def emit_before(emitter: Emitter, line: str, plan: AsmPlan) -> list[Callable[[], None]]:
    """Emit the hooks that precede the assembly; returns those that follow it."""
    after = [_EMIT[step.what](emitter, line, step) for step in plan.steps]
    return [finish for finish in after if finish is not None]


_ZERO = ("0", "zeroinitializer", "null")
_Finish = Callable[[], None] | None  # what is emitted after the assembly


def _emit_fence(emitter: Emitter, line: str, step: AsmStep) -> _Finish:
    emitter.fence(line, step.kind)
    return None


def _emit_locked_local(emitter: Emitter, line: str, step: AsmStep) -> _Finish:
    emitter.locked_elsewhere(line, True)
    return None


def _emit_flush(emitter: Emitter, line: str, step: AsmStep) -> _Finish:
    emitter.flush(line, _as_pointer(emitter, step.address), step.kind)
    return None


def _emit_locked(emitter: Emitter, line: str, step: AsmStep) -> _Finish:
    return emitter.locked_assembly(line, _as_pointer(emitter, step.address), step.size, step.conditional)


def _emit_store(emitter: Emitter, line: str, step: AsmStep) -> _Finish:
    return emitter.assembly_store(line, _as_pointer(emitter, step.address), Operand("i64", str(step.size)), step.kind)


def _emit_movdir64b(emitter: Emitter, line: str, step: AsmStep) -> _Finish:
    pointer = _as_pointer(emitter, step.address)
    emitter.store_from(line, pointer, _as_pointer(emitter, step.source), str(step.size), step.kind)
    return None


def _emit_copy(emitter: Emitter, line: str, step: AsmStep) -> _Finish:
    pointer, count = _as_pointer(emitter, step.address), _byte_count(emitter, step)
    emitter.copy(line, pointer, _as_pointer(emitter, step.source), count)
    return None


def _emit_fill(emitter: Emitter, line: str, step: AsmStep) -> _Finish:
    assert step.source is not None
    pointer, count = _as_pointer(emitter, step.address), _byte_count(emitter, step)
    if step.size > 1 and step.source.value not in _ZERO:
        return emitter.assembly_store(line, pointer, count, STORE_BULK)  # its bytes may differ from one another
    emitter.fill(line, pointer, _as_byte(emitter, step.source), count)
    return None


_EMIT: dict[str, Callable[[Emitter, str, AsmStep], _Finish]] = {
    "fence": _emit_fence,
    "locked-local": _emit_locked_local,
    "flush": _emit_flush,
    "locked": _emit_locked,
    "store": _emit_store,
    "movdir64b": _emit_movdir64b,
    "copy": _emit_copy,
    "fill": _emit_fill,
}


def _byte_count(emitter: Emitter, step: AsmStep) -> Operand:
    """The bytes that a repeated string instruction writes."""
    assert step.count is not None
    count = emitter.wide(_as_integer(emitter, step.count))
    if step.size > 1:
        scaled = emitter.fresh()
        emitter.emit(f"  {scaled} = mul i64 {count}, {step.size}")
        count = scaled
    return Operand("i64", count)


def _as_pointer(emitter: Emitter, value: Operand | None) -> str:
    assert value is not None
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


def _as_byte(emitter: Emitter, value: Operand | None) -> str:
    assert value is not None
    if value.type == "i8":
        return value.value
    if not value.type.startswith("i"):
        return "0"
    name = emitter.fresh()
    emitter.emit(f"  {name} = trunc {value.text} to i8")
    return name
