"""Pictures of the evaluation, as SVG that reads well on light and dark pages."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from statistics import median_high
from xml.sax.saxutils import escape

SPACES = {"yat": "all states", "pmreorder": "pmreorder", "pathfinder": "representatives", "witcher": "invariants"}

Scale = Callable[[float], float]

_WIDTH, _HEIGHT = 760, 360
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 150, 16, 44
# Colours that a colour-blind reader can tell apart, with enough contrast on white and on near black.
_COLOURS = ("#d55e00", "#0072b2", "#009e73", "#b8860b", "#cc79a7", "#7f7f7f")
_STYLE = "text{font:12px sans-serif;fill:#767676}.axis{stroke:#767676;stroke-width:1}.grid{stroke:#76767640}"


def bugs_over(found: Mapping[str, Sequence[float | None] | None], unit: str, least_power: int = 0) -> str:
    """One stepped line for each strategy: how many bugs were found after so many of a unit, such as executed states.

    The axis is logarithmic and begins at 10 to the least power. A strategy without values has no line.
    """
    least = 10.0**least_power
    lines = {name: (values, colour) for (name, values), colour in zip(found.items(), _COLOURS, strict=False) if values}
    many = max((len(values) for values, _ in lines.values()), default=0) or 1
    most = max((value for values, _ in lines.values() for value in values if value), default=10)
    decades = math.log10(max(most, 10)) - least_power

    def x(value: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * math.log10(max(value, least) / least) / decades

    def y(bugs: float) -> float:
        return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * bugs / many

    powers = range(least_power, least_power + int(decades) + 1)
    body = [*_decades_below(powers, x), *_marks_left(range(0, many + 1, _step(many)), y)]
    ends = []
    for name, (values, colour) in lines.items():
        steps = sorted(value for value in values if value is not None)
        points = [(x(least), y(0))]
        for count, value in enumerate(steps, 1):
            points += [(x(value), y(count - 1)), (x(value), y(count))]
        points.append((x(max(most, 10)), y(len(steps))))
        body.append(_line(points, colour))
        ends.append((y(len(steps)), f"{name} ({len(steps)})", colour))
    body += _names(ends)
    return _picture(f"Bugs found over {unit}", body, unit, "bugs")


def space_by_operation(spaces: Mapping[str, Mapping[str, Sequence[str]]]) -> str:
    """How many states each way would test up to each operation: the median over the structures (log scale)."""
    many = min((len(counts["yat"]) for counts in spaces.values() if counts), default=2)
    lines = {}
    for name in SPACES:
        sums = [list(accumulate(map(int, one[name][:many]))) for one in spaces.values() if one]
        lines[name] = [int(median_high(values)) for values in zip(*sums, strict=True)] if sums else [0] * many
    decades = max(1, *(len(str(value)) for values in lines.values() for value in values))

    def x(operation: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * operation / max(1, many - 1)

    def y(states: float) -> float:
        height = math.log10(states) if states > 1 else 0.0
        return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * height / decades

    every = max(1, decades // 6)
    body = [*_marks_below(range(0, many, _step(many)), x)]
    body += _marks_left([10**power for power in range(0, decades + 1, every)], y)
    ends = []
    for (name, values), colour in zip(lines.items(), _COLOURS, strict=False):
        body.append(_line([(x(at), y(value)) for at, value in enumerate(values)], colour))
        ends.append((y(values[-1] if values else 0), SPACES[name], colour))
    body += _names(ends)
    return _picture("Crash states by operation", body, "operations so far (median over the structures)", "states")


def coverage_over_states(panels: Mapping[str, tuple[Sequence[int], float, Mapping[str, Sequence[float]]]]) -> str:
    """One panel for each program: the share of lines reached after so many states, and without a crash (dashed).

    Of each program: the numbers of states, the share that the workload reaches, and that of each strategy.
    """
    least = math.floor(min((base for _, base, _ in panels.values()), default=0.0) * 10) / 10
    most = max((steps[-1] for steps, _, _ in panels.values()), default=10)
    decades, gap = max(1, math.ceil(math.log10(most))), 20
    wide = (_WIDTH - _LEFT - 6 - gap * max(0, len(panels) - 1)) / max(1, len(panels))
    bottom = _HEIGHT - _BOTTOM - 24  # the names are below

    def y(share: float) -> float:
        return bottom - (bottom - _TOP - 16) * (share - least) / (1 - least)

    marks = [least + tenth / 10 for tenth in range(round((1 - least) * 10) + 1)]
    body, names = [], list(dict.fromkeys(name for _, _, lines in panels.values() for name in lines))
    for number, (program, (steps, base, lines)) in enumerate(panels.items()):
        left = _LEFT + number * (wide + gap)
        right = left + wide

        def x(states: float, left: float = left) -> float:
            return left + wide * math.log10(max(states, 1)) / decades

        body.append(f'<text x="{(left + right) / 2:.1f}" y="{_TOP + 6}" text-anchor="middle">{escape(program)}</text>')
        body.append(f'<path class="axis" fill="none" d="M{left:.1f} {y(1):.1f}V{bottom}H{right:.1f}"/>')
        for mark in marks:
            body.append(f'<path class="grid" d="M{left:.1f} {y(mark):.1f}H{right:.1f}"/>')
            if not number:
                body.append(f'<text x="{_LEFT - 6}" y="{y(mark) + 4:.1f}" text-anchor="end">{mark:.0%}</text>')
        for power in range(decades + 1):
            end = "end" if power == decades else "middle"
            body.append(f'<text x="{x(10**power):.1f}" y="{bottom + 16}" text-anchor="{end}">{10**power:,}</text>')
        dashed = 'stroke="#767676" stroke-width="1.5" stroke-dasharray="4 3"'
        body.append(f'<path {dashed} d="M{left:.1f} {y(base):.1f}H{right:.1f}"/>')
        for name, values in lines.items():
            points = [(x(at), y(value)) for at, value in zip(steps, values, strict=True)]
            body.append(_line(points, _COLOURS[names.index(name)]))
    entries = [*zip(names, _COLOURS, strict=False), ("workload without a crash (dashed)", "#767676")]
    body += _legend(entries, _HEIGHT - 6, 16)
    body.append(f'<text x="{_WIDTH - 6}" y="{_HEIGHT - 6}" text-anchor="end">executed crash states</text>')
    return _document("Lines reached over executed crash states", body, _HEIGHT)


def counts_over_runs(panels: Mapping[str, Mapping[str, Sequence[int]]]) -> str:
    """Two panels in a row: how much the first runs of each strategy have reached. The legend is below."""
    rows, gap, high = (len(panels) + 1) // 2, 64, 190
    wide = (_WIDTH - _LEFT - gap - 12) / 2
    names = list(dict.fromkeys(name for lines in panels.values() for name in lines))
    body = []
    for number, (title, lines) in enumerate(panels.items()):
        left, top = _LEFT + number % 2 * (wide + gap), 28 + number // 2 * (high + 64)
        runs, most = (max(reach(counts) for counts in lines.values()) for reach in (len, max))

        def x(count: float, left: float = left, runs: int = runs) -> float:
            return left + wide * count / runs

        def y(count: float, top: float = top, most: int = most) -> float:
            return top + high * (1 - count / most)

        body.append(f'<text x="{left + wide / 2:.1f}" y="{top - 10}" text-anchor="middle">{escape(title)}</text>')
        body.append(f'<path class="axis" fill="none" d="M{left:.1f} {top}V{top + high}H{left + wide:.1f}"/>')
        for mark in range(0, most + 1, _step(most)):
            body.append(f'<path class="grid" d="M{left:.1f} {y(mark):.1f}H{left + wide:.1f}"/>')
            body.append(f'<text x="{left - 6:.1f}" y="{y(mark) + 4:.1f}" text-anchor="end">{mark:,}</text>')
        for mark in range(0, runs + 1, _step(runs)):
            body.append(f'<text x="{x(mark):.1f}" y="{top + high + 16}" text-anchor="middle">{mark:,}</text>')
        body.append(f'<text x="{left + wide:.1f}" y="{top + high + 32}" text-anchor="end">runs</text>')
        for name, counts in lines.items():
            points = [(x(0), y(0)), *((x(at), y(count)) for at, count in enumerate(counts, 1))]
            body.append(_line(_corners(points), _COLOURS[names.index(name)]))
            body.append(_dot(points[-1], _COLOURS[names.index(name)]))
    height = 28 + rows * (high + 64)
    body += _legend(zip(names, _COLOURS, strict=False), height, 24)
    return _document("Partial orders and protocol states over runs", body, height + 12)


def _legend(entries: Iterable[tuple[str, str]], y: int, gap: int) -> Iterator[str]:
    """Names in their colours, in a row."""
    left = _LEFT
    for name, colour in entries:
        yield f'<text x="{left}" y="{y}" style="fill:{colour}">{escape(name)}</text>'
        left += 8 * len(name) + gap


def _corners(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points of a line without those inside a straight part of it."""
    return [
        point
        for at, point in enumerate(points)
        if at in (0, len(points) - 1) or abs(point[1] - points[at - 1][1] - (points[at + 1][1] - point[1])) > 1e-6
    ]


