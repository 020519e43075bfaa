"""Every parser of what others wrote: valid documents to start from, and how crashcheck reads such a document.

A parser takes any bytes: it returns, or raises an error for users (or one of `allowed`, which its caller handles).
`tests/base/test_parsers.py` damages each document a little; `make fuzz` (`tests/fuzz`) searches as long as you want.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import subprocess
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import msgspec

from crashcheck import config, crash_image
from crashcheck.analyzer.compile import facts
from crashcheck.analyzer.compile.dependence import summaries
from crashcheck.analyzer.compile.driver import arguments
from crashcheck.analyzer.compile.instrument.unit import UnitOptions, canonical_text, instrument_text
from crashcheck.analyzer.compile.ir.debuginfo import SourcePosition
from crashcheck.analyzer.concurrency.anticipating import FORMAT, VERSION, AnticipatingInvariants
from crashcheck.analyzer.persistence.graph import Options
from crashcheck.analyzer.trace import functions, replay
from crashcheck.analyzer.trace.calls import allocations, injected_faults, name_events, outputs
from crashcheck.analyzer.trace.dump import lines
from crashcheck.analyzer.trace.reader import CallSite, read
from crashcheck.change import diff
from crashcheck.checker import baseline, policy
from crashcheck.checker.execution.process import Ended
from crashcheck.checker.fixes import proposals
from crashcheck.checker.fixes.proposals import Proposals, Proposed
from crashcheck.checker.fixes.source import patch
from crashcheck.checker.fixes.source.c_source import NotEditable, Source, known_macros
from crashcheck.checker.kept import shards
from crashcheck.checker.kept.dependencies import Dependencies, Unkept
from crashcheck.checker.kept.store import KeptImages, Unusable
from crashcheck.checker.oracles.histories import Operations
from crashcheck.checker.results import Edit, Fix
from crashcheck.checker.states.space import CrashState
from crashcheck.checker.store import Store
from crashcheck.checker.token import Level, Token
from crashcheck.cli import build_parser
from crashcheck.cli.init import TEMPLATE
from crashcheck.cli.ops import parse_mix, parse_size, parse_templates
from crashcheck.command import Command
from crashcheck.errors import CrashcheckError
from crashcheck.reports.formats import failure, json_report
from crashcheck.reports.github.client import _new_side
from crashcheck.reports.github.event import read_event
from crashcheck.runtime import trace_format as fmt
from crashcheck.runtime.exploration import End, Explored
from crashcheck.runtime.strace.convert import convert
from crashcheck.runtime.trace_format import FlushKind
from crashcheck.runtime.validate import read_notes
from crashcheck.stages import kept_run
from crashcheck.stages.run_summary import _needed
from support.compilers import c_compiler, plain_clang
from support.report_runs import FULL
from support.tracing import CallsBuilder, TraceBuilder

CONFIG = (
    TEMPLATE.encode()
    + b"""
[[suppress]]
file = "src/*.c"
reason = "old"
"""
)
DIFF = b"""diff --git a/one.c b/two.c
similarity index 90%
rename from one.c
rename to two.c
--- a/one.c
+++ b/two.c
@@ -1,3 +1,4 @@
 int a;
-int b;
+int c;
+int d;
 int e;
\\ No newline at end of file
diff --git "a/\\303\\244" "b/\\303\\244"
new file mode 100644
--- /dev/null
+++ "b/\\303\\244"
@@ -0,0 +1 @@
+x
"""
BASELINE = baseline.write_baseline([baseline.Known("3f9a0c12be77", ("a", "b"), "ordering", "message", "note")]).encode()
REPORT = json_report.render(FULL).encode()
_LEVELS = (Level(bytes(8), CrashState(7, True, (1, 2, 9))), Level(bytes(8), CrashState(1, False, ())))
TOKEN = str(Token("px86", Options(0, "ext4"), _LEVELS)).encode()
FACTS = facts.UnitFacts(
    source="/a.c",
    directory="/",
    compiler="clang",
    binding="llvmlite",
    sites=(facts.Site("store", (SourcePosition("/a.c", 3, 1, "f"),), "a.b", (facts.TypeStep("a", "b", 0, 8),)),),
    functions={"f": "00"},
    layouts=(facts.TypeLayout("a", 8, (facts.FieldLayout("b", 0, 8, "", 0),)),),
)

SOURCE = b"""\
#include <string.h>
#define FLUSH(p, n) do { flush((p), \\
    (n)); } while (0)
