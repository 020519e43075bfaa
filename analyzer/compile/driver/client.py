"""The small front of the compilers: it passes probes of configure to clang, and all else to the compile server.

A configure run starts the compiler hundreds of times, so this module imports next to nothing. A call is a probe, and
is neither instrumented nor linked with the recorder, when

* it has no input, only preprocesses (-E, -M, -MM), only checks syntax, or reads its source from standard input;
* a source is named `conftest*` (autoconf), `cmTC_*`, `CheckFunctionExists*`, `CMakeC*CompilerId*` or `testCCompiler*`
  (CMake), `sanitycheck*` (meson), or is in a folder CMakeFiles/CMakeTmp, CMakeFiles/CMakeScratch,
  CMakeFiles/<version>/CompilerId*, meson-private or .conf_check* (waf);
* the working directory is such a folder (CMake's link step of a probe).
"""

from __future__ import annotations

import _socket  # not socket: that one costs milliseconds on every probe
import os
import resource
import sys
import zlib

TYPE_CHECKING = False  # typing itself is not worth its milliseconds here
if TYPE_CHECKING:
    from _socket import socket

_WITH_VALUE = frozenset(
    ("-o", "-MF", "-MT", "-MQ", "-x", "-I", "-D", "-U", "-include", "-isystem", "-Xclang", "-Xlinker", "-L", "-l")
)
_QUERIES = (
    "-E",
    "-M",
    "-MM",
    "-fsyntax-only",
    "--version",
    "-v",
    "-###",
    "-dumpversion",
    "-dumpmachine",
    "-dumpspecs",
    "--help",
    "-cc1",
    "-cc1as",
)
_SOURCES = (".c", ".cc", ".cpp", ".cxx", ".C", ".c++", ".i", ".ii", ".cp", ".CPP", ".CC")
_NAMES = (
    "conftest",
    "CMakeCCompilerId",
    "CMakeCXXCompilerId",
    "CMakeCCompilerABI",
    "CMakeCXXCompilerABI",
    "testCCompiler",
    "testCXXCompiler",
    "CheckFunctionExists",
    "CheckSymbolExists",
    "CheckIncludeFile",
    "sanitycheck",
    "cmTC_",
)
_FOLDERS = (
    "/CMakeFiles/CMakeTmp",
    "/CMakeFiles/CMakeScratch",
    "/CompilerIdC",
    "/meson-private",
    "/.conf_check",
    "/TryCompile-",
)


def is_probe(words: list[str], folder: str) -> bool:
    """Whether a command line is a question about the compiler rather than a part of a build."""
    if any(marker in folder for marker in _FOLDERS):
        return True
    plain = list(_without_values(words))
    return any(map(_is_question, plain)) or all(word.startswith("-") for word in plain)


def _without_values(words: list[str]) -> list[str]:
    """The words that are neither an option with a value nor that value."""
    out = []
    rest = iter(words)
    for word in rest:
        if word in _WITH_VALUE:
            next(rest, None)
        else:
            out.append(word)
    return out


def _is_question(word: str) -> bool:
    if word.startswith("-"):
        return word == "-" or (word in _QUERIES and word != "-v") or word.startswith(("-print-", "--print-"))
    name = os.path.basename(word)
    if word.endswith(_SOURCES):
        return name.startswith(_NAMES) or any(marker in "/" + word for marker in _FOLDERS)
    return name.startswith(("conftest.", "cmTC_"))


def run_plain(words: list[str], cxx: bool) -> int:
    """Become clang, without optimisation at link time. Returns only if there is none."""
    from crashcheck.analyzer.compile.driver.toolchain import find_compiler
    from crashcheck.errors import CrashcheckError

    name = "crashcheck-c++" if cxx else "crashcheck-cc"
    try:
        command = find_compiler().command(cxx)
        # A probe may link what it compiled in a call that is no probe, and that one ignores -flto.
        os.execv(command[0], [*command, *(word for word in words if not word.startswith("-flto"))])
    except CrashcheckError as error:
        print(f"{name}: error: {error}", file=sys.stderr)
    except OSError as error:
        print(f"{name}: error: cannot run clang: {error} [no-clang]", file=sys.stderr)
    return 1


def take_guard(words: list[str]) -> list[str]:
    """The words without `--guard FILE` and `--guard=FILE`, which set CRASHCHECK_THREADS to the file's path.

    Ends the process if the file is missing.
    """
    plain = []
    rest = iter(words)
    for word in rest:
        if word == "--guard" or word.startswith("--guard="):
            file = word[8:] or next(rest, "")
            if not file:
                sys.exit("crashcheck-cc: error: --guard needs the file that `crashcheck learn` writes [bad-option]")
            os.environ["CRASHCHECK_THREADS"] = os.path.abspath(file)
        else:
            plain.append(word)
    return plain


