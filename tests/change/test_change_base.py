"""`crashcheck run --base`: only what a change brought fails the run; what the base has already is listed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from crashcheck.change import kept_results
from crashcheck.change.base import documents_only
from crashcheck.checker.results import KILL_SHOWS_IT
from crashcheck.config import parse
from support.ledger import APART, CONFIG, PERSISTED, SOURCE
from support.versions import Project, compared


def test_a_bug_that_the_change_brought_is_introduced_and_fails(project: Project) -> None:
    project.write(PERSISTED)
    project.write("")
    code, report = project.run()
    assert (code, compared(report)) == (1, ["introduced"])
    assert report["run"]["base"]["note"] == ""


def test_crashcheck_fix_puts_back_what_the_change_deleted(project: Project) -> None:
    project.write(PERSISTED)
    base = (project.folder / "ledger.c").read_text(encoding="utf-8")
    project.write("")
    project.run(fixes=True)
    code, printed = project.fix()
    assert (code, f"put back `{PERSISTED}` in put at ledger.c:17" in printed) == (0, True), printed
    assert project.fix("--apply") == (0, printed[: printed.index("\n---")] + "edited ledger.c\n")
    assert (project.folder / "ledger.c").read_text(encoding="utf-8").split() == base.split()


def test_a_bug_that_the_base_has_is_listed_and_fails_nothing_also_under_another_function_name(project: Project) -> None:
    project.write("")
    project.write("", more={"ledger.c": SOURCE.replace("FIRST", "").replace("put(", "open_account(")})
    code, report = project.run()
    assert (code, compared(report)) == (0, ["existing"])
    assert report["run"]["summary"].startswith("1 finding (0 introduced, 1 in the base)")


def test_a_bug_that_the_search_of_the_base_missed_is_existing_because_its_state_fails_there(project: Project) -> None:
    project.write("")
    project.write("", more={"notes.c": "int unused;\n"})
    project.run()
    (kept,) = (project.cache / "results").glob("*.json")
    missed = json.loads(kept.read_text(encoding="utf-8"))
    missed["findings"] = []
    kept.write_text(json.dumps(missed), encoding="utf-8")
    code, report = project.run()
    assert (code, compared(report)) == (0, ["existing"])


def test_a_crash_that_needed_a_reordering_is_introduced_where_the_change_lets_kill_leave_it(project: Project) -> None:
    """Both orders of the two stores lose the owner in a power failure; only one loses it if the process dies."""
    project.write("")
    stored, marked = "    account->owner = owner;\n", "    account->used = 1;\n"
    lines = SOURCE.replace("    FIRST\n", "").replace(stored, "").replace(marked, marked + stored)
    project.write("", more={"ledger.c": lines})
    code, report = project.run()
    (finding,) = report["findings"]
    assert (code, finding["compared"], finding["note"]) == (1, "introduced", KILL_SHOWS_IT)


def test_a_bug_of_the_base_is_fixed_if_its_failing_state_cannot_happen_or_passes(project: Project) -> None:
    project.write("")
    project.write(PERSISTED)
    code, report = project.run()
    assert (code, report["findings"]) == (0, [])
    assert [one["fate"] for one in report["run"]["base"]["earlier"]] == ["fixed"]


def test_a_bug_of_the_base_whose_updates_are_gone_is_not_seen_again_and_not_called_fixed(project: Project) -> None:
    project.write("")
    rewritten = SOURCE.replace("account->owner = owner;", "*(uint32_t *)&account->owner = owner;")
    project.write("", more={"ledger.c": rewritten.replace("FIRST", PERSISTED)})
    code, report = project.run()
    assert (code, report["findings"]) == (0, [])
    assert [one["fate"] for one in report["run"]["base"]["earlier"]] == ["not-seen"]


def test_a_header_that_parts_two_fields_introduces_the_bug(project: Project) -> None:
    project.write("", padding="")
    project.write("", padding=APART)
    code, report = project.run()
    assert (code, compared(report), report["findings"][0]["in_diff"]) == (1, ["introduced"], False)


def test_documents_only_build_and_search_nothing(project: Project) -> None:
    project.write("")
    project.write("", more={"README.md": "A ledger.\n"})
    code, report = project.run()
    assert (code, report["findings"]) == (0, [])
    assert report["run"]["summary"] == "Nothing to check: the change since main~1 holds documents only"
    assert not (project.folder / "built").exists()


def test_the_base_is_built_and_searched_once_in_a_folder(project: Project) -> None:
    project.write("")
    project.write("", more={"notes.c": "int unused;\n"})
    for _ in range(2):
        assert project.run()[0] == 0
    built = (project.folder / "built").read_text(encoding="utf-8").splitlines()
    assert (len(built), project.bases()) == (2, ["built\n"])


def test_a_kept_result_of_the_base_is_enough_where_all_findings_are_its(project: Project) -> None:
    """As on a push to main and a pull request after it: other folders, and the cache that one left to the other."""
    project.write("")
    project.write("", more={"notes.c": "int unused;\n"})
    project.checkout_elsewhere("push", "main~1")
    assert project.search("--keep-for-base") == (1, "")
    project.checkout_elsewhere("pull", "origin/main")
    code, report = project.run()
    assert (code, compared(report), project.bases()) == (0, ["existing"], [])


def test_with_a_kept_result_the_base_is_recorded_but_not_searched_to_compare_states(project: Project) -> None:
    project.write(PERSISTED)
    project.write("")
    project.checkout_elsewhere("push", "main~1")
    assert project.search("--keep-for-base") == (0, "")
    project.checkout_elsewhere("pull", "origin/main")
    code, report = project.run(fixes=True)
    assert (code, compared(report), project.bases()) == (1, ["introduced"], ["built\n"])
    assert not list((project.folder / ".crashcheck" / "base").glob("*/tree/.crashcheck/*/fixes.json"))  # of a search


def test_a_recording_of_the_base_that_a_change_commits_is_not_taken(project: Project) -> None:
    project.write(PERSISTED)
    project.write("")
    project.checkout_elsewhere("push", "main~1")
    assert project.search("--keep-for-base") == (0, "")
    project.checkout_elsewhere("pull", "origin/main")
    assert project.run()[0] == 1
    (home,) = project.folder.glob(".crashcheck/base/*")
    (home / "there").touch()  # goes with a recording that is made again
    assert (project.run()[0], (home / "there").exists()) == (1, True)
    project.git("add", "--force", str(home / "run"))
    code, report = project.run()
    assert (code, report["run"]["base"]["note"], (home / "there").exists()) == (1, "", False)


def test_a_result_is_kept_only_of_what_the_commit_holds(project: Project) -> None:
    project.write("")
    (project.folder / "ledger").write_text("an ignored file that a build may take\n", encoding="utf-8")
    code, printed = project.search("--keep-for-base")
    assert (code, (project.cache / "results").exists()) == (1, False)
    why = "the result is not kept for later runs with --base: ledger is not in the commit, or differs"
    assert printed == f"crashcheck: {why}\n"


@pytest.mark.parametrize("what", ["commit", "name", "model", "budget", "depth", "version", "sources", "flags"])
def test_a_result_of_anything_else_is_not_taken(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def key(commit: str = "a" * 40, name: str = "crashcheck.toml", depth: int = 1, text: str = CONFIG) -> str:
        return kept_results.key_of(commit, parse(text, tmp_path / "crashcheck.toml"), name, depth)

    usual = key()
    assert usual == key(text=CONFIG + '[report]\nfail_on = "none"\n')  # decides no search
    monkeypatch.setattr(kept_results.crashcheck, "__version__", "0.0.1" if what == "version" else "0.1.0")
    monkeypatch.setenv("CFLAGS", "-O2" if what == "flags" else os.environ.get("CFLAGS", ""))
    if what == "sources":
        monkeypatch.setattr(kept_results, "sources", lambda: "")
    changed = {
        "commit": {"commit": "b" * 40},
        "name": {"name": "other.toml"},
        "model": {"text": CONFIG.replace("px86", "eadr")},
        "budget": {"text": CONFIG + "[budget]\nseconds = 9\n"},
        "depth": {"depth": 2},
    }
    assert key(**changed.get(what, {})) != usual


def test_suppressions_apply_to_what_is_introduced_and_edits_of_the_rules_are_shown(project: Project) -> None:
    project.write(PERSISTED)
    marked = SOURCE.replace("FIRST", "").replace("account->used = 1;", "account->used = 1; // crashcheck: ignore[*] so")
    entry = {"id": "0" * 12, "kind": "ordering", "message": "", "note": "", "likenesses": []}
    baseline = json.dumps({"version": 1, "findings": [entry]})
    project.write("", more={"ledger.c": marked, "known.json": baseline})
    code, report = project.run("--baseline", "known.json")
    assert (code, compared(report)) == (0, ["introduced"])
    first, second = report["run"]["base"]["edits"]
    assert first == "The baseline: 1 added, 0 removed."
    assert second.startswith("ledger.c:")
    assert second.endswith("a comment `crashcheck: ignore` added.")


@pytest.mark.parametrize(
    ("names", "only"),
    [
        (["README.md", "docs/a.png"], True),
        (["README.md", "CMakeLists.txt"], False),
        (["docs/example.c"], False),
        (["docs/conf.py"], False),
        ([], False),
    ],
)
def test_documents_are_known_by_their_names(names: list[str], only: bool) -> None:
    assert documents_only(names) is only


HELPER = """#include <emmintrin.h>
static inline void persist(void *at) {
    FLUSH
    _mm_sfence();
}
"""
BOOK = """#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "persist.h"
#include "crashcheck.h"

