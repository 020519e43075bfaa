"""Which branches decide whether a block runs: post-dominance and control dependence of one function's blocks.

Cooper, Harvey and Kennedy's iteration on the reversed flow graph; control dependence as Ferrante, Ottenstein and
Warren define it. A loop that cannot end is given an exit, or nothing after its entry would have a post-dominator.
"""

from __future__ import annotations

from collections.abc import Sequence


def _order(successors: Sequence[Sequence[int]], predecessors: list[list[int]]) -> tuple[list[int], list[int]]:
    """Blocks in post-order of the reversed graph, and those taken for exits (they have an edge to the virtual one)."""
    count = len(successors)
    seen = [False] * count
    order: list[int] = []

    def visit(root: int) -> None:
        seen[root] = True
        stack = [(root, iter(predecessors[root]))]
        while stack:
            block, rest = stack[-1]
            for before in rest:
                if not seen[before]:
                    seen[before] = True
                    stack.append((before, iter(predecessors[before])))
                    break
            else:
                stack.pop()
                order.append(block)

    exits = [block for block in range(count) if not successors[block]]
    for block in exits:
        if not seen[block]:
            visit(block)
    if len(order) < count:
        # Of what never ends, the block that a forward walk leaves last is deepest in its loop.
        for block in reversed(_forward(successors)):
            if not seen[block]:
                exits.append(block)
                visit(block)
    return order, exits


def _forward(successors: Sequence[Sequence[int]]) -> list[int]:
    """Blocks in the order in which a depth-first walk from each first reaches them."""
    seen: set[int] = set()
    order: list[int] = []
    for root in range(len(successors)):
        stack = [root]
        while stack:
            block = stack.pop()
            if block not in seen:
                seen.add(block)
                order.append(block)
                stack.extend(reversed(successors[block]))
    return order


def predecessors_of(successors: Sequence[Sequence[int]]) -> list[list[int]]:
    """The flow graph reversed."""
    predecessors: list[list[int]] = [[] for _ in successors]
    for block, targets in enumerate(successors):
        for target in targets:
            predecessors[target].append(block)
    return predecessors


def postdominators(successors: Sequence[Sequence[int]]) -> list[int]:
    """The immediate post-dominator of each block; `len(successors)`, the virtual exit, where no block is one."""
    count = len(successors)
    order, exits = _order(successors, predecessors_of(successors))
    number = [0] * (count + 1)
    for at, block in enumerate(order):
        number[block] = at
    number[count] = count
    parent = [-1] * (count + 1)
    parent[count] = count
    leaving = set(exits)
    changed = True
    while changed:
        changed = False
        for block in reversed(order):
            known = [target for target in successors[block] if parent[target] >= 0]
            ways = [count, *known] if block in leaving else known
            found = ways[0] if ways else -1
            for target in ways[1:]:
                found = _common(found, target, parent, number)
            if parent[block] != found:
                parent[block] = found
                changed = True
    return parent[:count]


def _common(one: int, other: int, parent: list[int], number: list[int]) -> int:
    """The nearest block that post-dominates both."""
    while one != other:
        while number[one] < number[other]:
            one = parent[one]
        while number[other] < number[one]:
            other = parent[other]
    return one


def control_dependence(successors: Sequence[Sequence[int]]) -> list[frozenset[int]]:
    """For each block, the blocks whose branch directly decides whether it runs."""
    parent = postdominators(successors)
    deciding: list[set[int]] = [set() for _ in successors]
    for block, targets in enumerate(successors):
        if len(targets) < 2:
            continue
        stop = parent[block]
        for target in targets:
            while target != stop:
                deciding[target].add(block)
                target = parent[target]
                if target == len(successors):
                    break
    return [frozenset(blocks) for blocks in deciding]
