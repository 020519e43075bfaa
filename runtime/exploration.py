"""Run a check once for many crash images, which differ in a few granules, through the table of `explore.h`.

As Jaaru (ASPLOS 2021) does, the reads of the check after the crash decide what is enumerated; unlike there, two runs
that have reached the same state continue as one.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from crashcheck.command import descriptor

MAGIC = 0x45524F4C50584343
VERSION = 4
MOST_GRANULES = 64
MOST_BYTES = 4096  # of a granule
UNTOUCHED = 0xFFFF
_TABLE = struct.Struct("<Q12I8Q")
_GRANULE = struct.Struct("<QQQIIQ")
_OUTPUT = struct.Struct("<iIQQ")
_SIZE = struct.Struct("<Q")
_NODE_BYTES = 16
_END = struct.Struct(f"<iIQ{MOST_GRANULES}H")
MOST_ENDS = 1 << 12
_NODES_AN_END = 8  # of which half are used
_OUTPUT_ROOM = 64 << 20

# The kernel's list of system calls, as Debian and as others place it.
CALL_LISTS = (Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"), Path("/usr/include/asm/unistd_64.h"))

SETUP, CALL, FILE_READ, MAPPED_AGAIN, PASSED, UNLISTED, ROOM, INSTRUCTION, DIED, IN_PART, LARGE, WRITTEN = range(1, 13)
_COUNTED = 1, 4  # details of ROOM: ends, states
_WHY = {
    SETUP: "the kernel does not let it be explored (step {}): Linux must allow seccomp filters",
    CALL: "it makes a system call that is not followed ({call}): {avoid}",
    FILE_READ: "it changes the file by a system call ({call}): change it through the mapping, or use --no-explore",
    MAPPED_AGAIN: "it maps the file more than once: map it once, and let it stay mapped",
    PASSED: "it passes memory of the file to a system call ({call}): copy it to other memory first",
    UNLISTED: "what may be lost of a line or page is too much to be listed",
    ROOM: "it comes into too many different states, or writes more than 4 MiB (limit {})",
    INSTRUCTION: "an instruction reads more than one stretch of memory: compile it without gathers and scatters",
    IN_PART: "it maps only a part of what may be lost together: map the whole file",
    LARGE: "it maps more than 512 MiB: use a smaller pool",
    DIED: "one of its processes was ended (status {})",
    WRITTEN: "it uses a file that it wrote to in a way that is not followed ({call}): let it only write and read that",
}
_PROCESSES = ("clone", "clone3", "fork", "vfork", "execve", "execveat", "wait4", "pipe", "pipe2")
_NETWORK = ("socket", "socketpair", "connect", "bind", "accept4")
_NAMES = ("unlink", "unlinkat", "rename", "renameat", "renameat2", "mkdir", "mkdirat", "rmdir", "link", "symlink")
_AVOID = {
    **dict.fromkeys(_PROCESSES, "let it run in one process and one thread"),
    **dict.fromkeys(_NETWORK, "let it use no network"),
    **dict.fromkeys(_NAMES, "let it leave names as they are ([check] outputs are removed before each run)"),
}


@cache
def _calls(listed: Path) -> dict[int, str]:
    text = listed.read_text(encoding="ascii", errors="replace")
    return {int(number): name for name, number in re.findall(r"^#define __NR_(\w+)\s+(\d+)$", text, re.MULTILINE)}


def call_name(number: int, lists: Sequence[Path] = CALL_LISTS) -> str:
    """A system call by its name, if the C library's headers are installed, else by its number."""
    listed = next((path for path in lists if path.is_file()), None)
    return (_calls(listed) if listed is not None else {}).get(number, f"number {number}")


@dataclass(frozen=True, slots=True)
class OpenGranule:
    """Bytes of a file that differ from image to image. `contents`: of equal length, each once; none: too many.

    The first of them is what the file holds. `path` is relative to the pool folder.
    """

    path: str
    offset: int
    length: int
    contents: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class End:
    """How the check ended on some images: one of them has these contents. `choices`: an index, None for any content."""

    status: int  # as from wait(2)
    output: bytes  # standard output, and standard error where that leads to the same place
    choices: tuple[int | None, ...]
    compared: tuple[bytes, ...] = ()  # each other output that the table asked for


