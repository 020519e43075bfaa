"""Masked vector stores of compiled programs: exactly the crash states that the real pipeline tests."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pytest

from support.command_line import run_crashcheck

PROGRAM = """\
#include <fcntl.h>
#include <immintrin.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>
#include "crashcheck.h"
int main(int argc, char **argv)
{
    int fd = open(argv[1], O_RDWR | (argc > 2 ? 0 : O_CREAT), 0600);
    if (fd < 0 || (argc > 2 && lseek(fd, 0, SEEK_END) < 4096))
        return argc == 2;
    if (argc == 2 && ftruncate(fd, 4096))
        return 2;
    uint64_t *p = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (argc > 2) {
        FILE *seen = fopen(argv[2], "a");
        for (int i = 0; i < 8; i++)
            fprintf(seen, "%llx ", (unsigned long long)p[i]);
        fprintf(seen, "\\n");
        fclose(seen);
        return FAILS;
    }
    crashcheck_op_begin();
    STORE;
    crashcheck_op_end();
    return 0;
}
"""
CONFIG = """\
[build]
command = "crashcheck-cc -O1 -g {flags} -o program program.c"
[workload]
command = "./program {{pool}}/p.pm"
[pool]
files = ["p.pm"]
[check]
command = "./program {{pool}}/p.pm {seen}"
first = "skip"
[strategy]
name = "exhaustive"
"""


@dataclass(frozen=True)
class Store:
    """A store, the processor's feature that it needs, and what each word holds once it has persisted."""

    name: str
    feature: str
    code: str
    words: dict[int, int]


TWIN = "_mm256_storeu_si256((__m256i *)p, _mm256_set_epi64x(4, 0, 0, 1))"
MASKED = "_mm256_maskstore_epi64((long long *)p, _mm256_set_epi64x(-1, 0, 0, -1), _mm256_set_epi64x(4, 3, 2, 1))"
STORES = [
    Store("unmasked twin", "avx2", TWIN, {0: 1, 3: 4}),
    Store("words", "avx2", MASKED, {0: 1, 3: 4}),
    Store(
        "halves of words",
        "avx2",
        "_mm256_maskstore_epi32((int *)p, _mm256_set_epi32(0, -1, 0, 0, -1, 0, -1, -1), _mm256_set1_epi32(7))",
        {0: 7 << 32 | 7, 1: 7 << 32, 3: 7},
    ),
    Store(
        "bytes, around one that another store wrote",
        "sse2",
        "((char *)p)[1] = 9, _mm_maskmoveu_si128(_mm_set1_epi8(7), _mm_set_epi64x(-1ll << 56, 0xff00ff), (char *)p)",
        {0: 0x070907, 1: 7 << 56},
    ),
    Store("a line", "avx512f", "_mm512_mask_storeu_epi64(p, 0x89, _mm512_set1_epi64(5))", {0: 5, 3: 5, 7: 5}),
    Store("compressed", "avx512f", "_mm512_mask_compressstoreu_epi64(p, 0x41, _mm512_set1_epi64(5))", {0: 5, 1: 5}),
]


def run(folder: Path, environment: dict[str, str], feature: str, store: str, fails: str) -> dict[str, object]:
    if f" {feature} " not in Path("/proc/cpuinfo").read_text().replace("\n", " "):
        pytest.skip(f"this processor has no {feature}")
    (folder / "program.c").write_text(PROGRAM.replace("STORE", store).replace("FAILS", fails))
    (folder / "crashcheck.toml").write_text(CONFIG.format(flags=f"-m{feature}", seen=folder / "seen"))
    words = ["run", "--no-fixes", "--format", "json=report.json"]
    done = run_crashcheck(*words, cwd=folder, env=environment)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    report: dict[str, object] = json.loads((folder / "report.json").read_text())
    return report


@pytest.mark.parametrize("store", STORES, ids=lambda store: store.name)
def test_each_word_persists_whole_and_without_the_others(
    store: Store, tmp_path: Path, environment: dict[str, str]
) -> None:
    report = run(tmp_path, environment, store.feature, store.code, "0")
    assert report["findings"] == []
    expected = set()
    for kept in product((False, True), repeat=len(store.words)):
        words = [0] * 8
        for (place, value), there in zip(store.words.items(), kept, strict=True):
            words[place] = value if there else 0
        expected.add(tuple(words))
    if store.feature == "sse2":  # the ordinary store to byte 1 alone, before the masked one
        expected |= {(0x0900, *words[1:]) for words in expected}
    lines = (tmp_path / "seen").read_text().splitlines()
    of_states = lines[:-2]  # last are the damaged files on which a check that never failed is tried
    assert {tuple(int(word, 16) for word in line.split()) for line in of_states} == expected


@pytest.mark.parametrize("store", [TWIN, MASKED], ids=["unmasked", "masked"])
def test_a_flag_that_survives_without_its_payload_is_found(
    store: str, tmp_path: Path, environment: dict[str, str]
) -> None:
    report = run(tmp_path, environment, "avx2", store, "p[3] && !p[0]")
    assert len(report["findings"]) == 1  # type: ignore[arg-type]
