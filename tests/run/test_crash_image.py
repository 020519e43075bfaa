"""Crash images as files: they hold what the check needs, and nothing in one is written elsewhere."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from crashcheck.crash_image import _pack, _unpack
from crashcheck.errors import CrashcheckError
from support.compilers import c_compiler
from support.ledger import files

ABOUT = {"id": "f1", "message": "m", "acked": 2}


def packed(folder: Path, name: str = "a.crash.tar.gz") -> Path:
    pool = folder / "pool"
    pool.mkdir(exist_ok=True)
    with (pool / "big.pm").open("wb") as out:
        out.write(b"first")
        out.truncate(8 << 20)
    _pack(folder / name, pool, ABOUT, b"printed\n", folder / "addresses")
    return folder / name


def test_an_image_is_small_equal_each_time_and_sparse_again(tmp_path: Path) -> None:
    archive = packed(tmp_path)
    assert archive.stat().st_size < 50_000
    assert archive.read_bytes() == packed(tmp_path, "b.crash.tar.gz").read_bytes()
    there = tmp_path / "there"
    assert _unpack(archive, there) == 2
    file = there / "pool" / "big.pm"
    assert (file.stat().st_size, file.read_bytes()[:6]) == (8 << 20, b"first\0")
    assert file.stat().st_blocks * 512 < 1 << 20
    assert (there / "stdout").read_bytes() == b"printed\n"


@pytest.mark.parametrize("name", ["../evil", "/evil", "pool/../../evil", "pool", "other/file"])
def test_a_file_that_belongs_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    with tarfile.open(tmp_path / "x.tar.gz", "w:gz") as archive:
        archive.addfile(tarfile.TarInfo(name), io.BytesIO())
    with pytest.raises(CrashcheckError, match="image-unreadable"):
        _unpack(tmp_path / "x.tar.gz", tmp_path / "there")
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_only_plain_files_are_taken_out(tmp_path: Path, kind: bytes) -> None:
    with tarfile.open(tmp_path / "x.tar.gz", "w:gz") as archive:
        member = tarfile.TarInfo("pool/link")
        member.type, member.linkname = kind, "/etc/passwd"
        archive.addfile(member)
    with pytest.raises(CrashcheckError, match="image-unreadable"):
        _unpack(tmp_path / "x.tar.gz", tmp_path / "there")


@pytest.mark.slow
def test_an_image_is_enough_to_see_a_finding_with_a_plain_build(tmp_path: Path, environment: dict[str, str]) -> None:
    for name, text in files("").items():
        (tmp_path / name).write_text(text, encoding="utf-8")

    def crashcheck(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = ["crashcheck", *arguments]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)

    too_large = crashcheck("run", "--images", "none", "--images-mib", "0").stderr
    assert ("no crash image of" in too_large, list((tmp_path / "none").iterdir())) == (True, [])
    assert crashcheck("run", "--images", "images", "--format", "json=out.json").returncode == 1
    (finding,) = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))["findings"]
    shutil.rmtree(tmp_path / ".crashcheck")
    os.unlink(tmp_path / "ledger")
    marks = "#define CRASHCHECK_OP_BEGIN()\n#define CRASHCHECK_OP_END()"
    source = (tmp_path / "ledger.c").read_text(encoding="utf-8").replace('#include "crashcheck.h"', marks)
    (tmp_path / "ledger.c").write_text(source, encoding="utf-8")
    subprocess.run([*c_compiler(), "-O1", "-o", "ledger", "ledger.c"], cwd=tmp_path, check=True)
    done = crashcheck("replay", "--image", f"images/{finding['id']}.crash.tar.gz", "--keep", "kept")
    assert done.returncode == 1
    assert "is used and has no owner" in done.stdout
    assert (tmp_path / "kept" / "pool" / "ledger.pm").stat().st_size == 4096
