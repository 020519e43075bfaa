"""`make fuzz`: give each parser damaged documents for some seconds of CPU time, guided by the code that they reach.

What a parser raises, other than an error for users, ends its search: the document is kept in build/fuzz, and
`make fuzz FUZZ_ARGS="PARSER --again FILE"` shows what it does. Parsers in C run under the address and undefined
sanitizers, where there is a clang with libFuzzer.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NoReturn

import atheris

with atheris.instrument_imports(include=["crashcheck", "elftools"]):
    from crashcheck.errors import CrashcheckError
    from crashcheck.runtime import build
    from support.parsers import PARSERS, Parser

HERE = Path(__file__).resolve().parent
OUTPUT = HERE.parent.parent / "build" / "fuzz"
# Each with the file that it is in, and flags; a harness of its name is in this folder.
C_PARSERS = {
    "decoder": ("explorer/explore_instructions.c", "-DCC_SHARED"),
    "unwind": ("syscalls/stacks/unwind.c", "-DCC_FUZZ"),
}
SANITIZE = ("-g", "-O1", "-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=all")
SLOW_S = 300  # of time, not of CPU time: a document that takes this long is found, too
MOST_MB = 4096
SCRATCH = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def search(parser: Parser, home: Path, cpu_seconds: float) -> NoReturn:
    """Search until the time is over or something is found."""
    documents = _documents(parser)
    words = {word for document in documents for word in re.findall(rb"[\w.$#!/-]{2,40}", document)}
    quoted = sorted('"' + "".join(f"\\x{byte:02x}" for byte in word) + '"\n' for word in words)
    (home / "words").write_text("".join(quoted[:2000]), encoding="ascii")
    tried, begun = 0, time.process_time()

    def one(data: bytes) -> None:
        nonlocal tried
        if time.process_time() - begun > cpu_seconds:
            print(f"nothing found in {tried} documents", flush=True)
            os._exit(0)
        tried += 1
        _parse(parser, data)

    longest = f"-max_len={2 * max(map(len, documents)) + 4096}"
    atheris.Setup([sys.argv[0], *_options(home, documents), longest, f"-dict={home}/words", *_folders(home)], one)
    atheris.Fuzz()
    os._exit(1)


def search_c(name: str, home: Path, cpu_seconds: float) -> NoReturn:
    source, flag = C_PARSERS[name]
    program = home / "program"
    files = [build.INCLUDE.parent / source, HERE / f"{name}.c"]
    flags = ["-std=gnu11", "-D_GNU_SOURCE", f"-I{build.INCLUDE}", flag, *SANITIZE]
    subprocess.run(["clang", *flags, *files, "-o", program], check=True)
    documents = [b"\xe4\x02" + one for one in _documents(PARSERS["ELF"])] if name == "unwind" else []
    words = [str(program), *_options(home, documents), "-max_len=16384", *_folders(home)]
    limit = int(time.process_time() + cpu_seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 10))
    os.execv(program, words)


def _options(home: Path, documents: list[bytes]) -> list[str]:
    for number, document in enumerate(documents):
        (home / "seeds" / str(number)).write_bytes(document)
    return [f"-timeout={SLOW_S}", f"-rss_limit_mb={MOST_MB}", f"-artifact_prefix={home}/"]


def _folders(home: Path) -> list[str]:
    return [str(home / "corpus"), str(home / "seeds")]


def _documents(parser: Parser) -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        return list(parser.documents(Path(folder)))


def _parse(parser: Parser, data: bytes) -> str:
    with tempfile.TemporaryDirectory(dir=SCRATCH) as folder:
        try:
            return f"returned {parser.parse(data, Path(folder))!r:.1000}"
        except (CrashcheckError, *parser.allowed) as error:
            return f"{type(error).__name__}: {error}"


def _searched(name: str, cpu_seconds: float) -> bool:
    """Search in a process of its own, so that it may die; whether it found nothing."""
    home = OUTPUT / name.replace(" ", "-")
    for folder in ("corpus", "seeds"):
        (home / folder).mkdir(parents=True, exist_ok=True)
    log = home / "log"
    child = os.fork()
    if child == 0:
        with log.open("wb") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        try:
            if name in C_PARSERS:
                search_c(name, home, cpu_seconds)
            search(PARSERS[name], home, cpu_seconds)
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", flush=True)
        finally:
            os._exit(1)
    _, status, used = os.wait4(child, 0)
    said = log.read_text(encoding="utf-8", errors="replace")
    nothing = status == 0 or (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU)
    if status == 0:
        result = said.rstrip().rpartition("\n")[2]
    elif nothing:
        tried = max(map(int, re.findall(r"^#(\d+)", said, re.MULTILINE)))
        result = f"nothing found in at least {tried} documents"
    else:
        result = f"FOUND:\n{said[-3000:]}"
    print(f"{name:20}{used.ru_utime + used.ru_stime:6.0f} CPU s  {result}", flush=True)
    return nothing


def main() -> int:
    every = [*C_PARSERS, *PARSERS]
    options = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    options.add_argument("parsers", nargs="*", metavar="PARSER", help=f"of {', '.join(every)}; all by default")
    options.add_argument("--seconds", type=float, default=10, help="of CPU time, for each parser (default: 10)")
    options.add_argument("--again", type=Path, metavar="FILE", help="give the parser this document only")
    args = options.parse_args()
    if unknown := set(args.parsers) - set(every):
        options.error(f"no parser {', '.join(sorted(unknown))}; known: {', '.join(every)}")
    if args.again:
        print(_parse(PARSERS[args.parsers[0]], args.again.read_bytes()))
        return 0
    found = [name for name in args.parsers or every if not _searched(name, args.seconds)]
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
