"""What may survive a crash, computed the slow way from crash-model.md alone.

It shares nothing with analyzer/persistence and checker/: programs are plain tuples, rules are explicit pairs
"must persist before" and sets "must have persisted by", a crash is tried before *every* event, and states are
found by going through all subsets. The result is a set of (files, acked, printed) with files a tuple of
(path, bytes or None where it does not exist).

Program steps (thread first):
    (thread, "store", file, offset, data, nt)     (thread, "write", file, offset, data)
    (thread, "truncate", file, size)              (thread, "create", file)
    (thread, "stores", [(file, offset, data), ...]): one update
    (thread, "unlink", file)                      (thread, "rename", file, to)
    (thread, "clwb" | "clflush", file, offset, size)   (thread, "fence")
    (thread, "begin", kind, file | None, offset, size, label, failed)   (thread, "end", label)
    (thread, "mark")   (thread, "printed", total)   (thread, "opmark")
with kind one of "msync", "fsync", "fdatasync", "sync", "osync", "odsync", "dirsync", "async".
"""

from __future__ import annotations

import math
from itertools import chain, combinations, pairwise, product
from typing import Any

Step = tuple[Any, ...]
Program = list[Step]
First = dict[str, bytes | None]  # None: does not exist at first
Image = tuple[tuple[str, bytes | None], ...]
State = tuple[Image, int, int]

PAGE = 4096


def acknowledged(program: Program, crash: int) -> tuple[int, int]:
    done = program[:crash]
    return sum(s[1] == "mark" for s in done), max((s[2] for s in done if s[1] == "printed"), default=0)


def subsets(items: list[Any]) -> Any:
    return chain.from_iterable(combinations(items, n) for n in range(len(items) + 1))


def completed_syncs(program: Program) -> list[tuple[int, int, Step]]:
    """(begin, end, step) of each sync that promises something or failed."""
    out = []
    for end, step in enumerate(program):
        if step[1] == "end":
            begin = next(i for i, s in enumerate(program) if s[1] == "begin" and s[6] == step[2])
            if program[begin][2] != "async":
                out.append((begin, end, program[begin]))
    return out


def in_range(step: Step, file: str, offset: int) -> bool:
    """Does a sync cover the page that holds this byte?"""
    _, _, kind, name, start, size, _, _ = step
    if kind == "dirsync":
        return False
    if kind == "sync":
        return True
    if name != file:
        return False
    if kind in ("fsync", "fdatasync") or size == 0:
        return True
    return start // PAGE <= offset // PAGE <= (start + size - 1) // PAGE


def resize(content: bytes | None, size: int) -> bytes:
    return ((content or b"")[:size]).ljust(size, b"\0")


def issued(first: First, program: Program, upto: int) -> dict[str, bytes | None]:
    """What the files hold after `upto` steps if nothing is lost. Stores beyond an end show when the file grows."""
    room = 5 * PAGE
    body = {file: bytearray((content or b"").ljust(room, b"\0")) for file, content in first.items()}
    size = {file: None if content is None else len(content) for file, content in first.items()}
    for step in program[:upto]:
        match step[1:]:
            case ("create", file):
                size[file] = 0
            case ("unlink", file):
                body[file], size[file] = bytearray(room), None
            case ("rename", file, to):
                body[to], size[to] = bytearray(bytes(body[file][: size[file]]).ljust(room, b"\0")), size[file]
                body[file], size[file] = bytearray(room), None
            case ("truncate", file, new):
                body[file][new:] = bytes(room - new)
                size[file] = new
            case ("write", file, offset, data):
                body[file][offset : offset + len(data)] = data
                size[file] = max(size[file] or 0, offset + len(data))
            case ("store", file, offset, data, _):
                body[file][offset : offset + len(data)] = data
            case ("stores", parts):
                for file, offset, data in parts:
                    body[file][offset : offset + len(data)] = data
    return {file: None if (end := size[file]) is None else bytes(body[file][:end]) for file in first}