def _dot(point: tuple[float, float], colour: str) -> str:
    """Where a line ends: a strategy may have no further run."""
    return f'<circle cx="{point[0]:.1f}" cy="{point[1]:.1f}" r="3" fill="{colour}"/>'


def _step(many: int) -> int:
    """Between the marks of an axis: a round number, for five at most beside zero."""
    steps = (step * 10**power for power in range(len(str(many))) for step in (1, 2, 5) if many / step / 10**power <= 5)
    return 25 if 50 < many <= 125 else next(steps)


def _picture(title: str, body: Sequence[str], below: str, left: str) -> str:
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    axes = (
        f'<path class="axis" fill="none" d="M{_LEFT} {_TOP}V{bottom}H{right}"/>'
        f'<text x="{(_LEFT + right) / 2:g}" y="{_HEIGHT - 6}" text-anchor="middle">{escape(below)}</text>'
        f'<text x="{_LEFT + 6}" y="{_TOP + 10}">{escape(left)}</text>'
    )
    return _document(title, [axes, *body], _HEIGHT)


def _document(title: str, body: Sequence[str], height: int) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img">'
    return "\n".join([head, f"<title>{escape(title)}</title>", f"<style>{_STYLE}</style>", *body, "</svg>", ""])


def _line(points: Sequence[tuple[float, float]], colour: str) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{path}"/>'


