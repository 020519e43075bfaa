"""`crashcheck try` leaves what the command alone leaves: names, kinds, bytes, modes, owners, links, xattrs."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import shlex
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from crashcheck.errors import EXIT_CLEAN, EXIT_FAILED, EXIT_FINDINGS
from support.tried_commands import COMMANDS, is_installed, left_by, run, trying


@pytest.mark.parametrize(
    "command", [pytest.param(command, marks=() if "$PWD" in command else pytest.mark.slow) for command in COMMANDS]
)
def test_the_folder_is_that_of_the_plain_command(command: str, tmp_path: Path) -> None:
    if not is_installed(command):
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


def test_a_move_changes_no_byte(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    done = tried_by(trying("exec mv a b"), tmp_path)
    assert done.returncode == EXIT_CLEAN
    assert re.search(r"\n  trace   no byte changed, [0-9]+ events: 0 writes, 0 syncs\n", done.stderr)


def test_what_a_command_leaves_running_goes_on(tmp_path: Path) -> None:
    go = tmp_path / "go"
    os.mkfifo(go)
    command = f"echo begun > f; (read x < {go}; echo more > g; echo done > {go}) >/dev/null 2>&1 &"
    _, done = left_by(trying(command), tmp_path / "f")
    assert "warning: sh was still running when the command ended" in done.stderr
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


def without_rights(*words: str) -> list[str]:
    """A command as an ordinary user runs it, who may not read what the modes forbid."""
    return ["unshare", "--user", *words] if os.geteuid() == 0 else list(words)


def tried_by(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    done = run(words, folder)
    if "unshare failed" in done.stderr:
        pytest.skip("no user namespaces here")
    return done


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "closed").write_text("secret")
    (tmp_path / "dark").mkdir()
    (tmp_path / "dark" / "f").touch()
    for name in ("closed", "dark"):
        (tmp_path / name).chmod(0)
    done = tried_by(without_rights(*trying("echo x > f")), tmp_path)
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("closed", "dark")]
    (tmp_path / "dark").chmod(0o700)
    assert done.returncode == EXIT_CLEAN
    for name in ("closed", "dark"):
        assert f"warning: {name}: it could not be read, or is another file system; in crash images it" in done.stderr
    assert "warning: dark: it could not be read, or is another file system; what changed in it is not" in done.stderr
    assert modes == [0, 0]


MOUNTED = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]


def on_a_mount(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """`try` of a command in a folder in which `sub` is another file system, with a file `sub/there`."""
    (folder / "sub").mkdir()
    script = 'mount -t tmpfs none sub && echo x > sub/there && exec "$@"'
    done = tried_by([*MOUNTED, script, "sh", *trying(command)], folder)
    if "mount:" in done.stderr:
        pytest.skip("a user may not mount here")
    return done


def test_a_file_system_in_the_folder_is_named(tmp_path: Path) -> None:
    done = on_a_mount("echo z > sub/there; echo x > f", tmp_path)
    assert done.returncode == EXIT_CLEAN
    assert "warning: sub: it could not be read, or is another file system; what changed in it is not" in done.stderr


def test_changes_in_another_file_system_alone_are_not_called_nothing(tmp_path: Path) -> None:
    done = on_a_mount("echo z > sub/there", tmp_path)
    assert done.returncode == EXIT_FAILED
    assert f"changed no name, size or byte in {tmp_path}\n  - sub: it could not be read, or is another" in done.stderr


def test_a_daemon_that_writes_later_is_named_where_nothing_changed(tmp_path: Path) -> None:
    go, up = tmp_path / "go", tmp_path / "up"
    os.mkfifo(go)
    os.mkfifo(up)
    folder = tmp_path / "f"
    folder.mkdir()
    daemon = f"setsid sh -c 'echo > {up}; read x < {go}; echo late > f; echo done > {go}' >/dev/null 2>&1 &"
    command = f"{daemon} read x < {up}"  # by then it is no longer setsid that runs
    done = tried_by(trying(command), folder)
    left = "sh was still running when the command ended; what it wrote from then on is not"
    assert done.returncode == EXIT_FAILED
    assert f"changed no name, size or byte in {folder}\n  - {left} recorded [nothing-persistent]" in done.stderr
    go.write_text("now\n")
    assert go.read_text() == "done\n"
    assert (folder / "f").read_text() == "late\n"


def test_what_another_process_changed_is_not_called_nothing(tmp_path: Path) -> None:
    """A server that ran before writes, as one that is asked to save."""
    go, folder = tmp_path / "go", tmp_path / "f"
    os.mkfifo(go)
    folder.mkdir()
    server = subprocess.Popen(["sh", "-c", f"read x < {go}; echo $x > saved; echo . > {go}"], cwd=folder)
    done = tried_by(trying(f"echo it > {go}; read x < {go}"), folder)
    server.wait()
    assert done.returncode == EXIT_FAILED
    assert f"was not seen to change anything in {folder}, but saved changed [not-followed]" in done.stderr


NARROW = """
.globl _start
_start: mov $5, %eax; mov $name, %ebx; mov $0x42, %ecx; mov $0644, %edx; int $0x80
        mov %eax, %ebx; mov $4, %eax; mov $name, %ecx; mov $4, %edx; int $0x80
        mov $1, %eax; xor %ebx, %ebx; int $0x80
