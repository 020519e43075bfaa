"""Intrinsics that write, flush or order memory, and the hook of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from crashcheck.analyzer.compile.instrument import hooks
from crashcheck.analyzer.compile.ir.text import Operand
from crashcheck.analyzer.compile.ir.typemap import Target

if TYPE_CHECKING:
    from crashcheck.analyzer.compile.instrument.emitter import Emitter

# (emitter, line, name of the intrinsic, arguments): emits the hooks that precede the call.
Intrinsic = Callable[["Emitter", str, str, list[Operand]], None]


def _copy(emitter: Emitter, line: str, name: str, arguments: list[Operand]) -> None:
    emitter.copy(line, arguments[0].value, arguments[1].value, arguments[2])


def _fill(emitter: Emitter, line: str, name: str, arguments: list[Operand]) -> None:
    emitter.fill(line, arguments[0].value, arguments[1].value, arguments[2])


def _flush(kind: int) -> Intrinsic:
    def emit(emitter: Emitter, line: str, name: str, arguments: list[Operand]) -> None:
        emitter.flush(line, arguments[0].value, kind)

    return emit


def _fence(kind: int) -> Intrinsic:
    def emit(emitter: Emitter, line: str, name: str, arguments: list[Operand]) -> None:
        emitter.fence(line, kind)

    return emit


def _lanes(emitter: Emitter, line: str, value: Operand, pointer: Operand, mask: str, form: str, flags: int) -> None:
    element = emitter.module.types.element(value.type)
    size = None if element is None else emitter.module.types.store_size(element[0])
    if element is None or size is None or (form == "masked" and element[1] * size > hooks.VECTOR_BYTES):
        emitter.unknown(line, f"masked store of {value.type}")
        return
    if form == "scatter":
        target = Target()
    else:
        if emitter.is_local(pointer.value):
            return
        target = emitter.target(pointer.value, element[0], line)
        if target.local:
            return
    site = emitter.site("store", line, target)
    helpers = {
        "masked": emitter.hooks.store_masked,
        "scatter": emitter.hooks.store_scattered,
        "compress": emitter.hooks.store_compressed,
    }
    helper = helpers[form](value.type, element[1], size)
    emitter.hook(
        f"  call void {helper}({value.text}, {pointer.text}, <{element[1]} x i1> {mask}, ptr "
        f"{target.instance}, i32 {site}, "
        f"i32 %cc.depth, i32 {flags})",
        line,
    )


def _masked(form: str) -> Intrinsic:
    def emit(emitter: Emitter, line: str, name: str, arguments: list[Operand]) -> None:
        flags = hooks.STORE_NT if "!nontemporal" in line else 0
        _lanes(emitter, line, arguments[0], arguments[1], arguments[-1].value, form, flags)

    return emit


def _sign_mask(emitter: Emitter, mask: Operand) -> str:
    """x86's masks are the sign bits of a vector."""
    element = emitter.module.types.element(mask.type)
    assert element is not None
    value, kind = mask.value, mask.type
    if not element[0].startswith("i"):
        bits = {"float": "i32", "double": "i64"}[element[0]]
        kind = f"<{element[1]} x {bits}>"
        value = emitter.fresh()
        emitter.emit(f"  {value} = bitcast {mask.text} to {kind}")
    result = emitter.fresh()
    emitter.emit(f"  {result} = icmp slt {kind} {value}, zeroinitializer")
    return result


def _maskmov(emitter: Emitter, line: str, name: str, arguments: list[Operand]) -> None:
    """maskmovdqu: the enabled bytes, non-temporal."""
    value, mask, pointer = arguments
    _lanes(emitter, line, value, pointer, _sign_mask(emitter, mask), "masked", hooks.STORE_NT)


def _maskstore(emitter: Emitter, line: str, name: str, arguments: list[Operand]) -> None:
    pointer, mask, value = arguments
    _lanes(emitter, line, value, pointer, _sign_mask(emitter, mask), "masked", 0)


def _unaligned_load(size: int) -> Intrinsic:
    def emit(emitter: Emitter, line: str, name: str, arguments: list[Operand]) -> None:
        pointer = arguments[0].value
        if not emitter.is_local(pointer):
            emitter.load_hook(line, f"<{size} x i8>", pointer, 0)

    return emit


def _directstore(emitter: Emitter, line: str, name: str, arguments: list[Operand]) -> None:
    """movdiri: one non-temporal word."""
    pointer, value = arguments
    if emitter.is_local(pointer.value):
        return
    target = emitter.target(pointer.value, value.type, line)
    if not target.local:
        emitter.store_hook(line, value.type, value.value, pointer.value, target, hooks.STORE_NT)


def _movdir64b(emitter: Emitter, line: str, name: str, arguments: list[Operand]) -> None:
    pointer, source = arguments
    emitter.store_from(line, pointer.value, source.value, "64", hooks.STORE_NT)


def _state(size: int) -> Intrinsic:
    """An instruction that stores `size` bytes known only after it ran is not followed: it is reported by name."""

    def emit(emitter: Emitter, line: str, name: str, arguments: list[Operand]) -> None:
        if not emitter.is_local(arguments[0].value):
            emitter.unknown(line, f"{name} ({size} bytes)" if size else name)

    return emit


INTRINSICS: dict[str, Intrinsic] = {
    "llvm.memcpy": _copy,
    "llvm.memmove": _copy,
    "llvm.memset": _fill,
    "llvm.masked.store": _masked("masked"),
    "llvm.masked.scatter": _masked("scatter"),
    "llvm.masked.compressstore": _masked("compress"),
    "llvm.x86.sse2.clflush": _flush(hooks.CLFLUSH),
    "llvm.x86.clflushopt": _flush(hooks.CLFLUSHOPT),
    "llvm.x86.clwb": _flush(hooks.CLWB),
    "llvm.x86.sse.sfence": _fence(hooks.SFENCE),
    "llvm.x86.sse2.mfence": _fence(hooks.MFENCE),
    "llvm.x86.sse2.maskmov.dqu": _maskmov,
    "llvm.x86.avx.maskstore": _maskstore,
    "llvm.x86.avx2.maskstore": _maskstore,
    "llvm.x86.sse3.ldu.dq": _unaligned_load(16),
    "llvm.x86.avx.ldu.dq.256": _unaligned_load(32),
    "llvm.x86.directstore32": _directstore,
    "llvm.x86.directstore64": _directstore,
    "llvm.x86.movdir64b": _movdir64b,
    "llvm.x86.sse.stmxcsr": _state(4),
    "llvm.memcpy.element.unordered.atomic": _state(0),
    "llvm.memmove.element.unordered.atomic": _state(0),
    "llvm.memset.element.unordered.atomic": _state(0),
    "llvm.experimental.memset.pattern": _state(0),
    "llvm.vp.store": _state(0),
    "llvm.vp.scatter": _state(0),
}
