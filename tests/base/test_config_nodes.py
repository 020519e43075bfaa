"""[[node]] in crashcheck.toml: what is accepted beside it, and what a mistake is answered with."""

from __future__ import annotations

from pathlib import Path

import pytest

from crashcheck import config
from crashcheck.errors import CrashcheckError

LEAST = """
[[node]]
command = "./server {index} {peers}"
"""


def parse(text: str) -> config.Config:
    return config.parse(text, Path("/project/crashcheck.toml"))


def test_the_least_file_has_one_node_without_failures() -> None:
    nodes = parse(LEAST).nodes
    assert nodes is not None
    assert nodes.names() == ["n0"]
    assert nodes.bounds.actions == 300
    assert set(nodes.bounds.failures().values()) == {0}
    assert (nodes.clock_error_ns, nodes.strategy.name) == (None, "hybrid")
    assert parse(LEAST).model.name == "none"


def test_commands_of_nodes_and_of_their_checks_may_hold_all_their_placeholders() -> None:
    command = "./s {folder} {index} {address} {peers} {project}"
    nodes = parse(f'[[node]]\ncommand = "{command}"\n[check]\nafter = "./c {{state}} {{project}}"').nodes
    assert nodes is not None
    assert nodes.nodes[0].command.placeholders() == ["folder", "index", "address", "peers", "project"]
    assert nodes.check.after is not None
    assert nodes.check.after.placeholders() == ["state", "project"]


def test_a_model_of_a_file_system_is_what_crashes_of_machines_leave() -> None:
    assert parse(LEAST + '[model]\nname = "none"').model.name == "none"
    config = parse(LEAST + '[model]\nname = "ext4"\ntear = 512\n[bounds]\ndisk = 3')
    assert (config.model.name, config.model.tear) == ("ext4", 512)
    assert config.nodes is not None
    assert config.nodes.bounds.disk == 3
    assert "disk" not in config.nodes.bounds.failures()


def test_faults_of_nodes_name_calls_of_sockets_too() -> None:
    text = '[[faults]]\ncall = "recv"\nerror = "ECONNRESET"\n[[faults]]\ncall = "fsync"\nnth = 2\n[bounds]\nfaults = 1'
    nodes = parse(LEAST + text).nodes
    assert nodes is not None
    assert [(fault.call, fault.error, fault.nth, fault.times) for fault in nodes.faults] == [
        ("recv", "ECONNRESET", 0, 1),
        ("fsync", "EIO", 2, 1),
    ]
    assert nodes.bounds.failures()["faults"] == 1


def test_a_folder_is_named_by_the_number_of_its_node() -> None:
    nodes = parse(LEAST + 'count = 2\nfolder = "data-{index}"\n' + LEAST).nodes
    assert nodes is not None
    assert nodes.folders() == ["data-0", "data-1", "n2"]


def test_nodes_have_the_names_of_their_tables_and_numbers() -> None:
    text = LEAST.replace("[[node]]", "[[node]]\ncount = 2") + '[[node]]\nname = "server"\ncommand = "s"\ncount = 2\n'
    nodes = parse(text + '[[node]]\nname = "client"\ncommand = "c"').nodes
    assert nodes is not None
    assert nodes.names() == ["n0", "n1", "server1", "server2", "client"]


@pytest.mark.parametrize(("written", "read"), [("free", None), ("0", 0), ("200ms", 200_000_000), ("2s", 2_000_000_000)])
def test_an_error_of_clocks_is_a_duration_or_free(written: str, read: int | None) -> None:
    nodes = parse(f'{LEAST}[time]\nclock_error = "{written}"').nodes
    assert nodes is not None
    assert nodes.clock_error_ns == read


