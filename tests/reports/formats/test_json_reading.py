"""A JSON report read back is the run that it was made from; anything else is refused, with the place of the error."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import enum
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crashcheck.checker.evidence import CleanReopen, CrashSchedule, RecoveryCrash
from crashcheck.checker.results import Edit, Evidence, Fix, Note, RunResult
from crashcheck.errors import CrashcheckError
from crashcheck.reports.formats import json_report
from support.examples_tried import examples
from support.reports.runs import CLEAN, FULL, GROUP, LEVEL_HASH, LMDB, ONE, SOME, VALID, hostile, many, run, with_fields

ROLES = with_fields(
    LEVEL_HASH,
    schedule=(*LEVEL_HASH.evidence.schedule[:-1], replace(LEVEL_HASH.evidence.schedule[-1], role="other")),
    new=False,
    suppressed="known since 2019",
    fix=Fix(
        "flush-fence",
        "Flush and fence `entry` before the flag is set.",
        (Edit("src/level_hash.c", 9, True, "    clwb(entry);\n    sfence();"), Edit("a.c", 1, False, "x", "y")),
        6,
        0,
        "0 of 6 states fail",
        3,
        2,
        1,
        "no",
    ),
)
EVERYTHING = replace(
    FULL,
    findings=(ROLES, *FULL.findings),
    states=replace(SOME, feasible=10**12345 + 7),
    notes=(Note("empty-fence", VALID, 3, 7),),
    groups=(*FULL.groups, replace(GROUP, nodes=LEVEL_HASH.evidence.nodes, edges=LEVEL_HASH.evidence.edges)),
)


@pytest.mark.parametrize(
    "result", [CLEAN, ONE, FULL, many(10), EVERYTHING], ids=["none", "one", "full", "many", "everything"]
)
def test_what_is_read_back_is_what_was_written(result: RunResult) -> None:
    assert json_report.load(json_report.render(result)) == result


def test_text_that_had_to_be_cut_is_read_back_cut() -> None:
    text = json_report.render(hostile())
    assert json_report.render(json_report.load(text)) == text


def test_an_edit_is_kept_whole_or_not_at_all() -> None:
    fix = Fix("fence", "Fence.", (Edit("a.c", 1, True, "x" * 1001),))
    (read,) = json_report.load(json_report.render(run(replace(LEVEL_HASH, fix=fix)))).findings
    assert read.fix == Fix("fence", "Fence.", no_edit="its lines are too long for a report")


VERSION_1 = Path(__file__).parent / "version_1"


@pytest.mark.parametrize(("name", "result"), [("clean", CLEAN), ("one", ONE), ("full", FULL)])
def test_a_report_of_version_1_is_the_run_that_it_was_made_from(name: str, result: RunResult) -> None:
    """The files were written by the last crashcheck that wrote version 1."""
    known = replace(result, phases=(), discoveries=(), first_state_s=None, unreached=())  # it did not have these
    assert json_report.load((VERSION_1 / f"{name}.json").read_text("utf-8")) == known


def test_a_report_of_version_1_of_a_real_run_keeps_all_of_its_content() -> None:
    text = (VERSION_1 / "level-hash.json").read_text("utf-8")
    old, result = json.loads(text), json_report.load(text)
    new = json_report.document(result)
    assert json_report.load(json_report.render(result)) == result
    assert [finding.id for finding in result.findings] == [finding["id"] for finding in old["findings"]] != []
    same = ("id", "kind", "model", "location", "other", "crash_point", "verdict", "replay", "states", "likenesses")
    for now, before in zip(new["findings"], old["findings"], strict=True):
        assert {name: now[name] for name in same} == {name: before[name] for name in same}
        assert len(now["schedule"]) == len(before["schedule"])
        assert (len(now["nodes"]), len(now["edges"])) == tuple(map(len, before["graph"].values()))
    later = {"explored": 0, "explored_runs": 0, "not_explored": [], "reused": 0, "reused_from": ""}
    later |= {"signatures": 0, "signatures_tested": 0}
    assert new["run"]["states"] == old["run"]["states"] | later
    assert [len(row["nodes"]) for row in new["groups"]] == [len(row["graph"]["nodes"]) for row in old["groups"]]


def test_a_report_of_before_the_later_fields_is_read() -> None:
    document = json.loads(json_report.render(ONE))
    del document["groups"]
    del document["run"]["notes"]
    for finding in document["findings"]:
        for later in ("new", "suppressed", "level", "fix", "likenesses", "in_diff"):
            del finding[later]
        for step in finding["schedule"]:
            del step["role"]
    assert json_report.load(json.dumps(document)) == ONE


def test_fields_of_a_later_version_are_ignored() -> None:
    document = json.loads(json_report.render(ONE))
    document["weather"] = document["run"]["mood"] = document["findings"][0]["smell"] = [{}]
    assert json_report.load(json.dumps(document)) == ONE


def refused(text: str) -> CrashcheckError:
    with pytest.raises(CrashcheckError) as caught:
        json_report.load(text)
    return caught.value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "{}",
        "{",
        "\ufeff{}",
        "\udcff",
        "[" * 100_000,
        '{"schema": ' + "9" * 5000 + "}",
        '{"schema": NaN}',
        '{"schema": "1"}',
        '{"schema": true}',
        '{"schema": 1.0}',
    ],
    ids=range(13),
)
def test_what_is_no_report_is_refused(text: str) -> None:
    assert refused(text).slug == "report-unreadable"


def test_a_report_of_another_version_is_refused_by_version() -> None:
    error = refused(json_report.render(ONE).replace('"schema": 2,', '"schema": 3,', 1))
    assert (error.slug, error.message) == (
        "report-version",
        "the report is of version 3; this crashcheck reads versions 1 and 2.",
    )


@pytest.mark.parametrize(
    ("path", "value", "where"),
    [
        (("run",), [], "at run: Expected `object`"),
        (("run", "stop_reason"), "tired", "at run.stop_reason: Invalid enum value 'tired'"),
        (("run", "states", "feasible"), "ten", "at run.states.feasible: Expected `int`"),
        (("run", "states", "feasible"), "-1", "at run.states.feasible: Expected `int`"),
        (("run", "states", "feasible"), "٣", "at run.states.feasible: Expected `int`"),
        (("run", "states", "feasible"), "9" * 1_000_001, "at run.states.feasible: Expected `int`"),
        (("run", "states", "feasible"), -1, "at run.states.feasible: Expected `int` >= 0"),
        (("run", "states", "executed"), -1, "at run.states.executed: Expected `int` >= 0"),
        (("run", "states", "executed"), 2**53, "at run.states.executed: Expected `int` <= 9007199254740991"),
        (("run", "seconds"), "1", "at run.seconds: Expected `float`"),
        (("run", "seconds"), -1, "at run.seconds: Expected `float` >= 0"),
        (("run", "warnings"), [1], "at run.warnings[0]: Expected `str`"),
        (("findings", 0, "kind"), {}, "at findings[0].kind: Expected `str`"),
        (("findings", 0, "kind"), "\x1b[31m", r"at findings[0].kind: Invalid enum value '\x1b[31m'"),
        (("findings", 0, "location"), None, "at findings[0].location: Expected `object`"),
        (("findings", 0, "location", "line"), 2**31, "at findings[0].location.line: Expected `int` <= 2147483647"),
        (("findings", 0, "location", "line"), True, "at findings[0].location.line: Expected `int`, got `bool`"),
        (
            ("findings", 0, "schedule", 2, "state"),
            "melted",
            "at findings[0].schedule[2].state: Expected `str` matching",
        ),
        (("findings", 0, "edges"), {}, "at findings[0].edges: Expected `array`"),
        (("findings", 0, "verdict", "output"), 3, "at findings[0].verdict.output: Expected `str`"),
    ],
)
def test_a_field_of_the_wrong_kind_is_named(path: tuple[Any, ...], value: object, where: str) -> None:
    broken = json.loads(json_report.render(ONE))
    inner = broken
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    error = refused(json.dumps(broken))
    assert error.slug == "report-unreadable"
    assert where in error.message


DOCUMENTS = [json.loads(json_report.render(ONE)), json.loads((VERSION_1 / "one.json").read_text("utf-8"))]
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.just([]), st.just({}))


def paths(value: object, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [here, *(path for key, child in inner for path in paths(child, (*here, key)))]


PATHS = [st.sampled_from(paths(document)[1:]) for document in DOCUMENTS]


@pytest.mark.parametrize(
    ("document", "places"), list(zip(DOCUMENTS, PATHS, strict=True)), ids=["version 2", "version 1"]
)
@settings(max_examples=examples(100))
@given(st.data(), SCALARS)
def test_any_field_replaced_by_anything_is_read_or_refused(
    document: dict[str, Any], places: Any, data: st.DataObject, value: object
) -> None:
    path = data.draw(places)
    broken = copy.deepcopy(document)
    inner = broken
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    with contextlib.suppress(CrashcheckError):  # and nothing else
        json_report.render(json_report.load(json.dumps(broken)))


def test_roles_and_policy_survive() -> None:
    (finding,) = json_report.load(json_report.render(run(ROLES))).findings
    assert (finding.new, finding.suppressed, finding.evidence.schedule[-1].role) == (False, "known since 2019", "other")


def test_the_severity_of_a_finding_follows_from_what_it_needs() -> None:
    assert LEVEL_HASH.level == LMDB.level == "error"
    assert with_fields(LEVEL_HASH, depth=2).level == "warning"
    assert replace(LMDB, model="page-cache tear=512").level == "warning"
    assert replace(LMDB, model="page-cache files=posix").level == "warning"
    assert with_fields(LEVEL_HASH, depth=2, uncertain="not read again").level == "note"


TEXTS = st.text(alphabet=st.characters(codec="utf-8"), max_size=8)
WORDS = {
    "state": st.sampled_from(["", "durable", "persisted", "lost", "unreached"]),
    "role": st.sampled_from(["", "location", "other"]),
    "waste": st.sampled_from(["clean-flush", "repeated-flush", "empty-fence", "empty-sync"]),
    "fate": st.sampled_from(["fixed", "not-seen"]),
    "compared": st.sampled_from(["", "introduced", "existing", "not-compared"]),
    "granule": st.integers(-1, 2**40),
    "durable_from": st.integers(-1, 2**40),
    "feasible": st.integers(0, 10**30),
    "seconds": (SECONDS := st.integers(0, 10**6).map(lambda thousandths: thousandths / 1000)),
    "first_state_s": st.none() | SECONDS,
    "score": st.floats(0, 10, allow_nan=False),
    "fail_on": st.sampled_from(["none", "note", "warning", "error"]),
    "signs": st.just(frozenset()),  # of use during the search only
}


def values(kind: Any, name: str = "") -> st.SearchStrategy[Any]:
    """Any value of a field's type."""
    if name in WORDS:
        return WORDS[name]
    if kind is Evidence:
        return st.one_of(*map(values, (CrashSchedule, RecoveryCrash, CleanReopen)))
    if dataclasses.is_dataclass(kind):
        hints = get_type_hints(kind)
        in_no_report = ("merged", "elsewhere")
        names = [f.name for f in dataclasses.fields(kind) if f.name not in in_no_report]
        return st.builds(kind, **{name: values(hints[name], name) for name in names})
    if get_origin(kind) is tuple:
        return st.lists(values(get_args(kind)[0]), max_size=2).map(tuple)
    if get_args(kind):  # one of the values that may be missing
        (inner,) = (one for one in get_args(kind) if one is not type(None))
        return st.none() | values(inner)
    if issubclass(kind, enum.Enum):
        return st.sampled_from(kind)
    return {str: TEXTS, bool: st.booleans(), int: st.integers(1, 2**31 - 1)}[kind]


@settings(max_examples=examples(50), suppress_health_check=list(HealthCheck))
@given(values(RunResult))
def test_every_field_of_every_value_is_read_back(result: RunResult) -> None:
    assert json_report.load(json_report.render(result)) == result


def test_a_report_of_before_other_evidence_than_crashes_keeps_its_reopen_and_its_recovery() -> None:
    """The file was written by the last crashcheck to which all evidence was a crash schedule."""
    text = (Path(__file__).parent / "version_2" / "report.json").read_text("utf-8")
    result = json_report.load(text)
    reopened, *crashes = result.findings
    commands = json.loads(text)["findings"][0]["replay"]
    assert isinstance(reopened.evidence, CleanReopen)
    assert (reopened.evidence.after, reopened.evidence.commands) == ("operation 2 (put 7)", commands)
    assert [type(one.evidence) for one in (*crashes, *result.uncertain)] == [CrashSchedule] * 4 + [RecoveryCrash]
    old, new = json.loads(text), json.loads(json_report.render(result))
    assert new["findings"][0].pop("evidence") == {
        "type": "reopen",
        "after": "operation 2 (put 7)",
        "commands": commands,
    }
    assert new["run"].pop("first_state_s") is None
    assert new["run"].pop("unreached") == []
    assert new == old
