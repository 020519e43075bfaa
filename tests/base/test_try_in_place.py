"""`crashcheck try` leaves what the command alone leaves: names, kinds, bytes, modes, owners, links, xattrs."""

from __future__ import annotations

import contextlib
import hashlib
import os
import pty
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

SETUP = """
printf 'one\\ntwo\\nthree\\n' > notes; echo 'old' > config; ln -s notes link; ln notes hard; mkdir src; chmod 640 config
printf 'int main(void) { return 0; }\\n' > src/main.c
printf 'all: out\\nout: src/main.c\\n\\tcp $< $@; pwd > where\\n' > Makefile
printf -- '--- notes\\n+++ notes\\n@@ -1,3 +1,3 @@\\n one\\n-two\\n+zwei\\n three\\n' > change.patch
printf 'cmake_minimum_required(VERSION 3.10)\\nproject(x NONE)\\n' > CMakeLists.txt
tar cf some.tar --mtime=@0 src notes; mkfifo fifo; touch -d @0 empty
git init -q repo && cd repo && git config user.email a@b && git config user.name a
git commit -q --allow-empty -m first
"""
COMMANDS = [
    "git -C repo worktree add -q ../wt",
    "git -C repo gc -q",
    "git clone -q repo second",
    "python3 -m venv --without-pip env",
    "cmake -B build .",
    "ln -s $PWD here; ln -sf $PWD/notes abs",
    "mkdir alt adm; update-alternatives --altdir $PWD/alt --admindir $PWD/adm --log $PWD/log "
    "--install $PWD/pick pick $PWD/notes 1",
    "tar xf some.tar -C src; tar czf src.tgz --mtime=@0 src",
    "rsync -a src/ mirror/",
    "sqlite3 db 'create table t(a); insert into t values(1)'",
    "gpg --homedir . --batch --dearmor < /dev/null; true",
    "sed -i s/two/2/ notes",
    "sed -i.bak s/old/new/ config",
    "patch -s < change.patch",
    "patch -s --posix notes change.patch",
    "make -s",
    "npm init -y",
    "gzip -n notes -f",
    "xz -k src/main.c",
    "cp -a src copy; cp --reflink=auto notes other",
    "mv config cfg; mv src/main.c src/m.c",
    "ln -f config hard",
    "mv config notes",
    "rm -r src; rm notes",
    "install -m 751 -D notes a/b/c",
    "truncate -s 1M sparse; fallocate -p -o 0 -l 4096 sparse",
    "dd if=/dev/zero of=config bs=1 seek=3 count=2 conv=notrunc",
    "touch new; chmod 600 new; chmod g+s src",
    "sort -o notes notes; split -n 2 notes",
    "perl -pi -e s/old/older/ config",
    'python3 -c \'import shelve, os; d = open(os.getcwd() + "/x", "w").write(os.environ["PWD"])\'',
    "zip -qX z.zip notes; unzip -qo z.zip -d unzipped",
    "setfattr -n user.a -v b config; true",
    "find . -name '*.c' -exec cp {} {}.orig ';'",
    "gcc -o prog src/main.c",
    "env > environment",
    "umask 027; tee made < config",
    "ed -s notes <<-X\n1d\nw\nX",
    "cat > typed",
]
RANDOM = {"pubring.kbx", "trustdb.gpg", "index", "log", "some.tar", "z.zip", "src.tgz", "cmake.check_cache"}
DATES = {f"GIT_{who}_DATE": "2020-01-01T00:00:00Z" for who in ("AUTHOR", "COMMITTER")}


def listed(folder: Path) -> dict[str, tuple[object, ...]]:
    """Of each path all but times, inode numbers, and what a program fills with random bytes or times."""
    out: dict[str, tuple[object, ...]] = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        held = ""
        if path.is_symlink():
            held = os.readlink(path)
        elif stat.S_ISREG(status.st_mode) and path.name not in RANDOM:
            held = hashlib.sha256(path.read_bytes()).hexdigest()
        with contextlib.suppress(OSError):
            attributes = {name: os.getxattr(path, name) for name in os.listxattr(path, follow_symlinks=False)}
        links = status.st_nlink if not stat.S_ISDIR(status.st_mode) else 0
        out[str(path.relative_to(folder))] = (
            status.st_mode,
            status.st_uid,
            status.st_gid,
            links,
            held,
            str(attributes),
        )
    return out


