"""The models of ext4 against Debian's kernel in QEMU, and the reader of images against e2fsprogs."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest
from kernel import machine
from kernel.comparison import MOUNTS, compare
from kernel.disk_log import Disk, crashes
from kernel.ext4_image import BLOCK, Folder
from kernel.schedules import script
from real_programs import Unavailable

from support.litmus.file_systems import LITMUS

pytestmark = pytest.mark.slow

SCHEDULES = 5
READ = 12  # images that e2fsprogs reads, too
TOOLS = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


@pytest.fixture(scope="module", autouse=True)
def _packages() -> None:
    if shutil.which("gcc") is None:
        pytest.skip("gcc is missing")
    try:
        machine.kernel()
        machine.qemu()
    except Unavailable as why:
        pytest.skip(str(why))


@pytest.mark.parametrize("model", sorted(MOUNTS))
def test_a_real_kernel_reaches_no_state_that_the_model_forbids(model: str, tmp_path: Path) -> None:
    compared = compare(model, SCHEDULES, 2, tmp_path)
    assert {one.litmus.name: one.forbidden for one in compared.programs if one.forbidden} == {}
    # Write-back was driven: of most programs more than one state was seen.
    assert sum(len(one.seen) > 1 for one in compared.programs if not one.litmus.since) > 10


def test_a_model_of_another_file_system_is_refuted(tmp_path: Path) -> None:
    programs = [litmus for litmus in LITMUS if litmus.name in ("new-file-of-two-blocks", "append-of-blocks")]
    compared = compare("xfs", 12, 2, tmp_path, programs)
    assert {one.litmus.name for one in compared.programs if one.forbidden} == {litmus.name for litmus in programs}


def test_e2fsprogs_read_what_a_crash_left_as_the_reader_does(tmp_path: Path) -> None:
    for tool in ("e2fsck", "debugfs"):
        if shutil.which(tool, path=TOOLS) is None:
            pytest.skip(f"{tool} is missing (package e2fsprogs)")
    machine.make_disk(tmp_path / "disk.img")
    disk = Disk.of(bytearray((tmp_path / "disk.img").read_bytes()))
    _, lines = script(LITMUS, 2, 3)
    log = machine.boot(tmp_path, lines, "")
    last_block = machine.DISK_BYTES // machine.BLOCK - 1
    many = sum(1 for _ in crashes(disk, log, last_block, 3))
    machine.make_disk(tmp_path / "disk.img")
    disk = Disk.of(bytearray((tmp_path / "disk.img").read_bytes()))
    chosen = set(random.Random(4).sample(range(many), READ))
    for number, crash in enumerate(crashes(disk, log, last_block, 3)):
        if number in chosen:
            image = bytearray(disk.image)
            for block in {*crash.kept, *disk.pending}:
                image[block * BLOCK : (block + 1) * BLOCK] = crash.kept.get(block, disk.durable(block))
            (tmp_path / "crash.img").write_bytes(image)
            ours = disk.layout.folder(crash.view, crash.folder)
            assert read_by_e2fsprogs(tmp_path, crash.folder) == ours, number


def read_by_e2fsprogs(folder: Path, name: str) -> Folder:
    environment = {**os.environ, "PATH": TOOLS}
    image = str(folder / "crash.img")
    checked = subprocess.run(["e2fsck", "-fy", image], capture_output=True, env=environment, text=True)
    assert checked.returncode in (0, 1), checked.stdout
    copy = folder / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir()
    subprocess.run(["debugfs", "-R", f"rdump /{name} {copy}", image], check=True, capture_output=True, env=environment)
    return {
        str(path.relative_to(copy / name)): None if path.is_dir() else path.read_bytes()
        for path in (copy / name).rglob("*")
    }
