"""What Python emits for the guard, and reads of its log, is what guard.h declares."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np

from crashcheck.analyzer.compile.driver.toolchain import read_models
from crashcheck.analyzer.compile.instrument import guarding
from crashcheck.analyzer.compile.site_names import CHANGED, SETTLED, SETTLED_GROUPS
from crashcheck.analyzer.concurrency import observations
from crashcheck.runtime import build
from support import compilers, elf


def layout(name: str, type_: np.dtype[np.void]) -> list[str]:
    """Claims that a struct has the fields of a record type at the same places."""
    assert type_.fields is not None
    claims = [f"offsetof(struct {name}, {field}) == {at}" for field, (_, at) in type_.fields.items()]
    claims += [f"sizeof(((struct {name} *)0)->{field}) == {kind.itemsize}" for field, (kind, _) in type_.fields.items()]
    return claims


def test_numbers_and_layouts_are_those_of_the_header(tmp_path: Path) -> None:
    claims = [
        f"CC_GUARD_VERSION == {guarding.VERSION} && CC_GUARD_VERSION == {observations.VERSION}",
        f"CC_GUARD_CHANGED == {CHANGED}u && CC_GUARD_SETTLED == {SETTLED * SETTLED_GROUPS}u",
        f"CC_GUARD_MAGIC == {observations.MAGIC}u && CC_GUARD_HEADER_BYTES == {observations.HEADER_BYTES}",
        "sizeof(struct cc_guard_unit) == 40 && offsetof(struct cc_guard_unit, facts) == 16",
        "offsetof(struct cc_guard_unit, learned) == 32",
        "offsetof(struct cc_guard_site, predecessors) == 8 && offsetof(struct cc_guard_site, set) == 16",
        f"sizeof(struct cc_guard_row) == {observations.ROW.itemsize}",
        *layout("cc_guard_header", observations.HEADER),
        *layout("cc_guard_row", observations.ROW),
        *(f"CC_GUARD_{kind.name} == {kind.value}" for kind in observations.ObservationKind),
    ]
    source = tmp_path / "claims.c"
    text = "\n".join(f'_Static_assert({claim}, "");' for claim in claims)
    source.write_text(f'#include "guard.h"\n{text}\n', encoding="utf-8")
    subprocess.run([*compilers.c_compiler(), f"-I{build.INCLUDE}", "-fsyntax-only", str(source)], check=True)


def test_the_library_has_what_programs_call_and_nothing_of_the_recorder() -> None:
    header = (build.INCLUDE / "guard.h").read_text(encoding="utf-8")
    declared = set(re.findall(r"^(?:void|unsigned) (\w+)\(", header, re.MULTILINE))
    assert declared >= set(re.findall(r"@(cc_\w+)\(", guarding._DECLARED))
    models = read_models(build.GUARD_MODELS.read_text(encoding="utf-8"))
    defined = elf.defined(build.build_guard().shared)
    assert {name for name in defined if name.startswith(("cc_", "crashcheck_"))} == declared | {
        f"cc_wrap_{name}" for name in models
    }
