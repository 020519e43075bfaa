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


def fences_after(program: Program, event: int) -> list[int]:
    """The later fences of an event's thread."""
    thread = program[event][0]
    return [at for at, step in enumerate(program) if at > event and step[1] == "fence" and step[0] == thread]


def persisted_by(program: Program, event: int, everything: dict[Any, Any]) -> tuple[list[Any], list[int]]:
    """(the pieces that an event makes durable, the events at which that has happened)."""
    step = program[event]
    earlier = [p for p in everything if p[0] < event]
    if step[1] in ("clwb", "clflush"):
        lines = range(step[3] // 64, (step[3] + max(step[4], 1) - 1) // 64 + 1)
        flushed = [p for p in earlier if everything[p][0] == step[2] and everything[p][1] // 64 in lines]
        covered = [p for p in flushed if not everything[p][3]]
        return covered, [event] if step[1] == "clflush" else fences_after(program, event)  # rules 4 and 3
    if step[1] == "store" and step[5]:  # rule 5
        return [p for p in everything if p[0] == event], fences_after(program, event)
    if step[1] in ("unlink", "rename"):  # a change of names
        return [p for p in earlier if everything[p][0] in step[2:]], [event]
    return [], []


def px86_order(program: Program) -> Order:
    """Rules 1 to 7."""
    everything = pieces(program, len(program))
    before: set[tuple[Any, Any]] = set()
    durable_after: dict[Any, int] = {}
    for u, v in product(everything, everything):
        (file, at, _, loose), (other, to, _, also_loose) = everything[u], everything[v]
        in_line = at // 64 == to // 64 and not loose and not also_loose  # rule 1
        if u[0] < v[0] and file == other and (in_line or at // 8 == to // 8):  # rule 5
            before.add((u, v))
    promises = [persisted_by(program, event, everything) for event in range(len(program))]
    for begin, end, step in completed_syncs(program):  # rule 7
        if not step[7]:
            promises.append(([p for p in everything if p[0] < begin and in_range(step, *everything[p][:2])], [end]))
    for covered, ends in promises:
        for piece, end in product(covered, ends):
            durable_after[piece] = min(end, durable_after.get(piece, end))
            before.update((piece, later) for later in everything if later[0] > end)
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
