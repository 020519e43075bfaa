"""A build that fails: the hint names what a newcomer has to know."""

from __future__ import annotations

from pathlib import Path

import pytest

from crashcheck.config import parse
from crashcheck.errors import CrashcheckError
from crashcheck.stages.recording import build, record_in

LEAST = '[workload]\ncommand = "./p {pool}/d"\n[pool]\nfiles = ["d"]\n[check]\ncommand = "true"\n[build]\ncommand = '


@pytest.mark.parametrize(("command", "hinted"), [("crashcheck-cc -c gnu.c", True), ("sh -c 'exit 3'", False)])
def test_where_clang_refuses_a_source_the_hint_names_clang(tmp_path: Path, command: str, hinted: bool) -> None:
    (tmp_path / "gnu.c").write_text("int main(void) { int n = 1; int f(void) { return n; } return f(); }\n")
    run = tmp_path / "run"
    run.mkdir()
    config = parse(f'{LEAST}"{command}"\n', tmp_path / "crashcheck.toml")
    with pytest.raises(CrashcheckError, match="build command exited") as caught:
        build(config, run)
    assert ("crashcheck-cc is clang" in caught.value.hint) == hinted


ASSEMBLY = """
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
int main(int argc, char **argv) {
    int fd = open(argv[argc - 1], O_RDWR | O_CREAT, 0600);
    if (ftruncate(fd, 4096)) return 1;
    int *to = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    STORE
    return 0;
}
"""


@pytest.mark.parametrize(
    ("store", "named"),
    [
        ('__asm__ volatile("stosl" : "+D"(to) : "a"(argc) : "memory");', "stosl"),
        ('__asm__ volatile("" : : "r"(to) : "memory");', ""),
    ],
)
def test_where_nothing_was_recorded_assembly_that_is_not_understood_is_named(
    tmp_path: Path, store: str, named: str
) -> None:
    (tmp_path / "p.c").write_text(ASSEMBLY.replace("STORE", store))
    run = tmp_path / "run"
    run.mkdir()
    config = parse(
        f'{LEAST}"crashcheck-cc -O1 -g -o p p.c"\n[setup]\ncommand = "truncate -s 4096 {{pool}}/d"\n',
        tmp_path / "crashcheck.toml",
    )
    build(config, run)
    with pytest.raises(CrashcheckError) as caught:
        record_in(config, run / "recording")
    assert caught.value.slug == "nothing-persistent"
    listed = caught.value.message.partition("assembly that is not understood may have written unseen:\n  - ")[2]
    assert listed.startswith("p.c:9: ") is bool(named)
    assert named in listed
