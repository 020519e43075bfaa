"""`crashcheck try`: the folder ends as the command alone would leave it, and the exit status is the verdict."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from crashcheck import pipeline
from crashcheck.cli import main
from crashcheck.cli.try_command import MOST_FILES
from crashcheck.errors import EXIT_CLEAN, EXIT_FAILED, EXIT_FINDINGS
from crashcheck.stages.recording import read_workload as read
from support.tried_commands import CRASHCHECK


def test_an_unsynced_rename_is_found_and_the_folder_ends_as_the_command_leaves_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "f").write_bytes(b"old content")
    monkeypatch.chdir(folder)
    command = f"printf 'new content' > tmp; mv tmp {folder}/f; echo ready"
    assert main(["try", "--states", "50", "--", "sh", "-c", command.replace(f"{folder}/", "")]) == EXIT_FINDINGS
    out, printed = capfd.readouterr()
    assert out == "ready\n"
    assert "`f` can hold nothing but zeros after a crash: `tmp` is renamed to `f` before its data are synced" in printed
    assert "add fsync of tmp before the rename of tmp to f" in printed
    assert (
        "other syncs are missing, too: the rename of `tmp` to `f` can be lost in a crash although `ready` was printed"
        in printed
    )
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {"f": b"new content"}


def test_no_note_repeats_the_sentence_of_its_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").write_text("content")
    assert main(["try", "--", "sh", "-c", "cp a b; echo ready"]) == EXIT_FINDINGS
    printed = capfd.readouterr().err
    assert printed.count("what was written to `b` can be lost in a crash although `ready` was printed") == 1
    assert "the same fix" not in printed


def test_a_program_in_python_is_shown_its_own_function_and_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    save = "def save(path, value):\n    with open(path, 'w') as file:\n        json.dump(value, file)\n"
    script = f"import json\n\n{save}\nsave('cfg.json', {{'a': 1}})\nprint('saved')\n"
    (tmp_path / "save.py").write_text(script)
    (tmp_path / "cfg.json").write_text('{"old": 1}')
    monkeypatch.chdir(tmp_path)
    assert main(["try", "--states", "50", "--", sys.executable, "-I", "save.py"]) == EXIT_FINDINGS
    printed = capfd.readouterr().err
    assert "`cfg.json` can be empty after a crash: `save` (save.py:4) empties it before it writes it\n" in printed
    assert "> 4 │ with open(path, 'w') as file:" in printed
    assert "in save  ← <module> at save.py:7" in printed


@pytest.mark.parametrize(("sync", "verdict"), [("true", EXIT_FINDINGS), ("sync tmp", EXIT_CLEAN)])
def test_a_check_of_the_users_decides_from_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], sync: str, verdict: int
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f").write_text("old")
    (tmp_path / "check").write_text('case "$(cat "$1/f")" in old|new) ;; *) echo "f is damaged"; exit 1;; esac')
    command = ["--", "sh", "-c", f"printf new > tmp; {sync}; mv tmp f; echo saved"]
    assert main(["try", "--check", "sh check {pool}", *command]) == verdict
    printed = capfd.readouterr().err
    assert ("`f` can hold nothing but zeros" in printed) == ("f is damaged" in printed) == (verdict == EXIT_FINDINGS)
    assert "lost in a crash although" not in printed  # which the check does not ask for


PRINTS = {
    "write": "os.write(1, b'done ' * 2000)",  # more than the trace keeps of an output
    "writev": "os.writev(1, [b'done ' * 19, b'', b'do', b'ne '] * 100)",
    "a socket": "socket.socket(fileno=1).sendall(b'done ' * 2000)",
}
EXACT = """
import sys
state, printed = open(sys.argv[1]).read(), open(sys.argv[2]).read()
assert printed in ("", "done " * 2000), printed[:20]
assert state == "new" or state == "old" and not printed, f"printed {len(printed)} bytes, and has {state}"
"""
SAVES = """
import os, socket
f = os.open("new", os.O_WRONLY | os.O_CREAT)
os.write(f, b"new")
os.fsync(f)
os.rename("new", "state")
"""


@pytest.mark.parametrize("prints", PRINTS)
@pytest.mark.parametrize(("synced", "verdict"), [(True, EXIT_CLEAN), (False, EXIT_FINDINGS)])
def test_a_check_reads_what_the_command_had_printed(
    tmp_path: Path, environment: dict[str, str], prints: str, synced: bool, verdict: int
) -> None:
    (tmp_path / "check.py").write_text(EXACT)
    syncs = "os.fsync(os.open('.', os.O_RDONLY))\n" * synced
    (tmp_path / "save.py").write_text(f"{SAVES}{syncs}{PRINTS[prints]}\nopen('last', 'w')\n")
    (tmp_path / "state").write_text("old")
    ours, theirs = socket.socketpair()
    with ours, theirs:
        out = theirs if prints == "a socket" else subprocess.PIPE
        check = f"{sys.executable} check.py {{pool}}/state {{stdout}}"
        done = subprocess.run(
            [*CRASHCHECK, "try", "--check", check, "--", sys.executable, "save.py"],
            cwd=tmp_path, env=environment, stdout=out, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == verdict, done.stderr
    assert verdict == EXIT_CLEAN or "printed 10000 bytes, and has old" in done.stderr


@pytest.mark.parametrize(
    ("check", "message"),
    [
        ("./check", "--check ./check names no folder to check"),
        ("grep -q new {pool}/f", "leaves these files, so the check must accept them"),
        (
            "test -s {stdout} && test -d {pool}",
            "The check reads {stdout}, which is empty in every crash state: the workload printed nothing.",
        ),
    ],
)
def test_a_check_that_cannot_judge_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], check: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f").write_text("old")
    assert main(["try", "--check", check, "--", "sh", "-c", "echo new > f"]) == EXIT_FAILED
    assert message in capfd.readouterr().err


def test_standard_error_acknowledges_if_it_is_standard_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for redirect, verdict in (("true", EXIT_CLEAN), ("exec 2>&1", EXIT_FINDINGS)):
        assert (
            main(["try", "--states", "50", "--", "sh", "-c", f"{redirect}; echo content >f; echo done >&2"]) == verdict
        )
        (tmp_path / "f").unlink()
    assert "what was written to `f` can be lost in a crash although `done` was printed" in capfd.readouterr().err


def test_a_file_made_elsewhere_and_moved_in_needs_a_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for sync, verdict in (("true", EXIT_FINDINGS), ("sync $f", EXIT_CLEAN)):
        command = f"f=$(mktemp -p {tmp_path}); echo 2 >$f; {sync}; mv $f cfg.json; sync ."
        assert main(["try", "--states", "50", "--", "sh", "-c", command]) == verdict
        (folder / "cfg.json").unlink()
    assert (
        "`cfg.json` can be empty after a crash: another file is renamed to `cfg.json` before its data are synced"
        in capsys.readouterr().err
    )


def test_a_temporary_file_elsewhere_that_a_command_removes_acknowledges_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As compilers do; but an older file there that is removed does, as of mv from another file system."""
    folder, older, own = tmp_path / "folder", tmp_path / "older", tmp_path / "own"
    folder.mkdir()
    older.touch()
    monkeypatch.chdir(folder)
    for removed, verdict in ((own, EXIT_CLEAN), (older, EXIT_FINDINGS)):
        command = f"echo made > {own}; cp {own} f; rm {removed}"
        assert main(["try", "--states", "50", "--", "sh", "-c", command]) == verdict
        (folder / "f").unlink()
    assert "what was written to `f` can be lost in a crash although `/" in capsys.readouterr().err


