"""Tests of packages of PyPI by the fixture `crashes`; test_packages.py runs them as a file that begins with test_.

Each bug of docs/found.md is found by its sentence, and not with an edited copy of what it is in.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import bplustree.memory
import larzdb
import larzdb.engine
import leanqueue
import lxcore
import lxcore.core.engine
import pysos
import pytest
import semidbm
import semidbm.db
import yedb
from bplustree import BPlusTree

from crashcheck.testing import Crashes, CrashFound, State

# -- semidbm


def semidbm_content() -> dict[bytes, bytes]:
    with_checksums = semidbm.open("db", "c", verify_checksums=True)
    content = {key: with_checksums[key] for key in with_checksums}
    with_checksums.close()
    return content


def semidbm_new() -> None:
    semidbm.open("db", "c").close()


def semidbm_put() -> None:
    db = semidbm.open("db", "c")
    db["a"] = "3" * 20
    db["c"] = "4" * 20
    db.close()


def semidbm_is_whole(state: State) -> None:
    content = semidbm_content()
    assert content.get(b"b") in (None, b"2" * 20)
    db = semidbm.open("db", "c")
    db["z"] = "9"
    db.close()
    assert semidbm_content()[b"z"] == b"9"


def semidbm_compact() -> None:
    semidbm.open("db", "c").close(compact=True)


def semidbm_forgets(state: State) -> None:
    assert semidbm_content() == {b"a": b"1" * 20, b"b": b"2" * 20}
    db = semidbm.open("db", "c")
    del db["a"]
    db.close(compact=True)
    assert semidbm_content() == {b"b": b"2" * 20}, "a deleted key is back"


def edit_semidbm(edit: pytest.MonkeyPatch) -> None:
    load, compact = semidbm.db._SemiDBM._load_db, semidbm.db._SemiDBM.compact

    def load_or_make(self: Any) -> None:
        if os.path.isfile(self._data_filename):
            with open(self._data_filename, "rb") as file:
                begun = file.read().strip(b"\0")
            if not begun:
                os.remove(self._data_filename)
        load(self)

    def compact_anew(self: Any) -> None:
        shutil.rmtree(os.path.join(self._dbdir, "compact"), ignore_errors=True)
        compact(self)

    edit.setattr(semidbm.db._SemiDBM, "_load_db", load_or_make)
    edit.setattr(semidbm.db._SemiDBM, "compact", compact_anew)


@pytest.fixture(name="filled")
def filled_semidbm(tmp_path: Path) -> Path:
    db = semidbm.open(str(tmp_path / "db"), "c")
    db["a"] = "1" * 20
    db["b"] = "2" * 20
    db.close()
    return tmp_path


def test_semidbm(crashes: Crashes, filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CrashFound, match=r"`db/compact/data` can be incomplete .*`_SemiDBM.__setitem__` \(db.py:133"):
        crashes.check(semidbm_compact, start=filled, check=semidbm_forgets)
    with pytest.raises(CrashFound, match=r"`db/data` can be empty .*`_SemiDBM._write_headers` \(db.py:6[34]"):
        crashes.check(semidbm_new, check=semidbm_is_whole)
    edit_semidbm(monkeypatch)
    crashes.check(semidbm_compact, start=filled, check=semidbm_forgets)
    crashes.check(semidbm_new, check=semidbm_is_whole)
    with pytest.raises(CrashFound, match="`db/data` can have its new size after a crash without its new bytes"):
        crashes.check(semidbm_put, start=filled, check=semidbm_is_whole)


# -- bplustree


def bplustree_insert(keys: int = 6) -> None:
    tree = BPlusTree("./t.db", order=4)
    for number in range(keys):
        tree.insert(number, b"%d" % number * 8)
        print(number, flush=True)


def bplustree_checkpoint() -> None:
    tree = BPlusTree("./t.db", order=4)
    tree.insert(0, b"0" * 8)
    print(0, flush=True)
    tree.checkpoint()


def bplustree_has_all(state: State) -> None:
    tree = BPlusTree("./t.db", order=4)
    for number in state.done.lines:
        assert tree.get(int(number)) == number.encode() * 8
    tree.close()


def sync_before_removal(self: Any, reopen_wal: bool = False) -> None:
    log = self._wal
    bplustree.memory.fsync_file_and_dir(log._fd.fileno(), log._dir_fd)
    for page, start in log._committed_pages.items():
        data = bplustree.memory.read_from_file(log._fd, start, start + log._page_size)
        self._write_page_in_tree(page, data, fsync=False)
    bplustree.memory.fsync_file_and_dir(self._fd.fileno(), self._dir_fd)
    list(log.checkpoint())
    if reopen_wal:
        self._wal = bplustree.memory.WAL(self._filename, self._tree_conf.page_size)


def test_bplustree(crashes: Crashes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    removed = (
        r"`WAL.checkpoint` \(memory.py:330, .*removes `t.db-wal` before `t.db`, written at memory.py:57, is synced"
    )
    with pytest.raises(CrashFound, match=removed):
        crashes.check(bplustree_checkpoint, check=bplustree_has_all)
    with pytest.raises(
        CrashFound, match=r"what was written to `t.db` \(`FileMemory._write_page_in_tree`, memory.py:276"
    ):
        crashes.check(bplustree_insert, check=bplustree_has_all)
    BPlusTree(str(tmp_path / "t.db"), order=4).close()
    with pytest.raises(CrashFound, match=r"`t.db-wal` can have its new size .*\n.*0 is not a valid FrameType"):
        crashes.check(partial(bplustree_insert, 1), start=tmp_path, check=bplustree_has_all)
    monkeypatch.setattr(bplustree.memory.FileMemory, "perform_checkpoint", sync_before_removal)
    with pytest.raises(CrashFound) as raised:
        crashes.check(bplustree_checkpoint, check=bplustree_has_all)
    assert "removes `t.db-wal`" not in str(raised.value)


# -- larzdb


def larzdb_commit() -> None:
    db = larzdb.Database("app.larz")
    for number in range(4):
        db.put(str(number), number)
        print(number, flush=True)
    db.compact()
    db.close()


def larzdb_has_all(state: State) -> None:
    db = larzdb.Database("app.larz")
    assert all(db.get(number) == int(number) for number in state.done.lines)
    db.close()


def replay_to_zeros(replay: Callable[[Any], Iterator[bytes]]) -> Callable[[Any], Iterator[bytes]]:
    def replayed(self: Any) -> Iterator[bytes]:
        end = 0
        try:
            for payload in replay(self):
                yield payload
                end = self._f.tell()
        except larzdb.engine.CorruptDatabase:
            self._f.seek(end)
            if self._f.read().strip(b"\0"):
                raise
            self._f.truncate(end)
            self._size = end

    return replayed


def test_larzdb(crashes: Crashes, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CrashFound, match=r"`app.larz` can have its new size .*`Log.append`, engine.py:97"):
        crashes.check(larzdb_commit, check=larzdb_has_all)
    monkeypatch.setattr(larzdb.engine.Log, "replay", replay_to_zeros(larzdb.engine.Log.replay))
    crashes.check(larzdb_commit, check=larzdb_has_all)


# -- lxcore


def lxcore_open() -> Any:
    return lxcore.LxDB("mydb", durability=lxcore.DURABILITY_STRICT, auto_compact=False)


def lxcore_delete() -> None:
    db = lxcore_open()
    db.set("0", 0)
    db.delete("0")
    print("deleted", flush=True)


def lxcore_compact() -> None:
    db = lxcore_open()
    for number in range(3):
        db.set(str(number), number)
    db.checkpoint()
    db.delete("0")
    print("deleted", flush=True)
    db.compact()


def lxcore_is_right(state: State) -> None:
    db = lxcore_open()
    assert not state.done.printed or not db.exists("0"), f"0 is back: {db.get('0')}"
    db.close()


def test_lxcore(crashes: Crashes, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = lxcore.core.engine.Engine
    with pytest.raises(CrashFound, match="can be lost in a crash although `deleted` was printed"):
        crashes.check(lxcore_delete, check=lxcore_is_right)
    bury, compact = engine._do_tombstone, engine.compact

    def bury_and_sync(self: Any, key: bytes) -> bool:
        buried: bool = bury(self, key)
        self._write_seg.flush(fsync=True)
        return buried

    monkeypatch.setattr(engine, "_do_tombstone", bury_and_sync)
    crashes.check(lxcore_delete, check=lxcore_is_right)
    with pytest.raises(CrashFound, match=r"0 is back: (None|\d)"):
        crashes.check(lxcore_compact, check=lxcore_is_right)

    def compact_without_index(self: Any) -> None:
        self._chk_path.unlink(missing_ok=True)
        folder = os.open(self.path, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
        compact(self)

    monkeypatch.setattr(engine, "compact", compact_without_index)
    crashes.check(lxcore_compact, check=lxcore_is_right)


# -- pysos


def pysos_content() -> dict[Any, Any]:
    return dict(pysos.Dict("db.sos").items())


def pysos_fill() -> None:
    store = pysos.Dict("db.sos")
    store["a"] = "x" * 30
    store["b"] = 2
    store.close()


def pysos_update() -> None:
    store = pysos.Dict("db.sos")
    store["a"] = "y" * 10
    store.close()


def pysos_is_right(state: State) -> None:
    content = pysos_content()
    assert content["a"] in ("x" * 30, "y" * 10)
    assert content["b"] == 2


def test_pysos(crashes: Crashes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    pysos_fill()
    (tmp_path / "start").mkdir()
    shutil.move("db.sos", "start/db.sos")

    def check() -> None:
        crashes.check(pysos_update, start="start", check=pysos_is_right)

    with pytest.raises(CrashFound, match=r"`db.sos` can have its new size .*`Dict.__setitem__`(.|\n)*JSONDecodeError"):
        check()
    opened, freed = pysos.Dict.__init__, pysos.Dict._freeLine

    def open_without_zeros(self: Any, path: str) -> None:
        if os.path.exists(path):
            held = Path(path).read_bytes()
            if b"\0" in held:
                os.truncate(path, held.rfind(b"\n", 0, held.index(b"\0")) + 1)
        opened(self, path)

    def free_after_sync(self: Any, offset: int) -> None:
        os.fsync(self._file.fileno())
        freed(self, offset)

    monkeypatch.setattr(pysos.Dict, "__init__", open_without_zeros)
    with pytest.raises(CrashFound, match=r"`db.sos` can lose what was appended first(.|\n)*KeyError: 'a'"):
        check()
    monkeypatch.setattr(pysos.Dict, "_freeLine", free_after_sync)
    check()


# -- yedb and leanqueue


def yedb_set() -> None:
    with yedb.YEDB("ye", auto_repair=True) as db:
        db.key_set("a", 1)


def yedb_opens(state: State) -> None:
    with yedb.YEDB("ye", auto_repair=True) as db:
        db.key_set("q", 5)
        assert db.key_get("q") == 5


def test_yedb(crashes: Crashes, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CrashFound, match=r"a crash between the new directory `ye` \(`YEDB.open`, __init__.py:812"):
        crashes.check(yedb_set, check=yedb_opens)
    opened = yedb.YEDB.open

    def open_or_make(self: Any, *args: Any, **kwargs: Any) -> Any:
        described = self.meta_file.exists() and self.meta_file.read_text().strip("\0")
        if self.path.is_dir() and not described:
            shutil.rmtree(self.path)
        return opened(self, *args, **kwargs)

    monkeypatch.setattr(yedb.YEDB, "open", open_or_make)
    crashes.check(yedb_set, check=yedb_opens)


def leanqueue_enqueue() -> None:
    leanqueue.LeanQueueCore("q", sync_interval_ms=0).enqueue(b"m")


def leanqueue_opens(state: State) -> None:
    leanqueue.LeanQueueCore("q", sync_interval_ms=0)


def test_leanqueue(crashes: Crashes) -> None:
    with pytest.raises(CrashFound, match=r"`q/queue.log` can have its new size .*\n.*has bad magic"):
        crashes.check(leanqueue_enqueue, check=leanqueue_opens)
