"""Representative testing of loops, on a compiled program: no short run of a loop hides a longer one."""

from __future__ import annotations

import json
from pathlib import Path

from support.command_line import run_crashcheck

LOG = """\
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <emmintrin.h>
#include "crashcheck.h"
struct log { uint64_t item[16]; uint64_t valid; uint64_t unused[47]; };
static void flush(const void *at) { __builtin_ia32_clflushopt((void *)at); }
static __attribute__((noinline)) void put(struct log *log, int items, int flushed)
{
    for (int i = 0; i < items; i++)
        log->item[i * 6] = i + 1;
    for (int i = 0; i < flushed; i++)
        flush(&log->item[i * 6]);
    _mm_sfence();
    log->valid = items;
    flush(&log->valid);
    _mm_sfence();
}
int main(int argc, char **argv)
{
    int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    if (argc < 2 || ftruncate(fd, 8192))
        return 2;
    struct log *logs = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (argc > 2) {
        for (int at = 0; at < 2; at++)
            for (uint64_t i = 0; i < logs[at].valid; i++)
                if (logs[at].item[i * 6] != i + 1)
                    return 1;
        return 0;
    }
    static const int items[] = {1, 3}, flushed[] = {1, FLUSHED};
    for (volatile int at = 0; at < 2; at++) { /* one caller: a static site knows it */
        crashcheck_op_begin();
        put(&logs[at], items[at], flushed[at]);
        crashcheck_op_end();
    }
    return 0;
}
"""
CONFIG = """\
[build]
command = "crashcheck-cc -O1 -g -mclflushopt -DFLUSHED={flushed} -o log log.c"
[workload]
command = "./log {{pool}}/log.pm"
[pool]
files = ["log.pm"]
[check]
command = "./log {{pool}}/log.pm check"
first = "skip"
[strategy]
name = "pathfinder"
"""


def run(folder: Path, flushed: int, environment: dict[str, str]) -> list[str]:
    (folder / "log.c").write_text(LOG)
    (folder / "crashcheck.toml").write_text(CONFIG.format(flushed=flushed))
    words = ["run", "--no-fixes", "--format", "json=report.json"]
    done = run_crashcheck(*words, cwd=folder, env=environment)
    assert done.returncode in (0, 1), done.stderr
    report = json.loads((folder / "report.json").read_text())
    assert report["run"]["stop_reason"] == "exhausted"
    return [finding["location"]["variable"] for finding in report["findings"]]


def test_a_correct_run_of_one_turn_does_not_hide_three_turns_of_which_the_last_is_not_flushed(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    assert run(tmp_path, 2, environment) == ["log.valid"]
    assert run(tmp_path, 3, environment) == []