name:   .asciz "made"
"""


def test_a_32_bit_program_that_writes_a_file_has_a_verdict(tmp_path: Path) -> None:
    (tmp_path / "narrow.s").write_text(NARROW)
    for words in (["as", "--32", "narrow.s", "-o", "narrow.o"], ["ld", "-m", "elf_i386", "narrow.o", "-o", "narrow"]):
        if subprocess.run(words, cwd=tmp_path, capture_output=True).returncode != 0:
            pytest.skip("no assembler for 32-bit programs")
    folder = tmp_path / "f"
    folder.mkdir()
    if subprocess.run([tmp_path / "narrow"], cwd=folder).returncode != 0:
        pytest.skip("this kernel runs no 32-bit program")
    (folder / "made").unlink()
    done = tried_by(trying("exec ../narrow"), folder)
    assert (folder / "made").read_text() == "made"
    assert "100 % accounted for (4 of 4 changed bytes)" in done.stderr
    assert done.returncode == EXIT_CLEAN


def test_gpg_encrypts_under_its_agent(tmp_path: Path) -> None:
    if shutil.which("gpg") is None:
        pytest.skip("not installed")
    (tmp_path / "text").write_text("secret\n")
    (tmp_path / "home").mkdir(mode=0o700)
    gpg = "gpg --homedir home --batch --pinentry-mode loopback --passphrase x"
    try:
        done = tried_by(trying(f"{gpg} --symmetric text"), tmp_path)
        assert done.returncode in (EXIT_CLEAN, EXIT_FINDINGS), done.stderr
        assert "Traceback" not in done.stderr
        plain = subprocess.run(
            ["sh", "-c", f"{gpg} --quiet --decrypt text.gpg"], cwd=tmp_path, capture_output=True, text=True
        )
        assert plain.stdout == "secret\n"
    finally:
        subprocess.run(["gpgconf", "--homedir", tmp_path / "home", "--kill", "all"], capture_output=True)


PROMPT = "$ "  # what is typed before it can lose its first character to the change of the terminal's mode


class Terminal:
    """An interactive shell with a terminal of its own, as a user has one."""

    def __init__(self, folder: Path) -> None:
        self.shell, self.fd = pty.fork()
        if self.shell == 0:
            os.chdir(folder)
            os.execvpe("bash", ["bash", "--norc", "--noprofile", "-i"], {**os.environ, "PS1": PROMPT})
        self.seen = b""
        self.wait_for(PROMPT)

    def type(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def wait_for(self, text: str) -> bytes:
        """Read until `text` has appeared: what precedes it."""
        while text.encode() not in self.seen:
            self.seen += os.read(self.fd, 4096)
        before, _, self.seen = self.seen.partition(text.encode())
        return before

    def end(self) -> None:
        self.type("exit\n")
        with contextlib.suppress(OSError):
            while os.read(self.fd, 4096):
                pass
        os.waitpid(self.shell, 0)
        os.close(self.fd)


@pytest.mark.parametrize("stops", ["by the terminal", "by itself"])
def test_a_stopped_command_gives_the_shell_back_and_continues(stops: str, tmp_path: Path) -> None:
    terminal = Terminal(tmp_path)
    command = "kill -STOP $$; " * (stops == "by itself") + 'echo wait""ing; read x; echo "$x" > f; echo do""ne'
    terminal.type(f"{shlex.join(trying(command))}\n")
    if stops == "by the terminal":
        terminal.wait_for("waiting")
        terminal.type("\x1a")
    terminal.wait_for("Stopped")
    terminal.wait_for(PROMPT)
    terminal.type('echo a""live\n')
    terminal.wait_for("alive")
    terminal.wait_for(PROMPT)
    terminal.type("fg\n")
    if stops == "by itself":
        terminal.wait_for("waiting")
    terminal.type("typed\n")
    terminal.wait_for("done")
    terminal.wait_for("feasible")
    terminal.wait_for(PROMPT)
    terminal.end()
    assert (tmp_path / "f").read_text() == "typed\n"


def test_we_stop_with_the_command_and_not_before_it(tmp_path: Path) -> None:
    """A shell that saw us stop would let us continue, and see us stop again when the recorder has seen the command."""
    terminal = Terminal(tmp_path)
    ours = '$(cut -d" " -f4 /proc/$PPID/stat)'  # the recorder's parent
    terminal.type(f"{shlex.join(trying(f'kill -TSTP {ours}; echo x > f'))}\n")
    assert b"feasible" in terminal.wait_for(PROMPT)
    terminal.end()


def test_a_folder_that_holds_our_cache_is_refused(tmp_path: Path) -> None:
    done = run(trying("echo x > f"), tmp_path, {**os.environ, "CRASHCHECK_CACHE": str(tmp_path / "c")})
    assert done.returncode == 2
    assert "[try-folder]" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", ["mv config notes", "ln -f config notes", "rm config; echo x > new"])
def test_files_that_only_change_names_are_judged(command: str, tmp_path: Path) -> None:
    _, done = left_by(trying(command), tmp_path / "f")
    assert "Traceback" not in done.stderr
    assert "feasible" in done.stderr
