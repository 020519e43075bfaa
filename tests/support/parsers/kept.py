"""Parsers of what earlier runs left: fixes, results, verdicts, baselines, crash images."""

from __future__ import annotations

import gzip
import json
import zlib
from functools import partial
from pathlib import Path

import msgspec

from crashcheck import crash_image
from crashcheck.analyzer.concurrency.anticipating import FORMAT, VERSION, AnticipatingInvariants
from crashcheck.checker import baseline
from crashcheck.checker.execution.process import Ended
from crashcheck.checker.fixes import proposals
from crashcheck.checker.fixes.proposals import Proposals, Proposed
from crashcheck.checker.fixes.source import patch
from crashcheck.checker.kept import shards
from crashcheck.checker.kept.dependencies import Dependencies, Unkept
from crashcheck.checker.kept.store import KeptImages, Unusable
from crashcheck.checker.results import Fix
from crashcheck.checker.store import Store
from crashcheck.reports.formats import failure, json_report
from crashcheck.runtime.exploration import End, Explored
from crashcheck.stages import kept_run
from support.parsers.parser import Parser, attempt, of_bytes, of_text
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
            "functions": ["f"],
            "where": "a.c:1",
            "function": "f",
            "variable": "x",
            "shared": True,
            "before": [None, "s"],
        }
    ],
}
LISTING = b"o/etc/passwd\0s/etc\0l/a b\0cuname\0xit reads a clock\0oit may change /tmp/x\0"


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


_KEPT = kept_run.Kept(FULL, ("a remark",), ("a.c",))
_DAMAGED_RESULT = (ValueError, OverflowError, RecursionError)  # for the one who asks, as if it had not been kept
_RESULT = zlib.decompress(kept_run._encoded(_KEPT))

PARSERS = {
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
}
