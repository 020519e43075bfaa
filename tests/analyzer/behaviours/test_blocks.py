"""Updates without a type belong to the memory that was made ready for them as a whole."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from crashcheck.analyzer.behaviours.blocks import find_blocks
from crashcheck.analyzer.behaviours.numbers import MOST_BLOCK
from crashcheck.analyzer.behaviours.updates import AccessColumns
from support.command_line import run_crashcheck
from support.scripts import Script, described, site

FILL = site(kind="fill", line=1)
RAW = site(line=2)
OTHER_RAW = site(line=3)
KEY = site("entry.key", ("entry", "key", 0, 8), line=4)
BLOCK = "(block of 64 bytes)"


def test_two_functions_that_write_words_of_one_block_update_one_instance(tmp_path: Path) -> None:
    script = Script(tmp_path, FILL, RAW, OTHER_RAW)
    script.at(1, 128, size=64)
    script.at(1, 256, size=64)
    for start in (128, 256):
        script.at(2, start + 8, stack=script.trace.stack_def(0, 2))
        script.at(3, start + 16, stack=script.trace.stack_def(0, 3))
    assert described(script.found()) == [(BLOCK, 128, 0, (1, 2, 3)), (BLOCK, 256, 0, (1, 2, 3))]


def test_fields_are_identified_by_their_place_in_the_block(tmp_path: Path) -> None:
    script = Script(tmp_path, FILL, RAW)
    script.at(1, 128, size=64)
    script.at(2, 128 + 24)
    assert [path for _, path in script.found().instances.fields] == ["*", "+24"]


def test_a_block_that_is_filled_again_is_a_new_instance(tmp_path: Path) -> None:
    script = Script(tmp_path, FILL, RAW)
    for _ in range(2):
        script.at(1, 128, size=64)
        script.at(2, 136)
    assert described(script.found()) == [(BLOCK, 128, 0, (1, 2)), (BLOCK, 128, 1, (1, 2))]


def test_memory_that_is_reused_in_another_size_is_another_instance(tmp_path: Path) -> None:
    script = Script(tmp_path, FILL, RAW)
    script.at(1, 128, size=64)
    script.at(2, 136)
    script.at(1, 128, size=128)
    script.at(2, 136)
    assert described(script.found()) == [("(block of 128 bytes)", 128, 0, (1, 1, 2)), (BLOCK, 128, 0, (1, 2))]


def test_a_fill_of_a_part_is_an_update_of_the_block(tmp_path: Path) -> None:
    script = Script(tmp_path, FILL, RAW)
    script.at(1, 128, size=64)
    script.at(1, 144, size=16)
    assert described(script.found()) == [(BLOCK, 128, 0, (1, 1))]


def test_what_reaches_out_of_a_block_is_no_part_of_it(tmp_path: Path) -> None:
    script = Script(tmp_path, FILL, RAW)
    script.at(1, 128, size=64)
    script.at(2, 184, size=16)
    script.at(2, 192)
    assert {type_ for type_, *_ in described(script.found())} == {"(work)"}


def test_a_word_with_a_type_keeps_it_and_the_rest_belongs_to_the_block(tmp_path: Path) -> None:
    script = Script(tmp_path, FILL, RAW, KEY)
    script.at(1, 128, size=64)
    script.at(3, 128, delta=0)
    script.at(2, 128)
    script.at(2, 144)
    found = [(type_, start, sites) for type_, start, _, sites in described(script.found())]
    assert found == [(BLOCK, 128, (2,)), ("entry", 128, (1, 3, 2))]


def test_a_whole_area_is_no_block(tmp_path: Path) -> None:
    script = Script(tmp_path, FILL, RAW)
    script.at(1, 0, size=MOST_BLOCK + 8)
    script.at(2, 8)
    assert {type_ for type_, *_ in described(script.found())} == {"(work)"}


def by_hand(rows: list[tuple[int, int, bool]]) -> list[tuple[int, int, int] | None]:
    """Of (offset, size, bulk) in order of time: (start, size, life) of the block of each, by the rule's words."""
    wrote: dict[int, int] = {}  # word: latest bulk update
    block: list[int | None] = []
    lives: dict[tuple[int, int], int] = {}
    life: dict[int, int] = {}
    for number, (offset, size, bulk) in enumerate(rows):
        words = range(offset // 8, (offset + size - 1) // 8 + 1)
        ends = {wrote.get(words[0]), wrote.get(words[-1])}
        around = {None if one is None else block[one] for one in ends}
        mine = around.pop() if len(around) == 1 else None
        if mine is not None:
            start, extent, _ = rows[mine]
            if not (start <= offset and offset + size <= start + extent) or (bulk and size >= extent):
                mine = None
        if bulk and 16 <= size <= MOST_BLOCK:
            if mine is None:
                mine = number
                life[number] = lives.get((offset, size), 0)
                lives[offset, size] = life[number] + 1
            for word in words:
                wrote[word] = number
        block.append(mine)
    used = {mine for number, mine in enumerate(block) if mine != number}
    return [None if mine is None or mine not in used else (*rows[mine][:2], life[mine]) for mine in block]


@pytest.mark.parametrize("seed", range(60))
def test_blocks_are_those_that_going_through_the_updates_one_by_one_gives(seed: int) -> None:
    chance = random.Random(seed)
    rows = []
    for _ in range(chance.randrange(1, 60)):
        bulk = chance.random() < 0.4
        size = 8 * chance.choice((1, 2, 3, 4, 8)) if bulk else chance.choice((1, 4, 8, 8, 8, 24))
        rows.append((chance.choice((8, 8, 4)) * chance.randrange(24), size, bulk))
    columns = np.array(rows, dtype=np.int64)
    many = np.arange(len(rows))
    updates = AccessColumns(many, many, many, many * 0 + 1, columns[:, 0], columns[:, 1], many)
    whole = columns[:, 2].astype(bool)
    found = find_blocks(updates, np.ones(len(rows), dtype=bool), whole)
    told_: list[tuple[int, int, int] | None] = [None] * len(rows)
    for update, start, size, life in zip(found.update, found.start, found.size, found.generation, strict=True):
        told_[int(update)] = (int(start), int(size), int(life))
    assert told_ == by_hand(rows)


RAW_C = """\
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <emmintrin.h>
static char *base;
static uint64_t used = 64;
static char *allocate(uint64_t bytes) {
    char *block = base + used;
    used += bytes;
    memset(block, 0, bytes);
    _mm_clflush(block);
    return block;
}
static void set_key(char *block, uint64_t key) {
    memcpy(block + 8, &key, 8);
    _mm_clflush(block);
}
static void set_value(char *block, uint64_t value) {
    *(uint64_t *)(block + 16) = value;
    _mm_clflush(block);
}
int main(int argc, char **argv) {
    int fd = open(argv[argc - 1], O_RDWR | O_CREAT, 0600);
    if (ftruncate(fd, 65536))
        return 1;
    base = mmap(0, 65536, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    for (uint64_t i = 0; i < 5; i++) {
        char *block = allocate(64);
        set_key(block, i);
        set_value(block, 7);
    }
    return 0;
}
"""
CONFIG = """\
[build]
command = "crashcheck-cc -O0 -g -o raw raw.c"
[workload]
command = "./raw {pool}/a.pm"
[pool]
files = ["a.pm"]
[check]
command = "true"
"""


def test_objects_of_a_program_without_structs_are_instances(tmp_path: Path, environment: dict[str, str]) -> None:
    (tmp_path / "raw.c").write_text(RAW_C)
    (tmp_path / "crashcheck.toml").write_text(CONFIG)
    done = run_crashcheck("groups", cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    (row,) = [number for number, line in enumerate(lines) if "(block of 64 bytes)" in line]
    assert lines[row].split()[6:8] == ["5", "3"]  # members, updates
    assert [line.split()[1] for line in lines[row + 2 : row + 5]] == ["allocate", "set_key", "set_value"]
