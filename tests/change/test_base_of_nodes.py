"""`crashcheck run --base` on nodes: the order in which one version fails is taken on the other one's programs."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from crashcheck.cli import publish
from crashcheck.runtime.build import build_nodes
from support import compilers
from support.paths import ROOT
from support.versions import GIT, Project, compared

COMMIT = (ROOT / "tests" / "run" / "nodes" / "commit.c").read_text(encoding="utf-8")
ALL_VOTES = 'coordinate(participants, strcmp(option, "first") == 0 ? 1 : participants);'
JUDGES = 'return !yes && strcmp(word, "commit") == 0;'
RIGHT = COMMIT.replace(ALL_VOTES, "coordinate(participants, participants);")
FIRST_VOTE = COMMIT.replace(ALL_VOTES, "coordinate(participants, 1);")  # commits after the first yes
FIRST_VOTE_UNSEEN = FIRST_VOTE.replace(JUDGES, "return 0;")
NODES = """
[build]
command = "{compiler} -O1 -g commit.c -o commit"
[[node]]
name = "coordinator"
command = "./commit {{index}} {{peers}} yn"
ends = true
[[node]]
name = "participant"
command = "./commit {{index}} {{peers}} yn"
count = 2
ends = true
[strategy]
name = "{strategy}"
runs = 20
"""


class Nodes(Project):
    """A repository with two-phase commit of three nodes."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, dict(os.environ))
        built = build_nodes().controller.parent
        (self.cache / built.name).symlink_to(built)

    def run(self, *options: str, fixes: bool = True) -> tuple[int, dict[str, Any]]:
        return super().run(*options, fixes=fixes)  # no option is needed to suggest none for nodes

    def version(
        self, source: str, strategy: str = "dpor", more: str = "", config: str = NODES, crashes: int = 0
    ) -> None:
        compiler = shlex.join(compilers.c_compiler()).replace('"', '\\"')
        (self.folder / "commit.c").write_text(source, encoding="utf-8")
        (self.folder / ".gitignore").write_text("commit\nout.json\n.crashcheck\n", encoding="utf-8")
        config = config.format(compiler=compiler, strategy=strategy, crashes=crashes)
        (self.folder / "crashcheck.toml").write_text(config + more, encoding="utf-8")
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", "A version")


@pytest.fixture
def nodes(tmp_path: Path) -> Nodes:
    return Nodes(tmp_path)


def test_a_bug_that_the_change_brought_to_a_node_is_introduced_and_one_that_the_base_has_is_not(nodes: Nodes) -> None:
    nodes.version(RIGHT)
    nodes.version(FIRST_VOTE)
    code, report = nodes.run()
    assert (code, compared(report), report["run"]["base"]["note"]) == (1, ["introduced"], "")
    nodes.version(FIRST_VOTE.replace("MOST 8", "MOST 9"))
    code, report = nodes.run()
    assert (code, compared(report)) == (0, ["existing"])
    assert report["run"]["summary"].startswith("1 finding (0 introduced, 1 in the base)")


def test_a_bug_of_the_base_is_fixed_if_all_runs_pass_and_not_seen_again_if_the_nodes_depart_in_a_sample(
    nodes: Nodes,
) -> None:
    nodes.version(FIRST_VOTE)
    nodes.version(RIGHT)
    code, report = nodes.run()
    assert (code, report["findings"], fates(report)) == (0, [], [("fixed", 0)])
    nodes.version(FIRST_VOTE, "random")
    nodes.version(RIGHT, "random")
    code, report = nodes.run()
    assert (code, report["findings"], fates(report)) == (0, [], [("not-seen", 0)])


def test_where_not_all_runs_are_made_the_order_that_fails_is_taken_on_the_other_version(nodes: Nodes) -> None:
    nodes.version(FIRST_VOTE_UNSEEN, "random")
    nodes.version(FIRST_VOTE, "random")
    code, report = nodes.run()
    assert (code, compared(report)) == (1, ["introduced"])
    nodes.version(FIRST_VOTE_UNSEEN, "random")
    code, report = nodes.run()
    assert (code, report["findings"], fates(report)) == (0, [], [("fixed", 1)])
    summary = published(nodes.folder / "out.json")
    assert "Passes: fixed, the order of actions that failed in main\\~1 passes now: " in summary
    assert "20 runs" in summary.splitlines()[0]


def test_a_bug_that_the_search_of_the_base_missed_is_existing_because_its_order_fails_there(nodes: Nodes) -> None:
    nodes.version(FIRST_VOTE, "random")
    nodes.version(FIRST_VOTE.replace("MOST 8", "MOST 9"), "random")
    nodes.run()
    (kept,) = (nodes.cache / "results").glob("*.json")
    missed = json.loads(kept.read_text(encoding="utf-8"))
    missed["findings"] = []
    kept.write_text(json.dumps(missed), encoding="utf-8")
    code, report = nodes.run()
    assert (code, compared(report)) == (0, ["existing"])


def test_an_order_from_which_the_base_departs_is_not_compared_which_is_said_and_counts(nodes: Nodes) -> None:
    nodes.version(RIGHT, "random")
    nodes.version(FIRST_VOTE, "random", more="[bounds]\nactions = 200\n")
    code, report = nodes.run()
    assert (code, compared(report)) == (1, ["not-compared"])
    assert (
        "the base departs from its order after action 10: `commit` from coordinator to participant2"
        in (report["findings"][0]["note"])
    )
    assert report["run"]["base"]["edits"] == ["crashcheck.toml: [bounds] changed."]
    summary = published(nodes.folder / "out.json")
    assert summary.splitlines()[0].count("Fails: ") == 1, summary


