"""Only findings that nobody knew of or chose to live with fail a run, and nothing is silently left out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from crashcheck.analyzer.compile.facts import ProgramFacts, Site, UnitFacts
from crashcheck.analyzer.compile.ir.debuginfo import SourcePosition
from crashcheck.checker import policy
from crashcheck.checker.baseline import (
    Known,
    load_baseline,
    matched,
    read_baseline,
    save_baseline,
    updated,
    write_baseline,
)
from crashcheck.checker.policy import (
    REASON_CHARS,
    Suppression,
    accepted,
    checked_nothing,
    in_comments,
    judge,
    rules_of,
    sources_of,
    undecided,
)
from crashcheck.checker.results import HALF_STORE, FailOn, Finding, NotFollowed, RunResult, StopReason
from crashcheck.config import load
from crashcheck.errors import CrashcheckError
from support.reports.runs import ALL, LEVEL_HASH, LMDB, ONE, TRACE, UNCERTAIN, run, with_fields

HASH = replace(LEVEL_HASH, id="a1", likenesses=("text-1", "name-1"))
PAGES = replace(LMDB, id="b2", likenesses=("text-2", "name-2"))


def known(finding: Finding, note: str = "") -> Known:
    return Known(finding.id, finding.likenesses, finding.kind.value, finding.message, note)


def fails(result: RunResult, level: FailOn) -> bool:
    """Whether the run fails under --fail-on `level`."""
    return policy.fails(replace(result, fail_on=level))


@pytest.mark.parametrize(
    ("result", "level", "code"),
    [
        (ONE, "warning", 1),
        (ONE, "none", 0),
        (run(), "warning", 0),
        (run(uncertain=(UNCERTAIN,)), "warning", 2),
        (run(uncertain=(UNCERTAIN,)), "note", 1),
        (run(stop=StopReason.INTERRUPTED), "warning", 2),
        (run(stop=StopReason.DISK_FULL), "none", 2),
        (replace(ONE, stop_reason=StopReason.INTERRUPTED), "warning", 1),
    ],
)
def test_what_counts_is_1_no_verdict_is_2_and_else_it_is_0(result: RunResult, level: FailOn, code: int) -> None:
    assert policy.exit_code(replace(result, fail_on=level)) == code


def test_without_rules_every_finding_counts() -> None:
    assert judge(ONE) == ONE
    assert [fails(ONE, level) for level in ("none", "note", "warning", "error")] == [False, True, True, True]


def test_a_finding_fails_from_its_level_on() -> None:
    torn = run(replace(HASH, model="page-cache tear=512"))
    assert [fails(torn, level) for level in ("note", "warning", "error")] == [True, True, False]
    unsure = run(uncertain=(UNCERTAIN,))
    assert [fails(unsure, level) for level in ("note", "warning", "error")] == [True, False, False]


UNSEEN = replace(TRACE, not_followed=(NotFollowed("io_uring", "use other calls"),))


@pytest.mark.parametrize(
    ("result", "level", "no_verdict"),
    [
        (run(uncertain=(UNCERTAIN,)), "warning", True),
        (run(uncertain=(UNCERTAIN,)), "none", False),
        (run(uncertain=(UNCERTAIN,)), "note", False),
        (run(uncertain=(replace(UNCERTAIN, new=False),)), "warning", False),
        (run(uncertain=(replace(UNCERTAIN, suppressed="rebuilt"),)), "warning", False),
        (run(states=replace(ALL, executed=0, pruned=0), stop=StopReason.BUDGET_SECONDS), "warning", True),
        (run(states=replace(ALL, executed=0, pruned=0)), "none", True),
        (run(states=replace(ALL, feasible=0, executed=0, pruned=0)), "warning", False),
        (run(trace=UNSEEN), "warning", True),
        (run(trace=UNSEEN), "note", True),
        (run(trace=UNSEEN), "none", False),
        (run(states=replace(ALL, signatures=100, signatures_tested=19)), "error", True),
        (run(states=replace(ALL, signatures=100, signatures_tested=20)), "error", False),
        (run(states=replace(ALL, signatures=12, signatures_tested=9)), "error", True),
        (run(states=replace(ALL, signatures=5, signatures_tested=4)), "error", False),
        (run(states=replace(ALL, executed=9, pruned=0, signatures=2, signatures_tested=2)), "error", True),
        (run(states=replace(ALL, executed=9, pruned=1, signatures=2, signatures_tested=2)), "error", False),
        (run(), "warning", False),
    ],
    ids=[
        "unproved",
        "report only",
        "it fails",
        "known",
        "suppressed",
        "no time",
        "nothing planned",
        "nothing to check",
        "not recorded",
        "not recorded, notes fail",
        "not recorded, report only",
        "too little",
        "enough",
        "too little of few",
        "enough of few",
        "too few states of a call that repeats",
        "ten states of a call that repeats",
        "clean",
    ],
)
def test_there_is_no_verdict_where_what_counts_is_unproved_or_nothing_was_checked(
    result: RunResult, level: FailOn, no_verdict: bool
) -> None:
    assert undecided(replace(result, fail_on=level)) is no_verdict


def test_what_the_baseline_knows_is_listed_after_what_is_new_and_does_not_fail() -> None:
    judged = judge(run(HASH, PAGES), baseline=(known(HASH),))
    assert [(finding.id, finding.new) for finding in judged.findings] == [("b2", True), ("a1", False)]
    assert fails(judged, "note")
    assert not fails(judge(run(HASH), baseline=(known(HASH),)), "note")


@pytest.mark.parametrize("renamed", [("text-1", "other"), ("other", "name-1")], ids=["function or file", "line's text"])
def test_a_finding_is_known_after_a_renaming(renamed: tuple[str, str]) -> None:
    moved = replace(HASH, id="c3", likenesses=renamed)
    assert not judge(run(moved), baseline=(known(HASH),)).findings[0].new


def test_an_entry_of_the_baseline_covers_one_finding_and_its_id_is_tried_first() -> None:
    twin = replace(HASH, id="c3")
    assert matched((twin, HASH), (known(HASH),)) == {1: 0}
    judged = judge(run(twin, HASH), baseline=(known(HASH),))
    assert {finding.id: finding.new for finding in judged.findings} == {"c3": True, "a1": False}


def test_findings_without_likenesses_are_distinguished_by_id_alone() -> None:
    bare = replace(HASH, likenesses=())
    assert matched((replace(bare, id="c3"),), (known(bare),)) == {}


def test_a_finding_is_known_by_an_id_that_it_was_merged_with_or_had_before() -> None:
    # At another place of the likenesses than its own, so that no likeness is equal.
    assert matched((replace(HASH, id="c3", likenesses=("x", "y", "b2")),), (known(PAGES),)) == {0: 0}
    assert matched((replace(HASH, id="c3", likenesses=()),), (known(replace(PAGES, likenesses=("x", "c3"))),)) == {0: 0}


def test_a_finding_with_likenesses_is_known_beside_one_without() -> None:
    bare = replace(PAGES, likenesses=())
    assert matched((bare, replace(HASH, id="c3")), (known(HASH),)) == {1: 0}
    assert matched((), (known(HASH),)) == {}


def test_an_entry_that_was_not_met_is_fixed_only_if_the_search_went_to_its_end() -> None:
    whole = judge(run(HASH), baseline=(known(HASH), known(PAGES)))
    assert whole.warnings == (f"baseline: b2 was not met: it is fixed: {PAGES.message}",)
    cut = judge(run(HASH, stop=StopReason.BUDGET_SECONDS), baseline=(known(HASH), known(PAGES)))
    assert cut.warnings == (f"baseline: b2 was not met in this run, which was cut short: {PAGES.message}",)


def test_updating_keeps_notes_adds_what_is_new_and_drops_what_is_fixed() -> None:
    moved = replace(HASH, id="c3", likenesses=("text-1", "other"))
    kept, changes = updated(run(moved), (known(HASH, "since 2019"), known(PAGES)))
    assert kept == (known(moved, "since 2019"),)
    assert changes == (f"dropped b2, which is fixed: {PAGES.message}",)
    kept, changes = updated(run(HASH, PAGES), (known(HASH),))
    assert kept == (known(HASH), known(PAGES))
    assert changes == (f"added b2: {PAGES.message}",)


def test_updating_drops_nothing_after_a_search_that_was_cut_short() -> None:
    kept, changes = updated(run(stop=StopReason.BUDGET_STATES), (known(PAGES, "n"),))
    assert kept == (known(PAGES, "n"),)
    assert changes == (f"kept b2, which was not met in this run, but the search was cut short: {PAGES.message}",)


def test_what_is_suppressed_needs_no_entry() -> None:
    judged = judge(run(HASH), (Suppression("crashcheck.toml", "rebuilt at start", id="a1"),), ())
    assert updated(judged, ()) == ((), ())


def test_an_updated_baseline_accepts_the_run_that_it_was_made_of() -> None:
    result = accepted(judge(run(HASH), baseline=(known(PAGES),)))
    assert not fails(result, "note")
    assert result.warnings == ()


def test_an_updated_baseline_accepts_failures_that_are_not_proved() -> None:
    result = accepted(judge(run(HASH, uncertain=(UNCERTAIN,)), baseline=()))
    assert [finding.new for finding in (*result.findings, *result.uncertain)] == [False, False]
    assert not undecided(result)


def test_a_baseline_is_sorted_and_read_back_as_it_was_written() -> None:
    bare = known(replace(LMDB, id="b1", likenesses=()))
    text = write_baseline([known(PAGES, 'a "note" — é'), bare, known(HASH)])
    assert text == write_baseline([known(HASH), known(PAGES, 'a "note" — é'), bare])
    assert "— é" in text
    assert read_baseline(text, "b.json") == (known(HASH), bare, known(PAGES, 'a "note" — é'))


def test_a_saved_baseline_is_loaded_from_a_folder_that_was_not_there(tmp_path: Path) -> None:
    file = tmp_path / "new" / "folder" / "baseline.json"
    for entries in ((known(HASH),), (known(HASH), known(PAGES))):
        save_baseline(file, entries)
        assert load_baseline(file, may_be_missing=False) == entries
        assert [path.name for path in file.parent.iterdir()] == ["baseline.json"]


def test_a_baseline_that_cannot_be_saved_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CrashcheckError) as caught:
        save_baseline(tmp_path / "file" / "baseline.json", ())
    assert caught.value.slug == "baseline-unwritable"


def test_only_a_baseline_that_is_about_to_be_written_may_be_missing(tmp_path: Path) -> None:
    assert load_baseline(tmp_path / "none.json", may_be_missing=True) == ()
    with pytest.raises(CrashcheckError) as caught:
        load_baseline(tmp_path / "none.json", may_be_missing=False)
    assert caught.value.slug == "baseline-missing"


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"version": 2, "findings": []}', '{"version": 1, "findings": [3]}', "[" * 100_000]
    + [
        f'{{"version": 1, "findings": [{entry}]}}'
        for entry in ('{"id": ""}', '{"id": 1}', '{"id": "a", "likenesses": ["x", 1]}')
    ],
)
def test_what_is_no_baseline_is_refused(text: str) -> None:
    with pytest.raises(CrashcheckError) as caught:
        read_baseline(text, "b.json")
    assert caught.value.slug == "baseline-unreadable"


def test_a_baseline_that_does_not_fit_into_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def read_text(_: Path, encoding: str) -> str:
        raise MemoryError

    monkeypatch.setattr(Path, "read_text", read_text)
    with pytest.raises(CrashcheckError, match="it is too large") as caught:
        load_baseline(Path("/dev/zero"), may_be_missing=False)
    assert caught.value.slug == "baseline-unreadable"


# -- comments


def test_a_comment_beside_code_is_about_its_line_and_one_alone_about_the_next_line_of_code() -> None:
    lines = (
        "a->valid = 1; // crashcheck: ignore[ordering] recovery looks again",
        "/* crashcheck: ignore[ordering, atomicity] log is replayed */",
        "// and a second remark",
        "b->valid = 1;",
    )
    found, warnings = in_comments("t.c", lines)
    assert warnings == ()
    assert [(each.where, each.line, sorted(each.kinds), each.reason) for each in found] == [
        ("t.c:1", 1, ["ordering"], "recovery looks again"),
        ("t.c:2", 4, ["atomicity", "ordering"], "log is replayed"),
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("// crashcheck: ignore[ordering]", "write a reason after ignore[ordering]"),
        ("// crashcheck: ignore[ordering] */", "write a reason after ignore[ordering]"),
        ("// crashcheck: ignore because", "it names no kind"),
        ("// crashcheck: ignore[oredring] because", "'oredring' is no kind"),
        ("// crashcheck: ignore[] because", "'' is no kind"),
    ],
)
def test_a_comment_without_kind_or_reason_ignores_nothing_and_is_reported(text: str, why: str) -> None:
    found, warnings = in_comments("t.c", (text,))
    assert found == ()
    assert warnings[0].startswith(f"t.c:1: nothing is ignored: {why}")


def test_a_comment_after_one_that_is_no_rule_is_read() -> None:
    found, _ = in_comments(
        "t.c", ("// crashcheck: hello", 'puts("crashcheck: x");', "x(); // crashcheck: ignore[*] ok")
    )
    assert [rule.line for rule in found] == [3]


def test_kinds_that_are_none_are_named_in_order() -> None:
    _, (warning,) = in_comments("t.c", ("// crashcheck: ignore[f, b, e, a, d, c] x",))
    assert "'a', 'b', 'c', 'd', 'e', 'f' is no kind" in warning


def test_each_comment_without_a_meaning_is_reported() -> None:
    _, warnings = in_comments("t.c", ("// crashcheck: ignore x", "// crashcheck: ignore[no] x"))
    assert [warning.split(": ")[0] for warning in warnings] == ["t.c:1", "t.c:2"]


def test_a_comment_at_the_end_of_a_file_is_about_no_line_of_it() -> None:
    (rule,), _ = in_comments("t.c", ("x();", "// crashcheck: ignore[*] nothing follows"))
    assert rule.line == 3


def test_a_long_reason_is_cut() -> None:
    (rule,), _ = in_comments("t.c", (f"x(); // crashcheck: ignore[*] {'r' * 1000}",))
    assert rule.reason == "r" * REASON_CHARS
    assert REASON_CHARS == 300


# -- where comments are read


def program(*units: UnitFacts) -> ProgramFacts:
    return ProgramFacts(dict(enumerate(units, 1)), (), ())


def unit(source: Path, *included: Path) -> UnitFacts:
    sites = tuple(Site("store", (SourcePosition(str(file), 1, 1, "f"),)) for file in included)
    return UnitFacts(str(source), str(source.parent), "clang", "llvmlite", sites)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The folder of a crashcheck.toml in a repository."""
    folder = tmp_path / "repository" / "project"
    folder.mkdir(parents=True)
    (folder.parent / ".git").mkdir()
    (folder / "crashcheck.toml").write_text(
        '[workload]\ncommand = "./w"\n[pool]\nfiles = ["*"]\n[check]\ncommand = "./c"\n'
        '[[suppress]]\nfile = "a"\nreason = "old"\n[[suppress]]\nfile = "b"\nreason = "older"\n'
    )
    return folder