@dataclass(frozen=True, slots=True)
class Explored:
    """`ends`: of every run that was followed to its end; all images end like one of them unless `why` has a reason.

    `states`: in which the check was about to touch a granule; `merged`: how often it came into one of them again.
    """

    ends: tuple[End, ...]
    states: int
    merged: int
    why: str
    final: bool = False  # another image of the same program would be refused as well
    late: bool = False  # the reason is that its time was over, or that it had more ends than it was allowed
    writers: tuple[int, ...] = ()  # of standard output and each other output: the open files it was written through


TABLE = "CRASHCHECK_EXPLORE"  # the environment variable that names the table's file


def write_table(
    table: Path,
    pool: Path,
    granules: Sequence[OpenGranule],
    *,
    memory_bytes: int | None,
    outputs: Sequence[str] = (),
    merging: bool = True,
    most_ends: int = MOST_ENDS,
) -> None:
    """Write the table of a check that runs on the image in `pool` with each combination of contents.

    At most MOST_GRANULES, ascending in each file and apart. The check's environment has to preload the runtime and to
    name the table. `memory_bytes`: of data, for each run. `outputs`: those that are handed over besides
    standard output, as [check] outputs names them; files among them do not exist yet. `merging`: else two runs that
    reach the same state are followed apart, which only counts them. `most_ends`: more are refused, and four times as
    many states in which a granule is touched.
    """
    if len(granules) > MOST_GRANULES:
        raise ValueError(f"{len(granules)} granules")
    first_granule = _TABLE.size
    first_output = first_granule + _GRANULE.size * len(granules)
    wanted = ("stdout", *outputs)
    at = first_output + _OUTPUT.size * len(wanted)
    rows, contents = [], []
    for granule in granules:
        there = os.stat(pool / granule.path)
        place = there.st_dev, there.st_ino, granule.offset, granule.length
        rows.append(_GRANULE.pack(*place, len(granule.contents), at))
        contents.append(b"".join(granule.contents))
        at += len(contents[-1])
    for output in wanted:
        number = descriptor(output)
        rows.append(_OUTPUT.pack(-1 if number is None else number, 0, at, 0))
        contents.append(output.replace("{pool}", str(pool), 1).encode() + b"\0")
        at += len(contents[-1])
    first_node = -(-at // 16) * 16
    nodes = _NODES_AN_END * most_ends
    first_end = first_node + _NODE_BYTES * nodes
    room = first_end + _END.size * most_ends
    size = room + _OUTPUT_ROOM
    head = _TABLE.pack(
        *(MAGIC, VERSION, len(granules), len(wanted), 0, 0, 0, 0, 0, 0, nodes, most_ends, not merging),
        *(first_granule, first_output, first_node, first_end, room, size, size, memory_bytes or 0),
    )
    with table.open("wb") as file:
        file.write(head + b"".join(rows) + b"".join(contents))
        file.truncate(size)


def _why(refusal: int, detail: int) -> str:
    """Why a check cannot be explored, and how to avoid that; "" if it can."""
    call = call_name(detail)
    avoid = _AVOID.get(call, "let it do without, or use --no-explore")
    return _WHY[refusal].format(detail, call=call, avoid=avoid) if refusal else ""


def read_table(table: Path, granules: int, *, timed_out: bool) -> Explored:
    """What the check has written into its table until it ended, or until its time was over."""
    with table.open("rb") as file:
        head = _TABLE.unpack(file.read(_TABLE.size))
        _, _, _, outputs, done, refusal, detail, states, merged, many, _, allowed, *places = head
        _, _, first_output, _, first_end, *_ = places
        file.seek(first_output)
        writers = tuple(bits.bit_count() for *_, bits in _OUTPUT.iter_unpack(file.read(_OUTPUT.size * outputs)))
        file.seek(first_end)
        rows = list(_END.iter_unpack(file.read(_END.size * many)))
        ends = []
        for status, _, at, *choices in rows:
            file.seek(at)
            output, *compared = (file.read(*_SIZE.unpack(file.read(_SIZE.size))) for _ in range(outputs))
            chosen = tuple(None if choice == UNTOUCHED else choice for choice in choices[:granules])
            ends.append(End(status, output, chosen, tuple(compared)))
    why = _why(refusal, detail)
    if not why and not done:
        why = "its time was over" if timed_out else "the recorder does not run in it"
    final = refusal not in (0, UNLISTED, ROOM) or (not done and not timed_out and not refusal)
    more = refusal == ROOM and detail in _COUNTED and allowed < MOST_ENDS
    late = more or (not refusal and not done and timed_out)
    return Explored(tuple(ends), states, merged, why, final, late, writers)