def left_by(
    words: list[str], place: Path, typed: str = ""
) -> tuple[dict[str, tuple[object, ...]], subprocess.CompletedProcess[str]]:
    """What a command leaves in a folder with this path, which is a new one, and how it ended."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    environment = {**os.environ, **DATES, "PWD": str(place)}
    subprocess.run(["sh", "-ec", SETUP], cwd=place, check=True, env=environment)
    done = subprocess.run(words, cwd=place, input=typed, capture_output=True, text=True, env=environment)
    return listed(place), done


def trying(command: str) -> list[str]:
    return [sys.executable, "-m", "crashcheck", "try", "--states", "20", "--", "sh", "-c", command]


@pytest.mark.parametrize(
    "command", [pytest.param(command, marks=() if "$PWD" in command else pytest.mark.slow) for command in COMMANDS]
)
def test_the_folder_is_that_of_the_plain_command(command: str, tmp_path: Path) -> None:
    if shutil.which(command.split()[0]) is None and command.split()[0] not in ("umask", "mkdir"):
        pytest.skip("not installed")
    plain, alone = left_by(["sh", "-c", command], tmp_path / "f", "typed\n")
    tried, done = left_by(trying(command), tmp_path / "f", "typed\n")
    assert tried == plain
    assert "Traceback" not in done.stderr
    assert done.stdout == alone.stdout


def test_a_command_reads_our_input_and_writes_at_once(tmp_path: Path) -> None:
    _, done = left_by(trying("read x; echo got $x; echo to-stderr >&2; echo $x > f"), tmp_path / "f", "typed\n")
    assert done.stdout == "got typed\n"
    assert "to-stderr\n" in done.stderr
    assert (tmp_path / "f" / "f").read_text() == "typed\n"


def test_a_command_has_our_terminal(tmp_path: Path) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        os.execv(sys.executable, trying("test -t 0 && test -t 1 && test -t 2 && read x </dev/tty && echo $x > f"))
    os.write(terminal, b"typed\n")
    with contextlib.suppress(OSError):
        while os.read(terminal, 4096):
            pass
    os.waitpid(pid, 0)
    os.close(terminal)
    assert (tmp_path / "f").read_text() == "typed\n"


def test_the_folder_may_be_renamed_or_removed(tmp_path: Path) -> None:
    for command in ("cd ..; mv f g", "cd ..; rm -r f"):
        _, done = left_by(trying(f"echo x > new; {command}"), tmp_path / "f")
        assert "Traceback" not in done.stderr
        assert not (tmp_path / "f").exists()
    assert (tmp_path / "g" / "new").read_text() == "x\n"


def test_what_a_command_leaves_running_goes_on(tmp_path: Path) -> None:
    go = tmp_path / "go"
    os.mkfifo(go)
    command = f"echo begun > f; (read x < {go}; echo more > g; echo done > {go}) >/dev/null 2>&1 &"
    _, done = left_by(trying(command), tmp_path / "f")
    assert "was still running when the command ended" in done.stderr
    go.write_text("now\n")
    assert go.read_text() == "done\n"
    assert (tmp_path / "f" / "g").read_text() == "more\n"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_signal_to_us_leaves_the_folder_to_the_command(number: signal.Signals, tmp_path: Path) -> None:
    """SIGKILL cannot be passed on: the command runs to its end. SIGTERM is, and the command decides."""
    go = tmp_path / "go"
    os.mkfifo(go)
    (tmp_path / "f").mkdir()
    asked = "trap 'echo asked >> f; exit 3' TERM"
    command = f"{asked}; echo begun > f; echo ready; read x < {go}; echo ended >> f; echo . > {go}"
    process = subprocess.Popen(trying(command), cwd=tmp_path / "f", stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    if number == signal.SIGKILL:
        process.wait()
        process.stdout.close()
        go.write_text("now\n")
        assert go.read_text() == ".\n"
        assert (tmp_path / "f" / "f").read_text() == "begun\nended\n"
    else:
        process.communicate()
        assert (tmp_path / "f" / "f").read_text() == "begun\nasked\n"
    assert [path.name for path in (tmp_path / "f").iterdir()] == ["f"]


def test_what_others_change_meanwhile_is_named(tmp_path: Path) -> None:
    go = tmp_path / "go"
    os.mkfifo(go)
    (tmp_path / "f").mkdir()
    (tmp_path / "f" / "theirs").write_text("1234567")
    process = subprocess.Popen(
        trying(f"echo x > f; echo ready; read x < {go}"),
        cwd=tmp_path / "f",
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    (tmp_path / "f" / "theirs").write_text("changed")
    go.write_text("now\n")
    assert "theirs: 7 bytes at 0x0–0x6 are not accounted for: another process changed it" in process.communicate()[1]


def test_a_folder_that_holds_our_cache_is_refused(tmp_path: Path) -> None:
    done = subprocess.run(
        trying("echo x > f"),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "CRASHCHECK_CACHE": str(tmp_path / "c")},
    )
    assert done.returncode == 2
    assert "[try-folder]" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", ["mv config notes", "ln -f config notes", "rm config; echo x > new"])
def test_files_that_only_change_names_are_judged(command: str, tmp_path: Path) -> None:
    _, done = left_by(trying(command), tmp_path / "f")
    assert "Traceback" not in done.stderr
    assert "feasible" in done.stderr
