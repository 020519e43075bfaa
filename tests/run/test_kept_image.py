"""`crashcheck replay --keep` writes a script that runs the check on the image as the search did."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from support.command_line import run_crashcheck

PROGRAM = """\
#include <fcntl.h>
#include <emmintrin.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct pool {
    struct pool *self;
    char unused[56];
    long count, unused_too[7];
    long value;
};

static void persist(const void *at) { _mm_clflush(at); _mm_sfence(); }

int main(int argc, char **argv) {
    int fd = open(argv[2], O_RDWR | O_CREAT, 0644);
    if (!strcmp(argv[1], "work") && ftruncate(fd, 4096)) return 2;
    if (lseek(fd, 0, SEEK_END) < 4096) return 0;
    struct pool *pool = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (!strcmp(argv[1], "work")) {
        pool->self = pool;
        persist(&pool->self);
        pool->count = 1;
        persist(&pool->count);
        pool->value = 7;
        persist(&pool->value);
        puts("1");
        return fflush(stdout);
    }
    if (!getenv("GREETING") || access("here", F_OK)) return 127;
    if (pool->self && pool->self != pool) return 126;
    int lost = pool->count && !pool->value;
    printf("%s, %s has %ld and %s\\n", getenv("GREETING"), argv[2], pool->value, argv[3]);
    pool->count = 0; /* a run on its own result would pass */
    return lost;
}
"""
CONFIG = """\
[build]
command = "crashcheck-cc -O1 -g -o program program.c"
[workload]
command = "./program work {pool}/pool"
[pool]
files = ["pool"]
[check]
command = %s
env = { GREETING = "it's me" }
"""


@pytest.mark.parametrize(
    "command", ["./program check {pool}/pool {acked}", "exec ./program check {pool}/pool $(cat {stdout})x"]
)
def test_the_script_runs_the_check_from_any_folder_as_often_as_one_likes(
    tmp_path: Path, environment: dict[str, str], command: str
) -> None:
    (tmp_path / "program.c").write_text(PROGRAM, encoding="utf-8")
    (tmp_path / "here").touch()
    (tmp_path / "crashcheck.toml").write_text(CONFIG % json.dumps(command), encoding="utf-8")
    report = tmp_path / "report.json"
    run_crashcheck("run", "--no-fixes", "--format", f"json={report}", cwd=tmp_path, env=environment)
    (finding,) = json.loads(report.read_text(encoding="utf-8"))["findings"]
    image = tmp_path / "a folder" / "image"
    done = run_crashcheck("replay", finding["replay"], "--keep", str(image), cwd=tmp_path, env=environment)
    script = image.with_name("image.sh")
    assert f"  '{script}'\n  '{script}' gdb --args\n" in done.stdout
    (tmp_path / ".crashcheck").rename(tmp_path / "gone")
    for under in ([], ["env"], []):
        ran = subprocess.run([script, *under], cwd="/", env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True)
        acked = "x" if "stdout" in command else "0"
        assert (ran.returncode, ran.stdout) == (1, f"it's me, {image}.run/pool has 0 and {acked}\n")
