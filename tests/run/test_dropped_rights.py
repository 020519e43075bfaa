"""A program that root starts and that drops its rights finds its files in crash images, and others no more."""

from __future__ import annotations

import os
import resource
import shlex
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from crashcheck.checker.execution import process
from crashcheck.checker.execution.process import Limits
from crashcheck.checker.images import image_folder
from crashcheck.cli import main
from crashcheck.errors import EXIT_CLEAN, EXIT_FAILED
from support.caches import cache_of_its_own
from support.command_line import run_crashcheck

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="only root can drop its rights"
)

NOBODY = 65534
CONFIG = """
[setup]
command = "mkdir {pool}/data && echo old > {pool}/data/f && chown -R 65534 {pool}/data"
[workload]
command = "setpriv --reuid 65534 --regid 65534 --clear-groups sh work {pool}/data"
recorder = "syscalls"
[pool]
files = ["*"]
[check]
command = "setpriv --reuid 65534 --regid 65534 --clear-groups sh check {pool}/data"
[model]
name = "ext4"
"""
WORK = """
set -e; cd "$1"; umask 77
echo new > t; sync t; mv t f
mkdir d; echo x > d/g; sync
"""
CHECK = """
set -e; cd "$1"
test "$(ulimit -d) $(ulimit -f)" = "4194304 16777216"
grep -q -e old -e new f; echo more >> f; : > made; test ! -e d/g || echo y >> d/g
test ! -e t || cat t
test ! -e d/g || test "$(stat -c %a%u d/g)" = 60065534
"""


@pytest.fixture
def project() -> Iterator[Path]:
    """A folder that others can enter, unlike those of pytest."""
    folder = Path(tempfile.mkdtemp(prefix="crashcheck-dropped-"))
    folder.chmod(0o755)
    (folder / "crashcheck.toml").write_text(CONFIG)
    (folder / "work").write_text(WORK)
    (folder / "check").write_text(CHECK)
    yield folder
    shutil.rmtree(folder)


def test_a_check_that_drops_root_reads_and_writes_every_image(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["run", "-c", str(project), "--jobs", "1"])
    printed = capsys.readouterr()
    assert code == EXIT_CLEAN, printed
    assert "0 failing" in printed.out


@pytest.mark.parametrize(("mode", "code"), [(0o755, EXIT_CLEAN), (0o750, EXIT_FAILED)])
def test_a_check_of_a_folder_that_is_tried_reaches_the_images_where_it_reaches_the_folder(
    mode: int, code: int, project: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    data = project / "tried" / "data"
    data.mkdir(parents=True)
    (data / "f").write_text("old\n")
    for path in (data, data / "f"):
        os.chown(path, NOBODY, NOBODY)
    project.chmod(mode)
    dropped = "setpriv --reuid 65534 --regid 65534 --clear-groups"
    check = f"{dropped} sh -c 'cd {{pool}}/data && grep -q -e old -e new f && echo more >> f'"
    work = f"{dropped} --inh-caps=+dac_read_search --ambient-caps=+dac_read_search sh {project}/work data"
    cache = cache_of_its_own(tmp_path / "cache")  # below a folder of pytest: of root alone
    env = {**environment, "CRASHCHECK_CACHE": str(cache)}
    done = run_crashcheck("try", "--check", check, "--", *shlex.split(work), cwd=project / "tried", env=env)
    assert done.returncode == code, done.stderr
    assert ("[check-rejects-final]" in done.stderr) == (code != EXIT_CLEAN)


@pytest.mark.parametrize(("mode", "expected"), [(0o755, 0o711), (0o750, 0o700)])
def test_images_can_be_entered_by_whom_the_recording_lets_in(mode: int, expected: int, project: Path) -> None:
    project.chmod(mode)
    for shared in (project, project / "none"):  # in shared memory, or below the recording's folder
        home = image_folder.home(project, 0, 1, shared)
        assert stat.S_IMODE(home.stat().st_mode) == expected


def test_a_program_has_its_limits_from_the_start_and_we_have_ours_afterwards() -> None:
    """Its rights dropped, it could not be limited any more."""
    before = [resource.getrlimit(which) for which in (resource.RLIMIT_DATA, resource.RLIMIT_FSIZE)]
    with process._inherited(Limits(memory_bytes=8 << 30, file_bytes=1 << 20).of_resources()):
        started = subprocess.run(["sh", "-c", "ulimit -d; ulimit -f"], capture_output=True, text=True)
    assert started.stdout == "8388608\n2048\n"
    with process._inherited(Limits(memory_bytes=1 << 20).of_resources()):  # less than it takes to start it
        started = subprocess.run(["sh", "-c", "ulimit -d"], capture_output=True, text=True)
    assert started.stdout == "unlimited\n"
    assert [resource.getrlimit(which) for which in (resource.RLIMIT_DATA, resource.RLIMIT_FSIZE)] == before


def test_a_file_that_no_mode_is_known_of_is_a_secret_of_the_folders_owner(project: Path) -> None:
    first = project / "first"
    first.mkdir()
    os.chown(first, NOBODY, NOBODY)
    image_folder.write_image(first, [("d/f", True, 1, ((0, b"x"),))], project / "image")
    for path, mode in (("d", 0o755), ("d/f", 0o600)):
        status = (project / "image" / path).stat()
        assert (stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid) == (mode, NOBODY, NOBODY)
