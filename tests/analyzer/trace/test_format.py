"""The Python mirror has the names and values of the compiled header."""

from __future__ import annotations

import re
import subprocess
from enum import IntEnum, IntFlag
from pathlib import Path

import numpy as np

from crashcheck.runtime import trace_format as fmt
from support import compilers
from support.paths import ROOT

HEADER = ROOT / "runtime" / "include" / "trace_format.h"

STRUCTS = {
    "cc_trace_header": fmt.HEADER,
    "cc_chunk_header": fmt.CHUNK_HEADER,
    "cc_event": fmt.RECORD,
    "cc_names": fmt.NAMES,
    "cc_code": fmt.CODE,
}
CONSTANTS = {
    "CC_TRACE_VERSION": fmt.VERSION,
    "CC_HEADER_BYTES": fmt.HEADER_BYTES,
    "CC_CHUNK_BYTES": fmt.CHUNK_BYTES,
    "CC_CHUNK_HEADER_BYTES": fmt.CHUNK_HEADER_BYTES,
    "CC_EVENT_BYTES": fmt.EVENT_BYTES,
    "CC_NO_INSTANCE": fmt.NO_INSTANCE,
    "CC_OUTPUT_BYTES": fmt.OUTPUT_BYTES,
}
ENUMS: dict[str, tuple[type[IntEnum] | type[IntFlag], str]] = {
    "cc_trace_status": (fmt.Status, "CC_STATUS_"),
    "cc_recorder": (fmt.Recorder, "CC_RECORDER_"),
    "cc_chunk_kind": (fmt.ChunkKind, "CC_CHUNK_"),
    "cc_event_kind": (fmt.Kind, "CC_"),
    "cc_store_flags": (fmt.StoreFlag, "CC_STORE_"),
    "cc_output_kind": (fmt.OutputKind, "CC_OUTPUT_"),
    "cc_write_flags": (fmt.WriteFlag, "CC_WRITE_"),
    "cc_inode_flags": (fmt.InodeFlag, "CC_INODE_"),
    "cc_site_flags": (fmt.SiteFlag, "CC_SITE_"),
    "cc_flush_kind": (fmt.FlushKind, "CC_"),
    "cc_fence_kind": (fmt.FenceKind, "CC_"),
    "cc_sync_kind": (fmt.SyncKind, "CC_"),
    "cc_map_flags": (fmt.MapFlag, "CC_MAP_"),
}


def enumerators(text: str, name: str) -> set[str]:
    body = re.search(rf"enum {name} \{{(.*?)\}}", text, re.S)
    assert body is not None
    return set(re.findall(r"\b(CC_\w+)\s*=", re.sub(r"/\*.*?\*/", "", body.group(1), flags=re.S)))


def fields(text: str, name: str) -> set[str]:
    body = re.search(rf"struct {name} \{{(.*?)\n\}}", text, re.S)
    assert body is not None
    return set(re.findall(r"\b(\w+)(?:\[\d+\])?;", re.sub(r"/\*.*?\*/", "", body.group(1), flags=re.S)))


def test_mirror_equals_the_compiled_header(tmp_path: Path) -> None:
    text = HEADER.read_text(encoding="utf-8")
    mirror: dict[str, int] = dict(CONSTANTS)
    prints = [(name, name) for name in CONSTANTS]
    for struct, dtype in STRUCTS.items():
        assert fields(text, struct) == set(dtype.names or ()), struct
        mirror[f"sizeof {struct}"] = dtype.itemsize
        prints.append((f"sizeof {struct}", f"sizeof(struct {struct})"))
        for field in dtype.names or ():
            assert dtype.fields is not None
            mirror[f"{struct}.{field}"] = dtype.fields[field][1]
            mirror[f"sizeof {struct}.{field}"] = dtype.fields[field][0].itemsize
            prints.append((f"{struct}.{field}", f"offsetof(struct {struct}, {field})"))
            prints.append((f"sizeof {struct}.{field}", f"sizeof(((struct {struct} *)0)->{field})"))
    for enum, (python, prefix) in ENUMS.items():
        assert enumerators(text, enum) == {prefix + member.name for member in python if member.name}, enum
        for member in python:
            mirror[f"{prefix}{member.name}"] = int(member)
            prints.append((f"{prefix}{member.name}", f"{prefix}{member.name}"))
    source = tmp_path / "mirror.c"
    lines = "\n".join(f'    printf("%s\\t%llu\\n", "{name}", (unsigned long long)({value}));' for name, value in prints)
    source.write_text(
        f'#include <stddef.h>\n#include <stdio.h>\n#include "{HEADER}"\n'
        f'int main(void)\n{{\n{lines}\n    printf("magic\\t%s", CC_TRACE_MAGIC);\n    return 0;\n}}\n',
        encoding="utf-8",
    )
    program = tmp_path / "mirror"
    subprocess.run(
        [*compilers.c_compiler(), "-Wall", "-Wextra", "-Werror", "-o", str(program), str(source)], check=True
    )
    said = subprocess.run([str(program)], check=True, capture_output=True).stdout
    numbers, magic = said.rsplit(b"magic\t", 1)
    compiled = {line.split("\t")[0]: int(line.split("\t")[1]) for line in numbers.decode().splitlines()}
    assert compiled == mirror
    assert magic == fmt.MAGIC


def test_an_event_is_a_record_with_its_chunks_owner() -> None:
    assert fmt.EVENT.names == (*(fmt.RECORD.names or ()), "thread", "pid")
    assert fmt.RECORD.itemsize == fmt.EVENT_BYTES
    assert np.dtype(fmt.HEADER).itemsize <= fmt.HEADER_BYTES
