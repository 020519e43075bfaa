"""Parsers of what earlier runs left: fixes, reports, runs of the check, baselines, crash images."""

from __future__ import annotations

import gzip
import json
import zlib
from functools import partial
from pathlib import Path

import msgspec

from crashcheck import crash_image
from crashcheck.analyzer.compile.learned_sets import FORMAT, VERSION
from crashcheck.analyzer.concurrency.anticipating import AnticipatingInvariants
from crashcheck.checker import baseline
from crashcheck.checker.execution.process import Ended
from crashcheck.checker.fixes import proposals
from crashcheck.checker.fixes.proposals import Proposals, Proposed
from crashcheck.checker.fixes.source import patch
from crashcheck.checker.kept import runs_file
from crashcheck.checker.kept.keys import SearchKey
from crashcheck.checker.results import Fix
from crashcheck.checker.store import Store
from crashcheck.reports.formats import failure, json_report
from crashcheck.runtime.exploration import End, Explored
from support.parsers.parser import Parser, attempt, of_text
from support.parsers.written import EDIT
from support.reports.runs import FULL

BASELINE = baseline.write_baseline([baseline.Known("3f9a0c12be77", ("a", "b"), "ordering", "message", "note")]).encode()
REPORT = json_report.render(FULL).encode()
LEARNED = {
    "format": FORMAT,
    "version": VERSION,
    "runs": 2,
    "codes": {"f": "0a"},
    "sites": [
        {
            "site": "s",
            "code": "f",
            "where": "a.c:1",
            "function": "f",
            "variable": "x",
            "shared": True,
            "before": [None, "s"],
        }
    ],
}


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


def _runs_file(data: bytes, folder: Path) -> None:
    """Each half as it is, and as what is in a frame: after the other one as it was written."""
    (folder / "runs").write_bytes(data)
    attempt(runs_file.read_runs_file, folder / "runs")
    half, rest = data[: len(data) // 2], data[len(data) // 2 :]
    for header, batch in ((half, _encoded(BATCH)), (_encoded(HEADER), rest)):
        (folder / "runs").write_bytes(_framed(header) + _framed(batch))
        attempt(runs_file.read_runs_file, folder / "runs")


def _framed(payload: bytes) -> bytes:
    packed = zlib.compress(payload, 1)
    return runs_file._FRAME.pack(len(packed), zlib.crc32(packed)) + packed


_encoded = msgspec.msgpack.encode
HEADER = runs_file.Header(SearchKey(b"recording", b"check", b"search"), runs_file.Share(1, 2), {"the kernel": "00"})
BATCH = runs_file.Batch(
    [{"/tmp/pool": "{pool}"}],
    {b"image": (Ended(256, False, "", b"wrong", False, 0.5), 0)},
    {b"product": (Explored((End(0, b"", (0, None)),), 3, 1, ""), "/tmp")},
    True,
)


def _runs_files() -> list[bytes]:
    payloads = _encoded(HEADER), _encoded(BATCH)
    return [b"".join(payloads), b"".join(map(_framed, payloads))]


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


PARSERS = {
    "fixes": Parser(_fixes, _saved_fixes),
    "manifest": Parser(_manifest, lambda _: [b'{"00aa": "recording"}']),
    "learned": of_text(partial(AnticipatingInvariants.decode, origin="learned.json"), json.dumps(LEARNED).encode()),
    "failure": of_text(failure.load, failure.render(failure.Failure("a.toml")).encode()),
    "JSON report": of_text(_report, REPORT),
    "baseline": of_text(partial(baseline.read_baseline, name="baseline.json"), BASELINE),
    "runs file": Parser(
        _runs_file, lambda _: [_encoded(HEADER) + _encoded(BATCH), _framed(_encoded(HEADER)) + _framed(_encoded(BATCH))]
    ),
    "crash image": Parser(_crash_image, _crash_images),
}