def commented(file: Path) -> Path:
    """A file with one rule and one comment that is none."""
    file.parent.mkdir(exist_ok=True)
    file.write_text("x(); // crashcheck: ignore[*] known\ny(); // crashcheck: ignore\n")
    return file


def test_comments_of_each_source_of_the_repository_are_read(project: Path) -> None:
    source, header = commented(project / "main.c"), commented(project.parent / "lib" / "table.h")
    location, other = commented(project / "lost.c"), commented(project / "kept.c")
    assert HASH.evidence.other is not None
    finding = with_fields(
        HASH,
        location=replace(HASH.location, file=location.name),
        other=replace(HASH.evidence.other, file=other.name),
    )
    alone = replace(UNCERTAIN, location=replace(UNCERTAIN.location, file=commented(project / "alone.c").name))
    config = load(project)
    sources = sources_of(config.folder, program(unit(source, header)))
    rules = rules_of(config, sources, run(finding, uncertain=(with_fields(alone, other=None),)))
    places = ["../lib/table.h", "alone.c", "kept.c", "lost.c", "main.c"]
    assert [rule.where for rule in rules.suppressions] == [
        "[[suppress]] 1",
        "[[suppress]] 2",
        *(f"{place}:1" for place in places),
    ]
    assert [warning.split(": ")[0] for warning in rules.warnings] == [f"{place}:2" for place in places]


