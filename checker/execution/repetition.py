"""Whether a process repeats itself for ever: its whole state is what it was, with nothing from outside in between.

It is stopped, and executes one instruction after another until its registers and its memory are what they were. As no
instruction in between was a system call or read a clock, and nobody else writes to its memory, the same follows for
ever. A loop that counts, or waits for a moment, is no repetition.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import groupby

STEPS = 16_000  # instructions that are executed at most; some 20 µs each
_MOST_BYTES = 256 << 20  # of memory that is read, for all comparisons
_SPARSE = 64  # as costly as reading a byte: so many bytes of a mapping, which need not be there
_PART_BYTES = 1 << 20  # that is read at a time
_PAGE_BYTES = os.sysconf("SC_PAGESIZE")
_PRESENT_LEAST = 1 << 62  # an entry of pagemap with one of its two upper bits: in memory, or swapped out

_SINGLESTEP, _GETREGS, _DETACH, _GETREGSET, _SEIZE, _INTERRUPT = 9, 12, 17, 0x4204, 0x4206, 0x4207  # ptrace(2)
_XSTATE, _XSTATE_BYTES = 0x202, 16 << 10  # the registers beside the usual
_ALL_CHILDREN = 0x40000000  # __WALL of wait(2)
_REGISTERS_BYTES, _RIP, _RSP = 27 * 8, slice(16 * 8, 17 * 8), slice(19 * 8, 20 * 8)  # of user_regs_struct
_INSTRUCTION_BYTES = 15
# syscall, sysenter, int; rdtsc, rdtscp, rdpmc; rdrand, rdseed, rdpid: what they leave may differ each time. And pushf,
# which would keep the flag that stops the process after each instruction.
_FROM_OUTSIDE = re.compile(
    rb"[\x66\xf2\xf3\x40-\x4f]*(?:\x0f[\x05\x34\x31\x33]|\xcd|\x9c|\x0f\x01\xf9|\x0f\xc7[\xf0-\xff])"
)

_libc = ctypes.CDLL(None)
_ptrace = _libc.ptrace
_ptrace.restype = ctypes.c_long
_ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)


class _Unknown(Exception):
    """Something else than one instruction happened; the argument is the signal that stopped the process, or 0."""


def repeats(pid: int, steps: int = STEPS) -> bool:
    """Whether a process, of one thread, whose memory nobody else writes to, repeats itself for ever.

    It then continues, and its end is left to be waited for. False where that is not known: more memory or steps
    would be needed, or the process may not be traced.
    """
    if _ptrace(_SEIZE, pid, None, None):
        return False
    got = 0
    try:
        if _ptrace(_INTERRUPT, pid, None, None):
            return False
        got = _stop(pid)
        if got == signal.SIGTRAP:  # not a signal of its own, which it must get
            got = 0
            with _beside(pid), open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
                return _comes_again(_Stopped(pid, memory.fileno()), steps)
    except _Unknown as unknown:
        (got,) = unknown.args
    except OSError:  # what /proc does not show
        pass
    finally:
        _ptrace(_DETACH, pid, None, got)
    return False


@contextmanager
def _beside(pid: int) -> Iterator[None]:
    """Let a process and this one share a processor: to wake another one for each instruction takes four times as
    long."""
    before = {one: os.sched_getaffinity(one) for one in (0, pid)}
    try:
        for one in before:
            os.sched_setaffinity(one, {_libc.sched_getcpu()})
        yield
    finally:
        for one, processors in before.items():
            with suppress(ProcessLookupError):
                os.sched_setaffinity(one, processors)


def _comes_again(process: _Stopped, steps: int) -> bool:
    """Brent's search for a cycle: the state is compared with that after 1, 2, 4, 8, … steps."""
    before: tuple[bytes, bytes, bytes] | None = None
    registers = process.registers()
    for step in range(1, steps):
        registers = process.step(registers)
        if step & (step - 1) == 0:
            before = registers, process.near(registers), process.memory()
        elif before is not None and registers == before[0] and process.near(registers) == before[1]:
            memory = process.memory()
            if memory == before[2]:
                return True
    return False