def test_a_recovery_needs_a_check_to_be_crashed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["try", "--depth", "2", "--", "touch", "f"]) == EXIT_FAILED
    assert "give --check COMMAND" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_large_folder_is_refused_until_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(MOST_FILES + 1):
        (tmp_path / str(number)).touch()
    monkeypatch.chdir(tmp_path)
    assert main(["try", "--", "true"]) == EXIT_FAILED
    assert "[try-folder]" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (
            "echo x > f; exit 3",
            "`sh -c 'echo x > f; exit 3'` exited with status 3: no crash state was checked. [workload-failed]",
        ),
        ("true", "`sh -c true` changed no name, size or byte in {folder} [nothing-persistent]"),
    ],
)
def test_an_error_names_the_users_command_and_folder(
    command: str, error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["try", "--", "sh", "-c", command]) == EXIT_FAILED
    assert f"crashcheck: {error.format(folder=tmp_path)}\n" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["f"] * ("> f" in command)


def test_a_call_that_is_not_followed_leaves_no_verdict_although_every_byte_is_accounted_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    collapse = "import ctypes, os; f = os.open('f', os.O_RDWR | os.O_CREAT); os.write(f, bytes(12288)); "
    collapse += (
        "assert ctypes.CDLL(None).fallocate(f, 8, ctypes.c_long(4096), ctypes.c_long(4096)) == 0; os.unlink('f')"
    )
    assert main(["try", "--states", "50", "--", sys.executable, "-c", collapse]) == EXIT_FAILED
    printed = capfd.readouterr()
    if "AssertionError" in printed.err:
        pytest.skip("the file system collapses no range")
    assert "No verdict: not all changes were recorded: fallocate that collapses or inserts a range; " in printed.err
    assert "To get a verdict: let the program use a call that is followed (docs/limits.md)" in printed.err


def test_a_command_that_fails_without_io_uring_is_shown_the_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    needs = "import ctypes, sys; open('f', 'w').close(); sys.exit(ctypes.CDLL(None).syscall(425, 1, bytes(256)) < 0)"
    assert main(["try", "--", sys.executable, "-c", needs]) == EXIT_FAILED
    assert "It was refused io_uring: --io-uring permits it." in capfd.readouterr().err


def test_a_budget_ends_what_comes_before_the_search_too_and_that_is_no_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    command = "printf new > tmp; mv tmp f; echo ready"
    assert main(["try", "--budget", "0.0001s", "--", "sh", "-c", command]) == EXIT_FAILED
    printed = " ".join(capfd.readouterr().err.split())
    assert "No verdict: no feasible crash state was checked, because the time budget ended first" in printed
    assert "the time budget ended while the run was modelled: raise it; its crash states are not known" in printed
    assert "no byte changed" not in printed
    monkeypatch.setattr(pipeline, "read_workload", lambda config, recording, trace, _: read(config, recording, trace))
    assert main(["try", "--budget", "0.0001s", "--", "sh", "-c", command]) == EXIT_FAILED
    printed = " ".join(capfd.readouterr().err.split())
    assert "the time budget ended while the versions of files were read, after " in printed
