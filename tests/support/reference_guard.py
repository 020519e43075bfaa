"""What AI §2 and §3 define, written down as they define it: a byte at a time, from whole histories, without a table.

An access is (thread, site, offset, size in bytes); sites are numbers from 1, and 0 is nil.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

Access = tuple[int, int, int, int]
Sets = Mapping[int, Collection[int]]
WORD = 8  # bytes that the guard checks in one step
NIL = 0


def remote_predecessor(history: Sequence[tuple[int, int]], thread: int) -> int:
    """§2.1: the site of the latest access by another thread; NIL if there is none."""
    return next((site for other, site in reversed(history) if other != thread), NIL)


def walk(accesses: Iterable[Access]) -> Iterator[tuple[Access, list[tuple[int, Sequence[tuple[int, int]]]]]]:
    """Each access with the bytes that it is to, and what was before on each: (thread, site) in the order of time."""
    history: dict[int, list[tuple[int, int]]] = {}
    for access in accesses:
        thread, site, offset, size = access
        yield access, [(byte, history.setdefault(byte, [])) for byte in range(offset, offset + size)]
        for byte in range(offset, offset + size):
            history[byte].append((thread, site))


def belonging_sets(accesses: Iterable[Access]) -> dict[int, set[int]]:
    """§3.2: bset(y) ← bset(y) ∪ {rpre(triplet x)}."""
    sets: dict[int, set[int]] = {}
    for (thread, site, _, _), bytes_ in walk(accesses):
        sets.setdefault(site, set()).update(remote_predecessor(before, thread) for _, before in bytes_)
    return sets


def followed_alone(accesses: Iterable[Access]) -> set[tuple[int, int]]:
    """Sites after another of the same thread on a byte where nobody else had been."""
    found = set()
    for (thread, site, _, _), bytes_ in walk(accesses):
        for _, before in bytes_:
            if before and remote_predecessor(before, thread) == NIL and before[-1][1] != site:
                found.add((site, before[-1][1]))
    return found


def groups(accesses: Iterable[Access]) -> list[set[int]]:
    """§3.3: as many groups as possible so that sites of different ones never access the same address."""
    found: list[set[int]] = []
    addresses: list[set[int]] = []
    for _, site, offset, size in accesses:
        members, own = {site}, set(range(offset, offset + size))
        for other in [at for at, its in enumerate(addresses) if its & own or site in found[at]][::-1]:
            members |= found.pop(other)
            own |= addresses.pop(other)
        found.append(members)
        addresses.append(own)
    return found


def shared_groups(accesses: Sequence[Access]) -> list[set[int]]:
    """§3.2, footnote: those in which some site's set is not {nil}."""
    sets = belonging_sets(accesses)
    return [group for group in groups(accesses) if any(sets[site] != {NIL} for site in group)]


def left_alone(accesses: Sequence[Access], threshold_percent: float) -> set[int]:
    """§3.3: the sites of groups whose instructions proportion, of all accesses to shared variables, is larger."""
    counts = Counter(site for _, site, _, _ in accesses)
    shared = shared_groups(accesses)
    total = sum(counts[site] for group in shared for site in group)
    hot = [group for group in shared if 100 * sum(counts[site] for site in group) > threshold_percent * total]
    return {site for group in hot for site in group}


def violations(accesses: Iterable[Access], sets: Sets) -> Counter[tuple[int, int]]:
    """Algorithm 1 that never stalls: how often each site had a predecessor that is not in its set.

    An access to several words is one to each. A site with an empty set was never trained, and is not judged.
    """
    found: Counter[tuple[int, int]] = Counter()
    for (thread, site, _, _), bytes_ in walk(accesses):
        befores = {(byte // WORD, remote_predecessor(before, thread)) for byte, before in bytes_}
        found.update((site, before) for _, before in befores if sets[site] and before not in sets[site])
    return found