@pytest.mark.parametrize(
    ("text", "slug", "message", "hint"),
    [
        (LEAST + '[workload]\ncommand = "w"', "config-nodes", "[workload] cannot be used", "a command of its own"),
        (LEAST + '[pool]\nfiles = ["*"]', "config-nodes", "[pool] cannot be used", "a folder of its own"),
        (LEAST + '[check]\ncommand = "c"', "config-nodes", "[check] command cannot be used", "`after` judges"),
        (LEAST + '[model]\nname = "px86"', "config-value", "[model] name is 'px86', and what nodes write", '"ext4"'),
        (LEAST + '[model]\nname = "ext"', "config-value", "[model] name is 'ext'; it must be", "'ext4'"),
        (LEAST + "[bounds]\ndisk = 0", "config-value", "[bounds] disk is 0; the least is 1.", ""),
        (LEAST + 'folder = "a/b"', "config-value", "[[node]] folder is 'a/b'", ""),
        (LEAST + 'folder = "a"\ncount = 2', "config-value", "two nodes have the folder 'a'.", "{index}"),
        (LEAST + '[[faults]]\ncall = "recv"', "config-value", "[bounds] faults is 0, and a [[faults]] has no nth.", ""),
        (LEAST + "[bounds]\nfaults = 1", "config-value", "faults is 1, and no [[faults]] is without nth.", ""),
        (LEAST + '[[faults]]\ncall = "receive"', "config-value", "[[faults]] call is 'receive'; it must be", "'recv'"),
        (LEAST + '[[faults]]\ncall = "recv"\nnth = 1\nnode = "a"', "config-value", "node is 'a', and no [[node]]", ""),
        ("[bounds]\ncrashes = 1", "config-nodes", "[bounds] is of runs of nodes", ""),
        (LEAST + "[bounds]\nactions = 0", "config-value", "[bounds] actions is 0; the least is 1.", ""),
        (
            LEAST + "[bounds]\ncrashes = 1",
            "config-value",
            "[bounds] crashes is not 0, and no node may crash.",
            "crash =",
        ),
        (
            LEAST + '[strategy]\nname = "dpro"',
            "config-value",
            "[strategy] name is 'dpro'; it must be 'hybrid'",
            "'dpor'",
        ),
        (LEAST + '[time]\nclock_error = "soon"', "config-value", "'soon' is not a duration", ""),
        (LEAST + 'crash = ["machien"]', "config-value", "[[node]] crash is 'machien'", "Did you mean 'machine'?"),
        ("[[node]]\ncount = 2", "config-required", "[[node]] command is missing.", "./server"),
        (LEAST + "count = 65", "config-value", "[[node]] count is 65; the most is 64.", ""),
        (LEAST + 'name = "a"\n' + LEAST + 'name = "a"', "config-value", "two nodes are named 'a'.", "Change one"),
        (LEAST.replace("{peers}", "{pool}"), "config-placeholder", "{pool} can be used only in", ""),
        (LEAST.replace("{peers}", "{peer}"), "config-placeholder", "{peer} is not a placeholder", "{peers}"),
        (LEAST + '[check]\nend = "./c {stat}"', "config-placeholder", "{stat} is not a placeholder", "{state}"),
    ],
)
def test_what_is_wrong_is_named_with_the_way_out(text: str, slug: str, message: str, hint: str) -> None:
    with pytest.raises(CrashcheckError) as caught:
        parse(text)
    assert caught.value.slug == slug
    assert message in caught.value.message
    assert hint in caught.value.hint


def test_commands_of_one_program_refuse_nodes(tmp_path: Path) -> None:
    (tmp_path / "crashcheck.toml").write_text(LEAST)
    assert config.load(tmp_path, nodes=True).nodes is not None
    with pytest.raises(CrashcheckError, match="describes nodes") as caught:
        config.load(tmp_path)
    assert caught.value.slug == "config-nodes"


def test_the_command_line_chooses_the_strategy_and_neither_a_model_nor_fixes() -> None:
    changed = config.override(parse(LEAST), strategy="dfs")
    assert changed.nodes is not None
    assert changed.nodes.strategy.name == "dfs"
    with pytest.raises(CrashcheckError, match="--model has no meaning for nodes"):
        config.override(parse(LEAST), model="ext4")
    with pytest.raises(CrashcheckError, match="--no-fixes has no meaning for nodes"):
        config.override(parse(LEAST), fixes=False)
