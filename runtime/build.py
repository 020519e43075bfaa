"""Build the recorder as libraries, on first use; a cache keeps them under the hash of their sources."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from crashcheck.cache import cache_folder
from crashcheck.errors import CrashcheckError
from crashcheck.runtime.zig import ZIG_CC

_HOME = Path(__file__).resolve().parent
INCLUDE = _HOME / "include"
SOURCE_FOLDERS = ("recorder", "interpose", "explorer")
SYSCALLS = _HOME / "syscalls"  # the recorder of system calls: a program of its own
NODES = _HOME / "nodes"  # the controller of nodes: likewise
GUARD = _HOME / "guard"  # the runtime of programs that learn or are guarded: no part of the recorder
GUARD_MODELS = INCLUDE / "guard" / "models.def"
AGENTS = _HOME / "agents"  # what a virtual machine loads while it is recorded: of Python a module
JAVASCRIPT = SYSCALLS / "stacks" / "javascript.js"  # that Node loads while it is recorded
JAVA_AGENT = "java.so"  # as syscalls/stacks/java.c has it
SYSCALLS_FLAGS = ("-std=gnu11", "-D_GNU_SOURCE", "-O2", "-g", "-fno-omit-frame-pointer")
PUBLIC_HEADERS = ("compared.h", "crashcheck.h", "hooks.h", "trace_format.h")
FLAGS = (
    "-std=gnu11",
    "-D_GNU_SOURCE",
    "-O2",
    "-g",
    "-fPIC",
    "-fvisibility=hidden",
    "-ftls-model=initial-exec",
    "-fno-builtin",  # a loop that became a call of memcpy would call our own model of it
    "-fno-stack-protector",
    "-fexceptions",  # pthread_cancel unwinds through the models of cancellation points
    "-fno-omit-frame-pointer",
)
# The first version matches references to none as well, so the one that must not is the second (pmem.c).
_VERSIONED = "pmem"  # the source whose shared object has names of that version
VERSIONS = "CRASHCHECK_1 { local: cc_outside_*; };\nLIBPMEM_1.0 { };\n"
LINK_FLAGS = ("-shared", "-Wl,-soname,libcrashcheck.so", "-Wl,-z,now", "-Wl,-z,noexecstack")

GUARD_LINK_FLAGS = ("-shared", "-Wl,-soname,libcrashcheckguard.so", "-Wl,-z,now", "-Wl,-z,noexecstack")


@dataclass(frozen=True, slots=True)
class RuntimeLibrary:
    """Where the compiled recorder is: `shared` for LD_PRELOAD (and its folder for rpath), `archive` for -static.

    `link` is what programs are linked against: a library of the same soname that shows the linker only the
    recorder's own names. `shared` also interposes those of libc and libpmem; linking against it would make a
    configure script find libpmem where there is none.
    """

    shared: Path
    archive: Path
    include: Path
    link: Path
    syscalls: Path  # a program that records the system calls of others
    java: Path  # an agent of Java's virtual machine, which shows that program the stacks


@dataclass(frozen=True, slots=True)
class GuardLibrary:
    """Where the compiled runtime of programs that learn or are guarded is; `archive` is for -static."""

    shared: Path
    archive: Path
    include: Path


@dataclass(frozen=True, slots=True)
class NodePrograms:
    """Where what runs nodes is. `controller` answers their system calls; `attached`: a library that records these."""

    controller: Path
    attached: Path
    java: Path  # as RecorderLibrary has it


def find_compiler() -> tuple[str, ...]:
    """Return cc, gcc, clang (and its versioned names) on PATH, or ziglang's clang. Raises `no-c-compiler`."""
    for name in ("cc", "gcc", "clang", *(f"clang-{version}" for version in range(22, 12, -1))):
        found = shutil.which(name)
        if found:
            return (found,)
    if importlib.util.find_spec("ziglang"):
        return (sys.executable, *ZIG_CC)
    raise CrashcheckError(
        "no-c-compiler",
        "no C compiler was found (looked for cc, gcc and clang on PATH, and for the ziglang package)",
        f"Install one, for example: apt-get install gcc, or {sys.executable} -m pip install ziglang",
    )


def c_sources() -> list[Path]:
    """Return the recorder's C files, sorted; their names are unique across folders, as their objects share one."""
    return sorted(path for folder in SOURCE_FOLDERS for path in (_HOME / folder).glob("*.c"))


def guard_sources() -> list[Path]:
    """Return the C files of the guard's runtime, sorted."""
    return sorted(GUARD.glob("*.c"))


def syscalls_sources() -> list[Path]:
    """Return the C files of the recorder of system calls, sorted."""
    return sorted(SYSCALLS.rglob("*.c"))


def agent_sources() -> list[Path]:
    """Return the C files of agents, sorted."""
    return sorted(AGENTS.glob("*.c"))


