"""The compiled recorder: warnings, caches, exported names, sanitizers, static programs and C++."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from crashcheck.errors import CrashcheckError
from crashcheck.runtime import build
from crashcheck.runtime.build import RuntimeLibrary, build_runtime
from crashcheck.runtime.patterns import matches
from crashcheck.runtime.record import Workload, record
from support import compilers, elf
from support.decode import CLEAN_EXIT, decode
from support.paths import RUNTIME_PROGRAMS

SLOW = pytest.mark.slow
SANITIZE = ["-O0", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
STRICT = ["-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", f"-I{build.INCLUDE}"]


@pytest.mark.parametrize(
    ("compiler", "more"),
    [
        ("gcc", ("-O0", "-g0")),
        *(pytest.param(name, (), marks=SLOW, id=name) for name in ("gcc", "clang-14", "clang-16", "clang-19")),
    ],
)
def test_processes_that_build_at_once_get_the_same_library_without_a_warning(
    compiler: str, more: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fast without optimisation, which takes most of the time and may find more to warn of."""
    if not shutil.which(compiler):
        pytest.skip(f"{compiler} is not installed")
    monkeypatch.setenv("CRASHCHECK_CACHE", str(tmp_path / "a cache"))
    command = [compiler, "-Wall", "-Wextra", "-Werror"]
    code = f"build.FLAGS += {more}; build.SYSCALLS_FLAGS += {more}; print(build.build_runtime({command}).shared)"
    source = f"import sys; sys.path[:0] = {sys.path!r}; from crashcheck.runtime import build; {code}"
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda _: subprocess.check_output([sys.executable, "-c", source], text=True), range(2)))
    assert len(set(done)) == 1
    assert Path(done[0].strip()).is_file()
    assert [path.name for path in (tmp_path / "a cache").glob("[!.]*")] == [Path(done[0].strip()).parent.name]


def test_a_source_that_is_compiled_once_is_the_same_in_both_libraries() -> None:
    once = [source for source in build.c_sources() if not build._mentions_shared(source, set())]
    assert once
    command = [*compilers.c_compiler(), *build.FLAGS, f"-I{build.INCLUDE}", "-E"]
    for source in once:  # zig preprocesses one at a time
        apart = [subprocess.check_output([*command, *flag, str(source)]) for flag in ([], ["-DCC_SHARED"])]
        assert apart[0] == apart[1], source


def test_a_compiler_that_fails_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRASHCHECK_CACHE", str(tmp_path))
    with pytest.raises(CrashcheckError) as caught:
        build_runtime([*compilers.c_compiler(), "-fno-such-flag"])
    assert caught.value.slug == "runtime-build"
    assert "-fno-such-flag" in caught.value.message
    with pytest.raises(CrashcheckError) as caught:
        build_runtime([str(tmp_path / "nothing")])
    assert caught.value.slug == "no-c-compiler"


def test_models_def_names_exactly_the_wrappers(library: RuntimeLibrary) -> None:
    listed = [line[2:-1] for line in (build.INCLUDE / "models.def").read_text().splitlines() if line.startswith("X(")]
    wrapped = {name[8:] for name in elf.defined(library.shared) if name.startswith("cc_wrap_")}
    assert set(listed) == wrapped
    assert listed == sorted(listed)


def test_linking_against_the_recorder_offers_no_function_of_another_library(library: RuntimeLibrary) -> None:
    names = elf.defined(library.link)
    assert {"cc_store", "cc_wrap_write", "cc_shadow", "crashcheck_op_begin"} <= names
    assert {name for name in names if not name.startswith(("cc_", "crashcheck_"))} == set()


CASES = ["a.db", "b/a.db", "b/c/a.db", ".db", "a-db", "log/1", "log/", "x[1]", "ab", "é.db", "a]b", "*"]
PATTERNS = [
    "*.db", "**.db", "**/*.db", "log/*", "?.db", "[ab].db", "[!a].db", "[a-c]*", "x[[]1]", "x[", "b/**", "", "a.d[]b]",
    "*\n?/a.db", "a[]]b", "[", "[!", "*[*]*",
]  # fmt: skip


def test_c_and_python_agree_on_patterns(library: RuntimeLibrary, tmp_path: Path) -> None:
    target = tmp_path / "globs"
    subprocess.run(
        [
            *compilers.c_compiler(),
            *STRICT,
            str(RUNTIME_PROGRAMS / "globs.c"),
            str(library.archive),
            "-lpthread",
            "-ldl",
            "-o",
            target,
        ],
        check=True,
    )
    for pattern in PATTERNS:
        events = subprocess.check_output([target, pattern, *CASES], text=True)
        assert events == "".join("01"[matches(case, pattern.split("\n"))] for case in CASES), pattern


RENAMED = (
    "mmap",
    "munmap",
    "open",
    "ftruncate",
    "memcpy",
    "memset",
    "write",
    "pwrite",
    "writev",
    "pwritev",
    "strcpy",
    "strcat",
    "strncat",
    "strncpy",
    "stpcpy",
    "snprintf",
    "sprintf",
    "fopen",
    "fclose",
    "fflush",
    "fprintf",
    "fputs",
    "fputc",
    "fwrite",
    "fseek",
    "dprintf",
    "fsync",
)