def last_names(program: Program, crash: int) -> dict[str, int]:
    """For each file the last step before the crash that took its name away or gave it another file's."""
    last: dict[str, int] = {}
    for event, step in enumerate(program[:crash]):
        if step[1] in ("unlink", "rename"):
            last.update((file, event) for file in step[2:])
    return last


def replay(first: First, program: Program, chosen: set[tuple[int, int]], atoms: dict[tuple[int, int], Any]) -> Image:
    """Px86 and eADR images: sizes and names happen at once, data only where chosen; sizes clip at the end."""
    sizes = {f: len(c) if c is not None else None for f, c in first.items()}
    bytes_of = {f: bytearray((c or b"").ljust(1 << 14, b"\0")) for f, c in first.items()}
    last = max((i for i, _ in atoms), default=-1)
    for event, step in enumerate(program[: last + 1]):
        if step[1] == "create":
            sizes[step[2]] = 0
        elif step[1] == "unlink":
            sizes[step[2]], bytes_of[step[2]] = None, bytearray(1 << 14)
        elif step[1] == "rename":
            (old, new), size = step[2:], sizes[step[2]] or 0
            sizes[new], bytes_of[new] = size, bytearray(bytes(bytes_of[old][:size]).ljust(1 << 14, b"\0"))
            sizes[old], bytes_of[old] = None, bytearray(1 << 14)
        elif step[1] == "truncate":
            bytes_of[step[2]][step[3] :] = bytes(len(bytes_of[step[2]]) - step[3])
            sizes[step[2]] = step[3]
        elif step[1] == "write":
            sizes[step[2]] = max(sizes[step[2]] or 0, step[3] + len(step[4]))
        for key, (file, offset, data, _) in atoms.items():
            if key[0] == event and key in chosen:
                bytes_of[file][offset : offset + len(data)] = data
    return tuple((f, None if (size := sizes[f]) is None else bytes(bytes_of[f][:size])) for f in sorted(sizes))


def pieces(program: Program, upto: int) -> dict[tuple[int, int], Any]:
    """(event, number) -> (file, offset, bytes, loose): 8-byte aligned pieces; markers for events without data."""
    out: dict[tuple[int, int], Any] = {}
    for event, step in enumerate(program[:upto]):
        if step[1] not in ("store", "stores", "write"):
            continue
        loose = step[1] == "write" or (step[1] == "store" and bool(step[5]))
        number = 0
        for file, start, data in step[2] if step[1] == "stores" else [step[2:5]]:
            cut = sorted({start, start + len(data), *(x for x in range(start, start + len(data)) if x % 8 == 0)})
            for a, b in pairwise(cut):
                out[event, number] = (file, a, data[a - start : b - start], loose)
                number += 1
    return out


Order = tuple[set[tuple[Any, Any]], dict[Any, int]]  # (u, v): u persists before v; piece: persisted after this event


