"""What debug metadata declares of types decides which fields an update belongs to."""

from __future__ import annotations

from pathlib import Path

from crashcheck.analyzer.behaviours.types.program_types import ProgramTypes, enclosing_structs
from crashcheck.analyzer.compile.facts import FieldLayout, TypeLayout
from support.scripts import Script, described, site

ENTRY = TypeLayout("entry", 24, (FieldLayout("key", 0, 8, "", 0), FieldLayout("value", 8, 16, "", 0)))
BUCKET = TypeLayout("bucket", 80, (FieldLayout("valid", 0, 8, "", 8), FieldLayout("entry", 8, 72, "entry", 3)))
KEY = site("bucket.entry[].key", ("entry", "key", 0, 8), ("bucket", "entry", 8, 72), line=1)
VALID = site("bucket.valid[]", ("bucket", "valid", 0, 8), line=2)
RAW = site(line=3)


def test_a_bulk_update_covers_fields_that_no_site_names() -> None:
    layout = ProgramTypes([KEY], [BUCKET, ENTRY])
    assert layout.covered("bucket", 0, 80) == ("entry[].key", "entry[].value", "valid[]")
    assert layout.covered("entry", 8, 16) == ("value",)
    assert ProgramTypes([KEY]).covered("entry", 8, 16) == ()
    assert (layout.extent("entry"), ProgramTypes([KEY]).extent("entry")) == (24, 8)


def test_the_distance_of_elements_is_declared() -> None:
    inner, outer = enclosing_structs(KEY)
    assert ProgramTypes([KEY], [BUCKET, ENTRY]).stride(outer, inner.type) == 24
    assert ProgramTypes([KEY]).stride(outer, inner.type) == 8


def test_an_update_without_type_belongs_to_what_is_declared_at_its_place(tmp_path: Path) -> None:
    def run(folder: str, *layouts: TypeLayout) -> list[tuple[str, int, int, tuple[int, ...]]]:
        (tmp_path / folder).mkdir()
        script = Script(tmp_path / folder, KEY, VALID, RAW, layouts=layouts)
        script.at(1, 1024 + 8, delta=8)
        script.at(3, 1024 + 8 + 16)
        return described(script.found())

    assert run("known", BUCKET, ENTRY) == [("bucket", 1024, 0, (1, 3)), ("entry", 1032, 0, (1, 3))]
    assert run("unknown")[1:] == [("bucket", 1024, 0, (1,)), ("entry", 1032, 0, (1,))]
