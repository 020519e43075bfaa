"""crashcheck.toml: what is accepted, and what a mistake in it is answered with."""

from __future__ import annotations

import subprocess
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from crashcheck import config
from crashcheck.cli.init import TEMPLATE
from crashcheck.cli.options import jobs_of
from crashcheck.command import Command
from crashcheck.errors import CrashcheckError

LEAST = """
[workload]
command = "./program {pool}/data.db"
[pool]
files = ["*.db"]
[check]
command = "./check {pool}/data.db"
"""


def parse(text: str) -> config.Config:
    return config.parse(text, Path("/project/crashcheck.toml"))


def error_of(text: str) -> CrashcheckError:
    with pytest.raises(CrashcheckError) as caught:
        parse(text)
    return caught.value


def test_the_least_file_gets_the_documented_defaults() -> None:
    got = parse(LEAST)
    assert got.folder == Path("/project")
    assert got.build.command is None
    assert got.setup.command is None
    assert got.workload.timeout_s == 60.0
    assert got.check.oracle == "exit-status"
    assert got.check.first == "check"
    assert got.check.timeout_s == 10.0
    assert got.check.memory_mib == 4096
    assert got.model == config.ModelConfig("px86", 0, "ext4")
    assert got.strategy == config.StrategyConfig("ranked", 2)
    assert got.budget == config.BudgetConfig(300.0, None)
    assert got.record == config.RecordConfig("refuse")


def test_calls_are_searched_under_a_model_of_a_file_system_without_naming_one() -> None:
    """It was recorded first, and then refused: the model px86 does not fit a recording of system calls."""
    calls = LEAST.replace("[workload]", '[workload]\nrecorder = "syscalls"')
    assert parse(calls).model.name == "ext4"
    assert parse(calls + '[model]\nname = "posix"').model.name == "posix"


def test_the_recorder_that_was_strace_is_answered_with_the_one_to_use() -> None:
    error = error_of(LEAST.replace("[workload]", '[workload]\nrecorder = "strace"'))
    assert error.slug == "config-value"
    assert error.message.endswith("[workload] recorder is 'strace', which crashcheck no longer uses.")
    assert error.hint.startswith('Write recorder = "syscalls"')
    assert "pip install ziglang" in error.hint


def test_every_key_is_read() -> None:
    got = parse("""
        [build]
        command = "make CC=crashcheck-cc"
        [setup]
        command = ["./program", "create", "{pool}/a b.db"]
        env = { MODE = "create" }
        [workload]
        command = "./program {pool}/a.db"
        env = { SEED = "1" }
        timeout_s = 5
        [pool]
        files = ["*.db", "log/*"]
        [check]
        command = "./check {pool} {acked} {stdout}"
        oracle = "exit-status"
        first = "skip"
        timeout_s = 0.5
        memory_mib = 0
        env = { LANG = "C" }
        [model]
        name = "page-cache"
        tear = 512
        files = "posix"
        [strategy]
        name = "bounded"
        deviations = 3
        [budget]
        seconds = 60
        states = 1000
        [record]
        io_uring = "allow"
    """)
    assert got.setup.command == Command("./program create '{pool}/a b.db'", ("./program", "create", "{pool}/a b.db"))
    assert (got.workload.env, got.setup.env) == ({"SEED": "1"}, {"MODE": "create"})
    assert got.record.io_uring == "allow"
    assert got.workload.timeout_s == 5.0
    assert got.pool.files == ("*.db", "log/*")
    assert (got.check.first, got.check.timeout_s, got.check.memory_mib) == ("skip", 0.5, 0)
    assert got.check.env == {"LANG": "C"}
    assert got.model == config.ModelConfig("page-cache", 512, "posix")
    assert got.strategy == config.StrategyConfig("bounded", 3)
    assert got.budget == config.BudgetConfig(60.0, 1000)


def test_the_template_of_init_is_valid_as_written_and_with_every_line_uncommented() -> None:
    assert parse(TEMPLATE).setup.command is None
    lines = [
        line[2:] if line.startswith(("# [", "# command", "# env", "# name")) else line for line in TEMPLATE.splitlines()
    ]
    lines = [line[2:] if line.startswith("# ") and " = " in line.split("#")[1] else line for line in lines]
    got = parse("\n".join(lines))
    assert got.setup.command is not None
    assert got.budget == config.BudgetConfig(300.0, 100_000)
    assert got.strategy.deviations == 2