def nodes_sources() -> list[Path]:
    """Return the C files of the controller of nodes, sorted."""
    return sorted(path for path in NODES.rglob("*.c") if path.parent.name != "attached")


def attached_sources() -> list[Path]:
    """Return C files of the library that records for the controller: the recorder's without those that stop threads."""
    programs = {"record.c", "follow.c", "filter.c", "faults.c", "narrow.c"}
    return [*(path for path in syscalls_sources() if path.name not in programs), NODES / "attached" / "attached.c"]


def build_runtime(compiler: Sequence[str] | None = None) -> RuntimeLibrary:
    """Compile the recorder unless the cache has it, and return where it is.

    `compiler` is a command that takes gcc's options. Several processes may ask at once: one builds, in a
    folder that gets its name when it is complete. Raises `no-c-compiler`, `runtime-build`.
    """
    command = tuple(compiler) if compiler else find_compiler()
    sources = c_sources()
    home = _made(_home(command, sources), partial(_compile, command, sources))
    return RuntimeLibrary(
        home / "libcrashcheck.so",
        home / "libcrashcheck.a",
        home / "include",
        home / "link" / "libcrashcheck.so",
        home / "syscalls",
        home / JAVA_AGENT,
    )


def is_built() -> bool:
    """Whether `build_runtime` finds it in the cache. Raises `no-c-compiler`."""
    return _home(find_compiler(), c_sources()).is_dir()


def build_guard(compiler: Sequence[str] | None = None) -> GuardLibrary:
    """Compile the guard's runtime unless the cache has it, and return where it is; as `build_runtime`."""
    command = tuple(compiler) if compiler else find_compiler()
    home = _made(cache_folder() / f"guard-{_key(command, tuple(guard_sources()))}", partial(_compile_guard, command))
    return GuardLibrary(home / "libcrashcheckguard.so", home / "libcrashcheckguard.a", home / "include")


def build_nodes(compiler: Sequence[str] | None = None) -> NodePrograms:
    """Compile what runs nodes unless the cache has it, and return where it is; as `build_runtime`."""
    command = tuple(compiler) if compiler else find_compiler()
    key = _key(command, (*nodes_sources(), *attached_sources(), *agent_sources()))
    home = _made(cache_folder() / f"nodes-{key}", partial(_compile_nodes, command))
    return NodePrograms(home / "controller", home / "attached.so", home / JAVA_AGENT)


def _home(command: tuple[str, ...], sources: Sequence[Path]) -> Path:
    return cache_folder() / f"runtime-{_key(command, (*sources, *syscalls_sources(), *agent_sources()))}"


