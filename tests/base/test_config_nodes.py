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
        (LEAST + '[model]\nname = "ext4"', "config-nodes", "no crash states yet", 'name = "none"'),
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


def test_the_command_line_chooses_the_strategy_and_no_model() -> None:
    changed = config.override(parse(LEAST), strategy="dfs")
    assert changed.nodes is not None
    assert changed.nodes.strategy.name == "dfs"
    with pytest.raises(CrashcheckError, match="--model has no meaning for nodes"):
        config.override(parse(LEAST), model="ext4")