def px86_order(program: Program) -> Order:
    """Rules 1 to 7."""
    everything = pieces(program, len(program))
    before: set[tuple[Any, Any]] = set()
    durable_after: dict[Any, int] = {}

    def line(p: Any) -> Any:
        return everything[p][0], everything[p][1] // 64

    def word(p: Any) -> Any:
        return everything[p][0], everything[p][1] // 8

    def promise(piece: Any, event: int) -> None:
        durable_after[piece] = min(event, durable_after.get(piece, event))
        before.update((piece, later) for later in everything if later[0] > event)

    for u in everything:
        for v in everything:
            if u[0] < v[0]:
                if line(u) == line(v) and not everything[u][3] and not everything[v][3]:
                    before.add((u, v))  # rule 1
                if word(u) == word(v):
                    before.add((u, v))  # rule 5
    for event, step in enumerate(program):
        if step[1] in ("clwb", "clflush"):
            lines = {(step[2], n) for n in range(step[3] // 64, (step[3] + max(step[4], 1) - 1) // 64 + 1)}
            covered = [p for p in everything if p[0] < event and line(p) in lines and not everything[p][3]]
            if step[1] == "clflush":  # rule 4
                for p in covered:
                    promise(p, event)
            else:  # rule 3
                for later, fence in enumerate(program):
                    if later > event and fence[1] == "fence" and fence[0] == step[0]:
                        for p in covered:
                            promise(p, later)
        elif step[1] == "store" and step[5]:  # rule 5
            for later, fence in enumerate(program):
                if later > event and fence[1] == "fence" and fence[0] == step[0]:
                    for p in everything:
                        if p[0] == event:
                            promise(p, later)
    for event, step in enumerate(program):  # a change of names
        if step[1] in ("unlink", "rename"):
            for p in everything:
                if p[0] < event and everything[p][0] in step[2:]:
                    promise(p, event)
    for begin, end, step in completed_syncs(program):  # rule 7
        if not step[7]:
            for p in everything:
                if p[0] < begin and in_range(step, everything[p][0], everything[p][1]):
                    promise(p, end)
    return before, durable_after


def px86(first: First, program: Program) -> set[State]:
    """All states that rules 1 to 7 allow."""
    states: set[State] = set()
    everything = pieces(program, len(program))
    before, durable_after = px86_order(program)
    for crash in range(len(program) + 1):
        issued = [p for p in everything if p[0] < crash]
        must = {p for p in issued if durable_after.get(p, crash) < crash}
        atoms = {p: everything[p] for p in issued}
        for some in subsets([p for p in issued if p not in must]):
            chosen = must | set(some)
            if all(u in chosen for u, v in before if v in chosen):
                states.add(
                    (
                        replay(first, program[:crash], chosen, {**atoms, (crash - 1, -1): ("", 0, b"", 0)}),
                        *acknowledged(program, crash),
                    )
                )
    return states


def eadr(first: First, program: Program) -> set[State]:
    """Everything visible has persisted; a store may be caught half-way; loose pieces wait for fence or sync."""
    states: set[State] = set()
    syncs = [s for s in completed_syncs(program) if not s[2][7]]
    for crash in range(len(program) + 1):
        known = pieces(program, crash)
        caught = {}
        now = program[crash] if crash < len(program) else (0, "end")
        if now[1] == "stores" or (now[1] == "store" and not now[5]):
            caught = {p: v for p, v in pieces(program, crash + 1).items() if p[0] == crash}
        must = set()
        named = last_names(program, crash)
        for p, (file, offset, _, loose) in known.items():
            fenced = program[p[0]][1] == "store" and any(
                s[1] == "fence" and s[0] == program[p[0]][0] for s in program[p[0] + 1 : crash]
            )
            synced = any(p[0] < b and e < crash and in_range(s, file, offset) for b, e, s in syncs)
            if not loose or fenced or synced or p[0] < named.get(file, -1):
                must.add(p)
        atoms = {**known, **caught}
        for some in subsets([p for p in atoms if p not in must]):
            chosen = must | set(some)
            if all(
                u in chosen
                for v in chosen
                for u in atoms
                if u[0] < v[0] and atoms[u][0] == atoms[v][0] and atoms[u][1] // 8 == atoms[v][1] // 8
            ):
                # sizes are those at the crash: a caught store changes none
                marker = {(crash - 1, -1): ("", 0, b"", 0)}
                states.add(
                    (
                        replay(first, program[: crash + 1 if caught else crash], chosen, {**atoms, **marker}),
                        *acknowledged(program, crash),
                    )
                )
    return states


def sizes_change(first: First, program: Program) -> list[int]:
    """The events that change the size of a file."""
    sizes = {file: len(content or b"") for file, content in first.items()}
    out = []
    for event, step in enumerate(program):
        if step[1] in ("write", "truncate"):
            new = step[3] if step[1] == "truncate" else max(sizes[step[2]], step[3] + len(step[4]))
            out += [event] * (new != sizes[step[2]])
            sizes[step[2]] = new
    return out


def eadr_order(first: First, program: Program) -> Order:
    """One order for all files, known when the world learns something; loose pieces follow it, and wait for more."""
    everything = pieces(program, len(program))
    syncs = [s for s in completed_syncs(program) if not s[2][7]]
    changes = sizes_change(first, program)

    def word(p: Any) -> Any:
        return everything[p][0], everything[p][1] // 8

    before = {
        (u, v) for u in everything for v in everything if u[0] < v[0] and (not everything[u][3] or word(u) == word(v))
    }
    durable_after: dict[Any, int] = {}
    for p, (file, offset, _, loose) in everything.items():
        later = list(enumerate(program))[p[0] + 1 :]
        learned = [k for k, s in later if s[1] in ("mark", "opmark", "printed") or k in changes]
        fenced = [k for k, s in later if s[1] == "fence" and s[0] == program[p[0]][0] and program[p[0]][1] == "store"]
        synced = [end for begin, end, s in syncs if p[0] < begin and in_range(s, file, offset)]
        ends = [*fenced, *synced] if loose else learned
        if ends:
            durable_after[p] = min(ends)
    return before, durable_after


def page_cache_order(program: Program) -> Order:
    """Rules 1 and 2 for the data of files that never shrink."""
    everything = pieces(program, len(program))
    syncs = completed_syncs(program)

    def page(p: Any) -> Any:
        return everything[p][0], everything[p][1] // PAGE

    durable_after: dict[Any, int] = {}
    for begin, end, step in syncs:
        if not step[7]:
            covered = [p for p in everything if p[0] < begin and in_range(step, *everything[p][:2])]
            for p in covered:
                latest = max(other[0] for other in covered if page(other) == page(p))
                failed = [(b, e) for b, e, s in syncs if s[7] and in_range(s, *everything[p][:2])]
                if not any(b < end and latest < e for b, e in failed):
                    durable_after[p] = min(end, durable_after.get(p, end))
    return set(), durable_after


def page_cache(
    first: First, program: Program, tear: int = 0, posix: bool = False, limit: int = 1 << 30
) -> set[State] | None:
    """Rules 1 to 6, by the contents that each page had at each instant. None if more than `limit` combinations."""
    granule = tear or PAGE
    room = 5 * PAGE
    live = {f: bytearray((c or b"").ljust(room, b"\0")) for f, c in first.items()}
    size: dict[str, int] = {f: len(c or b"") for f, c in first.items()}
    versions: dict[tuple[str, int], list[tuple[int, bytes]]] = {}  # granule: (event, content after it)
    sizes: dict[str, list[tuple[int, int, int]]] = {f: [] for f in first}  # (event, old, new)
    created: dict[str, list[int]] = {f: [] for f in first}
    base: dict[tuple[str, int], bytes | None] = {}  # what a change of names at an event left, for good, in a file
    dropped: dict[tuple[str, int], bool] = {}  # page: its blocks were given back and not written since

    def updated(file: str, low: int, high: int, event: int) -> None:
        for at in range(low // granule * granule, high, granule):
            versions.setdefault((file, at), []).append((event, bytes(live[file][at : at + granule])))

    for event, step in enumerate(program):
        if step[1] == "create":
            created[step[2]].append(event)
        elif step[1] == "truncate":
            file, new = step[2], step[3]
            old = size[file]
            if new != old:
                sizes[file].append((event, old, new))
                size[file] = new
            if new < old:
                live[file][new:] = bytes(room - new)
                stop = -(-new // PAGE) * PAGE
                for page in range(stop, room, PAGE):
                    dropped[file, page] = True
                if min(stop, old) > new:
                    updated(file, new, min(stop, old), event)
        elif step[1] in ("unlink", "rename"):
            for file in step[2:]:
                content = issued(first, program, event + 1)[file]
                base[file, event] = content
                live[file] = bytearray((content or b"").ljust(room, b"\0"))
                size[file] = len(content or b"")
        elif step[1] in ("store", "write"):
            file, at, data = step[2], step[3], step[4]
            if step[1] == "write" and at + len(data) > size[file]:
                sizes[file].append((event, size[file], at + len(data)))
                size[file] = at + len(data)
            live[file][at : at + len(data)] = data
            for page in range(at // PAGE * PAGE, at + len(data), PAGE):
                if dropped.pop((file, page), False):
                    updated(file, page, page + PAGE, event)
                else:
                    updated(file, max(at, page), min(at + len(data), page + PAGE), event)
    syncs = completed_syncs(program)
    states: set[State] = set()
    plans: list[tuple[int, list[list[Any]]]] = []
    for crash in range(len(program) + 1):
        choices: list[list[Any]] = []
        names = sorted(first)
        named = last_names(program, crash)
        journal = max(named.values(), default=-1) if not posix else -1
        for key in sorted(versions):
            happened = [v for v in versions[key] if named.get(key[0], -1) < v[0] < crash]
            page = key[1] // PAGE * PAGE
            of_page = [
                e for (f, at), vs in versions.items() for e, _ in vs if f == key[0] and at // PAGE * PAGE == page
            ]
            least = 0
            for begin, end, step in syncs:
                if step[7] or end >= crash or not in_range(step, key[0], key[1]):
                    continue
                clean = any(
                    bad[7]
                    and b < end
                    and in_range(bad, key[0], key[1])
                    and any(u < e for u in of_page if u < begin)
                    and not any(e < u < begin for u in of_page)
                    for b, e, bad in syncs
                )
                if not clean:
                    least = max(least, sum(v[0] < begin for v in happened))
            choices.append([happened[n - 1] if n else None for n in range(least, len(happened) + 1)])
        for file in names:
            since = named.get(file, -1)
            at_first = base[file, since] if file in named else first[file]
            steps = [s for s in sizes[file] if since < s[0] < crash]
            # one journal: a size that was changed by itself before names changed
            alone = [n + 1 for n, s in enumerate(steps) if s[0] < journal and program[s[0]][1] == "truncate"]
            least = max(alone, default=0)
            for begin, end, step in syncs:
                if end < crash and not step[7] and step[2] != "dirsync" and step[3] in (file, None):
                    least = max(least, sum(s[0] < begin for s in steps))
            some: list[Any] = []
            for n in range(least, len(steps) + 1):
                some.append((n, steps[n - 1][2] if n else len(at_first or b"")))
                if n < len(steps) and steps[n][2] > steps[n][1]:
                    for boundary in range(0, steps[n][2], PAGE):
                        if boundary > steps[n][1]:
                            some.append((n, boundary))
            choices.append(some)
            happened_names = [e for e in created[file] if since < e < crash]
            must = False
            for e in happened_names:
                must |= e < journal
                done = [s for b, end, s in syncs if e < b and end < crash and not s[7]]
                own = any(s[2] != "dirsync" and s[3] in (file, None) for s in done)
                folder = any(s[2] in ("dirsync", "sync") for s in done)
                must |= (own and folder) if posix else (own or folder)
            if at_first is not None or not happened_names:
                choices.append([at_first is not None])
            else:
                choices.append([True] if must else [False, True])
        plans.append((crash, choices))
    if sum(math.prod(map(len, choices)) for _, choices in plans) > limit:
        return None
    keys = sorted(versions)
    for crash, choices in plans:
        named = last_names(program, crash)
        for picked in product(*choices):
            contents = dict(zip(keys, picked[: len(keys)], strict=True))
            image: list[tuple[str, bytes | None]] = []
            for at, file in enumerate(names):
                (taken, length), exists = picked[len(keys) + 2 * at], picked[len(keys) + 2 * at + 1]
                if not exists:
                    image.append((file, None))
                    continue
                since = named.get(file, -1)
                at_first = base[file, since] if file in named else first[file]
                body = bytearray((at_first or b"").ljust(room, b"\0"))
                cuts = [(e, new) for e, old, new in [s for s in sizes[file] if s[0] > since][:taken] if new < old]
                for _, new in cuts:
                    body[new:] = bytes(room - new)
                for (f, low), version in contents.items():
                    if f != file or version is None:
                        continue
                    part = bytearray(version[1])
                    for e, new in cuts:
                        if e > version[0] and new < low + granule:
                            keep = max(new - low, 0)
                            part[keep:] = bytes(len(part) - keep)
                    body[low : low + granule] = part
                image.append((file, bytes(body[:length])))
            states.add((tuple(image), *acknowledged(program, crash)))
    return states
