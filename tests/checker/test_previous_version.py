"""A project's baseline, suppressions and reports keep their meaning after an update: version 0.1.0 wrote these."""

from __future__ import annotations

from pathlib import Path

from crashcheck.checker.baseline import load_baseline, updated, write_baseline
from crashcheck.checker.policy import in_comments, judge, rules_of
from crashcheck.checker.results import FindingKind
from crashcheck.config import load as load_config
from crashcheck.reports.formats import json_report
from support.paths import ROOT

PREVIOUS = ROOT / "tests" / "checker" / "data" / "previous_version"
REPORT = (PREVIOUS / "report.json").read_text(encoding="utf-8")


def test_a_report_is_read_with_its_findings() -> None:
    result = json_report.load(REPORT)
    (finding,) = result.findings
    assert (finding.id, finding.kind, finding.states) == ("e5c24f04edfc", FindingKind.ORDERING, 20)
    assert (finding.location.file, finding.location.line, finding.location.variable) == (
        "buggy.c",
        43,
        "bucket.valid[]",
    )
    assert finding.evidence.other is not None
    assert finding.evidence.other.line == 42
    assert finding.fix is not None
    assert not finding.fix.after_failing
    assert (result.states.executed, result.states.failing) == (121, 20)


def test_a_baseline_still_knows_its_findings_and_is_written_back_as_it_was() -> None:
    known = load_baseline(PREVIOUS / "baseline.json", may_be_missing=False)
    judged = judge(json_report.load(REPORT), baseline=known)
    assert [finding.new for finding in judged.findings] == [False]
    assert judged.warnings == ()
    assert updated(judged, known) == (known, ())
    assert write_baseline(known) == (PREVIOUS / "baseline.json").read_text(encoding="utf-8")


def test_suppressions_in_comments_and_in_the_configuration_still_hold(tmp_path: Path) -> None:
    for name in ("buggy.c", "buggy.toml"):
        (tmp_path / name).write_bytes((PREVIOUS / name).read_bytes())
    result = json_report.load(REPORT)
    rules = rules_of(load_config(tmp_path / "buggy.toml"), (), result)
    assert rules.warnings == ()
    judged = judge(result, rules.suppressions)
    assert [finding.suppressed for finding in judged.findings] == ["the table is rebuilt at start (buggy.c:43)"]
    assert judged.warnings == (
        "[[suppress]] 1: this suppression (atomicity, recovery-failure: only the reader) met nothing: take it out",
    )
    comments, _ = in_comments("buggy.c", (PREVIOUS / "buggy.c").read_text(encoding="utf-8").split("\n"))
    assert comments == rules.suppressions[1:]