def test_no_file_outside_the_repository_is_read(project: Path, tmp_path: Path) -> None:
    outside = commented(tmp_path / "secret.c")
    (project / "link.c").symlink_to(outside)
    nowhere = with_fields(HASH, location=replace(HASH.location, file=""), other=None)
    config = load(project)
    sources = sources_of(config.folder, program(unit(outside, project / "link.c", Path("<built-in>"))))
    rules = rules_of(config, sources, run(nowhere))
    assert [rule.where for rule in rules.suppressions] == ["[[suppress]] 1", "[[suppress]] 2"]
    assert rules.warnings == ()


def test_the_sources_of_a_program_are_named_once_each_in_order(project: Path) -> None:
    names = [f"{letter}.h" for letter in "gebafdc"]
    nameless = UnitFacts("", "", "clang", "llvmlite", (Site("store", (SourcePosition("", 1, 1, "f"),)),))
    units = [unit(project / name, project / "a.h") for name in names]
    assert sources_of(project, program(*units, nameless)) == sorted(names)


def test_only_comments_are_read() -> None:
    assert in_comments("t.c", ('puts("crashcheck: ignore[*] x");', "// crashcheck is nice")) == ((), ())


@pytest.mark.parametrize("line", [8, 9], ids=["the one that is lost", "the one that is kept"])
def test_a_comment_at_either_culprit_suppresses_and_is_named(line: int) -> None:
    comments = [*[""] * (line - 1), "x(); // crashcheck: ignore[ordering] why"]
    (rule,), _ = in_comments("src/level_hash.c", comments)
    judged = judge(run(HASH, PAGES), (rule,))
    assert [(finding.id, finding.suppressed) for finding in judged.findings] == [
        ("b2", ""),
        ("a1", f"why (src/level_hash.c:{line})"),
    ]
    assert judged.warnings == ()