struct pair {
    uint64_t value __attribute__((aligned(64)));
    uint64_t valid __attribute__((aligned(64)));
};
struct book { struct pair open, paid; struct pair shut; };

static void opened(struct book *book) {
    book->open.value = 7;
    persist(&book->open.value);
    book->open.valid = 1;
    persist(&book->open.valid);
}

static void paid(struct book *book) {
    book->paid.value = 8;
    persist(&book->paid.value);
    book->paid.valid = 1;
    persist(&book->paid.valid);
}

static void closed(struct book *book) {
    book->shut.value = 9;
    THIRD
    book->shut.valid = 1;
    persist(&book->shut.valid);
}

int main(int argc, char **argv) {
    int fd = open(argv[2], O_RDWR | O_CREAT, 0644);
    if (argc != 3 || fd < 0 || ftruncate(fd, 4096) != 0)
        return 2;
    struct book *book = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    void (*const all[])(struct book *) = {opened, paid, closed};
    for (int i = 0; i < 3 && strcmp(argv[1], "run") == 0; i++) {
        CRASHCHECK_OP_BEGIN();
        all[i](book);
        CRASHCHECK_OP_END();
    }
    const struct pair *pairs = &book->open;
    for (int i = 0; i < 3; i++)
        if (pairs[i].valid && !pairs[i].value)
            return printf("pair %d is valid and has no value\\n", i), 1;
    return 0;
}
"""


def book(flush: str = "_mm_clflush(at);", third: str = "persist(&book->shut.value);") -> dict[str, str]:
    """A program whose three operations persist through one helper."""
    return {"ledger.c": BOOK.replace("THIRD", third), "persist.h": HELPER.replace("FLUSH", flush)}


@pytest.mark.slow
def test_a_flush_deleted_in_a_helper_is_one_bug_that_names_the_line_and_puts_it_back(project: Project) -> None:
    project.write("", more=book())
    project.write("", more={**book(), "persist.h": book()["persist.h"].replace("    _mm_clflush(at);\n", "")})
    code, report = project.run(fixes=True)
    (finding,) = report["findings"]
    assert (code, finding["compared"], finding["in_diff"]) == (1, "introduced", True)
    assert finding["message"].endswith(": this change removes `_mm_clflush(at);` from persist (persist.h:3)")
    assert finding["states"] >= 3
    fix = finding["fix"]
    assert fix["words"] == "put back `_mm_clflush(at);` in persist at persist.h:3"
    assert [(edit["file"], edit["line"], edit["text"]) for edit in fix["edits"]] == [
        ("persist.h", 3, "    _mm_clflush(at);")
    ]
    assert (fix["after_failing"], fix["no_edit"]) == (0, "")


@pytest.mark.slow
def test_what_the_deleted_line_alone_does_not_explain_stays_a_bug_of_its_own(project: Project) -> None:
    """The third operation also lost its own call: to put back the helper's flush would not fix it."""
    project.write("", more=book())
    third = book(third="")["ledger.c"]
    helper = book()["persist.h"].replace("    _mm_clflush(at);\n", "")
    project.write("", more={"ledger.c": third, "persist.h": helper})
    _, report = project.run(fixes=True)
    fixes = [finding["fix"]["words"] for finding in report["findings"]]
    own = "`persist(&book->shut.value);` in closed at ledger.c:32"
    assert sorted(fixes) == [
        "put back `_mm_clflush(at);` in persist at persist.h:3",
        f"put back {own} and `_mm_clflush(at);` in persist at persist.h:3",
    ]


@pytest.mark.slow
def test_a_flush_that_another_one_replaces_is_not_called_removed(project: Project) -> None:
    project.write("", more=book())
    project.write("", more=book(flush="_mm_clflush((char *)at + 64);"))
    _, report = project.run()
    assert report["findings"]
    assert not [finding for finding in report["findings"] if "this change removes" in finding["message"]]