def test_a_number_of_states_alone_sets_no_time_limit() -> None:
    assert parse(LEAST + "[budget]\nstates = 5").budget == config.BudgetConfig(None, 5)


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (LEAST + "[modle]\nname='px86'", "[modle] is not a key", "Did you mean 'model'?"),
        (LEAST + "timeout = 3", "[check] timeout is not a key", "Did you mean 'timeout_s'?"),
        (LEAST + "memory_mb = 3", "[check] memory_mb is not a key", "Did you mean 'memory_mib'?"),
        (LEAST + "xyzzy = 3", "[check] xyzzy is not a key", "Known here: command, start, ready"),
    ],
)
def test_an_unknown_key_is_an_error_that_suggests_the_near_one(text: str, message: str, hint: str) -> None:
    error = error_of(text)
    assert error.slug == "config-unknown-key"
    assert message in error.message
    assert hint in error.hint


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LEAST + "timeout_s = '3'", "[check] timeout_s is '3', a string; expected a number of seconds."),
        (LEAST + "timeout_s = true", "[check] timeout_s is True, a boolean; expected a number of seconds."),
        (LEAST + "memory_mib = 1.5", "[check] memory_mib is 1.5, a number; expected a whole number."),
        (LEAST + "env = { A = 1 }", "[check] env.A is 1, a whole number; expected a string."),
        (LEAST + "first = 1", "[check] first is 1, a whole number; expected 'check' or 'skip'."),
        (
            LEAST + "[[suppress]]\nid = 'a'\nreason = 'old'\nkinds = 'ordering'",
            "[[suppress]] kinds is 'ordering', a string; expected a list of kinds, as in [\"ordering\"].",
        ),
        ("build = 3" + LEAST, "[build] is 3, a whole number; expected a table."),
        (
            LEAST + "[setup]\ncommand = []",
            "[setup] command is [], a list; expected a command: a string, or a list of strings.",
        ),
        (LEAST + "[setup]\ncommand = ' '", "[setup] command is ' ', a string; expected a command"),
        (
            LEAST.replace('["*.db"]', '"*.db"'),
            "[pool] files is '*.db', a string; expected a list of file name patterns.",
        ),
    ],
)
def test_a_wrong_type_names_the_key_the_value_and_what_is_expected(text: str, message: str) -> None:
    error = error_of(text)
    assert error.slug == "config-type"
    assert message in error.message


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (
            LEAST + "[model]\nname = 'px68'",
            "[model] name is 'px68'; it must be 'px86', 'eadr', 'page-cache', 'ext4', 'ext4-strict', 'posix', "
            "'ext4-writeback', 'xfs' or 'btrfs'.",
            "'px86'",
        ),
        (LEAST + "[model]\nname = 'page_cache'", "[model] name is 'page_cache'", "Did you mean 'page-cache'?"),
        (LEAST + "[model]\ntear = 1024", "[model] tear is 1024; it must be 'none', 512 or 4096.", ""),
        (
            LEAST + "[[suppress]]\nid = 'a'\nreason = 'old'\nkinds = ['*', 'odering']",
            "[[suppress]] kinds is 'odering'; it must be 'ordering', 'atomicity', 'unpersisted', 'recovery-failure', "
            "'reopen', 'actions' or '*'.",
            "Did you mean 'ordering'?",
        ),
        (LEAST + "[model]\ntear = true", "[model] tear is True; it must be 'none', 512 or 4096.", ""),
        (LEAST + "timeout_s = 1e18", "[check] timeout_s is 1e+18; the most is 1000000000.", ""),
        (LEAST + "timeout_s = 0", "[check] timeout_s is 0; it must be a number above zero.", ""),
        (LEAST + "timeout_s = nan", "[check] timeout_s is nan; it must be a number above zero.", ""),
        (LEAST + "[budget]\nstates = 0", "[budget] states is 0; the least is 1.", ""),
        (LEAST.replace("*.db", "/etc/*"), "[pool] files: '/etc/*' is outside the pool.", "relative to the pool"),
        (LEAST.replace("*.db", "../*"), "[pool] files: '../*' is outside the pool.", "relative to the pool"),
        (LEAST + '[build]\ncommand = "make \'x"', '[build] command is "make \'x": no closing quotation.', ""),
    ],
)
def test_a_value_out_of_range_names_what_is_allowed(text: str, message: str, hint: str) -> None:
    error = error_of(text)
    assert error.slug == "config-value"
    assert message in error.message
    assert hint in error.hint


@pytest.mark.parametrize("key", ["[workload] command", "[pool] files", "[check] command"])
def test_a_missing_key_is_named_with_an_example(key: str) -> None:
    section, name = key.split()
    lines = LEAST.splitlines()
    del lines[lines.index(section) + 1]
    error = error_of("\n".join(lines))
    assert error.slug == "config-required"
    assert f"{key} is missing" in error.message
    assert f"{name} = " in error.hint


