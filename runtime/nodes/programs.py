"""Refuses a program that no node can run: one for another machine, or none at all."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

from crashcheck.runtime.nodes.actions import NodeError

_ELF, _MACHINE_AT = b"\x7fELF", 18
_X86 = {3: "32-bit x86", 62: "x86-64"}  # one of 32 bits runs, and is named as not controlled
_OTHERS = {
    8: "MIPS",
    20: "PowerPC",
    21: "PowerPC",
    22: "S390",
    40: "ARM",
    183: "AArch64",
    243: "RISC-V",
    258: "LoongArch",
}
_BEGINNING = 256  # bytes in which a script has no 0


def check_program(words: Sequence[str], variables: Mapping[str, str], folder: Path) -> None:
    """Raises NodeError: node-program. What cannot be read is left to whoever executes it."""
    name = words[0]
    path = str(folder / name) if "/" in name else shutil.which(name, path=variables.get("PATH", os.defpath))
    try:
        with open(path or name, "rb") as stream:
            beginning = stream.read(_BEGINNING)
    except OSError:
        return
    if beginning.startswith(_ELF) and len(beginning) > _MACHINE_AT + 2:
        (machine,) = struct.unpack_from("<H" if beginning[5] == 1 else ">H", beginning, _MACHINE_AT)
        if machine not in _X86:
            kind = _OTHERS.get(machine, f"machine {machine} of ELF")
            raise NodeError("node-program", f"{path} is a program for {kind}.", "Build it for x86-64 Linux.")
    elif b"\0" in beginning:
        raise NodeError(
            "node-program", f"{path} is no program.", "A command names an ELF program for x86-64, or a script."
        )