def _instrumented(compiler: str, name: str, include: Path, target: Path, *flags: str) -> None:
    """Compiles a program with its calls renamed as crashcheck-cc renames them."""
    renames = [f"-D{function}=cc_wrap_{function}" for function in RENAMED]
    source = str(RUNTIME_PROGRAMS / f"{name}.c")
    subprocess.run(
        [compiler, *STRICT, "-g", *flags, *renames, f"-I{include}", "-c", source, "-o", str(target)], check=True
    )


def test_a_static_program_records(library: RuntimeLibrary, tmp_path: Path) -> None:
    compilers.needs_static()
    _instrumented(compilers.c_compiler()[0], "threads", library.include, tmp_path / "threads.o")
    target = tmp_path / "static"
    subprocess.run(
        [*compilers.c_compiler(), "-static", str(tmp_path / "threads.o"), str(library.archive), "-o", str(target)],
        check=True,
    )
    recording = record(Workload([str(target), "{pool}", "threads"], ["*.db"], timeout_s=60), tmp_path / "w")
    trace = decode(recording.trace)
    assert len(trace.of("STORE")) == 4 * 6000
    assert trace.status == CLEAN_EXIT


@pytest.fixture(scope="module")
def sanitizing() -> str:
    """A C compiler that has AddressSanitizer and UndefinedBehaviorSanitizer."""
    return compilers.sanitizing("gcc", *SANITIZE)[0]


@pytest.fixture(scope="module")
def sanitized(sanitizing: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recorder's objects under these sanitizers."""
    folder = tmp_path_factory.mktemp("sanitized")
    for source in build.c_sources():
        flags = [flag for flag in build.FLAGS if flag not in ("-O2", "-g", "-fPIC")]
        subprocess.run(
            [sanitizing, *STRICT, *flags, *SANITIZE, "-c", str(source), "-o", str(folder / f"{source.stem}.o")],
            check=True,
        )
    return folder


SCENES = [
    ("threads", "atomics"), ("threads", "signals"), ("maps", "bulk"), ("processes", "fork"), ("calls", "writes"),
    *(
        pytest.param(name, scene, marks=SLOW)
        for name, scene in [
            ("threads", "threads"), ("threads", "stacks"), ("maps", "moved"), ("maps", "unmapped-in-parts"),
            ("processes", "exec"), ("streams", "files"), ("library", "strings"),
        ]
    ),
]  # fmt: skip


@pytest.mark.parametrize(("name", "scene"), SCENES)
def test_the_recorder_is_clean_under_sanitizers(
    sanitizing: str, sanitized: Path, name: str, scene: str, tmp_path: Path
) -> None:
    _instrumented(sanitizing, name, build.INCLUDE, tmp_path / "program.o", "-fsanitize=address,undefined")
    target = tmp_path / "checked"
    objects = [str(path) for path in sorted(sanitized.glob("*.o"))]
    subprocess.run([sanitizing, *SANITIZE, str(tmp_path / "program.o"), *objects, "-o", str(target)], check=True)
    plain = RuntimeLibrary(*[Path("")] * 6)
    recording = record(Workload([str(target), "{pool}", scene], ["*.db"], timeout_s=300), tmp_path / "w", runtime=plain)
    assert "Sanitizer" not in recording.stderr.read_text()
    assert "runtime error" not in recording.stderr.read_text()
    assert decode(recording.trace).of("STORE", "WRITE")


def test_output_and_files_of_c_plus_plus_streams_are_recorded(library: RuntimeLibrary, tmp_path: Path) -> None:
    target = tmp_path / "ostream"
    subprocess.run(
        [
            *compilers.cxx_compiler(), "-Wall", "-Wextra", "-Werror",
            f"-I{library.include}", str(RUNTIME_PROGRAMS / "ostream.cpp"),
            f"-L{library.link.parent}", "-lcrashcheck", f"-Wl,-rpath,{library.shared.parent}", "-o", str(target),
        ],
        check=True,
    )  # fmt: skip
    recording = record(Workload([str(target), "{pool}"], ["*.db"], timeout_s=60), tmp_path / "w")
    trace = decode(recording.trace)
    events = [event.data.decode() if event.kind == "STORE" else event.offset for event in trace.of("STORE", "OUTPUT")]
    assert events == ["a", 4, "b", 9, "c", "d"]
    assert [event.data for event in trace.of("WRITE")] == [b"through a stream"]


def test_libpmem_calls_become_flushes_fences_and_copies(recorded: Callable[..., tuple]) -> None:
    compilers.needs_libpmem()
    trace, _ = recorded("pmem", "libpmem", flags=("-lpmem",), env={"PMEM_IS_PMEM_FORCE": "1"})
    nt, bulk = 1, 4 | 8
    events = [
        (event.kind, event.offset, event.size, event.flags)
        for event in trace.of("STORE", "FLUSH", "FENCE", "SYNC_BEGIN")
    ]
    assert events == [
        ("STORE", 0, 1, 0), ("FLUSH", 0, 1, 0), ("FENCE", 0, 0, 0),
        ("STORE", 64, 1, 0), ("FLUSH", 64, 8, 0), ("FENCE", 0, 0, 0),
        ("STORE", 128, 16, bulk), ("FLUSH", 128, 16, 0), ("FENCE", 0, 0, 0),
        ("STORE", 1024, 512, bulk | nt), ("FENCE", 0, 0, 0),
        ("STORE", 2048, 64, bulk),
        ("STORE", 4096, 64, bulk | nt),
        ("STORE", 8192, 512, bulk), ("FLUSH", 8192, 512, 0), ("FENCE", 0, 0, 0),
        ("SYNC_BEGIN", 0, 4096, 0),
    ]  # fmt: skip
