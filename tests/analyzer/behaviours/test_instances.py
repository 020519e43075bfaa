"""Which update belongs to which field of which instance."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from crashcheck.analyzer.behaviours.types.program_types import ProgramTypes, enclosing_structs, recorded_struct
from crashcheck.analyzer.compile.facts import FieldLayout, TypeLayout
from support.scripts import HEADER, Script, described, site

# struct entry { key; value; }; struct bucket { char valid[8]; entry entry[7]; }; struct table { magic; bucket top[4]; }
KEY = site("bucket.entry[].key", ("entry", "key", 0, 8), ("bucket", "entry", 8, 112), line=1)
VALUE = site("bucket.entry[].value", ("entry", "value", 8, 8), ("bucket", "entry", 8, 112), line=2)
VALID = site("bucket.valid[]", ("bucket", "valid", 0, 8), line=3)
IN_TABLE = site("table.top[].valid[]", ("bucket", "valid", 0, 8), ("table", "top", 64, 512), line=4)
MAGIC = site("table.magic", ("table", "magic", 0, 8), line=5)
COPY = site("entry", kind="copy", line=6)
RAW_COPY = site(kind="copy", line=7)
FILL = site(kind="fill", line=8)
RAW = site(line=9)
OTHER = site("node.next", ("node", "next", 0, 8), line=10)
ATOMIC = site("entry.key", ("entry", "key", 0, 8), kind="atomic", line=11, file=HEADER)


def instances(script: Script) -> list[tuple[str, int, int]]:
    return sorted({(type_, start, life) for type_, start, life, _ in described(script.found())})


def test_an_update_of_a_nested_struct_belongs_to_it_and_to_each_enclosing_one(tmp_path: Path) -> None:
    script = Script(tmp_path, KEY, VALUE, VALID)
    script.at(1, 128 + 8 + 3 * 16, delta=8 + 3 * 16)
    assert described(script.found()) == [("bucket", 128, 0, (1,)), ("entry", 184, 0, (1,))]


def test_elements_of_an_array_are_instances_and_scalars_in_an_array_are_not(tmp_path: Path) -> None:
    script = Script(tmp_path, KEY, VALUE, VALID)
    for slot in (0, 1):
        script.at(1, 8 + 16 * slot, delta=8 + 16 * slot)
        script.at(2, 16 + 16 * slot, delta=16 + 16 * slot)
        script.at(3, slot, size=1, delta=slot)
    assert described(script.found()) == [
        ("bucket", 0, 0, (1, 2, 3, 1, 2, 3)),
        ("entry", 8, 0, (1, 2)),
        ("entry", 24, 0, (1, 2)),
    ]


def test_an_element_is_found_from_the_outermost_instance_by_the_distance_of_elements(tmp_path: Path) -> None:
    script = Script(tmp_path, KEY, VALUE, VALID, IN_TABLE)
    script.at(1, 64 + 2 * 128 + 8, delta=8)
    script.at(4, 64 + 2 * 128 + 5, size=1, delta=64 + 2 * 128 + 5)
    assert instances(script) == [("bucket", 320, 0), ("entry", 328, 0), ("table", 0, 0)]


def test_an_enclosing_type_beyond_the_recorded_instance_is_found_where_one_is_known(tmp_path: Path) -> None:
    script = Script(tmp_path, IN_TABLE, MAGIC, KEY)
    script.at(1, 64 + 128, size=1, delta=0)  # the function knew the bucket only
    script.at(1, 64 + 128 + 3, size=1, delta=3)
    assert instances(script) == [("bucket", 192, 0)]
    script.at(2, 0, delta=0)
    assert instances(script) == [("bucket", 192, 0), ("table", 0, 0)]


def test_a_copy_of_a_whole_struct_updates_every_field_that_the_layout_knows(tmp_path: Path) -> None:
    script = Script(tmp_path, COPY, KEY, VALUE)
    script.at(1, 128, size=16, delta=0)
    script.at(2, 1024 + 8, delta=8)
    script.at(3, 1024 + 16, delta=16)
    found = script.found().instances
    mine = [int(f) for i, f in zip(found.row_instance, found.row_field, strict=True) if int(found.start[i]) == 128]
    assert [found.fields[field][1] for field in mine] == ["key", "value"]


def test_a_copy_without_a_type_updates_what_typed_updates_wrote_there(tmp_path: Path) -> None:
    script = Script(tmp_path, KEY, VALUE, RAW_COPY)
    script.at(1, 8, delta=8)
    script.at(2, 16, delta=16)
    script.at(3, 8, size=16)
    assert described(script.found()) == [("bucket", 0, 0, (1, 2, 3)), ("entry", 8, 0, (1, 2, 3))]


def test_a_typed_copy_belongs_to_no_other_object_that_was_there_before(tmp_path: Path) -> None:
    script = Script(tmp_path, OTHER, COPY, KEY)
    script.at(1, 64, delta=0)
    script.at(2, 64, size=16, delta=0)
    assert described(script.found()) == [("entry", 64, 0, (2,)), ("node", 64, 0, (1,))]


def test_an_untyped_update_takes_the_type_last_written_there_and_a_fill_the_next(tmp_path: Path) -> None:
    for number, expected in (
        (1, [("bucket", 0, (3, 1)), ("entry", 8, (3, 1)), ("node", 8, (4,))]),
        (2, [("bucket", 0, (3,)), ("entry", 8, (3,)), ("node", 8, (2, 4))]),
    ):
        script = Script(tmp_path, RAW, FILL, KEY, OTHER)
        script.at(3, 8, delta=8)
        script.at(number, 8)
        script.at(4, 8, delta=0)
        assert [(type_, start, sites) for type_, start, _, sites in described(script.found())] == expected


def test_an_untyped_update_before_any_typed_one_takes_the_first_after_it(tmp_path: Path) -> None:
    script = Script(tmp_path, RAW, OTHER)
    script.at(1, 64)
    script.at(2, 64, delta=0)
    assert described(script.found()) == [("node", 64, 0, (1, 2))]


def test_updates_without_a_type_are_identified_by_their_call_stack(tmp_path: Path) -> None:
    script = Script(tmp_path, RAW, OTHER)
    one, other = script.trace.stack_def(0, 2), script.trace.stack_def(0, 1)
    script.at(1, 64, stack=one)
    script.at(1, 4096, stack=one)
    script.at(1, 64, stack=other)
    assert described(script.found()) == [("(work)", one, 0, (1, 1)), ("(work)", other, 0, (1,))]


def test_a_fill_of_all_known_fields_begins_a_new_life(tmp_path: Path) -> None:
    script = Script(tmp_path, KEY, VALUE, FILL)
    script.at(1, 8, delta=8)
    script.at(2, 16, delta=16)
    script.at(3, 8, size=16)
    script.at(1, 8, delta=8)
    lives = [(start, life, sites) for type_, start, life, sites in described(script.found()) if type_ == "entry"]
    assert lives == [(8, 0, (1, 2)), (8, 1, (3, 1))]


def test_a_fill_of_a_part_does_not(tmp_path: Path) -> None:
    script = Script(tmp_path, KEY, VALUE, FILL)
    script.at(1, 8, delta=8)
    script.at(3, 16, size=8)
    script.at(2, 16, delta=16)
    assert [life for type_, _, life, _ in described(script.found()) if type_ == "entry"] == [0]


def test_memory_that_another_object_wrote_in_between_is_a_new_instance(tmp_path: Path) -> None:
    script = Script(tmp_path, OTHER, KEY)
    script.at(1, 64, delta=0)
    script.at(2, 64, delta=8)
    script.at(1, 64, delta=0)
    assert [(life, sites) for type_, _, life, sites in described(script.found()) if type_ == "node"] == [
        (0, (1,)),
        (1, (1,)),
    ]


def test_uses_of_a_wrapper_in_a_header_are_different_sites(tmp_path: Path) -> None:
    script = Script(tmp_path, ATOMIC, KEY, VALUE)
    for caller in (2, 3):
        script.at(1, 64, delta=0, stack=script.trace.stack_def(0, caller))
    sites = script.found().sites.sites
    assert [(s.site, s.callers, s.file, s.line) for s in sites] == [
        (1, (2,), "/src/program.c", 1),
        (1, (3,), "/src/program.c", 2),
    ]


def test_a_typed_site_in_the_source_is_a_site_for_each_caller(tmp_path: Path) -> None:
    script = Script(tmp_path, KEY, VALUE)
    for caller in (1, 2):
        script.at(1, 8, delta=8, stack=script.trace.stack_def(0, caller))
    assert [s.callers for s in script.found().sites.sites] == [(1,), (2,)]


def test_the_level_of_the_recorded_instance_follows_from_the_distance() -> None:
    chain = enclosing_structs(
        site("pool.leaves[].slots[].key", ("e", "key", 0, 8), ("leaf", "slots", 64, 64), ("pool", "leaves", 64, 2048))
    )
    assert [level.path for level in chain] == ["key", "slots[].key", "leaves[].slots[].key"]
    assert recorded_struct(chain, 64, 112) == 1
    assert recorded_struct(chain, 128, 128 + 15 * 128 + 48) == 2
    assert recorded_struct(chain, 0, 0) == 0
    assert recorded_struct(chain, 4096, 4096) == -1


def test_the_distance_of_elements_is_the_smallest_that_fits_what_is_known() -> None:
    layout = ProgramTypes([KEY, VALUE, IN_TABLE])
    (entries,), (top,) = [
        [x for x in enclosing_structs(s) if x.array and x.type in ("bucket", "table")][-1:] for s in (KEY, IN_TABLE)
    ]
    assert layout.stride(entries, "entry") == 16
    assert layout.stride(top, "bucket") == 128
    layout.learn(entries, 112)
    assert layout.stride(entries, "entry") == 16
    layout.learn(top, 256)
    assert layout.stride(top, "bucket") == 128


def test_a_file_that_grows_belongs_to_its_call_stack(tmp_path: Path) -> None:
    script = Script(tmp_path, RAW, size=0)
    script.trace.truncate("f", 8192)
    assert [(type_, sites) for type_, _, _, sites in described(script.found("page-cache"))] == [
        ("(unknown code)", (0,))
    ]


LOG = site("log.word[]", ("log", "word", 64, 64), line=20)
LOG_HEAD = site("log.head", ("log", "head", 0, 8), line=21)
RECORD = site("log.record[].word[]", ("record", "word", 8, 24), ("log", "record", 64, 128), line=22)


def test_an_element_whose_index_was_computed_belongs_to_the_instance_around_it(tmp_path: Path) -> None:
    script = Script(tmp_path, LOG, LOG_HEAD)
    script.at(2, 4096, delta=0)
    script.at(1, 4096 + 64)
    script.at(1, 4096 + 64 + 56)
    script.at(1, 4096 + 64 + 64)  # beyond the array
    assert described(script.found()) == [("(work)", 0, 0, (1,)), ("log", 4096, 0, (2, 1, 1))]


def test_it_is_found_however_late_the_instance_shows_and_not_where_two_overlap(tmp_path: Path) -> None:
    script = Script(tmp_path, LOG, LOG_HEAD)
    script.at(1, 4096 + 64 + 40)
    script.at(1, 8192 + 64 + 40)
    script.at(2, 4096, delta=0)
    script.at(2, 8192, delta=0)
    script.at(2, 8192 + 16, delta=0)
    assert described(script.found()) == [
        ("(work)", 0, 0, (1,)),
        ("log", 4096, 0, (1, 2)),
        ("log", 8192, 0, (2,)),
        ("log", 8208, 0, (2,)),
    ]


def test_within_it_elements_are_found_by_their_declared_distance(tmp_path: Path) -> None:
    record = TypeLayout("record", 32, (FieldLayout("kind", 0, 8, "", 0), FieldLayout("word", 8, 24, "", 3)))
    script = Script(tmp_path, RECORD, LOG_HEAD, layouts=(record,))
    script.at(2, 4096, delta=0)
    for element in (0, 3):
        script.at(1, 4096 + 64 + 32 * element + 8)
    assert described(script.found()) == [
        ("log", 4096, 0, (2, 1, 1)),
        ("record", 4160, 0, (1,)),
        ("record", 4256, 0, (1,)),
    ]


@pytest.mark.parametrize("seed", range(40))
def test_elements_are_located_as_by_looking_at_every_instance(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    script = Script(tmp_path, LOG, LOG_HEAD, OTHER)
    heads = sorted({64 * chance.randrange(40) for _ in range(chance.randrange(1, 12))})
    accesses = [8 * chance.randrange(360) for _ in range(40)]
    for head in heads:
        script.at(2, head, delta=0)
    for offset in accesses:
        script.at(1, offset)
    expected: dict[int, int] = {}
    for offset in accesses:
        around = [head for head in heads if head + 64 <= offset < head + 128]
        if len(around) == 1:
            expected[around[0]] = expected.get(around[0], 0) + 1
    found: dict[int, int] = {}
    for type_, start, _, sites in described(script.found()):
        if type_ == "log" and 1 in sites:
            found[start] = found.get(start, 0) + sites.count(1)
    assert found == expected


def test_bytes_between_the_fields_of_a_declared_type_belong_to_it(tmp_path: Path) -> None:
    entry = TypeLayout("entry", 24, (FieldLayout("key", 0, 8, "", 0), FieldLayout("value", 8, 8, "", 0)))
    script = Script(tmp_path, RAW, COPY, layouts=(entry,))
    script.at(2, 64, size=16, delta=0)
    script.at(1, 64 + 16)
    found = script.found()
    assert described(found) == [("entry", 64, 0, (2, 1))]
    assert "(padding)" in {path for _, path in found.instances.fields}


def test_an_update_that_has_the_type_of_its_word_is_no_update_of_the_object_around(tmp_path: Path) -> None:
    entry = TypeLayout("entry", 24, (FieldLayout("key", 0, 8, "", 0), FieldLayout("value", 8, 8, "", 0)))
    word = site("word.w", ("word", "w", 0, 8), line=9)
    script = Script(tmp_path, RAW, COPY, word, layouts=(entry,))
    script.at(2, 64, size=16, delta=0)
    script.at(3, 64 + 16, delta=0)
    script.at(1, 64 + 16)
    found = described(script.found())
    assert {(type_, sites) for type_, _, _, sites in found} == {("entry", (2,)), ("word", (3, 1))}
