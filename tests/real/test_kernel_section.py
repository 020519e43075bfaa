"""The comparison with a kernel writes the last section of docs/file-systems.md, and leaves the rest of the page."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from kernel.__main__ import PAGE, write
from kernel.comparison import MOUNTS, Compared, Comparison

from support.litmus.file_systems import LITMUS


def compared(model: str, names: tuple[str, ...]) -> Comparison:
    """A comparison of some litmus tests in which each showed one of the two states that it may leave."""
    programs = [
        Compared(litmus, model, 30, Counter({"f=A": 30}), frozenset(("f=A", "f=0")))
        for litmus in LITMUS
        if litmus.name in names
    ]
    return Comparison(model, "6.1", 10, programs)


def test_only_the_last_section_of_the_page_is_written(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    names = ("append-of-blocks", "fsync-makes-a-rename-durable", "fsync-makes-a-link-durable")
    write([compared(model, names) for model in MOUNTS], page)
    rules, heading, section = page.read_text(encoding="utf-8").partition("## Compared with a real kernel\n")
    assert rules + heading == PAGE.read_text(encoding="utf-8").partition(heading)[0] + heading
    rows = [line for line in section.splitlines() if line.startswith("| ")]
    assert rows[2] == "| `ext4` | 6.1 | defaults | 30 | 90 | 0 |"
    assert rows[7:9] == [
        "| 2 | `append-of-blocks` 1/2 1/2 1/2 |",
        "| 4 | `fsync-makes-a-rename-durable` 1/2 1/2 1/2, `fsync-makes-a-link-durable` 1/2 1/2 1/2 |",
    ]


def test_the_page_names_every_litmus_test_of_a_file_system() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert [litmus.name for litmus in LITMUS if f"`{litmus.name}`" not in text] == []
