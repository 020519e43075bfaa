"""Random programs of stores, flushes, fences and syncs, small enough that all their crash states can be listed."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from support.examples_tried import examples
from support.reference import First, Program

SETTINGS = settings(
    max_examples=examples(40),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


def _data(size: int, value: int) -> bytes:
    return bytes((value + i) % 4 for i in range(size)) if size > 1 else bytes([value % 4])


def _syncs(files: list[str], ranges: list[tuple[int, int]], kinds: list[str]) -> Any:
    file, ranges_ = st.sampled_from(files), st.sampled_from(ranges)
    failed = st.sampled_from([False, False, False, True])
    whole, none = st.just((0, 0)), st.none()

    def of(kind: str) -> Any:
        named = none if kind in ("sync", "dirsync") else file
        place = ranges_ if kind in ("msync", "osync", "odsync") else whole
        return st.builds(lambda file, place, failed: (kind, file, *place, failed), named, place, failed)

    return st.one_of(*map(of, kinds))


def with_syncs(steps: list[Any]) -> Program:
    """Syncs become a begin and an end, with up to two of the following steps in between."""
    program: Program = []
    open_: list[tuple[int, Any]] = []
    for number, step in enumerate(steps):
        thread = step[0]
        if step[1] == "sync-call":
            kind, file, offset, size, failed = step[2]
            program.append((thread, "begin", kind, file, offset, size, number, failed))
            open_.append((step[3], (thread, "end", number)))
        else:
            program.append(step)
        program += [end for left, end in open_ if left <= 0]
        open_ = [(left - 1, end) for left, end in open_ if left > 0]
    return program + [end for _, end in open_]


def _names(files: list[str]) -> Any:
    """A removal, or a file that takes another one's name."""
    pair = st.permutations(files)
    return st.one_of(
        st.tuples(st.just(1), st.just("unlink"), st.sampled_from(files)),
        st.builds(lambda files: (1, "rename", files[0], files[1]), pair),
    )


def while_named(first: First, program: Program) -> Program:
    """The program with each file that has no name created before a step on it; what cannot be done is left out."""
    exists = {file: content is not None for file, content in first.items()}
    out: Program = []
    for step in program:
        if step[1] in ("unlink", "rename"):
            if not exists[step[2]]:
                continue
            exists[step[2]] = False
            if step[1] == "rename":
                exists[step[3]] = True
        elif step[1] == "create":
            exists[step[2]] = True
        else:
            used = [part[0] for part in step[2]] if step[1] == "stores" else [step[2] if len(step) > 2 else None]
            for file in used:
                if file in exists and not exists[file] and step[1] in ("store", "stores", "write", "truncate"):
                    out.append((step[0], "create", file))
                    exists[file] = True
        out.append(step)
    return out


def memory_programs(names: bool = False) -> Any:
    """Pairs of first contents and a program of stores into them."""
    thread = st.integers(1, 2)
    file = st.sampled_from(["a", "a", "b"])
    offset = st.sampled_from([0, 4, 8, 16, 60, 64, 72])
    size = st.sampled_from([1, 4, 8, 8, 12, 16])
    value = st.integers(0, 3)
    store = st.tuples(
        thread, st.just("store"), file, offset, st.builds(_data, size, value), st.sampled_from([False, False, True])
    )
    write = st.tuples(thread, st.just("write"), file, offset, st.builds(_data, size, value))
    flush = st.tuples(
        thread,
        st.sampled_from(["clwb", "clwb", "clflush"]),
        file,
        st.sampled_from([0, 64]),
        st.sampled_from([1, 8, 65]),
    )
    fence = st.tuples(thread, st.just("fence"))
    mark = st.tuples(thread, st.sampled_from(["mark", "opmark"]))
    truncate = st.tuples(thread, st.just("truncate"), file, st.sampled_from([0, 6, 64, 128]))
    sync = st.tuples(
        thread,
        st.just("sync-call"),
        _syncs(["a", "b"], [(0, 64), (64, 8)], ["msync", "fsync", "sync", "async", "osync", "dirsync"]),
        st.integers(0, 2),
    )
    parts = st.tuples(
        st.tuples(st.just("a"), st.sampled_from([0, 8, 56]), st.builds(_data, st.sampled_from([4, 8]), value)),
        st.tuples(st.sampled_from(["a", "b"]), st.just(64), st.builds(_data, st.sampled_from([8, 12]), value)),
    )
    stores = st.tuples(thread, st.just("stores"), parts)
    kinds = st.one_of(store, store, store, flush, flush, fence, mark, write, truncate, sync)
    if names:
        kinds = st.one_of(store, store, stores, flush, fence, mark, write, truncate, sync, _names(["a", "b"]))
    return st.lists(kinds, min_size=1, max_size=9).map(_of_bounded_stores)


def _of_bounded_stores(steps: list[Any]) -> tuple[First, Program]:
    program = with_syncs(steps)
    total = 0
    kept: Program = []
    for step in program:
        if step[1] in ("store", "stores", "write"):
            total += len(step[4]) // 8 + 1 if step[1] != "stores" else 4
            if total > 11:
                continue
        kept.append(step)
    first: First = {"a": bytes(range(80)), "b": bytes(80)}
    return first, while_named(first, kept)


def page_programs(names: bool = False) -> Any:
    """Pairs of first contents and a program of stores and writes into several pages."""
    thread = st.integers(1, 2)
    file = st.sampled_from(["a", "a", "n"])
    offset = st.sampled_from([0, 8, 510, 4090, 4096, 8192, 12280])
    size = st.sampled_from([1, 4, 8, 12])
    value = st.integers(0, 3)
    store = st.tuples(thread, st.just("store"), file, offset, st.builds(_data, size, value), st.just(False))
    write = st.tuples(thread, st.just("write"), file, offset, st.builds(_data, size, value))
    truncate = st.tuples(thread, st.just("truncate"), file, st.sampled_from([0, 100, 4096, 5000, 9000, 13000]))
    mark = st.tuples(thread, st.sampled_from(["mark", "opmark"]))
    fence = st.one_of(
        st.tuples(thread, st.just("fence")), st.tuples(thread, st.just("clflush"), file, st.just(0), st.just(8))
    )
    sync = st.tuples(
        thread,
        st.just("sync-call"),
        _syncs(
            ["a", "n"],
            [(0, 64), (4096, 4096), (4090, 8)],
            ["msync", "fsync", "fdatasync", "sync", "async", "osync", "odsync", "dirsync"],
        ),
        st.integers(0, 2),
    )
    kinds = st.one_of(store, store, write, write, truncate, mark, fence, sync, sync)
    if names:
        kinds = st.one_of(kinds, _names(["a", "n"]))
    return st.builds(_of_pages, st.lists(kinds, min_size=1, max_size=8), st.booleans())


def _of_pages(steps: list[Any], new: bool) -> tuple[First, Program]:
    first: First = {"a": bytes(range(48, 112)) * 94, "n": None if new else b"~" * 4200}  # printable: a short repr
    program = with_syncs(steps)
    if new:
        program.insert(0, (1, "create", "n"))
    return first, while_named(first, program)
