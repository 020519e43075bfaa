"""By what a finding is known again after its lines have moved, or something got another name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from crashcheck.checker.findings.identity import Identities, of_template
from crashcheck.checker.results import FindingKind, Location
from crashcheck.checker.subject import NoProvenance, Subject
from support.checked_worlds import FILE_BYTES, VALID, VALUE, World, words
from support.folders import Recorded
from support.tracing import CallsBuilder, TraceBuilder

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
    """All calls are made at one line."""

    def of(self, event: int) -> Location | None:
        return Location("io.c", 3, 0, "write_all", "", ())


def test_a_helper_writes_files_apart_that_have_neither_callers_nor_names_in_common(tmp_path: Path) -> None:
    """Names that differ in numbers count as one: the logs of a run, whoever begins one."""

    def script(t: CallsBuilder) -> None:
        put, rotate, save = (t.stack_def(0, t.call_site("/bin/store", offset)) for offset in (10, 20, 30))
        t.site = t.call_site("/bin/store", 40)
        for t.stack, path in ((put, "1.log"), (rotate, "2.log"), (save, "snapshot"), (save, "index")):
            t.open(path)
            t.write(path, 0, b"data")

    run = Recorded(tmp_path, script, {}, "ext4", most=0)
    subject = Subject(run.trace, run.graph, run.space, run.content, OneHelper())
    known = Identities(subject)
    files = {subject.path_of(piece): known.files(piece) for piece in range(len(run.graph))}
    assert files["1.log"] == files["2.log"] != files["snapshot"] == files["index"]
    assert len({known.origin(piece) for piece in range(len(run.graph))}) == 1
