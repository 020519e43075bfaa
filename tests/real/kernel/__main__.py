"""`make validate-ext4`: boots Debian's kernel in QEMU and compares the models of ext4 with what real crashes leave.

Ends with 1 if a state was reached that a model forbids. VALIDATE_ARGS="--write" writes the last section of
docs/file-systems.md.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from kernel.comparison import (
    BLOCK_BOUNDARY,
    IN_PART,
    LATE_SIZE,
    MOUNTS,
    OLD_BYTES,
    SEEN_ELSEWHERE,
    TWO_STEPS,
    ZEROS,
    Comparison,
    compare,
    kept_by,
)

PAGE = Path(__file__).resolve().parents[3] / "docs" / "file-systems.md"
_HEADING = "## Compared with a real kernel\n"
_ABOUT = """
`make validate-ext4` compares the ext4 models with Debian's kernel in QEMU, without root. It prints each state, fails if
the kernel leaves one that a model forbids, and writes this section with `VALIDATE_ARGS=--write`.

1. Each litmus test of `tests/support/litmus/file_systems.py` is run under many schedules: between calls, chosen pages
   are written back, and the journal is committed by an fsync of another file, or all the time by another process.
2. QEMU logs the disk's writes. At each flush any subset of the blocks written since the flush before may have survived
   (at most 256 subsets are tried).
3. The journal is replayed, and the folder is read. A state that was not seen forbids nothing.
"""
# Why a model allows a state that no run showed (`kept_by`), with the rules of docs/file-systems.md.
_SOURCES = {
    SEEN_ELSEWHERE: "the same method on kernels 6.12 and 6.18, or with more schedules; the litmus test lists it",
    ZEROS: "until the data persist, blocks are unwritten extents (`ext4_convert_unwritten_extents`, fs/ext4/extents.c) "
    "or holes (rules 2, 3)",
    BLOCK_BOUNDARY: "write-back sets the size for each part of a range (`mpage_map_and_submit_extent`, "
    "fs/ext4/inode.c; rule 2)",
    LATE_SIZE: "delayed allocation: blocks are allocated when pages are written back (fs/ext4/inode.c; rule 2)",
    OLD_BYTES: "Documentation/admin-guide/ext4.rst on `data=writeback` (rule 8)",
    IN_PART: "extents are freed one by one, each in a transaction of its own (`ext4_ext_remove_space`, "
    "fs/ext4/extents.c); here the file has one (rule 1)",
    TWO_STEPS: "the size is set in one transaction (`ext4_setattr`), its last block is zeroed in that or the next "
    "(`ext4_truncate`, fs/ext4/inode.c; rule 1)",
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="make validate-ext4", description=__doc__)
    parser.add_argument("--model", action="append", choices=sorted(MOUNTS), help="compare only this model")
    parser.add_argument("--schedules", type=int, default=20, help="of each litmus test (default: 20)")
    parser.add_argument("--seed", type=int, default=1, help="of the schedules and the cuts (default: 1)")
    parser.add_argument("--write", action="store_true", help=f"write the last section of {PAGE.name}")
    args = parser.parse_args()
    if args.write and args.model:
        parser.error("--write needs all models")
    done = []
    for model in args.model or MOUNTS:
        with tempfile.TemporaryDirectory(prefix="crashcheck-kernel-") as folder:
            done.append(compare(model, args.schedules, args.seed, Path(folder)))
        print("\n".join(states(done[-1])), flush=True)
    if args.write:
        write(done)
    forbidden = [(one.model, program) for one in done for program in one.programs if program.forbidden]
    for model, program in forbidden:
        print(f"{model}: {program.litmus.name} reached {program.forbidden}", file=sys.stderr)
    return 1 if forbidden else 0


def write(done: Sequence[Comparison], page: Path = PAGE) -> None:
    """Write the last section of a page again."""
    before, heading, _ = page.read_text(encoding="utf-8").partition(_HEADING)
    page.write_text(before + heading + "\n".join(section(done)) + "\n", encoding="utf-8")


def section(done: Sequence[Comparison]) -> Iterator[str]:
    """What was compared, how many states of each litmus test were seen, and why the others are allowed."""
    yield _ABOUT
    yield "| model | kernel | mounted with | schedules | crash images | forbidden states |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for one in done:
        images = sum(program.images for program in one.programs)
        mount, forbidden = MOUNTS[one.model] or "defaults", sum(len(program.forbidden) for program in one.programs)
        runs = one.schedules * len(one.programs)
        yield f"| `{one.model}` | {one.kernel} | {mount} | {runs} | {images:,} | {forbidden} |"
    models = [f"`{one.model}`" for one in done]
    yield f"\nLitmus tests, and how many of the allowed states were seen under {', '.join(models)}:\n"
    yield "| rule | litmus tests |"
    yield "| --- | --- |"
    for rule, counts in sorted(_seen(done).items(), key=lambda each: int(each[0])):
        yield f"| {rule} | {', '.join(counts)} |"
    yield "\nStates that were not seen, and why the model allows them:\n"
    yield f"| reason | {' | '.join(models)} | source |"
    yield f"| --- |{' --- |' * len(done)} --- |"
    reasons = [
        Counter(kept_by(each.litmus, one.model, state) for each in one.programs for state in each.unseen)
        for one in done
    ]
    for reason in dict.fromkeys([*_SOURCES, *(reason for of in reasons for reason in of)]):
        numbers = [str(of[reason]) for of in reasons]
        yield f"| {reason} | {' | '.join(numbers)} | {_SOURCES.get(reason, 'the rule')} |"
    yield "\nStates that a model lacks, although the kernel leaves them (crashes that are missed):\n"
    for each in (program for one in done for program in one.programs):
        for state in each.missing:
            seen = "seen" if each.seen[state] else "not seen here"
            yield f"* `{each.model}`, {each.litmus.name}: `{state}`, {seen}"


def _seen(done: Sequence[Comparison]) -> dict[str, list[str]]:
    """By rule, each litmus test with the states that were seen of those that each model allows."""
    by_rule: dict[str, list[str]] = {}
    for programs in zip(*(one.programs for one in done), strict=True):
        counts = [f"{len(one.allowed) - len(one.unseen)}/{len(one.allowed)}" for one in programs]
        litmus = programs[0].litmus
        by_rule.setdefault(litmus.rule, []).append(f"`{litmus.name}` {' '.join(counts)}")
    return by_rule


def states(one: Comparison) -> Iterator[str]:
    """Each state of one model: forbidden ones, those that were seen, and those that were not, with the reason."""
    yield f"{one.model}:"
    for program in one.programs:
        yield f"  {program.litmus.name}, rule {program.litmus.rule}, {program.images:,} images"
        yield from (f"    forbidden: {state}" for state in program.forbidden)
        yield from (f"    known to be missing: {state}" for state in program.missing)
        yield from (f"    seen: {state}" for state in sorted(program.seen) if state in program.allowed)
        yield from (f"    not seen: {state} ({kept_by(program.litmus, one.model, state)})" for state in program.unseen)


if __name__ == "__main__":
    sys.exit(main())