class _Stopped:
    """A process that is stopped, and executes one instruction at a time. All raise _Unknown."""

    def __init__(self, pid: int, memory: int) -> None:
        self._pid = pid
        self._memory = memory
        with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
            mapped = [line.split() for line in maps]
        self._writable = [words[0] for words in mapped if "w" in words[1]]
        self._clocks = [_addresses(words[0]) for words in mapped if words[-1] in ("[vdso]", "[vsyscall]")]
        self._checked: set[int] = set()  # addresses of instructions
        self._left_bytes = _MOST_BYTES

    def step(self, registers: bytes) -> bytes:
        """The registers after the next instruction; `registers`: those before it."""
        at = int.from_bytes(registers[_RIP], "little")
        if at not in self._checked:
            from_outside = _FROM_OUTSIDE.match(os.pread(self._memory, _INSTRUCTION_BYTES, at))
            if from_outside or any(low <= at < high for low, high in self._clocks):
                raise _Unknown(0)
            self._checked.add(at)
        if _ptrace(_SINGLESTEP, self._pid, None, None):
            raise _Unknown(0)
        got = _stop(self._pid)
        if got != signal.SIGTRAP:
            raise _Unknown(got)
        return self.registers()

    def registers(self) -> bytes:
        held = ctypes.create_string_buffer(_REGISTERS_BYTES)
        if _ptrace(_GETREGS, self._pid, None, ctypes.addressof(held)):
            raise _Unknown(0)
        return held.raw

    def near(self, registers: bytes) -> bytes:
        """The registers beside the usual, and the page of the stack: what else differs most often."""
        area = ctypes.create_string_buffer(_XSTATE_BYTES)
        buffer = _Buffer(ctypes.addressof(area), _XSTATE_BYTES)
        if _ptrace(_GETREGSET, self._pid, _XSTATE, ctypes.addressof(buffer)):
            raise _Unknown(0)
        stack = int.from_bytes(registers[_RSP], "little")
        return area.raw + os.pread(self._memory, _PAGE_BYTES, stack // _PAGE_BYTES * _PAGE_BYTES)

    def memory(self) -> bytes:
        """A digest of what may change: of each mapping, which of its pages are there, and what they hold."""
        digest = hashlib.blake2b()
        with open(f"/proc/{self._pid}/pagemap", "rb", buffering=0) as pagemap:
            for words in self._writable:
                low, high = _addresses(words)
                self._allow((high - low) // _SPARSE)
                pages = os.pread(pagemap.fileno(), (high - low) // _PAGE_BYTES * 8, low // _PAGE_BYTES * 8)
                present = bytes(entry >= _PRESENT_LEAST for entry in memoryview(pages).cast("Q"))
                self._allow(sum(present) * _PAGE_BYTES)
                digest.update(present)
                for held in self._pages(low, present):
                    digest.update(held)
        return digest.digest()

    def _allow(self, read_bytes: int) -> None:
        self._left_bytes -= read_bytes
        if self._left_bytes < 0:
            raise _Unknown(0)

    def _pages(self, at: int, present: bytes) -> Iterator[bytes]:
        """The pages of a mapping that are there, so many at a time that they need little memory here."""
        for there, pages in groupby(present):
            end = at + sum(1 for _ in pages) * _PAGE_BYTES
            for part in range(at, end if there else at, _PART_BYTES):
                yield os.pread(self._memory, min(_PART_BYTES, end - part), part)
            at = end


def _stop(pid: int) -> int:
    """Wait until a traced process stops: the signal for which it did, 0 if it has ended."""
    found = os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT | _ALL_CHILDREN)
    return 0 if found is None or found.si_code != os.CLD_TRAPPED else found.si_status & 0xFF


class _Buffer(ctypes.Structure):
    """struct iovec."""

    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))


def _addresses(words: str) -> tuple[int, int]:
    low, high = words.split("-")
    return int(low, 16), int(high, 16)
