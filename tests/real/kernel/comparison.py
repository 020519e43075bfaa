"""What real crashes left of each litmus program, held to what a model allows."""

from __future__ import annotations

import itertools
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from crashcheck.analyzer.persistence.graph import STALE_BYTE
from kernel import machine
from kernel.disk_log import Disk, crashes
from kernel.ext4_image import Folder
from kernel.schedules import script
from support.folders import Recorded
from support.litmus.file_systems import LITMUS, Litmus

# How ext4 is mounted, and the model of that.
MOUNTS = {"ext4": "", "ext4-strict": "dioread_lock", "ext4-writeback": "data=writeback"}
# Why a model allows a state that no run showed.
SEEN_ELSEWHERE = "seen on another kernel or mount"
ZEROS = "zeros in a block"
BLOCK_BOUNDARY = "a size at a block boundary"
LATE_SIZE = "a size that joins the journal late"
OLD_BYTES = "old bytes of the disk"
IN_PART = "calls in part"
TWO_STEPS = "a truncation's size without its block"


@dataclass(frozen=True, slots=True)
class Compared:
    """One litmus program under one model."""

    litmus: Litmus
    model: str
    images: int  # crash images, also equal ones
    seen: Counter[str]
    allowed: frozenset[str]

    @property
    def forbidden(self) -> list[str]:
        """States that were reached although the model has none of them, and that are no known gap."""
        return sorted(set(self.seen) - self.allowed - set(self.missing))

    @property
    def missing(self) -> tuple[str, ...]:
        """States that the model is known to lack."""
        return self.litmus.missing.get(self.model, ())

    @property
    def unseen(self) -> list[str]:
        """States that the model allows and no run showed."""
        return sorted(self.allowed - set(self.seen))


@dataclass(slots=True)
class Comparison:
    model: str
    kernel: str
    schedules: int
    programs: list[Compared] = field(default_factory=list)


def compare(model: str, schedules: int, seed: int, folder: Path, programs: list[Litmus] | None = None) -> Comparison:
    """Boot once, run each program under so many schedules, and read every crash image. Raises Unavailable."""
    programs = list(LITMUS) if programs is None else programs
    folder.mkdir(parents=True, exist_ok=True)
    machine.make_disk(folder / "disk.img")
    disk = Disk.of(bytearray((folder / "disk.img").read_bytes()))
    runs, lines = script(programs, schedules, seed)
    log = machine.boot(folder, lines, MOUNTS.get(model, ""))
    by_folder = {run.folder: run.litmus for run in runs}
    seen: dict[str, Counter[str]] = {litmus.name: Counter() for litmus in programs}
    for crash in crashes(disk, log, machine.DISK_BYTES // machine.BLOCK - 1, seed):
        litmus = by_folder[crash.folder]
        if crash.acknowledged or not litmus.since:
            seen[litmus.name][text(litmus, disk.layout.folder(crash.view, crash.folder))] += 1
    compared = [
        Compared(litmus, model, seen[litmus.name].total(), seen[litmus.name], allowed(litmus, model))
        for litmus in programs
    ]
    return Comparison(model, machine.version(machine.kernel()), schedules, compared)


def allowed(litmus: Litmus, model: str) -> frozenset[str]:
    with tempfile.TemporaryDirectory() as folder:
        run = Recorded(Path(folder), litmus.program, litmus.first, model)
        return frozenset(text(litmus, found) for found in run.folders(litmus.since))


def text(litmus: Litmus, folder: Folder) -> str:
    """A state as the litmus test names it; a content that it has no name for by the lengths of equal bytes."""
    names = {content: name for name, content in litmus.contents.items()} | {b"": "E"}
    shown = {path: "/" if data is None else names.get(data) or _lengths(data) for path, data in folder.items()}
    return " ".join(f"{path}={shown[path]}" for path in sorted(shown)) or "nothing"


def _lengths(data: bytes) -> str:
    lengths = ((byte, len(list(equal))) for byte, equal in itertools.groupby(data))
    return "+".join(f"{many}*{_SHOWN.get(byte, chr(byte))}" for byte, many in lengths)


_SHOWN = {0: "0", STALE_BYTE: "x"}


def kept_by(litmus: Litmus, model: str, state: str) -> str:
    """Why a model allows a state that no run showed: seen elsewhere, or the rule of docs/file-systems.md."""
    if "*x" in state:
        return OLD_BYTES
    seen = litmus.strict if model == "ext4-strict" else litmus.default
    if state in seen or (state == "nothing" and "" in seen):
        return SEEN_ELSEWHERE
    if litmus.rule == "1" and "punch" not in litmus.name and "zeroed" not in litmus.name:
        return TWO_STEPS
    if litmus.rule == "1":
        return IN_PART
    contents = [part.partition("=")[2] for part in state.split()]
    if any(part in ("0", "00") or part.endswith("*0") for content in contents for part in content.split("+")):
        return ZEROS
    if any("*" in content for content in contents):
        return BLOCK_BOUNDARY
    return LATE_SIZE if "E" in contents else f"rule {litmus.rule}"
