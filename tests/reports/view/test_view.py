"""The view holds what a reader needs, whatever a finding lacks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from crashcheck.checker.results import GraphEdge, GraphNode, GroupVerdict, Location
from crashcheck.reports.view.diagrams import graph_picture, schedule_picture
from crashcheck.reports.view.failing_behaviour import GraphView, NodeView
from crashcheck.reports.view.run_view import build_view
from crashcheck.reports.view.source_lines import read_sources
from support.reports.runs import (
    CLEAN,
    FULL,
    GROUP,
    KILLED,
    LEVEL_HASH,
    LEVEL_HASH_C,
    LMDB,
    ONE,
    RECORD,
    SOURCES,
    many,
    run,
    with_fields,
)


def test_the_culprits_carry_the_same_letters_everywhere() -> None:
    finding = build_view(ONE, SOURCES).findings[0]
    assert [(place.tag, place.role, place.where) for place in finding.evidence.places] == [
        ("A", "survived", "src/level_hash.c:9"),
        ("B", "lost", "src/level_hash.c:8"),
    ]
    assert {step.tag: step.number for step in finding.evidence.schedule.steps if step.tag} == {"A": 12, "B": 11}
    assert finding.evidence.graph is not None
    assert {node.tag: node.state for node in finding.evidence.graph.nodes if node.tag} == {
        "A": "persisted",
        "B": "lost",
    }


def test_the_schedule_is_in_the_order_of_the_program() -> None:
    assert build_view(ONE).findings[0].evidence.story == (
        "`entry.value` is written at src/level_hash.c:8: it is lost.",
        "`token.valid` is written at src/level_hash.c:9: it survives the crash.",
        "Crash before the fence at src/level_hash.c:12, in operation 3; 2 operations acknowledged.",
        "On the crash image, the check exited with status 3.",
    )


def test_the_steps_that_the_crash_prevented_are_after_it() -> None:
    finding = build_view(run(KILLED), SOURCES).findings[0]
    assert [(place.tag, place.role) for place in finding.evidence.places] == [("A", "survived"), ("B", "not reached")]
    assert finding.evidence.story[1:3] == (
        "Crash before the store at src/level_hash.c:8, in operation 1; 0 operations acknowledged.",
        "`entry.value` at src/level_hash.c:8 is not reached.",
    )
    assert [step.number for step in finding.evidence.schedule.unreached] == [3]
    picture = schedule_picture(finding.evidence.schedule)
    assert picture.marks[-1].x < picture.crash_x < picture.unreached[0].x < picture.left_x < picture.width
    lane = finding.evidence.schedule.lanes[0]
    assert (lane.durable, lane.survived, lane.lost) == (0, 1, 0)


def test_a_jump_in_the_trace_is_a_gap_and_a_definition_or_two_is_none() -> None:
    steps = build_view(run(KILLED)).findings[0].evidence.schedule.steps
    assert [(step.event, step.skipped_before) for step in steps] == [(4, 0), (31, 26)]
    near = tuple(replace(step, event=event) for step, event in zip(KILLED.evidence.schedule, (4, 7, 8), strict=True))
    assert [
        s.skipped_before
        for s in build_view(run(with_fields(KILLED, schedule=near))).findings[0].evidence.schedule.steps
    ] == [
        0,
        0,
    ]


def test_a_pair_that_a_path_orders_is_not_called_unordered() -> None:
    ordered = with_fields(LEVEL_HASH, edges=(*LEVEL_HASH.evidence.edges, GraphEdge(35, 36, "flush and fence")))
    free, bound = (build_view(run(finding)).findings[0].evidence.graph for finding in (LEVEL_HASH, ordered))
    assert free is not None
    assert free.unordered == (4, 5)
    assert bound is not None
    assert bound.unordered is None


def test_a_finding_without_other_store_crash_place_stack_and_graph_is_shown() -> None:
    bare = with_fields(RECORD, location=Location("", 0, 0, "", "", ()), schedule=(), crash_location=None)
    finding = build_view(run(bare)).findings[0]
    assert finding.evidence.places[0].where == "unknown place"
    assert finding.evidence.places[0].lines == ()
    assert finding.evidence.schedule.steps == ()
    assert finding.evidence.graph is None


@pytest.mark.parametrize(
    ("model", "word"),
    [
        ("px86", "cache line 41"),
        ("page-cache", "page 41"),
        ("page-cache tear=512", "sector 41"),
        ("eadr", "cache line 41"),
    ],
)
def test_lanes_are_named_after_what_the_model_persists_in_order(model: str, word: str) -> None:
    assert build_view(run(replace(LEVEL_HASH, model=model))).findings[0].evidence.schedule.lanes[0].label == word


def test_lanes_name_their_file_when_there_are_several() -> None:
    other = replace(LEVEL_HASH.evidence.schedule[1], file="other.pool")
    finding = build_view(run(with_fields(LEVEL_HASH, schedule=(*LEVEL_HASH.evidence.schedule, other)))).findings[0]
    assert [lane.label for lane in finding.evidence.schedule.lanes][-1] == "cache line 41 · other.pool"


def test_a_long_schedule_keeps_the_culprits_and_counts_what_it_leaves_out() -> None:
    schedule = build_view(many(100, steps=500)).findings[0].evidence.schedule
    assert schedule.total == 514
    assert len(schedule.steps) == 10
    assert {step.tag for step in schedule.steps} == {"", "A", "B"}
    assert [step.skipped_before for step in schedule.steps if step.skipped_before] == [705]


def test_many_lines_share_a_last_lane() -> None:
    steps = tuple(replace(LEVEL_HASH.evidence.schedule[1], granule=i) for i in range(100, 140))
    lanes = (
        build_view(run(with_fields(LEVEL_HASH, schedule=steps + LEVEL_HASH.evidence.schedule)))
        .findings[0]
        .evidence.schedule.lanes
    )
    assert len(lanes) == 15
    assert lanes[-1].label == "29 other lines"
    assert sum(lane.durable for lane in lanes) == 43


def test_what_is_left_of_a_lane_counts_the_steps_that_are_not_shown() -> None:
    schedule = build_view(many(100, steps=500)).findings[0].evidence.schedule
    assert len(schedule.steps) == 10
    assert sum(lane.durable for lane in schedule.lanes) == 503


def test_a_sync_of_one_file_concerns_every_lane() -> None:
    sync = replace(LEVEL_HASH.evidence.schedule[6], what="sync", file="table.pool", offset=0, size=4096)
    schedule = (
        build_view(run(with_fields(LEVEL_HASH, schedule=(sync, *LEVEL_HASH.evidence.schedule))))
        .findings[0]
        .evidence.schedule
    )
    assert schedule.steps[0].lane == -1
    assert len(schedule.lanes) == 3


def test_the_share_of_states_is_not_claimed_where_they_are_not_counted() -> None:
    bound = replace(FULL.states, feasible=10, feasible_exact=False)
    assert {fact.label: fact.value for fact in build_view(run(states=bound)).counts}["covered"] == "unknown"


def test_every_mark_is_before_the_crash_and_inside_its_lane() -> None:
    for finding in build_view(FULL).findings:
        picture = schedule_picture(finding.evidence.schedule)
        assert all(mark.x < picture.crash_x for mark in picture.marks)
        assert [mark.x for mark in picture.marks] == sorted({mark.x for mark in picture.marks})
        assert all(mark.y == picture.lanes[mark.step.lane].middle for mark in picture.marks if mark.step.lane >= 0)


def test_every_arrow_of_the_graph_points_to_the_right_and_no_boxes_overlap() -> None:
    graph = build_view(ONE).findings[0].evidence.graph
    assert graph is not None
    picture = graph_picture(graph)
    boxes = {box.index: box for box in picture.boxes}
    assert all(boxes[edge.source].x < boxes[edge.target].x for edge in graph.edges)
    assert len({(box.x, box.y) for box in picture.boxes}) == len(picture.boxes)


def test_an_arrow_that_others_imply_is_not_drawn() -> None:
    nodes = tuple(GraphNode(i, f"n{i}", "durable", i, None) for i in range(3))
    edges = (GraphEdge(0, 1, "sync"), GraphEdge(1, 2, "sync"), GraphEdge(0, 2, "sync"))
    graph = build_view(run(with_fields(LEVEL_HASH, nodes=nodes, edges=edges))).findings[0].evidence.graph
    assert graph is not None
    assert len(graph.edges) == 3
    assert len(graph_picture(graph).arcs) == 2


def test_a_graph_with_a_cycle_is_drawn_without_it() -> None:
    nodes = tuple(NodeView(f"n{i}", "", "lost", "lost", "", f"line {i}") for i in range(2))
    graph = (
        build_view(
            run(
                with_fields(
                    LEVEL_HASH,
                    nodes=tuple(GraphNode(i, "n", "lost", i, None) for i in range(2)),
                    edges=(GraphEdge(0, 1, "sync"), GraphEdge(1, 0, "sync")),
                )
            )
        )
        .findings[0]
        .evidence.graph
    )
    assert graph is not None
    assert len(graph_picture(GraphView(nodes, graph.edges, None, 2, "")).boxes) == 2


@pytest.mark.parametrize(("result", "status"), [(CLEAN, "clean"), (ONE, "findings")])
def test_the_status_follows_from_findings_and_caveats(result: object, status: str) -> None:
    assert build_view(result).status == status  # type: ignore[arg-type]


def test_a_run_without_findings_that_left_states_out_is_partial_not_clean() -> None:
    assert build_view(replace(FULL, findings=())).status == "partial"
    assert build_view(replace(CLEAN, warnings=("w",))).status == "clean"


def test_source_lines_are_read_from_inside_the_project_only(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "src").mkdir(parents=True)
    (project / "src" / "level_hash.c").write_text("\n".join(LEVEL_HASH_C), encoding="utf-8")
    (tmp_path / "secret.c").write_text("secret", encoding="utf-8")
    (project / "link.c").symlink_to(tmp_path / "secret.c")
    names = ("../secret.c", str(tmp_path / "secret.c"), "link.c", "src", "missing.c", "nul\0.c", "x" * 5000)
    away = tuple(with_fields(LMDB, location=replace(LMDB.location, file=name), other=None) for name in names)
    assert read_sources(run(LEVEL_HASH, *away), project) == {"src/level_hash.c": LEVEL_HASH_C}


def test_a_source_file_that_changed_since_the_build_is_not_quoted() -> None:
    changed = {"src/level_hash.c": ("something else",) * 20}
    lines = build_view(ONE, changed).findings[0].evidence.places[0].lines
    assert [(row.number, row.text) for row in lines] == [(9, "b->tokens[slot].valid = 1;")]


def test_a_group_before_all_operations_is_called_so_only_in_a_run_that_has_operations() -> None:
    early = replace(GROUP, operation=0)
    without = replace(GROUP, operation=0, instance="")
    assert [group.representative for group in build_view(run(groups=(GROUP, early))).groups] == [
        "table.pm+448, operation 13",
        "table.pm+448, before any operation",
    ]
    assert [group.representative for group in build_view(run(groups=(early, without))).groups] == ["table.pm+448", "–"]


def test_groups_are_counted_by_what_became_of_them_and_not_by_members_that_several_share() -> None:
    untested = replace(GROUP, rank=2, verdict=GroupVerdict.UNTESTED, executed=0, complete=False)
    nothing = replace(untested, rank=3, feasible=0, complete=True)
    assert build_view(run(groups=(GROUP, untested, nothing))).groups_summary == (
        "3 groups of update behaviours: 1 failing, 1 not tested, 1 without a crash state of its own; "
        f"{1 + GROUP.complete} explored to the end"
    )


def test_the_letters_are_at_the_pieces_with_the_fate_that_the_finding_is_about() -> None:
    """A store of several pieces may be lost in part: here the last piece of the other store survived."""
    steps = list(LEVEL_HASH.evidence.schedule)
    at = max(i for i, step in enumerate(steps) if step.role == "other" or step.location == LEVEL_HASH.evidence.other)
    lost = replace(steps[at], role="other", state="lost")
    pieces = (*steps[:at], lost, replace(lost, state="persisted", granule=lost.granule + 1), *steps[at + 1 :])
    nodes = [
        node
        for node in LEVEL_HASH.evidence.nodes
        if node.location == LEVEL_HASH.evidence.other and node.state == "lost"
    ]
    more = (*LEVEL_HASH.evidence.nodes, replace(nodes[-1], id=99, state="persisted", granule=lost.granule + 1))
    (finding,) = build_view(run(with_fields(LEVEL_HASH, schedule=pieces, nodes=more))).findings
    assert {step.tag: step.state for step in finding.evidence.schedule.steps if step.tag} == {
        "A": "persisted",
        "B": "lost",
    }
    assert finding.evidence.graph is not None
    assert {node.tag: node.state for node in finding.evidence.graph.nodes if node.tag} == {
        "A": "persisted",
        "B": "lost",
    }
    assert [place.role for place in finding.evidence.places] == ["survived", "lost"]