@pytest.mark.parametrize(
    "rule",
    [
        Suppression("r", "why", frozenset({"atomicity"}), file="src/level_hash.c", line=8),
        Suppression("r", "why", file="src/level_hash.c", line=7),
        Suppression("r", "why", file="lib/*"),
        Suppression("r", "why", id="zz"),
        Suppression("r", "why", id="a1", file="lib/*"),
    ],
)
def test_a_rule_that_does_not_fit_is_stale(rule: Suppression) -> None:
    judged = judge(run(HASH), (rule,))
    assert judged.findings == (HASH,)
    assert judged.warnings[0].endswith("met nothing: take it out")
    cut = judge(run(HASH, stop=StopReason.INTERRUPTED), (rule,))
    assert cut.warnings[0].endswith("met nothing in this run, which was cut short")


def test_a_rule_does_not_fit_a_finding_with_one_place_elsewhere() -> None:
    judged = judge(run(with_fields(HASH, other=None)), (Suppression("r", "why", file="lib/*"),))
    assert judged.findings[0].suppressed == ""


@pytest.mark.parametrize("file", ["src/other.c", ""])
def test_a_comment_says_nothing_of_the_same_line_elsewhere(file: str) -> None:
    (rule,), _ = in_comments("src/level_hash.c", ("x(); // crashcheck: ignore[*] why",))
    elsewhere = with_fields(HASH, location=replace(HASH.location, file=file, line=1), other=None)
    assert judge(run(elsewhere), (rule,)).findings == (elsewhere,)


