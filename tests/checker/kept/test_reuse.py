"""`crashcheck run --reuse`: what passed is not run again while nothing that it used has changed, and never longer."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from crashcheck.checker.kept.dependencies import Dependencies, Unkept
from crashcheck.checker.kept.store import KeptImages, Unusable
from crashcheck.checker.oracles.blind_check import BLIND
from crashcheck.runtime.build import build_runtime
from support.command_line import run_crashcheck

CONFIG = """
[workload]
command = "printf one > {pool}/a; mv {pool}/a {pool}/b; printf two > {pool}/c; mv {pool}/c {pool}/d"
recorder = "syscalls"
[pool]
files = ["*"]
[check]
command = "./check.sh {pool}"
[model]
name = "ext4"
"""
CHECK = """#!/bin/sh
read least < limit
for file in $1/*; do
    read content < $file
    [ ! -e $file ] || [ ${#content} -ge $((least - ${LESS:-0})) ] || exit 1
done
"""


class Project:
    """A folder with a workload and a check that reads a file beside its image."""

    def __init__(self, folder: Path, cache: Path, environment: Mapping[str, str]) -> None:
        self.folder = folder
        self._environment = {**environment, "CRASHCHECK_CACHE": str(cache)}
        folder.mkdir()
        (folder / "crashcheck.toml").write_text(CONFIG)
        (folder / "limit").write_text("0\n")
        (folder / "check.sh").write_text(CHECK)
        (folder / "check.sh").chmod(0o755)

    def run(self, *options: str, **variables: str) -> dict[str, Any]:
        """The JSON report of a run."""
        done = run_crashcheck(
            *("run", "--no-fixes", "--format", "json", *options),
            cwd=self.folder,
            env={**self._environment, **variables},
        )
        assert done.returncode in (0, 1), done.stderr
        report: dict[str, Any] = json.loads(done.stdout)
        return report


def states(report: dict[str, Any]) -> tuple[int, int, int]:
    """States executed, reused and failing."""
    counts = report["run"]["states"]
    return counts["executed"], counts["reused"], counts["failing"]


def findings(report: dict[str, Any]) -> list[tuple[str, str, int]]:
    return [(each["id"], each["message"], each["states"]) for each in report["findings"]]


@pytest.fixture
def project(tmp_path: Path, environment: dict[str, str]) -> Project:
    cache = tmp_path / "cache"
    cache.mkdir()
    built = build_runtime().shared.parent
    (cache / built.name).symlink_to(built)  # the verdicts are this test's own, the recorder is not
    return Project(tmp_path / "project", cache, environment)


def test_a_second_run_executes_nothing_and_a_changed_file_or_variable_everything(project: Project) -> None:
    """The check reads `limit` and LESS. What it finds is what a run from nothing finds."""
    first = project.run("--reuse")
    executed, reused, failing = states(first)
    assert executed > 5
    assert (reused, failing) == (0, 0)
    again = project.run("--reuse")
    assert states(again) == (0, executed, 0)
    assert again["run"]["stop_reason"] == "exhausted"
    (project.folder / "limit").write_text("1\n")
    stricter = project.run("--reuse")
    assert states(stricter)[1] == 0
    assert findings(stricter) == findings(project.run()) != []
    taken_over = project.run("--reuse")
    executed_before = states(stricter)[0]
    assert states(taken_over) == (0, executed_before, states(stricter)[2])
    assert taken_over["run"]["states"]["reused_from"]
    assert [taken_over[part] for part in ("findings", "uncertain", "groups")] == [
        stricter[part] for part in ("findings", "uncertain", "groups")
    ]
    assert states(project.run("--reuse", LESS="1"))[:2] == (executed, 0)


def test_the_next_budget_is_spent_on_states_that_were_not_decided(project: Project) -> None:
    whole = states(project.run())[0]
    assert states(project.run("--reuse", "--states", "3"))[:2] == (3, 0)
    assert states(project.run("--reuse", "--states", "4"))[:2] == (4, 3)
    last = project.run("--reuse")
    assert states(last)[:2] == (whole - 7, 7)
    assert last["run"]["stop_reason"] == "exhausted"


def test_a_check_that_reads_a_clock_is_run_again_and_the_report_names_the_reason(project: Project) -> None:
    with (project.folder / "check.sh").open("a") as check:
        check.write("date > /dev/null\n")
    for _ in range(2):
        report = project.run("--reuse", "--states", "2")
        assert states(report)[:2] == (2, 0)
        (warning,) = (each for each in report["run"]["warnings"] if each != BLIND)
        assert warning == "verdicts on crash states are not kept for the next run: it reads a clock"


LISTING = ("o/one", "s/two")


def kept(path: Path, most: int = 100) -> KeptImages:
    return KeptImages(path, most)


def images_of(store: KeptImages, base: bytes) -> list[bytes]:
    return sorted(image for number, _, _ in store.listings(base) for image in store.images(number))


def test_the_oldest_bases_are_removed_first(tmp_path: Path) -> None:
    store = kept(tmp_path / "db", most=4)
    for base in (b"one", b"two"):
        store.add(base, [(LISTING, b"state", base + b"%d" % number) for number in range(2)])
    store.add(b"one", [(LISTING, b"state", b"one1")])  # used again
    store.add(b"three", [(LISTING, b"state", b"three")])
    assert images_of(store, b"one") == [b"one0", b"one1"]
    assert images_of(store, b"two") == []
    assert images_of(store, b"three") == [b"three"]
    store.close()


def test_a_base_that_is_too_large_by_itself_is_started_anew(tmp_path: Path) -> None:
    store = kept(tmp_path / "db", most=2)
    store.add(b"one", [(LISTING, b"state", b"%d" % number) for number in range(3)])
    assert images_of(store, b"one") == []
    store.close()


def test_another_process_sees_whole_batches(tmp_path: Path) -> None:
    one, two = kept(tmp_path / "db"), kept(tmp_path / "db")
    one.add(b"base", [(LISTING, b"state", b"a")])
    two.add(b"base", [(LISTING, b"state", b"b"), (LISTING, b"other", b"c")])
    assert images_of(one, b"base") == images_of(two, b"base") == [b"a", b"b", b"c"]
    assert sorted(state for _, _, state in one.listings(b"base")) == [b"other", b"state"]
    assert {listing for _, listing, _ in one.listings(b"base")} == {LISTING}
    one.close()
    two.close()


@pytest.mark.parametrize("content", [b"no database", b"SQLite format 3\0" + bytes(84), b""])
def test_a_damaged_database_is_replaced(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "db").write_bytes(content)
    store = kept(tmp_path / "db")
    store.add(b"base", [(LISTING, b"state", b"a")])
    assert images_of(store, b"base") == [b"a"]
    store.close()


def test_a_database_whose_tables_have_names_that_are_no_text_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "db"
    kept(path).close()
    path.write_bytes(path.read_bytes().replace(b"CREATE TABLE images", b"CREATE TABL\xff images"))
    store = kept(path)
    store.add(b"base", [(LISTING, b"state", b"a")])
    assert images_of(store, b"base") == [b"a"]
    store.close()


def test_a_database_that_does_not_find_what_was_just_added_is_unusable(tmp_path: Path) -> None:
    kept(tmp_path / "db").close()
    with closing(sqlite3.connect(tmp_path / "db")) as database, database:
        database.execute("CREATE TRIGGER lost BEFORE INSERT ON listings BEGIN SELECT RAISE(IGNORE); END")
    store = kept(tmp_path / "db")
    with pytest.raises(Unusable):
        store.add(b"base", [(LISTING, b"state", b"a")])
    store.close()


def test_a_batch_is_there_as_a_whole_or_not_whenever_its_process_is_killed(tmp_path: Path) -> None:
    """Killed at each of the system calls by which it writes."""
    code = (
        "import sys; from pathlib import Path; from crashcheck.checker.kept.store import KeptImages\n"
        "store = KeptImages(Path(sys.argv[1])); print(flush=True)\n"
        "store.add(b'base', [(('o/x',), b'state', b'%d' % n) for n in range(1000)])\n"
    )
    path = tmp_path / "db"
    store = kept(path)
    store.add(b"before", [(LISTING, b"state", b"a")])
    store.close()
    seen = set()
    for number in range(1, 40, 4):
        command = [sys.executable, "-c", code, str(path)]
        subprocess.run(
            ["prlimit", f"--fsize={number * 1024}", *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        store = kept(path)
        assert images_of(store, b"before") == [b"a"]
        seen.add(len(images_of(store, b"base")))
        store.close()
    assert seen <= {0, 1000}


def test_only_what_may_differ_from_run_to_run_keeps_a_verdict_from_being_kept(tmp_path: Path) -> None:
    depends = Dependencies((tmp_path / "addresses",))

    def listed(*records: str) -> object:
        return depends.listing("".join(record + "\0" for record in records).encode())

    own = f"xit may change {tmp_path}/addresses"
    assert listed("o/b", "o/a", "o/a", "o/dev/null", "o/proc/self/maps", "l/proc/12/fd/3", own) == ("o/a", "o/b")
    for record, why in (
        ("xit reads a clock", "it reads a clock"),
        ("o/dev/urandom", "it reads random numbers"),
        ("o/proc/meminfo", "it uses /proc/meminfo"),
        ("o/dev/tty", "it uses /dev/tty"),
    ):
        assert listed("o/a", record) == Unkept(why)


def _changed(change: Callable[[Path], object], tmp_path: Path) -> bool:
    """Whether another search sees that `folder`, `folder/file` or `folder/link` was changed."""
    folder = tmp_path / "folder"
    (folder / "empty").mkdir(parents=True)
    (folder / "file").write_text("content")
    (folder / "link").symlink_to("file")
    listing = (f"l{folder}/link", f"o{folder}", f"o{folder}/file", f"o{folder}/none", f"s{folder}/empty")
    for place in (*folder.iterdir(), folder):
        _make_old(place)
    before = Dependencies(())
    state = before.state(listing)
    assert state is not None
    assert before.unchanged()
    change(folder)
    assert not before.unchanged()
    for place in (*folder.iterdir(), folder):
        _make_old(place)
    return Dependencies(()).state(listing) != state


def _make_old(place: Path) -> None:
    """Let the clock pass the time at which a place changed: what a search starts from is older than it is."""
    while time.time_ns() - place.lstat().st_ctime_ns < 100_000_000:
        os.sched_yield()


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / "file").write_text("Content"),
        lambda folder: (folder / "file").chmod(0o700),
        lambda folder: (folder / "none").touch(),
        lambda folder: (folder / "file").unlink(),
        lambda folder: ((folder / "link").unlink(), (folder / "link").symlink_to("empty")),
        lambda folder: ((folder / "empty").rmdir(), (folder / "empty").touch()),
    ],
    ids=["content", "mode", "appears", "goes", "link", "kind"],
)
def test_whatever_changes_in_what_a_check_used_is_seen(change: Callable[[Path], object], tmp_path: Path) -> None:
    assert _changed(change, tmp_path)


def test_a_file_that_was_written_again_with_the_same_content_is_the_same_for_the_next_search(tmp_path: Path) -> None:
    """For this one it is not: a run may have seen it half written."""
    assert not _changed(lambda folder: (folder / "file").write_text("content"), tmp_path)


def test_what_changed_after_the_search_began_has_no_state(tmp_path: Path) -> None:
    depends = Dependencies(())
    (tmp_path / "file").write_text("new")
    assert depends.state((f"o{tmp_path}/file",)) is None
