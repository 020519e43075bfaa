"""Stacks of bash: function and line of what a script does, and of what it runs, are those that the script sees."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from crashcheck.runtime.trace_format import Kind
from support.script_stacks import of_kind, traced

BASH = shutil.which("bash") or ""

pytestmark = pytest.mark.skipif(not BASH, reason="there is no bash here")


def test_a_write_has_the_functions_and_lines_that_the_script_sees_itself(tmp_path: Path) -> None:
    library, script = tmp_path / "library.sh", tmp_path / "save.sh"
    show = 'echo "$LINENO ${BASH_LINENO[*]}|${FUNCNAME[*]:-main}|${BASH_SOURCE[*]}" >> "$1"'
    library.write_text(f"inner() {{\n  local x=1\n  if true; then\n    {show}\n  fi\n}}\n")
    script.write_text(
        f'# a script\n. {library}\nouter() {{\n  inner "$1"\n  {show}\n\n  ( {show} )\n}}\n'
        f'{show}\nouter "$1"\nfor i in 1 2; do\n  outer "$1"\ndone\n{show} &\nwait\n: "$({show})"\n'
    )
    trace = traced(tmp_path, BASH, str(script), "{pool}/f")
    writes = 0
    for frames, data in of_kind(trace, Kind.WRITE):
        lines, names, files = (part.split() for part in data.decode().split("|"))
        assert frames == [(file, name, int(line)) for file, name, line in zip(files, names, lines[:-1], strict=True)]
        writes += 1
    assert writes == 12


def test_what_a_script_runs_has_its_line_behind_what_it_is_itself_also_by_way_of_another_program(
    tmp_path: Path,
) -> None:
    script = tmp_path / "save.sh"
    script.write_text(
        'cd "$1" || exit\nsave() {\n  mv a b\n}\necho x > a\nsave\nenv nice mv b c\n(mv c d)\nexec mv d e\n'
    )
    trace = traced(tmp_path, BASH, str(script), "{pool}")
    module = str(script)
    assert [frames for frames, _ in of_kind(trace, Kind.NAME_RENAME)] == [
        [(module, "save", 3), (module, "main", 6)],
        [(module, "main", 7)],
        [(module, "main", 8)],
        [(module, "main", 9)],
    ]


def test_what_a_script_of_python_runs_has_the_stack_of_both(tmp_path: Path) -> None:
    inner, outer = tmp_path / "save.sh", tmp_path / "save.py"
    inner.write_text('\necho x > "$1"\n')
    outer.write_text(
        f"import subprocess, sys\n\ndef save():\n    subprocess.run(['{BASH}', '{inner}', sys.argv[1]])\n\nsave()\n"
    )
    ((frames, _),) = of_kind(traced(tmp_path, sys.executable, "-I", str(outer), "{pool}/f"), Kind.WRITE)
    assert frames[0] == (str(inner), "main", 2)
    own = [frame for frame in frames if frame[0] == str(outer)]
    assert own == [(str(outer), "save", 4), (str(outer), "<module>", 6)]


def test_a_command_on_the_command_line_has_its_line_and_a_copy_under_another_name_none(tmp_path: Path) -> None:
    renamed = shutil.copy(BASH, tmp_path / "shell")
    for number, (shell, expected) in enumerate(((BASH, [("<-c>", "main", 2)]), (str(renamed), []))):
        folder = tmp_path / str(number)
        folder.mkdir()
        ((frames, _),) = of_kind(traced(folder, shell, "-c", ":\necho x > $0", "{pool}/f"), Kind.WRITE)
        assert frames == expected


def test_functions_that_are_read_from_standard_input_are_of_no_file_that_bash_calls_main(tmp_path: Path) -> None:
    (tmp_path / "typed").write_text('save() {\n  echo x > "$1"\n}\nsave "$1"\n')
    trace = traced(tmp_path, "/bin/sh", "-c", f'{BASH} -s "$0" < {tmp_path / "typed"}', "{pool}/f")
    ((frames, _),) = of_kind(trace, Kind.WRITE)
    assert frames == [("<stdin>", "save", 2), ("<stdin>", "main", 4)]


def test_what_is_sourced_from_a_pipe_or_standard_input_is_of_no_file(tmp_path: Path) -> None:
    script = tmp_path / "save.sh"
    script.write_text("source <(echo 'save() { echo x > $1; }')\nsave $1\nsource /dev/stdin <<< 'echo y > $1'\n")
    writes = list(of_kind(traced(tmp_path, BASH, str(script), "{pool}/f"), Kind.WRITE))
    assert [frames for frames, _ in writes] == [
        [("<string>", "save", 1), (str(script), "main", 2)],
        [("<stdin>", "source", 1), (str(script), "main", 3)],
    ]


@pytest.mark.parametrize("language", ["bash", "python"])
def test_a_script_that_changes_its_folder_is_still_the_file_that_was_run(language: str, tmp_path: Path) -> None:
    """A file of the same name in the new folder was taken for it."""
    program, text = {
        "bash": (BASH, 'cd "$1" && echo x > f\n'),
        "python": (sys.executable, "import os, sys\nos.chdir(sys.argv[1])\nopen('f', 'w').write('x')\n"),
    }[language]
    (tmp_path / "save").write_text(text)
    command = f'touch "$0/save"; cd {tmp_path} && {program} save "$0"'
    ((frames, _),) = of_kind(traced(tmp_path, "/bin/sh", "-c", command, "{pool}"), Kind.WRITE)
    assert frames[0][0] == str(tmp_path / "save")
