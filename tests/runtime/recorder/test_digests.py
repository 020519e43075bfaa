"""While a run is recorded, digests are taken of what its files hold; the program does not notice."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

from crashcheck.analyzer.trace.digests import Digests, digest_of
from crashcheck.runtime.record import DigestsAt, Recording

DB = ["*.db"]


def taken(recording: Recording) -> dict[int, int]:
    return dict(Digests.read(recording.trace, DB).taken)


def test_a_digest_is_of_the_files_just_before_its_event(recorded: Callable[..., tuple]) -> None:
    trace, recording = recorded("calls", "counts", digests=DigestsAt(1))
    digests = taken(recording)
    updates = [*trace.of("STORE")[4:7], *trace.of("WRITE")[4:7], *trace.of("EXIT")]
    for event in updates:
        _, again = recorded("calls", "counts", snapshot=event.seq)
        assert digests[event.seq] == digest_of(again.snapshot, DB)
        assert taken(again) == {}
    assert len({digests[event.seq] for event in updates}) == len(updates)


def test_a_digest_is_of_names_sizes_and_bytes_of_watched_files(tmp_path: Path) -> None:
    def made(name: str, files: dict[str, bytes], size: int = 0) -> int:
        for path, content in files.items():
            target = tmp_path / name / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
            with target.open("r+b") as file:
                file.truncate(max(size, len(content)))
        return digest_of(tmp_path / name, DB)

    one = {"a.db": b"content of one file", "b.db": b""}
    digest = made("one", one)
    assert digest == made("same", one | {"other": b"not watched"})
    others = [
        made("empty", {"a.db": b"", "b.db": b""}),
        made("byte", {"a.db": b"content of one filf", "b.db": b""}),
        made("longer", one, size=20),
        made("fewer", {"a.db": one["a.db"]}),
        made("renamed", {"a.db": one["a.db"], "c.db": b""}),
        made("exchanged", {"b.db": one["a.db"], "a.db": b""}),
        made("shifted", {"a.db": bytes(8) + one["a.db"], "b.db": b""}, size=27),
        made("words", {"a.db": b"nt of onconte", "b.db": b""}),
    ]
    assert len({digest, *others}) == 1 + len(others)


def test_data_between_holes_is_counted_once(tmp_path: Path, recorded: Callable[..., tuple]) -> None:
    content = bytearray(5 << 20)
    for at in range(0, len(content), 1 << 20):
        content[at : at + 3] = b"abc"
    content += b"the end"
    for name, whole in (("sparse", False), ("filled", True)):
        (tmp_path / name).mkdir()
        with (tmp_path / name / "b.db").open("wb") as file:
            for at in range(0, len(content), 4096):
                page = content[at : at + 4096]
                file.seek(at)
                if whole or any(page):
                    file.write(page)
    assert (tmp_path / "sparse" / "b.db").stat().st_blocks < (tmp_path / "filled" / "b.db").stat().st_blocks
    assert digest_of(tmp_path / "sparse", DB) == digest_of(tmp_path / "filled", DB)
    trace, recording = recorded("basic", first_image=tmp_path / "sparse", digests=DigestsAt(1))
    assert taken(recording)[trace.of("EXIT")[0].seq] == digest_of(recording.pool, DB)


def test_large_files_have_no_digests(tmp_path: Path, recorded: Callable[..., tuple]) -> None:
    (tmp_path / "large").mkdir()
    (tmp_path / "large" / "b.db").write_bytes(b"x" * (17 << 20))
    _, recording = recorded("basic", first_image=tmp_path / "large", digests=DigestsAt(1))
    assert taken(recording) == {}


def test_the_program_keeps_its_locks_and_sees_no_child(recorded: Callable[..., tuple]) -> None:
    trace, recording = recorded("examined", digests=DigestsAt(1))
    assert {store.seq for store in trace.of("STORE")} <= taken(recording).keys()
    stores = trace.of("STORE")
    assert recorded("examined", snapshot=stores[9].seq)[1].snapshot.is_dir()


def test_one_in_eight_events_has_a_digest(recorded: Callable[..., tuple]) -> None:
    _, recording = recorded("calls", "counts", digests=DigestsAt(8))
    numbers = sorted(taken(recording))
    assert len(numbers) > 1
    assert {later - number for number, later in itertools.pairwise(numbers)} <= {6, 7, 8}  # some events take 3 numbers


def test_only_events_of_a_range_have_digests(recorded: Callable[..., tuple]) -> None:
    _, recording = recorded("calls", "counts", digests=DigestsAt(1))
    every = sorted(taken(recording))
    first, end = every[2], every[-2]
    again = recorded("calls", "counts", digests=DigestsAt(1, first, end))[1]
    assert sorted(taken(again)) == [number for number in every if first <= number < end]
