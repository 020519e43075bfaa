"""Everyday commands, and how to compare what each leaves of a folder, run plainly and by `crashcheck try`."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from support.command_line import run_crashcheck

CRASHCHECK = [sys.executable, "-m", "crashcheck"]
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
        held, attributes = "", dict[str, bytes]()
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
    words: list[str],
    place: Path,
    typed: str = "",
    user: Sequence[str] = (),
    environment: Mapping[str, str] = os.environ,
) -> tuple[dict[str, tuple[object, ...]], subprocess.CompletedProcess[str]]:
    """What a command leaves in a folder with this path, which is a new one, and how it ended.

    `user`: a command that becomes another user; the folder is made by that user.
    """
    shutil.rmtree(place, ignore_errors=True)
    subprocess.run([*user, "mkdir", "-p", place], check=True)
    environment = {**environment, **DATES, "PWD": str(place)}
    subprocess.run([*user, "sh", "-ec", SETUP], cwd=place, check=True, env=environment)
    done = run([*user, *words], place, environment, typed)
    return listed(place), done


def is_installed(command: str) -> bool:
    """Whether the first program of a shell command is here."""
    first = command.split()[0]
    return first in ("umask", "mkdir") or shutil.which(first) is not None


def trying(command: str) -> list[str]:
    return [*CRASHCHECK, "try", "--states", "20", "--", "sh", "-c", command]


def run(
    words: list[str], folder: Path, environment: Mapping[str, str] = os.environ, typed: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a command and wait for its end."""
    if words[:3] == CRASHCHECK:
        return run_crashcheck(*words[3:], cwd=folder, env=environment, given=typed)
    return subprocess.run(words, cwd=folder, env=environment, input=typed, capture_output=True, text=True)
