"""A libpmem that crashcheck-cc compiled is recorded twice, and named; a prebuilt one below libpmemobj is not."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from crashcheck.analyzer.compile.facts import ProgramFacts
from crashcheck.analyzer.trace.reader import read
from crashcheck.runtime.record import Workload, record
from crashcheck.runtime.trace_format import Kind
from crashcheck.stages.run_summary import recorded_twice
from support.compilers import c_compiler

# As in PMDK: a folder for each library below src, one Makefile in each, results in src/nondebug.
LIBPMEM = """
#include <stdint.h>
#include <stddef.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
void pmem_flush(const void *at, size_t size) {
    for (uintptr_t line = (uintptr_t)at & ~63ul; line < (uintptr_t)at + size; line += 64)
        __builtin_ia32_clflush((void *)line);
}
void pmem_drain(void) { __builtin_ia32_sfence(); }
void pmem_persist(const void *at, size_t size) { pmem_flush(at, size); pmem_drain(); }
void *pmem_map_file(const char *path, size_t size) {
    int fd = open(path, O_RDWR | O_CREAT, 0644);
    return ftruncate(fd, (off_t)size) ? NULL : mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
}
"""
LIBPMEMOBJ = """
#include <stddef.h>
void pmem_persist(const void *, size_t);
void *pmem_map_file(const char *, size_t);
long *pmemobj_open(const char *path) { return pmem_map_file(path, 4096); }
void pmemobj_put(long *pool, long value) { pool[0] = value; pmem_persist(pool, 8); }
"""
PROGRAM = """
long *pmemobj_open(const char *);
void pmemobj_put(long *, long);
int main(int argc, char **argv) { pmemobj_put(pmemobj_open(argv[argc - 1]), 7); return 0; }
"""
MAKEFILE = """
../nondebug/lib{name}.so: lib{name}.c
\tmkdir -p ../nondebug
\t$(CC) -g -O1 -fPIC -shared {flags} -o $@ lib{name}.c
"""


@pytest.mark.parametrize(("built", "twice"), [("", False), ("crashcheck-cc", True)], ids=["prebuilt", "compiled"])
def test_only_a_libpmem_that_is_compiled_for_recording_is_recorded_twice(
    tmp_path: Path, environment: dict[str, str], built: str, twice: bool
) -> None:
    versions = tmp_path / "libpmem.map"
    versions.write_text("LIBPMEM_1.0 { global: pmem_*; local: *; };\n")
    libraries = {
        "pmem": (
            LIBPMEM,
            f"-Wl,-soname,libpmem.so -Wl,--version-script={versions}",
            built or shlex.join(c_compiler()),
        ),
        # It names the folder itself: some linkers leave libpmem out of a program that does not call it.
        "pmemobj": (LIBPMEMOBJ, "-L../nondebug -lpmem -Wl,-rpath,'$$ORIGIN'", "crashcheck-cc"),
    }
    for name, (source, flags, compiler) in libraries.items():
        folder = tmp_path / "src" / f"lib{name}"
        folder.mkdir(parents=True)
        (folder / f"lib{name}.c").write_text(source)
        (folder / "Makefile").write_text(MAKEFILE.format(name=name, flags=flags))
        subprocess.run(["make", "-s", "-C", str(folder), f"CC={compiler}"], env=environment, check=True)
    (tmp_path / "program.c").write_text(PROGRAM)
    nondebug = tmp_path / "src" / "nondebug"
    words = ["crashcheck-cc", "-g", "-o", "program", "program.c", f"-L{nondebug}", "-lpmemobj", "-lpmem"]
    subprocess.run([*words, f"-Wl,-rpath,{nondebug}"], cwd=tmp_path, env=environment, check=True)
    recording = record(Workload([str(tmp_path / "program"), "{pool}/p"], ["p"]), tmp_path / "run")
    trace = read(recording.trace)
    flushes = int((trace.events["kind"] == Kind.FLUSH).sum())
    assert flushes == (2 if twice else 1)
    warnings = recorded_twice(ProgramFacts.load([unit.module_path for unit in trace.units]), trace)
    assert [warning.split(" is libpmem, ")[0] for warning in warnings] == [str(nondebug / "libpmem.so")] * twice
