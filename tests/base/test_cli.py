"""The command line: sub-commands, exit codes, and errors as text."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from crashcheck import __version__, cli, config
from crashcheck.cli.init import BUILDS, LANGUAGES
from crashcheck.cli.options import config_of
from crashcheck.errors import CrashcheckError
from support.ledger import CONFIG


def test_init_writes_a_valid_file_and_never_overwrites(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["init", str(tmp_path)]) == 0
    file = tmp_path / "crashcheck.toml"
    assert str(file) in capsys.readouterr().out
    assert config.load(tmp_path).check.command.words == ("./check", "{pool}/data.db", "{acked}")
    file.write_text("mine")
    assert cli.main(["init", str(tmp_path)]) == 2
    assert "already exists. [init-exists]" in capsys.readouterr().err
    assert file.read_text() == "mine"


@pytest.mark.parametrize("file", ["CMakeLists.txt", "meson.build", "configure", "configure.ac"])
def test_init_builds_with_the_build_system_that_is_there(tmp_path: Path, file: str) -> None:
    (tmp_path / file).touch()
    assert cli.main(["init", str(tmp_path)]) == 0
    made = config.load(tmp_path)
    assert made.build.command is not None
    assert BUILDS[file] == made.build.command.text
    assert made.workload.command.words[0] == "./build-crashcheck/program"


@pytest.mark.parametrize("file", LANGUAGES)
def test_init_records_the_calls_of_other_languages(tmp_path: Path, file: str) -> None:
    for name in (file, "Makefile"):
        (tmp_path / name).touch()
    assert cli.main(["init", str(tmp_path)]) == 0
    made = config.load(tmp_path)
    build, program = LANGUAGES[file]
    assert (made.build.command.text if made.build.command is not None else "") == build
    assert (made.workload.command.text, made.workload.recorder) == (f"{program} {{pool}}", "syscalls")
    assert (made.pool.files, made.model.name) == (("*",), "ext4")
    assert made.check.command.text == f"{program} check {{pool}} {{stdout}}"


def test_init_makes_the_folder_that_is_missing(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    assert cli.main(["init", str(folder)]) == 0
    assert config.load(folder).check.command.words[0] == "./check"


@pytest.mark.parametrize("folder", ["file", "file/folder"])
def test_init_in_a_folder_that_cannot_be_made_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], folder: str
) -> None:
    (tmp_path / "file").touch()
    assert cli.main(["init", str(tmp_path / folder)]) == 2
    assert "[init-unwritable]" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "section", "key", "value"),
    [
        ("run --model page-cache --tear 512", "model", "tear", 512),
        ("run --no-explore", "strategy", "explore", False),
        ("run --no-fixes", "report", "fixes", False),
        ("run --notes", "report", "notes", True),
        ("run --fail-on error", "report", "fail_on", "error"),
        ("merge --budget 2m shard", "budget", "seconds", 120.0),
        ("record --strategy bounded", "strategy", "name", "bounded"),
        ("groups", "strategy", "name", "ranked"),
        ("invariants --model eadr", "model", "name", "eadr"),
        ("mutate", "budget", "seconds", 10.0),
        ("run", "report", "fixes", True),
        ("run", "strategy", "explore", True),
    ],
)
def test_an_option_is_set_in_the_configuration_in_each_subcommand_that_has_it(
    tmp_path: Path, words: str, section: str, key: str, value: object
) -> None:
    (tmp_path / "crashcheck.toml").write_text(CONFIG + '[strategy]\nname = "witcher"\n', encoding="utf-8")
    subcommand, *options = words.split()
    args = cli.build_parser().parse_args([subcommand, "-c", str(tmp_path), *options])
    assert getattr(getattr(config_of(args), section), key) == value


def test_version_names_the_libraries_that_matter(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["version"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"crashcheck {__version__}\n")
    assert "llvmlite " in out


def test_version_names_the_compiler_that_would_be_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clang = tmp_path / "clang-16"
    clang.write_text("#!/bin/sh\necho 'our clang version 16.0.6'\necho more\n", encoding="ascii")
    clang.chmod(0o755)
    monkeypatch.setenv("CRASHCHECK_CLANG", str(clang))
    assert cli.main(["version"]) == 0
    assert capsys.readouterr().out.endswith(f"\ncompiler {clang}: our clang version 16.0.6\n")


def test_version_prints_why_there_is_no_compiler(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRASHCHECK_CLANG", "/no/such/clang")
    assert cli.main(["version"]) == 0
    assert capsys.readouterr().out.endswith("\ncompiler none: CRASHCHECK_CLANG=/no/such/clang names no executable\n")


def test_every_subcommand_module_has_the_two_functions() -> None:
    modules = cli.subcommands()
    assert tuple(modules) == cli.SUBCOMMANDS
    for module in modules.values():
        assert callable(module.add_parser)
        assert callable(module.main)


@pytest.mark.parametrize("exit_code", [1, 2])
def test_an_error_is_printed_with_its_slug_and_hint_and_decides_the_exit_code(
    exit_code: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(args: argparse.Namespace) -> int:
        raise CrashcheckError("some-slug", "It broke.", "Repair it.", exit_code)

    monkeypatch.setattr(cli.subcommands()["version"], "main", fail)
    assert cli.main(["version"]) == exit_code
    assert capsys.readouterr().err == "crashcheck: It broke. [some-slug]\n  Repair it.\n"


def test_a_defect_is_no_finding(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(args: argparse.Namespace) -> int:
        return 1 // 0

    monkeypatch.setattr(cli.subcommands()["version"], "main", fail)
    assert cli.main(["version"]) == 2
    err = capsys.readouterr().err
    assert "ZeroDivisionError" in err
    assert err.endswith("crashcheck: this is a defect of crashcheck; please report it with the lines above\n")


def test_a_dump_of_what_is_no_trace_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["trace", "dump", str(tmp_path / "gone.cct")]) == 2
    assert "[trace-missing]" in capsys.readouterr().err
    (tmp_path / "note.txt").write_text("x" * 5000)
    assert cli.main(["trace", "dump", str(tmp_path / "note.txt")]) == 2
    assert "[trace-foreign]" in capsys.readouterr().err


def test_bad_usage_and_no_subcommand_exit_with_2() -> None:
    for argv in ([], ["nonsense"], ["trace"]):
        with pytest.raises(SystemExit) as caught:
            cli.main(argv)
        assert caught.value.code == 2


def run_module(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "crashcheck", *words], capture_output=True, text=True, **options)


def test_python_dash_m_is_the_same_command() -> None:
    done = run_module("--version")
    assert (done.returncode, done.stdout) == (0, f"crashcheck {__version__}\n")
    assert run_module("trace", "dump", "/nowhere").returncode == 2


def test_help_loads_neither_llvm_nor_numpy() -> None:
    code = "import sys; from crashcheck.cli import build_parser; build_parser(); "
    code += "print({'llvmlite', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_a_subcommand_starts_without_the_options_of_the_others() -> None:
    code = "import sys; from crashcheck import cli; cli.main(['version']); "
    code += "print([name for name in cli.SUBCOMMANDS if f'crashcheck.cli.{name}' in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "['version']"


def test_a_reader_that_goes_away_is_no_error() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    with os.fdopen(write_end, "w") as gone:
        code = "import sys; from crashcheck import cli; m = cli.subcommands()['version']; " + (
            "m.main = lambda args: print('x' * 100000, flush=True); sys.exit(cli.main(['version']))"
        )
        done = subprocess.run([sys.executable, "-c", code], stdout=gone, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_replay_names_the_file_of_operations_that_is_in_the_way(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "crashcheck.toml"
    least = '[workload]\ncommand = "./p {pool}/d"\n[pool]\nfiles = ["d"]\n[check]\ncommand = "true"\n'
    config.write_text(least, encoding="utf-8")
    (tmp_path / "image.operations").touch()
    assert cli.main(["replay", "-c", str(config), "cc1-aa", "--keep", str(tmp_path / "image")]) == 2
    assert "image.operations already exists." in capsys.readouterr().err
