"""Configurations of nodes that cannot be run as they are: each is refused or marked, with the way out."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.command_line import run_crashcheck

ELF_FOR_ARM = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x02\x00\xb7\x00" + bytes(40)


@pytest.fixture
def refused(tmp_path: Path):  # type: ignore[no-untyped-def]
    """What is printed when these lines of crashcheck.toml are run, beside a file `program` with some content."""

    def run(text: str, program: bytes = b"#!/bin/sh\n") -> str:
        (tmp_path / "crashcheck.toml").write_text(text)
        (tmp_path / "program").write_bytes(program)
        (tmp_path / "program").chmod(0o755)
        ended = run_crashcheck("run", cwd=tmp_path, env=os.environ)
        assert ended.returncode == 2, ended.stdout
        return ended.stderr.replace(str(tmp_path), "FOLDER")

    return run


NODE = '[[node]]\ncommand = "./program"\n'


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (ELF_FOR_ARM, "FOLDER/program is a program for AArch64. [node-program]\n  Build it for x86-64 Linux.\n"),
        (b"\1\0\2", "FOLDER/program is no program. [node-program]\n  A command names an ELF program for x86-64, or a "),
    ],
    ids=["for another machine", "none"],
)
def test_what_is_no_program_for_this_machine_is_refused(refused, content: bytes, message: str) -> None:  # type: ignore[no-untyped-def]
    assert message in refused(NODE, content)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '[[node]]\ncommand = "./missing"\nname = "log"\ncount = 2\n',
            "log1: FOLDER/missing: No such file or directory [node-failed]",
        ),
        ('[[node]]\ncommand = "./missing"\n', "n0: FOLDER/missing: No such file or directory [node-failed]"),
        (NODE + 'folder = "d"\ncount = 2\n', "two nodes have the folder 'd'. [config-value]"),
        (
            NODE + '[strategy]\nname = "bfs"\n',
            "[strategy] name is 'bfs'; it must be 'hybrid', 'bounded-dpor', 'dpor', 'dfs'",
        ),
        (NODE + "[bounds]\nactions = 0\n", "[bounds] actions is 0; the least is 1. [config-value]"),
        (NODE + "[bounds]\ncrashes = 1\n", "[bounds] crashes is not 0, and no node may crash. [config-value]"),
    ],
)
def test_a_configuration_that_cannot_be_run_is_refused(refused, text: str, message: str) -> None:  # type: ignore[no-untyped-def]
    assert message in refused(text)


PROCESS_VM_READV, MOUNT = 310, 165
# Its first argument is the number of a system call, which is not permitted to the command that follows.
REFUSING = """
import ctypes, os, struct, sys
load, equal, answer = 0x20, 0x15, 0x06  # of BPF
steps = [(load, 0, 0, 0), (equal, 0, 1, int(sys.argv[1])), (answer, 0, 0, 0x50001), (answer, 0, 0, 0x7fff0000)]
program = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *step) for step in steps))
libc = ctypes.CDLL(None)
libc.prctl(38, 1, 0, 0, 0)
assert libc.prctl(22, 2, struct.pack("<H6xQ", len(steps), ctypes.addressof(program)), 0, 0) == 0
os.execv(sys.executable, [sys.executable, "-m", *sys.argv[2:]])
"""


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            PROCESS_VM_READV,
            "n0: process_vm_readv: Operation not permitted [node-failed]\n  The system, or the container, has to",
        ),
        (
            MOUNT,
            "No verdict: the nodes were not fully under control: n0: process numbers, without mounts in a namespace; "
            "the only feasible run checked. To get a verdict: docs/nodes.md#what-is-not-controlled\n",
        ),
    ],
    ids=["memory of other processes", "mounts"],
)
def test_a_system_that_does_not_permit_what_nodes_need_is_named_with_the_way_out(
    tmp_path: Path, call: int, message: str
) -> None:
    (tmp_path / "crashcheck.toml").write_text('[[node]]\ncommand = "true"\n')
    command = [sys.executable, "-c", REFUSING, str(call), "crashcheck", "run"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert message in ended.stdout + ended.stderr