typedef struct { int x; } unnamed;
struct part { char a[4]; unsigned b : 3, c : 5; };
struct node { struct node *next; struct part part[2]; union { long l; double d; } u; unnamed t; };
struct node pool[4]; /* crashcheck: ignore[ordering] known */
static inline void put(struct node *n, long v) { n->u.l = v; n->part[1].a[2] = 1; }
void change(struct node *n, int k)
{
    put(n, k);
    if (k > 3)
        n[k].next = &pool[k & 3]; // crashcheck: ignore[*] a reason
    else for (int i = 0; i < k; i++) { n->part[0].b = (unsigned)i; }
    switch (k) { case 1: pool[2].t.x = k; break; default: memcpy(n + 1, "a\\"b", 3); }
    __asm__ volatile("clwb %0; lock xaddl %1, %2" : "+m"(*n), "+r"(k), "+m"(pool[1].t.x) : : "memory");
}
"""
LEARNED = {
    "format": FORMAT,
    "version": VERSION,
    "runs": 2,
    "codes": {"f": "0a"},
    "sites": [
        {
            "site": "s",
            "functions": ["f"],
            "where": "a.c:1",
            "function": "f",
            "variable": "x",
            "shared": True,
            "before": [None, "s"],
        }
    ],
}
EDIT = Edit("a.c", 12, True, "    flush(n);\n    fence();")
EVENT = {
    "pull_request": {"number": 7, "head": {"sha": "a" * 40, "repo": {"full_name": "o/r"}}},
    "workflow_run": {
        "id": 5,
        "run_attempt": 1,
        "head_sha": "b" * 40,
        "head_branch": "x",
        "head_repository": {"full_name": "o/r", "owner": {"login": "o"}},
        "pull_requests": [{"number": 3}],
    },
}

_NAMES = ("POOL", "a", "b", "d", "s", "new", "out")
_HEX = {name: "".join(f"\\x{byte:02x}" for byte in name.encode()) for name in _NAMES}
STRACE = """\
7 execve("{a}", ["{a}"], 0x7ffd) = 0
7 openat(-100<{POOL}>, "{a}", 0102, 0644) = 3<{POOL}{a}>
7 write(3<{POOL}{a}>, "{new}", 3) = 3
7 pwritev2(3<{POOL}{a}>, [{{iov_base="{new}", iov_len=3}}, {{iov_base="{a}", iov_len=1}}], 2, 8, 0x2) = 4
7 fsync(3<{POOL}{a}> <unfinished ...>
8 +++ killed by SIGKILL +++
7 <... fsync resumed>) = 0
7 clone(child_stack=NULL, flags=0x100|17) = 9
9 mkdirat(-100<{POOL}>, "{d}", 0755) = 0
9 symlink("{d}", "{s}") = 0
9 rename("{a}", "{b}") = 0
7 copy_file_range(3<{POOL}{a}>, [0] => [5], 3<{POOL}{a}>, NULL, 5, 0) = 3
7 fallocate(3<{POOL}{a}>, 0, 0, 99) = 0
7 sync_file_range(3<{POOL}{a}>, 0, 99, 7) = 0
7 renameat2(-100<{POOL}>, "{b}", -100<{POOL}>, "{d}", 0x2) = 0
7 socketpair(1, 1, 0, [4<UNIX:[1]>, 5<UNIX:[2]>]) = 0
7 sendto(4<UNIX:[1]>, "{out}", 3, 0, NULL, 0) = 3
7 mmap(NULL, 4096, 3, 1, 3<{POOL}{a}>, 0) = 0x7f00
7 fcntl(3<{POOL}{a}>, 0x406, 9) = 9<{POOL}{a}>
7 chdir("{d}") = 0
7 unlink("{b}") = 0
7 +++ exited with 0 +++
""".format(**_HEX).encode()
PATCH = b"@@ -1,3 +1,4 @@ int f(void)\n int a;\n-int b;\n+int c;\n\\ No newline at end of file\n@@ -9 +10 @@\n+x\n"
LISTING = b"o/etc/passwd\0s/etc\0l/a b\0cuname\0xit reads a clock\0oit may change /tmp/x\0"


@dataclass(frozen=True, slots=True)
class Parser:
    """`documents` are made in the folder that it is given, once; `parse` has an empty folder for each document."""

    parse: Callable[[bytes, Path], object]
    documents: Callable[[Path], Iterable[bytes]]
    allowed: tuple[type[BaseException], ...] = ()


def of_text(parse: Callable[[str], object], *documents: bytes, allowed: tuple[type[BaseException], ...] = ()) -> Parser:
    return Parser(lambda data, _: parse(data.decode("utf-8", "replace")), lambda _: documents, allowed)


def of_bytes(
    parse: Callable[[bytes], object], *documents: bytes, allowed: tuple[type[BaseException], ...] = ()
) -> Parser:
    return Parser(lambda data, _: parse(data), lambda _: documents, allowed)


def attempt(parse: Callable[..., object], *values: object) -> None:
    with contextlib.suppress(CrashcheckError):
        parse(*values)


# -- what a user writes ----------------------------------------------------------------------------------------


def _options(text: str) -> None:
    words = text.split("\n")
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        _parser().parse_args(words)


@cache
def _parser() -> Any:
    return build_parser()


def _values(text: str) -> None:
    for parse in (config.parse_duration, parse_mix, parse_size, lambda text: parse_templates([text])):
        attempt(parse, text)
    with contextlib.suppress(ValueError):
        Command.of_text(text).argv(pool="/a b")


def _operations(data: bytes) -> None:
    operations = Operations.of(data)
    for ordinal in range(len(operations.lines)):
        operations.shown(ordinal + 1)


def _source(data: bytes, _: Path) -> None:
    """The first bytes choose places."""
    text = data[8:].decode("utf-8", "replace")
    policy.in_comments("a.c", text.split("\n"))
    source = Source(text)
    known_macros([source])
    for line, column in zip(data[:8:2], data[1:8:2], strict=False):
        with contextlib.suppress(NotEditable):
            statement = source.statement(line % 64, column % 64)
            source.loop_around(statement)
            source.in_loop(statement)
        with contextlib.suppress(NotEditable):
            source.call(line % 64, column % 64)
    edits = [
        EDIT,
        *(
            Edit("a.c", line % 40, bool(column % 2), "flush();")
            for line, column in zip(data[:4], data[4:8], strict=False)
        ),
    ]
    patch.diff(patch.applied(edits, lambda file: text))


def _arguments(data: bytes, folder: Path) -> None:
    line, _, rest = data.partition(b"\xff\xff")
    (folder / "rest").write_bytes(rest)
    words = line.decode("utf-8", "surrogateescape").replace("\0", "").split()
    arguments.parse(arguments.expand(words, str(folder)))


# -- what compilers leave --------------------------------------------------------------------------------------


def _facts(data: bytes, _: Path) -> None:
    """With a checksum that fits."""
    key = int.from_bytes(facts.hashlib.blake2b(data, digest_size=8).digest(), "little") or 1
    packed = zlib.compress(data, 1)
    section = facts._HEADER.pack(facts.MAGIC, facts.VERSION, len(packed), len(data), key) + packed
    for unit in facts.decode(section, "program"):
        with contextlib.suppress(ValueError):  # who asks for them has an error for users for it
            summaries.unpack(unit.dependences)


def _elf(data: bytes, folder: Path) -> None:
    path = folder / "program"
    path.write_bytes(data)
    facts.ProgramFacts.load([path])
    list(_needed(str(path)))
    names = functions.FunctionNames()
    for offset in (0, 4096, 4097, 4500, 1 << 40):
        names.name(CallSite(str(path), offset))


def _programs(folder: Path) -> list[bytes]:
    source = "int a; static int g(void) { return a; } int f(int b) { a += b; return g(); }\n"
    blob = ",".join(map(str, facts.encode(FACTS)[1]))
    hooked = f'__attribute__((used, section("{facts.SECTION}"))) const unsigned char facts[] = {{{blob}}};\n'
    made = []
    for text in (source, source + hooked):
        (folder / "a.c").write_text(text, encoding="ascii")
        flags = ["-g", "-shared", "-fPIC", "-nostdlib", "-o", "a.so"]
        subprocess.run([*c_compiler(), "a.c", *flags], cwd=folder, check=True)
        made.append((folder / "a.so").read_bytes())
    return made


def _unit(data: bytes, _: Path) -> None:
    instrument_text(data.decode("utf-8", "surrogateescape"), UnitOptions("unit.c", "/", "clang"))


def _units(folder: Path) -> list[bytes]:
    small = b"struct s { int a; _Atomic long b; } *p; void f(int k) { p->a = k; p->b += 2; if (k) "
    small += b'__asm__("clwb %0" : "+m"(*p)); }\n'
    found = []
    for name, source in (("small.c", small), ("unit.c", SOURCE)):
        (folder / name).write_bytes(source)
        flags = ["-g", "-O1", "-Xclang", "-disable-llvm-passes", "-c", "-emit-llvm", "-Wno-everything"]
        subprocess.run([*plain_clang(), *flags, str(folder / name), "-o", str(folder / "unit.bc")], check=True)
        found.append(canonical_text((folder / "unit.bc").read_bytes(), UnitOptions(name, "/", "clang")).encode())
    return found


# -- what recordings hold --------------------------------------------------------------------------------------

# Of a trace, the bytes that mean something: its header, and the first of each chunk.
_HEAD, _OF_CHUNK = 128, 2048


def compact(image: bytes) -> bytes:
    chunks = range(fmt.HEADER_BYTES, len(image), fmt.CHUNK_BYTES)
    return image[:_HEAD] + b"".join(image[at : at + _OF_CHUNK] for at in chunks)


def expanded(data: bytes) -> bytes:
    chunks = [data[at : at + _OF_CHUNK].ljust(fmt.CHUNK_BYTES, b"\0") for at in range(_HEAD, len(data), _OF_CHUNK)]
    return data[:_HEAD].ljust(fmt.HEADER_BYTES, b"\0") + b"".join(chunks[:8])


def _trace(data: bytes, folder: Path) -> None:
    path = folder / "trace.cct"
    path.write_bytes(expanded(data))
    trace = read(path)
    for line in lines(trace, None, True):
        assert line
    for events in (name_events, allocations, outputs, injected_faults):
        list(events(trace))
    replay.check(trace, folder, folder)


def run_of_stores(path: Path) -> TraceBuilder:
    t = TraceBuilder(path)
    base = t.unit(7, 10, "/program")
    t.stack_def(t.stack_def(0, base + 1), base + 2)
    t.write("a", 0, bytes(range(100)))
    t.store("a", 8, 8, 7)
    t.load("a", 8, 8)
    t.loads_left_out(True)
    t.flush(FlushKind.CLWB, "a", 8, 8)
    t.sfence()
    t.msync("a", 0, 4096)
    with t.thread(2):
        t.load("a", 8, 8)
    return t


def run_of_calls(path: Path) -> CallsBuilder:
    t = CallsBuilder(path, {"d/": None, "d/a": b"before", "b": b""})
    t.site = t.call_site("/bin/program", 0x1234)
    t.stack = t.stack_def(0, t.site)
    t.open("d/t", exclusive=True)
    t.write("d/t", 0, b"new")
    t.allocate("d/t", 0, 4096)
    t.fsync("d/t")
    t.move("d/t", "d/a")
    t.mkdir("e")
    t.symlink("d/a", "e/s")
    t.link("b", "e/b")
    t.exchange("b", "d/a")
    t.remove("e/b")
    t.acknowledge(fmt.OutputKind.SOCKET, b"done")
    t.output(5)
    t.dirsync("d")
    t.sync_all()
    return t


def _traces(folder: Path) -> list[bytes]:
    return [compact(run(folder / "trace.cct").image()) for run in (run_of_stores, run_of_calls)]


def _strace(data: bytes, folder: Path) -> None:
    for name in ("pool", "first"):
        (folder / name).mkdir()
    (folder / "first" / "b").write_bytes(b"before")
    pool = "".join(f"\\x{byte:02x}" for byte in os.fsencode(folder / "pool") + b"/")
    (folder / "printed").write_bytes(data.replace(_HEX["POOL"].encode(), pool.encode()))
    trace, names = folder / "trace", [folder / name for name in ("first", "pool", "cwd", "stdout", "stderr")]
    convert(folder / "printed", trace, *names)
    for line in lines(read(trace), None, True):
        assert line


def _notes(data: bytes, folder: Path) -> None:
    (folder / "trace.notes").write_bytes(data)
    read_notes(folder / "trace")


# -- what earlier runs left ------------------------------------------------------------------------------------


def _fixes(data: bytes, folder: Path) -> None:
    run = Store(folder).folder / "run"
    run.mkdir(parents=True)
    (run / "fixes.json").write_bytes(data)
    found = proposals.newest(folder / "crashcheck.toml")
    if found is not None:
        edits = [edit for one in found.findings for edit in one.fix.edits]
        attempt(lambda: patch.diff(patch.applied(edits, lambda file: "int a;\n" * 40)))


def _saved_fixes(folder: Path) -> list[bytes]:
    fix = Fix("flush", "flush it", (EDIT,), 3, 0, "tried")
    proposals.save(Proposals((Proposed("a1", "ordering", "message", fix),), {"a.c": "00"}), folder)
    return [(folder / "fixes.json").read_bytes()]


def _manifest(data: bytes, folder: Path) -> None:
    run = Store(folder).folder / "run"
    run.mkdir(parents=True)
    (run / "run.json").write_bytes(data)
    Store(folder).find("00aa")


def _report(text: str) -> None:
    json_report.render(json_report.load(text))


def _kept_result(data: bytes) -> None:
    kept_run._decoded(zlib.compress(data, 1))


def _shard(data: bytes, folder: Path) -> None:
    (folder / "shard").write_bytes(zlib.compress(data, 1))
    shards.read_shard(folder / "shard")


SHARD = shards.Shard(
    1,
    shards.Share(1, 2),
    shards.SearchKey(b"recording", b"check", b"search"),
    True,
    [{"/tmp/pool": "{pool}"}],
    {b"image": (Ended(256, False, "", b"wrong", False, 0.5), 0)},
    {b"product": (Explored((End(0, b"", (0, None)),), 3, 1, ""), "/tmp")},
)


def _crash_image(data: bytes, folder: Path) -> None:
    """With header checksums that fit: what is behind them is reached."""
    archive = bytearray(data)
    for at in range(0, len(archive) - 511, 512):
        if archive[at + 257 : at + 262] == b"ustar":
            archive[at + 148 : at + 156] = b" " * 8
            archive[at + 148 : at + 156] = b"%06o\0 " % sum(archive[at : at + 512])
    (folder / "image").write_bytes(gzip.compress(bytes(archive), 1, mtime=0))
    attempt(partial(crash_image._unpack, folder=folder / "out"), folder / "image")
    (folder / "image").write_bytes(data)
    attempt(partial(crash_image._unpack, folder=folder / "out"), folder / "image")
    assert {path.name for path in folder.iterdir()} <= {"image", "out"}


def _crash_images(folder: Path) -> list[bytes]:
    (folder / "pool" / "d").mkdir(parents=True)
    (folder / "pool" / "d" / "a").write_bytes(b"data" * 300)
    (folder / "addresses").write_bytes(b"1")
    crash_image._pack(folder / "x", folder / "pool", {"acked": 3, "id": "a1"}, b"out", folder / "addresses")
    packed = (folder / "x").read_bytes()
    return [gzip.decompress(packed), packed]


def _database(data: bytes, folder: Path) -> None:
    (folder / "kept.db").write_bytes(data)
    kept = KeptImages(folder / "kept.db")
    try:
        for number, listing, _ in kept.listings(b"base"):
            Dependencies(()).state(listing)
            kept.images(number)
            kept.run(number)
        kept.last_used(b"base")
        kept.add_run(b"base", ("o/etc/group",), b"new", b"result")
        kept.add(b"base", [(("o/etc/group",), b"new", b"image")])
        kept.add(b"other", [(("o/etc/group",), b"new", b"image")])
    finally:
        kept.close()


def _databases(folder: Path) -> list[bytes]:
    kept = KeptImages(folder / "kept.db")
    kept.add(b"base", [(("o/etc/passwd", "cuname"), b"state", bytes([n]) * 16) for n in range(50)])
    kept.add_run(b"base", ("o/etc/passwd",), b"state", b"result")
    kept.close()
    return [(folder / "kept.db").read_bytes()]


def _listing(data: bytes) -> None:
    dependencies = Dependencies(())
    listing = dependencies.listing(data)
    if not isinstance(listing, Unkept):
        dependencies.state(listing)
        dependencies.unchanged()


# -- what GitHub sends -----------------------------------------------------------------------------------------


def _event(data: bytes, folder: Path) -> None:
    path = folder / "event.json"
    path.write_bytes(data)
    environment = {
        "GITHUB_REPOSITORY": "o/r",
        "GITHUB_SHA": "c" * 40,
        "GITHUB_EVENT_PATH": str(path),
        "GITHUB_RUN_ID": "5",
        "GITHUB_RUN_ATTEMPT": "1",
    }
    read_event(environment)


_LINE = b"-O2 -g -x c++ -MD -MF d -o out -Wl,-z,now -fsanitize=address -DX='a b' in.c -std=c11 -c -- - @rest"
_KEPT = kept_run.Kept(FULL, ("a remark",), ("a.c",))

_OPTIONS = (b"run\n--budget\n5m\n--jobs\n2\n--format\njson=a", b"try\n--\nls", b"ops\n--mix\ninsert=3")
_VALUES = (b"5m30s", b"insert=3,delete=1", b"10..20", b"insert=put {key} {value}", b"./a {pool}/b 'c d'")
_DAMAGED_RESULT = (ValueError, OverflowError, RecursionError)  # for the one who asks, as if it had not been kept
_RESULT = zlib.decompress(kept_run._encoded(_KEPT))
_EVENTS = (json.dumps(EVENT).encode(), json.dumps({"workflow_run": EVENT["workflow_run"]}).encode())

PARSERS = {
    # what a user writes
    "configuration": of_text(partial(config.parse, path=Path("/project/crashcheck.toml")), CONFIG),
    "options": of_text(_options, *_OPTIONS, allowed=(SystemExit,)),
    "option values": of_text(_values, *_VALUES),
    "token": of_text(Token.parse, TOKEN),
    "operations": of_bytes(_operations, b"insert 1 a\nquery 1\n\ndelete 1\n"),
    "source": Parser(_source, lambda _: [bytes(range(3, 11)) + SOURCE]),
    "compiler arguments": Parser(_arguments, lambda _: [_LINE + b"\xff\xff" + b'-Iinclude "a b.c" -DY=\\"x\\" @rest']),
    # what compilers leave
    "facts": Parser(_facts, lambda _: [facts._pack(FACTS)]),
    "ELF": Parser(_elf, _programs),
    "LLVM text": Parser(_unit, _units),
    # what recordings hold
    "trace": Parser(_trace, _traces),
    "strace": Parser(_strace, lambda _: [STRACE]),
    "notes": Parser(_notes, lambda _: [b"pattern\ta.log\nprivate\tb.db\n"]),
    # what earlier runs left
    "fixes": Parser(_fixes, _saved_fixes),
    "manifest": Parser(_manifest, lambda _: [b'{"00aa": "recording"}']),
    "learned": of_text(partial(AnticipatingInvariants.decode, origin="learned.json"), json.dumps(LEARNED).encode()),
    "failure": of_text(failure.load, failure.render(failure.Failure("a.toml")).encode()),
    "JSON report": of_text(_report, REPORT),
    "baseline": of_text(partial(baseline.read_baseline, name="baseline.json"), BASELINE),
    "kept result": of_bytes(_kept_result, _RESULT, allowed=_DAMAGED_RESULT),
    "shard": Parser(_shard, lambda _: [msgspec.msgpack.encode(SHARD)]),
    "crash image": Parser(_crash_image, _crash_images),
    "kept verdicts": Parser(_database, _databases, allowed=(Unusable,)),
    "records of a check": of_bytes(_listing, LISTING),
    # what Git and GitHub send
    "diff": of_bytes(diff.parse, DIFF),
    "patch": of_text(lambda text: list(_new_side(text)), PATCH),
    "event": Parser(_event, lambda _: _EVENTS),
}
