"""The recorder's private headers: each compiles by itself, and their includes run one way."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from crashcheck.runtime import build

PRIVATE = sorted(build.INCLUDE.glob("*/*.h"))


def parts_in_order() -> list[str]:
    """The parts as recorder/base.h lists them, lowest first."""
    text = (build.INCLUDE / "recorder" / "base.h").read_text(encoding="utf-8")
    return re.findall(r"^ \*   (\w+)  ", text, re.M)


def included_parts(path: Path) -> set[str]:
    return set(re.findall(r'^#include "recorder/(\w+)\.h"', path.read_text(encoding="utf-8"), re.M))


def test_each_private_header_compiles_by_itself(tmp_path: Path) -> None:
    for header in PRIVATE:
        source = tmp_path / "alone.c"
        source.write_text(f'#include "{header}"\nint nothing;\n', encoding="utf-8")
        flags = [*build.FLAGS, "-DCC_SHARED", "-Wall", "-Wextra", "-Werror", f"-I{build.INCLUDE}"]
        subprocess.run([*build.find_compiler(), *flags, "-c", str(source), "-o", os.devnull], check=True)


def test_every_part_is_in_the_list_and_includes_only_parts_before_it() -> None:
    order = parts_in_order()
    headers = {path.stem: path for path in PRIVATE if path.parent.name == "recorder"}
    assert set(headers) - set(order) == {"raw"}  # which includes none
    assert set(order) - set(headers) == {"marks", "timers"}  # whose headers are crashcheck.h and hooks.h
    for number, part in enumerate(order):
        if part in headers:
            assert included_parts(headers[part]) <= {*order[:number], "raw"}, part
        source = build.INCLUDE.parent / "recorder" / f"{part}.c"
        lower = {*order[: number + 1], "raw"}
        assert not source.exists() or included_parts(source) <= lower, source