def main(words: list[str], cxx: bool) -> int:
    """Run one compiler command line; returns its exit code."""
    words = take_guard(words)
    try:
        folder = os.getcwd()
    except OSError:
        return run_plain(words, cxx)
    if is_probe(words, folder):
        return run_plain(words, cxx)
    # Descriptors other than the first three are not the compile server's.
    if server_setting("", "1") != "0" and not any("/dev/fd/" in word or "/dev/stdin" in word for word in words):
        code = _ask(words, cxx, folder)
        if code is not None:
            return code
    from crashcheck.analyzer.compile.driver.wrapper import run

    return run(words, cxx)


# -- the compile server ----------------------------------------------------------------------------------------


def server_setting(suffix: str, default: str) -> str:
    """CRASHCHECK_COMPILE_SERVER<suffix>, else `default`."""
    return os.environ.get("CRASHCHECK_COMPILE_SERVER" + suffix, default)


def socket_path() -> str:
    """Where the compile server of this user, version and priority listens; "" if there is no safe place."""
    base = os.environ.get("XDG_RUNTIME_DIR", "")
    if not base or not os.access(base, os.W_OK | os.X_OK):
        base = os.environ.get("TMPDIR", "/tmp")
    folder = f"{base}/crashcheck-{os.getuid()}"
    try:
        try:
            os.mkdir(folder, 0o700)
        except FileExistsError:
            state = os.lstat(folder)
            if state.st_uid != os.getuid() or state.st_mode & 0o170077 != 0o040000:
                return ""
    except OSError:
        return ""
    path = f"{folder}/{_tool_hash():08x}"
    return path if len(path) < 100 else ""


def _tool_hash() -> int:
    """Checksum of what decides how units are compiled: interpreter, priority, place and time of the tool's files."""
    here = os.path.dirname(os.path.abspath(__file__))
    compile_room = os.path.dirname(here)
    parts = [sys.executable, here, sys.version, _inherited()]
    for top in (compile_room, os.path.join(compile_room, "../../runtime")):
        for folder, folders, _ in os.walk(top):
            folders[:] = sorted(name for name in folders if name != "__pycache__")
            with os.scandir(folder) as entries:
                parts += sorted(
                    f"{entry.name}{entry.stat().st_mtime_ns}"
                    for entry in entries
                    if entry.name.endswith((".py", ".c", ".h", ".def"))
                )
    return zlib.crc32("\0".join(parts).encode("utf-8", "surrogateescape"))


def _inherited() -> str:
    """What a compilation has from the process that started the server: one call with `nice` must not slow the next."""
    limits = [resource.getrlimit(kind) for kind in (resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_FSIZE)]
    return f"{os.getpriority(os.PRIO_PROCESS, 0)} {os.sched_getscheduler(0)} {sorted(os.sched_getaffinity(0))} {limits}"


def encode_request(words: list[str], cxx: bool, folder: str) -> bytes:
    """The request: its length, then parts between zero bytes; no part can hold one."""
    umask = os.umask(0o022)
    os.umask(umask)
    parts = [b"1" if cxx else b"0", str(umask).encode(), os.fsencode(folder), str(len(words)).encode()]
    parts += [os.fsencode(word) for word in words]
    parts += [name + b"=" + value for name, value in os.environb.items()]
    body = b"\0".join(parts)
    return len(body).to_bytes(8, "little") + body


def _ask(words: list[str], cxx: bool, folder: str) -> int | None:
    """Let the compile server do it; None if there is none and none can be started, or it ended without an answer.

    Then nothing works for this call any more (the connection ends when its last holder does), so it can be done here.
    """
    path = socket_path()
    if not path:
        return None
    connection = _connect(path) or _start(path)
    if connection is None:
        return None
    # Descriptors that are closed here must not become others there.
    descriptors = b""
    opened = []
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            opened.append(os.open(os.devnull, os.O_RDWR))
            number = opened[-1]
        descriptors += number.to_bytes(4, "little")
    data = encode_request(words, cxx, folder)
    try:
        sent = connection.sendmsg([data], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, descriptors)])
        while sent < len(data):
            sent += connection.send(data[sent : sent + 1_000_000])
    except OSError:
        return None
    try:
        answer = connection.recv(16)
    except OSError:
        answer = b""
    return int(answer) if answer else None


def _connect(path: str) -> socket | None:
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        connection.connect(path)
    except OSError:
        connection.close()
        return None
    return connection


def _start(path: str) -> socket | None:
    """Start a compile server, one at a time; wait until it listens."""
    import fcntl

    lock = os.open(path + ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        connection = _connect(path)
        if connection is not None:
            return connection  # another client has just started it
        import subprocess

        reader, writer = os.pipe()
        try:
            starter = subprocess.Popen(
                [sys.executable, "-m", "crashcheck.analyzer.compile.driver.compile_server", path, str(writer)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(writer,),
                close_fds=True,
                start_new_session=True,
                cwd="/",
                env={**os.environ, "PYTHONPATH": os.pathsep.join(part for part in sys.path if part)},
            )
        except OSError:
            return None
        finally:
            os.close(writer)
        ready = os.read(reader, 1)  # end of file if it could not start
        os.close(reader)
        starter.wait()
        return _connect(path) if ready else None
    finally:
        os.close(lock)