UPDATES_C = """#include <fcntl.h>
#include <string.h>
#include <unistd.h>
static void __attribute__((noinline)) save(const char *text)
{
    int file = open("a", O_CREAT | O_WRONLY, 0600);
    write(file, text, 1);
    fsync(file);
}
static void __attribute__((noinline)) recover(void)
{
    unlink("a");
}
int main(int count, char **words)
{
    if (access("a", F_OK) == 0)
        recover();
    save(words[1]);
    if (count > 2)
        pause();
    return 0;
}
"""
UPDATES_PYTHON = """import os, sys
def save():
    os.fsync(os.open("b", os.O_CREAT | os.O_WRONLY))
def compact():
    os.truncate("b", 0)
if len(sys.argv) > 2:
    compact()
save()
"""
UPDATING = """
[build]
command = "{compiler} -O2 -g commit.c -o commit"
[[node]]
name = "c"
command = "./commit {{index}} stay"
crash = ["process"]
[[node]]
name = "python"
command = "python3 -S {{project}}/updates.py {{index}}"
[bounds]
crashes = {crashes}
[strategy]
name = "dfs"
"""


def not_run(report: dict[str, Any]) -> list[str]:
    begins = "In these runs the nodes update no file by "
    return [text.removeprefix(begins).partition(", which")[0] for text in report["run"]["caveats"] if begins in text]


def test_functions_of_a_change_by_which_no_node_updated_a_file_are_named(nodes: Nodes) -> None:
    """`recover` runs after a crash only, which is in few of the runs."""
    (nodes.folder / "updates.py").write_text(UPDATES_PYTHON, encoding="utf-8")
    nodes.version("int main(void) { return 0; }", config=UPDATING, crashes=0)
    nodes.version(UPDATES_C, config=UPDATING, crashes=0)
    (nodes.folder / "updates.py").write_text(UPDATES_PYTHON.replace("0)", "8)"), encoding="utf-8")
    nodes.git("commit", "-qa", "--amend", "-m", "A version")
    code, report = nodes.run()
    assert (code, not_run(report)) == (0, ["`recover` (commit.c), `compact` (updates.py)"])
    nodes.version(UPDATES_C, config=UPDATING, crashes=1)
    code, report = nodes.run("--base", "main~2")
    assert (code, not_run(report)) == (0, ["`compact` (updates.py)"])


def test_where_the_base_cannot_be_built_a_finding_on_a_changed_line_is_introduced(nodes: Nodes) -> None:
    nodes.version("no C")
    nodes.version(FIRST_VOTE)
    code, report = nodes.run()
    assert (code, compared(report)) == (1, ["introduced"])
    assert report["run"]["base"]["note"].startswith("the base was not searched: build-failed")


def test_an_order_that_failed_in_the_last_run_is_taken_first_and_named_once_it_passes(nodes: Nodes) -> None:
    """As the action runs it: with `--failing` and `--images`."""
    options = ("--failing", "failing.json", "--images", "images", "--format", "json=out.json")

    def run(source: str, strategy: str, *more: str) -> tuple[int, list[str], list[tuple[str, int]], int]:
        nodes.version(source, strategy)
        code, _ = nodes.search(*options, *more)
        report = json.loads((nodes.folder / "out.json").read_text(encoding="utf-8"))
        again = [(one["fate"], one["executed"]) for one in report["run"]["again"]]
        kept = json.loads((nodes.folder / "failing.json").read_text(encoding="utf-8"))["orders"]
        return code, [one["message"] for one in report["findings"]], again, len(kept)

    code, (message,), again, kept = run(FIRST_VOTE, "dpor")
    assert (code, again, kept) == (1, [], 1)
    assert run(FIRST_VOTE, "dpor", "--states", "1") == (1, [message], [], 1)
    assert run(RIGHT, "random") == (0, [], [("not-seen", 0)], 1)
    assert run(FIRST_VOTE_UNSEEN, "random") == (0, [], [("fixed", 1)], 0)
    assert not (nodes.folder / "images").exists()


def test_a_finding_of_nodes_on_a_changed_line_is_in_the_diff(nodes: Nodes) -> None:
    """Its place is where the message of its pair is sent."""
    nodes.version(RIGHT)
    subprocess.run([*GIT, "tag", "first"], cwd=nodes.folder, env=nodes.environment, check=True)
    for source, in_diff in (
        (FIRST_VOTE, False),
        (FIRST_VOTE.replace("strlen(word)) < 0", "strlen(word)) == -1"), True),
    ):
        nodes.version(source)
        nodes.search("--diff", "first", "--format", "json=out.json", "--states", "12")
        (finding,) = json.loads((nodes.folder / "out.json").read_text(encoding="utf-8"))["findings"]
        assert (finding["in_diff"], finding["compared"], finding["location"]["line"]) == (in_diff, "", 17)


def fates(report: dict[str, Any]) -> list[tuple[str, int]]:
    return [(one["fate"], one["executed"]) for one in report["run"]["base"]["earlier"]]


def published(report: Path) -> str:
    """The job's summary that `crashcheck publish` writes."""
    import argparse

    parser = argparse.ArgumentParser()
    publish.add_parser(parser.add_subparsers())
    summary = report.with_name("summary.md")
    summary.unlink(missing_ok=True)
    environment = {"GITHUB_STEP_SUMMARY": str(summary), "GITHUB_SHA": "0123456789"}
    assert publish.publish(parser.parse_args(["publish", "--report", str(report)]), environment) == 0
    return summary.read_text(encoding="utf-8")
