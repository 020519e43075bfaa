"""Which clang turns sources into bitcode, and which runtime programs are linked with.

Imported by the compiler's client on every configure probe: nothing heavy is loaded here.
"""

from __future__ import annotations

import os
import sys

from crashcheck.errors import CrashcheckError
from crashcheck.runtime.zig import ZIG_CC, ZIG_CXX

NEWEST = 19  # newest system clang whose bitcode is known to parse
OLDEST = 14
BINDING_MAJOR = 22  # LLVM of the pinned llvmlite; a clang up to this is tried where there is no better one


class Compiler:
    """A clang: the command for C and for C++, and its major version (0 if unknown)."""

    __slots__ = ("_description", "_plain", "major", "path", "zig")

    def __init__(self, path: str, major: int, zig: bool = False) -> None:
        self.path = path
        self.major = major
        self.zig = zig
        self._description = ""

    def command(self, cxx: bool) -> list[str]:
        """The driver, to be followed by a user's arguments."""
        if self.zig:
            return [self.path, *(ZIG_CXX if cxx else ZIG_CC)]
        return [self.path, "--driver-mode=g++" if cxx else "--driver-mode=gcc"]

    def description(self) -> str:
        """First line of --version."""
        if not self._description:
            import subprocess

            done = subprocess.run([*self.command(False), "--version"], capture_output=True, text=True, check=False)
            self._description = (done.stdout.splitlines() or [f"clang at {self.path}"])[0].strip()
        return self._description


def _which(name: str, path: str) -> str | None:
    if os.sep in name:
        return name if os.access(name, os.X_OK) else None
    for folder in path.split(os.pathsep):
        candidate = os.path.join(folder or ".", name)
        if os.access(candidate, os.X_OK) and not os.path.isdir(candidate):
            return candidate
    return None


def major_of(path: str) -> int:
    """The major version from the place of the binary (`/usr/lib/llvm-16/bin/clang`), asked only if need be."""
    real = os.path.realpath(path)
    for text in (real, path):
        for marker in ("llvm-", "clang-", "llvm/", "clang++-"):
            _, found, rest = text.rpartition(marker)
            digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
            if found and digits:
                return int(digits)
    import subprocess

    try:
        text = subprocess.run([path, "-dumpversion"], capture_output=True, text=True, check=False).stdout
    except OSError:
        return 0
    head = text.strip().split(".")[0]
    return int(head) if head.isdigit() else 0


_known: dict[tuple[str, str], Compiler] = {}


def find_compiler(environment: dict[str, str] | os._Environ[str] = os.environ) -> Compiler:
    """The clang to use: CRASHCHECK_CLANG, else the newest of 14 to 19, else a newer one, else ziglang's.

    Raises CrashcheckError `no-clang`.
    """
    chosen, path = environment.get("CRASHCHECK_CLANG", ""), environment.get("PATH", os.defpath)
    known = _known.get((chosen, path))
    if known is None:
        known = _known[chosen, path] = _find(chosen, path)
    return known


def _find(chosen: str, path: str) -> Compiler:
    if chosen:
        found = _which(chosen, path)
        if found is None:
            raise CrashcheckError(
                "no-clang", f"CRASHCHECK_CLANG={chosen} names no executable", "give the path of a clang 14 to 19"
            )
        return Compiler(found, major_of(found))
    for major in range(NEWEST, OLDEST - 1, -1):
        found = _which(f"clang-{major}", path)
        if found is not None:
            return Compiler(found, major)
    found = _which("clang", path)
    if found is not None and OLDEST <= (major := major_of(found)) <= BINDING_MAJOR:
        return Compiler(found, major)
    for major in range(NEWEST + 1, BINDING_MAJOR + 1):
        found = _which(f"clang-{major}", path)
        if found is not None:
            return Compiler(found, major)
    if _has_ziglang():
        return Compiler(sys.executable, 0, zig=True)
    raise CrashcheckError(
        "no-clang",
        f"no clang {OLDEST} to {BINDING_MAJOR} on PATH ({path}), and the ziglang package is not installed",
        "install clang (Debian, Ubuntu: apt-get install clang), or `pip install ziglang`, or set CRASHCHECK_CLANG",
    )


def _has_ziglang() -> bool:
    return any(os.path.isdir(os.path.join(folder or ".", "ziglang")) for folder in sys.path)


# Set: compile for runtime/guard, not for the recorder. Its values are in learned_sets.py.
THREADS = "CRASHCHECK_THREADS"


class Runtime:
    """Libraries and headers of what is behind hooks.h or guard.h, and the functions that it has models for."""

    __slots__ = ("include", "link", "models", "shared", "start", "static")

    def __init__(
        self, shared: str, link: str, static: str, include: str, models: frozenset[str], start: str = "cc_start"
    ) -> None:
        self.shared = shared  # what runs
        self.link = link  # what the linker is shown: see RuntimeLibrary
        self.static = static
        self.include = include  # where crashcheck.h is
        self.models = models
        self.start = start  # what a static program must contain, whatever it calls


_runtimes: dict[tuple[str, ...], Runtime] = {}


def runtime() -> Runtime:
    """The runtime to link with: the recorder or the guard's, built on first use, or the one in CRASHCHECK_RUNTIME.

    Raises CrashcheckError `no-runtime` and those of runtime/build.py.
    """
    folder = os.environ.get("CRASHCHECK_RUNTIME", "")
    guards = bool(os.environ.get(THREADS, ""))
    key = (
        folder,
        str(guards),
        os.environ.get("CRASHCHECK_CACHE", ""),
        os.environ.get("XDG_CACHE_HOME", ""),
        os.environ.get("HOME", ""),
    )
    known = _runtimes.get(key)
    if known is None or not os.path.exists(known.shared):
        known = _runtimes[key] = _runtime(folder, guards)
    return known


def _runtime(folder: str, guards: bool) -> Runtime:
    start = "cc_start"
    if guards:
        from crashcheck.runtime import build

        library = build.build_guard()
        shared = link = str(library.shared)
        static, include, models, start = (
            str(library.archive),
            str(library.include),
            str(build.GUARD_MODELS),
            "cc_guard_end",
        )
    elif folder:
        home, models = folder, os.path.join(folder, "models.def")
        shared, static = os.path.join(home, "libcrashcheck.so"), os.path.join(home, "libcrashcheck.a")
        link = next(filter(os.path.exists, [os.path.join(home, "link", "libcrashcheck.so")]), shared)
        include = os.path.join(home, "include")
    else:
        from crashcheck.runtime import build

        libraries = build.build_runtime()
        shared, link = str(libraries.shared), str(libraries.link)
        static, include = str(libraries.archive), str(libraries.include)
        models = str(build.INCLUDE / "models.def")
    try:
        with open(models, encoding="utf-8") as stream:
            names = read_models(stream.read())
    except OSError as error:
        raise CrashcheckError("no-runtime", f"the runtime is incomplete: {error}", "reinstall crashcheck") from error
    return Runtime(shared, link, static, include, names, start)


def read_models(text: str) -> frozenset[str]:
    """Names in models.def: one `X(name)` a line."""
    lines = (line.strip() for line in text.splitlines())
    return frozenset(line[2 : line.index(")")].strip() for line in lines if line.startswith("X(") and ")" in line)
