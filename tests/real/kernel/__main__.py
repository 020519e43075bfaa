"""`make validate-ext4`: boots Debian's kernel in QEMU and compares the models of ext4 with what real crashes leave.

Ends with 1 if a state was reached that a model forbids. VALIDATE_ARGS="--write" writes docs/compared-with-a-kernel.md.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path

from kernel.comparison import MOUNTS, Compared, Comparison, compare, kept_by

PAGE = Path(__file__).resolve().parents[3] / "docs" / "compared-with-a-kernel.md"
_ABOUT = """# Compared with a real kernel

This page shows which crash states a real ext4 left of each litmus test, and how many more the models allow.
`make validate-ext4 VALIDATE_ARGS=--write` measures it, prints also the states that were not seen, and writes this page.

1. Debian's kernel runs in QEMU, without root. Each litmus test of `tests/support/litmus/file_systems.py` is run under
   many schedules: between its calls, chosen pages are written back, the journal is committed by an fsync of another
   file, or another process commits it all the time.
2. QEMU logs the disk's writes. At each flush the log is cut: any subset of the blocks written since the flush before
   may have survived (at most 256 subsets per cut).
3. The journal is replayed, and the folder is read. A state that the model forbids fails the command. A state that was
   not seen forbids nothing.

`o` is old content, `n` new, `0` zeros, `E` an empty file, `/` a directory, `x` what the disk held before;
`4096*n` is a content of 4,096 bytes `n`.

The models keep states that no run showed for these reasons, with the rules of
[file-systems.md](file-systems.md#what-may-survive):

| reason | source |
| --- | --- |
| seen on another kernel or mount | the same method on kernels 6.12 and 6.18; the litmus test lists it |
| zeros in a block (rules 2, 3) | a size may persist before the data, whose blocks are unwritten extents until then (`ext4_convert_unwritten_extents`, fs/ext4/extents.c), or holes |
| a size at a block boundary (rule 2) | write-back maps a range in parts, and sets the size for each (`mpage_map_and_submit_extent`, fs/ext4/inode.c) |
| a size that joins the journal late (rule 2) | blocks are allocated when pages are written back, at any time after the write (delayed allocation, fs/ext4/inode.c) |
| old bytes of the disk (rule 8) | Documentation/admin-guide/ext4.rst on `data=writeback` |
| calls in part (rule 1) | punching and zeroing free one extent after the other, each in a transaction that may be the last (`ext4_ext_remove_space`, fs/ext4/extents.c); here the file has one extent |
"""  # noqa: E501 -- tables have long lines


def main() -> int:
    parser = argparse.ArgumentParser(prog="make validate-ext4", description=__doc__)
    parser.add_argument("--model", action="append", choices=sorted(MOUNTS), help="compare only this model")
    parser.add_argument("--schedules", type=int, default=20, help="of each litmus test (default: 20)")
    parser.add_argument("--seed", type=int, default=1, help="of the schedules and the cuts (default: 1)")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}, or the sections of --model")
    args = parser.parse_args()
    done = []
    for model in args.model or MOUNTS:
        with tempfile.TemporaryDirectory(prefix="crashcheck-kernel-") as folder:
            done.append(compare(model, args.schedules, args.seed, Path(folder)))
        print("\n".join(section(done[-1], _listed)), flush=True)
    if args.write:
        write(done)
    forbidden = [(one.model, program) for one in done for program in one.programs if program.forbidden]
    for model, program in forbidden:
        print(f"{model}: {program.litmus.name} reached {program.forbidden}", file=sys.stderr)
    return 1 if forbidden else 0


def write(done: list[Comparison]) -> None:
    """Write the page; sections of models that were not compared now remain."""
    known = PAGE.read_text(encoding="utf-8").split("\n## ")[1:] if PAGE.exists() else []
    sections = {part.split("`")[1]: f"## {part.rstrip()}\n" for part in known}
    sections |= {one.model: "\n".join(section(one, _counted)) for one in done}
    parts = [_ABOUT, *(sections[model] for model in MOUNTS if model in sections)]
    PAGE.write_text("\n".join(parts), encoding="utf-8")


def section(one: Comparison, shown: Callable[[Sequence[str]], str]) -> Iterator[str]:
    """The table of one model; `shown` is how it names states that were not seen, for one reason."""
    images = sum(program.images for program in one.programs)
    options = f"mounted with `{MOUNTS[one.model]}`" if MOUNTS[one.model] else "mounted with the defaults"
    yield f"## `{one.model}`\n"
    runs, forbidden = one.schedules * len(one.programs), sum(len(program.forbidden) for program in one.programs)
    yield f"Kernel {one.kernel}, {options}: {len(one.programs)} tests, {runs} schedules, {images:,} crash images,"
    yield f"{forbidden} forbidden states.\n"
    yield "| litmus test | rule | images | seen | allowed, not seen |"
    yield "| --- | --- | --- | --- | --- |"
    for program in one.programs:
        seen = [f"**forbidden: `{state}`**" for state in program.forbidden]
        seen += [f"`{state}`" for state in sorted(program.seen) if state in program.allowed]
        cells = (
            program.litmus.name,
            program.litmus.rule,
            f"{program.images:,}",
            ", ".join(seen),
            _unseen(program, one, shown),
        )
        yield f"| {' | '.join(cells)} |"
    yield ""


def _unseen(program: Compared, one: Comparison, shown: Callable[[Sequence[str]], str]) -> str:
    reasons = sorted((kept_by(program.litmus, one.model, state), state) for state in program.unseen)
    return "; ".join(
        f"{reason}: {shown([state for _, state in states])}"
        for reason, states in groupby(reasons, key=lambda pair: pair[0])
    )


def _listed(states: Sequence[str]) -> str:
    return ", ".join(f"`{state}`" for state in states)


def _counted(states: Sequence[str]) -> str:
    return str(len(states))


if __name__ == "__main__":
    sys.exit(main())