def test_a_placeholder_of_the_check_is_an_error_elsewhere_and_a_slip_is_named() -> None:
    error = error_of(LEAST.replace("./program {pool}", "./program {acked}"))
    assert error.slug == "config-placeholder"
    assert "[workload] command: {acked} can be used only in [check] command" in error.message
    error = error_of(LEAST.replace("./check {pool}", "./check {run}"))
    assert "[check] command: {run} can be used only in [workload] command" in error.message
    error = error_of(LEAST.replace("./check {pool}", "./check {pol}"))
    assert "{pol} is not a placeholder" in error.message
    assert "Did you mean {pool}?" in error.hint


@pytest.mark.parametrize("name", ["pool", "acked", "stdout", "ops"])
def test_a_check_that_is_given_many_folders_is_not_given_one(name: str) -> None:
    error = error_of(LEAST.replace("./check {pool}", f"./check {{folders}} {{{name}}}"))
    assert error.slug == "config-placeholder"
    assert f"[check] command: {{folders}} and {{{name}}} exclude one another" in error.message


def test_folders_are_for_the_command_of_the_check_alone() -> None:
    error = error_of(LEAST.replace("./program {pool}", "./program {folders}"))
    assert "[workload] command: {folders} can be used only in [check] command" in error.message
    server = 'start = "./serve {pool}"\nready = "true"\nclient = "./ask {folders}"'
    lines = [server if "./check" in line else line for line in LEAST.splitlines()]
    assert "{folders} can be used only here, not for a server" in error_of("\n".join(lines)).message


def test_braces_that_are_no_placeholder_are_left_alone() -> None:
    command = parse(LEAST + "[build]\ncommand = \"awk '{print}' x\"").build.command
    assert command is not None
    assert command.argv(pool="/p") == ["awk", "{print}", "x"]


def test_broken_toml_a_missing_file_and_bytes_that_are_not_utf8_are_different_errors(tmp_path: Path) -> None:
    error = error_of("[workload\n")
    assert error.slug == "config-syntax"
    assert "line 1" in error.message
    with pytest.raises(CrashcheckError, match=r"There is no .*crashcheck\.toml") as caught:
        config.load(tmp_path)
    assert caught.value.slug == "config-missing"
    with pytest.raises(CrashcheckError, match="cannot be read: File name too long") as caught:
        config.load(tmp_path / ("x" * 5000))
    assert caught.value.slug == "config-missing"
    (tmp_path / "crashcheck.toml").write_bytes(b"# \xff\n")
    with pytest.raises(CrashcheckError, match="not UTF-8: byte 2 is 0xff") as caught:
        config.load(tmp_path)
    assert caught.value.slug == "config-syntax"


def test_a_configuration_that_does_not_fit_into_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def read_bytes(_: Path) -> bytes:
        raise MemoryError

    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    with pytest.raises(CrashcheckError, match="it is too large"):
        config.load("/dev/zero")


def test_a_plain_command_is_split_and_one_with_shell_syntax_goes_to_the_shell() -> None:
    def words(text: str) -> tuple[str, ...]:
        command = parse(LEAST + f"[build]\ncommand = {text!r}").build.command
        assert command is not None
        return command.words

    assert words("make -j2 CC=crashcheck-cc 'a b'") == ("make", "-j2", "CC=crashcheck-cc", "a b")
    assert words("./program {pool}/x") == ("./program", "{pool}/x")
    for text in ("a && b", "a | b", "a > b", "X=1 ./a", "cd x", "echo $HOME", "ls *.c", "a; b", "cat ~/x"):
        assert words(text) == (), text


@pytest.mark.parametrize(
    "pool", ["/tmp/a b", "/tmp/größe", "/tmp/it's", '/tmp/"q"', "/tmp/$HOME`x`\\", "/tmp/*", "/tmp/a;b"]
)
def test_the_pool_is_one_word_in_every_kind_of_command(pool: str) -> None:
    texts = [
        ("printf %s {pool}/x", f"{pool}/x"),
        ("printf %s {pool}/x | cat", f"{pool}/x"),
        ('printf %s "{pool}/x" | cat', f"{pool}/x"),
        ("printf %s '{pool}/x' | cat", f"{pool}/x"),
        ('printf %s "it is \\"{pool}\\"" | cat', f'it is "{pool}"'),
    ]
    for text, expected in texts:
        escaped = text.replace("\\", "\\\\").replace('"', '\\"')
        command = parse(LEAST + f'[build]\ncommand = "{escaped}"').build.command
        assert command is not None
        done = subprocess.run(command.argv(pool=pool), capture_output=True, text=True, check=True)
        assert done.stdout == expected