def test_a_pattern_does_not_fit_a_finding_that_names_no_file() -> None:
    nowhere = with_fields(HASH, location=replace(HASH.location, file=""), other=None)
    assert judge(run(nowhere), (Suppression("r", "why", file="*"),)).findings == (nowhere,)


def test_what_is_not_proved_is_judged_and_ordered_as_what_is() -> None:
    other = replace(UNCERTAIN, id="u2", likenesses=())
    rule, entry = Suppression("r", "why", id=UNCERTAIN.id), known(HASH)
    judged = judge(run(HASH, uncertain=(UNCERTAIN, replace(other, id="u3"), other)), (rule,), (entry, known(other)))
    assert [(finding.id, finding.new, finding.suppressed) for finding in (*judged.findings, *judged.uncertain)] == [
        ("a1", False, ""),
        ("u3", True, ""),
        (UNCERTAIN.id, True, "why (r)"),
        ("u2", False, ""),
    ]


@pytest.mark.parametrize(("compared", "fail"), [("", True), ("introduced", True), ("existing", False)])
def test_what_the_base_of_a_change_has_does_not_fail(compared: str, fail: bool) -> None:
    assert fails(judge(run(replace(HASH, compared=compared))), "note") is fail


def test_a_file_pattern_or_an_id_suppresses() -> None:
    for rule in (Suppression("r", "old", file="src/*"), Suppression("r", "old", id="a1")):
        judged = judge(run(HASH, UNCERTAIN), (rule,))
        assert judged.findings[-1].suppressed == "old (r)"


def test_what_the_change_touches_is_reported_first() -> None:
    judged = judge(run(HASH, replace(PAGES, in_diff=True)))
    assert [finding.id for finding in judged.findings] == ["b2", "a1"]


def test_notes_are_reported_last() -> None:
    halved = replace(HASH, model=f"px86 {HALF_STORE}")
    assert halved.level == "note"
    assert judge(run(halved, PAGES)).findings == (PAGES, halved)


def test_states_that_were_decided_in_any_way_count_as_checked() -> None:
    nothing = replace(ALL, executed=0, pruned=0)
    assert checked_nothing(run(states=nothing))
    for decided in ("executed", "pruned", "explored", "reused"):
        assert not checked_nothing(run(states=replace(nothing, **{decided: 1})))


def test_a_search_that_could_not_count_its_states_may_have_had_some() -> None:
    none = replace(ALL, feasible=0, executed=0, pruned=0, skipped=0, failing=0)
    assert not checked_nothing(run(states=replace(none, feasible_exact=True)))
    assert undecided(run(states=replace(none, feasible_exact=False)))