def _names(ends: Sequence[tuple[float, str, str]]) -> Iterator[str]:
    """The name of each line at its end, from the top, none over another."""
    last = -math.inf
    for y, name, colour in sorted(ends):
        last = max(y, last + 15)
        yield f'<text x="{_WIDTH - _RIGHT + 6}" y="{last + 4:.1f}" style="fill:{colour}">{escape(name)}</text>'


def _decades_below(powers: Sequence[int], x: Scale) -> Iterator[str]:
    yield from _below([(10.0**power, f"{10.0**power:,.{max(0, -power)}f}") for power in powers], x)


def _marks_below(values: Sequence[int], x: Scale) -> Iterator[str]:
    yield from _below([(value, str(value)) for value in values], x)


def _below(marks: Sequence[tuple[float, str]], x: Scale) -> Iterator[str]:
    for value, text in marks:
        yield f'<path class="grid" d="M{x(value):.1f} {_TOP}V{_HEIGHT - _BOTTOM}"/>'
        yield f'<text x="{x(value):.1f}" y="{_HEIGHT - _BOTTOM + 16}" text-anchor="middle">{text}</text>'


def _marks_left(values: Sequence[int], y: Scale) -> Iterator[str]:
    for value in values:
        text = str(value) if value < 10_000 else f"10^{len(str(value)) - 1}"
        yield f'<path class="grid" d="M{_LEFT} {y(value):.1f}H{_WIDTH - _RIGHT}"/>'
        yield f'<text x="{_LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{text}</text>'
