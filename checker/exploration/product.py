"""The images of a moment as a product: each granule (cache line or page) has one of its contents, whatever others have.

The check is run on that product with every combination explored at once (runtime's explorer): it forks where it reads a
granule, and two runs that reach the same state continue as one. So each image of the product ends like one of few runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from crashcheck.checker.images.transition import Content
from crashcheck.checker.states.ideals import Ids
from crashcheck.checker.states.space import CrashState
from crashcheck.runtime.exploration import MOST_BYTES, MOST_GRANULES, OpenGranule

_LINE = 64


Written = tuple[tuple[str, int, bytes], ...]  # path, offset, bytes


@dataclass(frozen=True, slots=True, eq=False)
class Losses:
    """What may be lost of one granule at a moment.

    `some`: one set of pieces for each content that it may have, "nothing" first; None: too many to list. `whole`: all
    that it may lose. `written`: what the image with nothing lost becomes by each, by the sizes of the files; the last.
    """

    some: tuple[Ids, ...] | None
    whole: Ids
    written: dict[tuple[int, ...], list[Written]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Product:
    """The images of a moment's states: those of `granules` in each combination, and all else as it is in one image.

    `places` and `losses`: the place of each of them among the moment's granules, and what is lost of it for each of its
    contents.
    """

    point: int
    granules: tuple[OpenGranule, ...]
    places: tuple[int, ...]
    losses: tuple[tuple[Ids, ...], ...]


def product_of(content: Content, point: int, every: Iterable[Losses], pool: Path) -> Product | str:
    """The product of a crash point, whose image with nothing lost is in `pool`; or why it is none."""
    found: list[tuple[OpenGranule, int, tuple[Ids, ...]]] = []
    for place, losses in enumerate(every):
        if not content.near_full(CrashState(point, True, tuple(sorted(losses.whole)))):
            return "sizes or names of files are among what may be lost"
        opened = _opened(content, point, pool, losses)
        if isinstance(opened, str):
            return opened
        if opened is not None:
            granule, lost = opened
            found.append((granule, place, lost))
        if len(found) > MOST_GRANULES:
            return f"more than {MOST_GRANULES} lines or pages are open at once"
    found.sort(key=lambda each: (each[0].path, each[0].offset))
    for (one, _, _), (two, _, _) in pairwise(found):
        if one.path == two.path and one.offset + one.length > two.offset:
            return "lines or pages that are lost separately overlap"
    return Product(point, *(tuple(column) for column in zip(*found, strict=True)) if found else ((), (), ()))


def _opened(
    content: Content, point: int, pool: Path, losses: Losses
) -> tuple[OpenGranule, tuple[Ids, ...]] | str | None:
    """A granule with its contents, and what is lost of it for each of them; or why it cannot be opened.

    None if its content is the same whatever is lost.
    """
    sizes = content.sizes_issued(point)
    if sizes not in losses.written:
        losses.written.clear()
        every = losses.some[1:] if losses.some is not None else (losses.whole,)
        losses.written[sizes] = [_writes(content, point, lost) for lost in every]
    patches = losses.written[sizes]
    touched = [(path, at, at + len(data)) for patch in patches for path, at, data in patch]
    if not touched:
        return None
    paths = {path for path, _, _ in touched}
    if len(paths) > 1:
        return "a line or page belongs to several files"
    (path,) = paths
    low = min(at for _, at, _ in touched) // _LINE * _LINE
    high = max(end for _, _, end in touched)
    if high - low > MOST_BYTES:
        return f"more than {MOST_BYTES} bytes are lost or kept in order"
    with (pool / path).open("rb") as file:
        file.seek(low)
        base = file.read(-(-high // _LINE) * _LINE - low)
    if losses.some is None:
        return OpenGranule(path, low, len(base), ()), ((),)
    by_content: dict[bytes, Ids] = {base: ()}
    for lost, patch in zip(losses.some[1:], patches, strict=True):
        data = bytearray(base)
        for _, at, new in patch:
            data[at - low : at - low + len(new)] = new
        by_content.setdefault(bytes(data), lost)
    if len(by_content) == 1:
        return None
    return OpenGranule(path, low, len(base), tuple(by_content)), tuple(by_content.values())


def _writes(content: Content, point: int, lost: Ids) -> Written:
    patches = content.lost(CrashState(point, True, tuple(sorted(lost))))
    return tuple((patch.path, offset, data) for patch in patches for offset, data in patch.writes)
