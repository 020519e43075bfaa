"""By what a finding is known again after its lines have moved, or something got another name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from crashcheck.analyzer.trace import Trace
from crashcheck.checker.findings.identity import Identities, digest_of
from crashcheck.checker.findings.templates import of_template
from crashcheck.checker.results import FindingKind, Frame, Location
from crashcheck.checker.subject import NoProvenance, Subject
from support.checked_worlds import FILE_BYTES, VALID, VALUE, World, words
from support.folders import Recorded
from support.tracing import CallsBuilder, TraceBuilder

PATHS = {"1.log": "put", "2.log": "rotate", "snapshot": "save", "index": "save"}  # and who makes them
OTHER = Location("tree.c", 7, 1, "insert", "node.key", (), "node->key = key;")


def identities(folder: Path, lost: Location, kept: Location) -> Identities:
    def script(t: TraceBuilder) -> None:
        for t.site in (1, 2):
            t.store("p", 64 * t.site, 8, 1)

    return Identities(World(folder, words("true"), script, sites={1: lost, 2: kept}).subject)


@pytest.mark.parametrize("kind", [FindingKind.ORDERING, FindingKind.ATOMICITY, FindingKind.RECOVERY_FAILURE])
def test_a_finding_is_known_by_its_id_its_texts_and_its_names(kind: FindingKind, tmp_path: Path) -> None:
    """It keeps the id where only lines move, one likeness where a name or a text changes, none where a place does."""
    ids = {}
    for name, lost, kept in [
        ("first", VALUE, VALID),
        ("moved", replace(VALUE, line=99), VALID),
        ("function renamed", replace(VALUE, function="add"), replace(VALID, function="add")),
        ("text changed", VALUE, replace(VALID, text="flag = true;")),
        ("another lost", OTHER, VALID),
        ("another kept", VALUE, OTHER),
    ]:
        known = identities(tmp_path / name, lost, kept)
        ids[name] = known.stable(kind, 0, 1), known.likenesses(kind, 0, 1)[:2]
    first, (by_text, by_name) = ids["first"]
    assert ids["moved"] == ids["first"]
    renamed, changed = ids["function renamed"], ids["text changed"]
    assert (renamed[0] == first, renamed[1][0] == by_text, renamed[1][1] == by_name) == (False, True, False)
    assert (changed[0] == first, changed[1][0] == by_text, changed[1][1] == by_name) == (False, False, True)
    for name in ("another lost", "another kept"):
        assert not {first, by_text, by_name} & {ids[name][0], *ids[name][1]}


def test_a_section_is_also_known_by_the_id_that_it_had_when_the_check_died_of_it(tmp_path: Path) -> None:
    known = identities(tmp_path / "world", VALUE, VALID)
    assert known.stable(FindingKind.ATOMICITY, 0, 1) == known.stable(FindingKind.RECOVERY_FAILURE, 0, 1)
    assert known.likenesses(FindingKind.ATOMICITY, 0, 1) == known.likenesses(FindingKind.RECOVERY_FAILURE, 0, 1)
    counts = [len(set(known.likenesses(kind, 0, 1))) for kind in (FindingKind.ORDERING, FindingKind.ATOMICITY)]
    assert counts == [2, 3]


@pytest.mark.parametrize("model", ["px86", "page-cache"])
def test_an_update_without_a_source_is_known_by_the_place_that_it_changes(model: str, tmp_path: Path) -> None:
    """All of a wide store is one place; only records that calls append are one place wherever they are."""

    def script(t: TraceBuilder) -> None:
        t.store("p", 60, 16, bytes(range(16)))
        t.write("p", FILE_BYTES, b"record")

    world = World(tmp_path / "world", words("true"), script, model=model)
    places = {Identities(world.subject).stable_place(piece) for piece in range(len(world.graph))}
    end = str(FILE_BYTES)
    size = str(FILE_BYTES + 6)
    assert places == {("offset", "p", "data", "60"), ("offset", "p", "size", size), ("offset", "p", "data", end)}


def test_instantiations_of_a_template_have_one_id_and_know_their_former_ones(tmp_path: Path) -> None:
    known = {}
    for name in ("Map<long, Pair<int, 2>>::put", "Map<char, A>::put", "Map::put"):
        lost, kept = replace(VALUE, function=name), replace(VALID, function=name)
        one = identities(tmp_path / str(len(known)), lost, kept)
        known[name] = one.stable(FindingKind.ORDERING, 0, 1), one.likenesses(FindingKind.ORDERING, 0, 1)
    assert len({id_ for id_, _ in known.values()}) == 1
    assert [len(likenesses) for _, likenesses in known.values()] == [3, 3, 2]
    assert len({likenesses[-1] for _, likenesses in known.values()}) == 3


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        ("db::Map<long, std::pair<int, A<3>>>::Node<2>::put<char>", "db::Map::Node::put"),
        ("operator<", "operator<"),
        ("a::Key<int>::operator<=>", "a::Key::operator<=>"),
        ("Key::operator->", "Key::operator->"),
        ("Key::operator vector<int>", "Key::operator vector<int>"),
        ("(anonymous namespace)::operators<int>", "(anonymous namespace)::operators"),
        ("main", "main"),
    ],
)
def test_a_function_of_a_template_is_named_without_arguments_and_an_operator_is_whole(
    function: str, expected: str
) -> None:
    assert of_template(function) == expected


class OneHelper(NoProvenance):
    """All calls are made at one line, by a helper of the function of their stack."""

    def __init__(self, trace: Trace, functions: Mapping[int, str]) -> None:
        self.trace, self.functions = trace, functions

    def of(self, event: int) -> Location | None:
        stack = int(self.trace.events["stack"][event])
        return Location("io.c", 3, 0, "write_all", "", (Frame(self.functions[stack], "store.c", stack),))


def test_a_helper_writes_files_apart_that_have_neither_callers_nor_names_in_common(tmp_path: Path) -> None:
    """Names that differ in numbers count as one: the logs of a run, whoever begins one."""
    stacks: dict[str, int] = {}

    def script(t: CallsBuilder) -> None:
        stacks.update((path, t.stack_def(0, t.call_site("/bin/store", len(stacks)))) for path in PATHS)
        for path in PATHS:
            t.stack = stacks[path]
            t.open(path)

    run = Recorded(tmp_path, script, {}, "ext4", most=0)
    helper = OneHelper(run.trace, {stacks[path]: function for path, function in PATHS.items()})
    known = Identities(Subject(run.trace, run.graph, run.space, run.content, helper))
    assert [known.origin(piece)[4] for piece in range(4)] == ["#.log", "#.log", "index", "index"]
    first, second, third, fourth = (known.stable(FindingKind.ATOMICITY, piece, piece) for piece in range(4))
    assert first == second != third == fourth
    _, _, former, *_ = known.likenesses(FindingKind.ATOMICITY, 0, 0)
    assert former == digest_of(["atomicity", "1", *("io.c", "write_all", "", "", "0") * 2])