def test_the_command_line_overrides_the_file_and_is_checked_like_it() -> None:
    base = parse(LEAST)
    assert config.override(base) == base
    got = config.override(
        base, model="page-cache", tear="512", strategy="bounded", deviations=1, budget="1m30s", states=5
    )
    assert got.model == config.ModelConfig("page-cache", 512, "ext4")
    assert got.strategy == config.StrategyConfig("bounded", 1)
    assert got.budget == config.BudgetConfig(90.0, 5)
    assert config.override(got, tear="none").model.tear == 0
    with pytest.raises(CrashcheckError, match="--model is 'px96'; it must be 'px86', 'eadr', 'page-cache', 'ext4', "):
        config.override(base, model="px96")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("60", 60.0), ("60s", 60.0), ("500ms", 0.5), ("10m", 600.0), ("1.5h", 5400.0), ("1m30s", 90.0)],
)
def test_durations(text: str, seconds: float) -> None:
    assert config.parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "0", "s", "-5", "5d", "5 minutes", "1e3"])
def test_what_is_not_a_duration_is_refused(text: str) -> None:
    with pytest.raises(CrashcheckError, match="is not a duration above zero") as caught:
        config.parse_duration(text)
    assert caught.value.slug == "config-value"


def test_a_folder_with_spaces_and_non_ascii_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "größe und mehr"
    folder.mkdir()
    (folder / "crashcheck.toml").write_text(LEAST, encoding="utf-8")
    assert config.load(folder).folder == folder
    assert config.load(folder / "crashcheck.toml").path == folder / "crashcheck.toml"


@pytest.mark.parametrize(
    ("text", "slug"),
    [
        pytest.param("a = " + "[" * 20000, "config-syntax", id="nested lists"),
        pytest.param("a = " + "{b=" * 20000, "config-syntax", id="nested tables"),
        pytest.param(LEAST + "timeout_s = " + "9" * 5000, "config-syntax", id="5,000 digits"),
        pytest.param(LEAST + "timeout_s = " + "9" * 4000, "config-value", id="4,000 digits"),
        pytest.param(LEAST + "timeout_s = 0x" + "f" * 5000, "config-value", id="5,000 hexadecimal digits"),
        pytest.param(LEAST + "timeout_s = 1e18", "config-value", id="a time-out of 10^18 s"),
        pytest.param(LEAST + "oracle = 0x" + "f" * 5000, "config-type", id="a number for a text"),
        pytest.param(LEAST + "memory_mib = 100000000000000000", "config-value", id="more memory than there is"),
        pytest.param(LEAST + "file_mib = 0x" + "f" * 5000, "config-value", id="longer files than there are"),
        pytest.param(LEAST + "[budget]\nseconds = 1e18", "config-value", id="a budget of 10^18 s"),
        pytest.param(LEAST + "[budget]\nstates = 0x" + "f" * 40, "config-value", id="2^160 states"),
        pytest.param(LEAST.replace("./check", "./che\\u0000ck"), "config-value", id="a null character"),
        pytest.param(LEAST + 'env = { "A=B" = "1" }', "config-value", id="a name with ="),
    ],
)
def test_values_beyond_all_measure_are_refused_with_a_reason(text: str, slug: str) -> None:
    error = error_of(text)
    assert error.slug == slug
    assert len(str(error)) < 600


@pytest.mark.parametrize(
    "options",
    [
        *({"tear": "²"}, {"tear": "٥١٢"}, {"tear": "9" * 5000}, {"tear": "7"}),
        *({"budget": "1e18"}, {"budget": "9" * 400}, {"budget": "1000000001s"}, {"states": 1 << 70}),
    ],
)
def test_options_beyond_all_measure_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(CrashcheckError) as caught:
        config.override(parse(LEAST), **options)
    assert caught.value.slug == "config-value"


@pytest.mark.parametrize("jobs", [-1, 99999, 10**30])
def test_a_number_of_jobs_that_no_machine_has_is_refused(jobs: int) -> None:
    with pytest.raises(CrashcheckError) as caught:
        jobs_of(Namespace(jobs=jobs))
    assert caught.value.slug == "bad-option"


@pytest.mark.parametrize(
    ("text", "words", "variables"),
    [
        ("exec ./check {pool}", ("./check", "{pool}"), {}),
        ("A=1 B=x/y exec ./check 'two words'", ("./check", "two words"), {"A": "1", "B": "x/y"}),
        ("A=1 exec ./check; true", (), {}),
        ("A=$HOME exec ./check", (), {}),
        ("A='1 2' exec ./check", (), {}),
        ("PATH=/opt exec check", (), {}),
        ("exec -a name ./check", (), {}),
        ("exec ./check > out", (), {}),
        ("A=1 ./check", (), {}),
    ],
)
def test_a_shell_that_only_sets_variables_and_becomes_a_program_is_left_out(
    text: str, words: tuple[str, ...], variables: dict[str, str]
) -> None:
    command, set_there = Command.of_text(text).without_shell()
    assert (command.words, set_there, command.text) == (words, variables, text)