def _made(home: Path, compile_in: Callable[[Path], None]) -> Path:
    """The folder `home` of the cache, filled by `compile_in` if it is not there."""
    if home.is_dir():
        return home
    home.parent.mkdir(parents=True, exist_ok=True)
    with open(home.parent / ".lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # only so that the work is not done twice: the rename is what counts
        if not home.is_dir():
            _fill(home, compile_in)
    return home


def _fill(home: Path, compile_in: Callable[[Path], None]) -> None:
    work = Path(tempfile.mkdtemp(prefix="building-", dir=home.parent))
    try:
        compile_in(work)
        os.chmod(work, 0o755)
        work.rename(home)
    finally:
        shutil.rmtree(work, ignore_errors=True)


@cache  # a test suite asks for it at each crash test: 10 ms of CPU, and a run of the compiler
def _key(command: tuple[str, ...], sources: tuple[Path, ...]) -> str:
    digest = hashlib.sha256()
    recipe = Path(__file__).resolve()  # describes what is in the folder
    for source in [recipe, *sources, *sorted(INCLUDE.rglob("*.h"))]:
        digest.update(str(source.relative_to(_HOME)).encode() + b"\0" + source.read_bytes() + b"\0")
    digest.update("\0".join((*command, *FLAGS, *LINK_FLAGS, *GUARD_LINK_FLAGS)).encode())
    digest.update(_run([*command, "--version"]).encode())
    return digest.hexdigest()[:24]


def _compile(command: Sequence[str], sources: Sequence[Path], work: Path) -> None:
    shared: list[Path] = []
    plain: list[Path] = []
    calls: list[list[str]] = []
    for source in sources:
        twice = _mentions_shared(source, set())
        for objects, suffix, extra in ((shared, ".shared.o", ["-DCC_SHARED"]), (plain, ".o", [])):
            target = work / (source.stem + (suffix if twice else ".o"))
            if twice or objects is plain:
                calls.append([*command, *FLAGS, *extra, f"-I{INCLUDE}", "-c", str(source), "-o", str(target)])
            objects.append(target)
    _run_all(calls)
    (work / "link").mkdir()
    names = work / "names.map"
    shown = [*(path for path in shared if path.stem != _VERSIONED + ".shared"), work / f"{_VERSIONED}.o"]
    for folder, script, objects in (
        (work, VERSIONS, shared),
        (work / "link", "{ global: cc_*; crashcheck_*; local: *; };\n", shown),
    ):
        names.write_text(script, encoding="ascii")
        made = ["-o", str(folder / "libcrashcheck.so"), f"-Wl,--version-script={names}"]
        # zig's linker leaves out the unwinder that -fexceptions refers to: gcc's, of which pthread_cancel makes use.
        unwinder = ["-l:libgcc_s.so.1"] if "ziglang" in command else []
        _run([*command, *LINK_FLAGS, *made, *map(str, objects), *unwinder, "-ldl", "-lpthread"])
    _run([*_archiver(command), "rcs", str(work / "libcrashcheck.a"), *map(str, plain)])
    _compile_program(command, work / "syscalls", syscalls_sources())
    _compile_agent(command, work)
    _copy_headers(work)
    for target in {names, *shared, *plain}:
        target.unlink()


def _compile_agent(command: Sequence[str], work: Path) -> None:
    target, source = str(work / JAVA_AGENT), str(AGENTS / "java.c")
    # The program's C library may be another one than ours.
    _run([*command, *FLAGS, "-nostdlib", "-shared", f"-I{INCLUDE}", "-o", target, source])


def _compile_program(
    command: Sequence[str], target: Path, sources: Sequence[Path], flags: Sequence[str] = (), link: Sequence[str] = ()
) -> None:
    objects = {source: target.with_name(f"{target.name}-{number}.o") for number, source in enumerate(sources)}
    compiling = [*command, *SYSCALLS_FLAGS, *flags, f"-I{INCLUDE}", "-c"]
    _run_all([*compiling, str(source), "-o", str(made)] for source, made in objects.items())
    _run([*command, *SYSCALLS_FLAGS, *flags, *link, "-o", str(target), *map(str, objects.values()), "-ldl"])
    for made in objects.values():
        made.unlink()


def _compile_nodes(command: Sequence[str], work: Path) -> None:
    _compile_program(command, work / "controller", nodes_sources())
    shared = ("-fPIC", "-fvisibility=hidden")
    _compile_program(command, work / "attached.so", attached_sources(), shared, ("-shared",))
    _compile_agent(command, work)


def _copy_headers(work: Path) -> None:
    include = work / "include"
    include.mkdir()
    for header in PUBLIC_HEADERS:
        shutil.copy(INCLUDE / header, include / header)


def _compile_guard(command: Sequence[str], work: Path) -> None:
    objects = [work / f"{source.stem}.o" for source in guard_sources()]
    compiling = [*command, *FLAGS, f"-I{INCLUDE}", "-c"]
    _run_all([*compiling, str(source), "-o", str(made)] for source, made in zip(guard_sources(), objects, strict=True))
    links = [*GUARD_LINK_FLAGS, "-o", str(work / "libcrashcheckguard.so"), *map(str, objects)]
    _run([*command, *links, "-lpthread"])
    _run([*_archiver(command), "rcs", str(work / "libcrashcheckguard.a"), *map(str, objects)])
    _copy_headers(work)
    for target in objects:
        target.unlink()


def _mentions_shared(source: Path, seen: set[Path]) -> bool:
    """Whether a source, or a header of ours that it includes, may be another one where CC_SHARED is defined."""
    seen.add(source)
    text = source.read_text(encoding="utf-8")
    headers = {INCLUDE / name for name in re.findall(r'^#include "(.+)"', text, re.MULTILINE)}
    return "CC_SHARED" in text or any(
        _mentions_shared(header, seen) for header in sorted(headers) if header not in seen
    )


def _archiver(command: Sequence[str]) -> tuple[str, ...]:
    if "ziglang" in command:  # a driver of tools: `python -m ziglang cc`
        return (*command[: command.index("cc")], "ar")
    for name in ("ar", "gcc-ar", "llvm-ar", *(f"llvm-ar-{version}" for version in range(22, 12, -1))):
        found = shutil.which(name)
        if found:
            return (found,)
    raise CrashcheckError("no-c-compiler", "no archiver was found (ar, llvm-ar)", "Install binutils.")


def _run_all(commands: Iterable[Sequence[str]]) -> None:
    """Run commands that do not wait for one another, on all cores."""
    from concurrent.futures import ThreadPoolExecutor  # not for those who find all built

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        list(pool.map(_run, commands))


def _run(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    except OSError as error:
        raise CrashcheckError(
            "no-c-compiler", f"{command[0]}: {error.strerror}", "Name a C compiler that runs."
        ) from error
    if done.returncode:
        raise CrashcheckError(
            "runtime-build",
            f"the recorder does not compile: {' '.join(command)}\n{done.stderr.strip()}",
            "It needs a C11 compiler and the C library's headers on x86-64 Linux.",
        )
    return done.stdout
