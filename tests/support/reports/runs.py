"""Runs made by hand, with the content that real ones have: a level-hash insert, a page-cache store, a lost record."""

from __future__ import annotations

from dataclasses import fields, replace

from crashcheck.checker.evidence import CrashSchedule, RecoveryCrash, ScheduleStep
from crashcheck.checker.results import (
    Discovery,
    Edit,
    Finding,
    FindingKind,
    Fix,
    Frame,
    GraphEdge,
    GraphNode,
    GroupRow,
    GroupVerdict,
    Location,
    NotInstrumented,
    Outcome,
    Phase,
    RunResult,
    StateCounts,
    StopReason,
    TraceSummary,
    Unexercised,
    Verdict,
)

INSERT = (
    Frame("level_insert", "level_hash.c", 118),
    Frame("run_workload", "workload.c", 31),
    Frame("main", "workload.c", 52),
)

LEVEL_HASH_C = (
    '#include "level_hash.h"',
    "",
    "/* The entry is published by its valid flag. */",
    "static void put_entry(struct bucket *b, int slot, uint64_t key, uint64_t value)",
    "{",
    "    struct entry *entry = &b->slots[slot];",
    "    entry->key = key;",
    "    entry->value = value;",
    "    b->tokens[slot].valid = 1;",
    "    clwb(entry);",
    "    clwb(&b->tokens[slot]);",
    "    sfence();",
    "}",
)
SOURCES = {"src/level_hash.c": LEVEL_HASH_C}


def at(
    line: int,
    variable: str = "",
    function: str = "put_entry",
    file: str = "src/level_hash.c",
    stack: tuple[Frame, ...] = INSERT,
    text: str | None = None,
    column: int = 5,
) -> Location:
    """A place; its text is the fixture's source line where there is one."""
    if text is None:
        text = LEVEL_HASH_C[line - 1].strip() if file in SOURCES and line <= len(LEVEL_HASH_C) else ""
    return Location(file, line, column, function, variable, stack, text)


def step(
    event: int,
    what: str,
    state: str,
    detail: str,
    granule: int = -1,
    offset: int = 0,
    size: int = 0,
    location: Location | None = None,
    thread: int = 1,
    file: str = "table.pool",
    durable_from: int = -1,
) -> ScheduleStep:
    """A step of a schedule; one that touches no granule belongs to no file."""
    return ScheduleStep(
        event,
        thread,
        what,
        state,
        detail,
        file if granule >= 0 or state else "",
        offset,
        size,
        granule,
        location,
        durable_from=durable_from,
    )


def with_fields(finding: Finding, **changes: object) -> Finding:
    """A finding with other fields of its head, or of its evidence; `depth` 2: found by crashing the recovery."""
    kind = RecoveryCrash if changes.pop("depth", 1) == 2 else type(finding.evidence)
    of_evidence = {one.name: getattr(finding.evidence, one.name) for one in fields(finding.evidence)}
    of_evidence |= {name: changes.pop(name) for name in tuple(changes) if name in of_evidence}
    return replace(finding, evidence=kind(**of_evidence), **changes)


KEY, VALUE, VALID = at(7, "entry.key"), at(8, "entry.value"), at(9, "token.valid")
FAIL = Verdict(
    Outcome.FAIL,
    3,
    None,
    "check: slot 5 of bucket 17 is valid\ncheck: key 0x2a has value 0, expected 0x2a2a\n",
    False,
    0.004,
)

LEVEL_HASH = Finding(
    id="ORD-7f3a91c2",
    kind=FindingKind.ORDERING,
    model="px86",
    message="`token.valid` at src/level_hash.c:9 may persist before `entry.value` at src/level_hash.c:8",
    location=VALID,
    evidence=CrashSchedule(
        verdict=FAIL,
        other=VALUE,
        crash_point="before the fence at src/level_hash.c:12, in operation 3; 2 operations acknowledged",
        crash_location=at(12),
        schedule=(
            step(201, "mark", "", "operation 2 begins"),
            step(202, "store", "durable", "entry.key = 29 00 00 00 00 00 00 00", 41, 2640, 8, KEY, durable_from=208),
            step(
                203, "store", "durable", "entry.value = 29 29 00 00 00 00 00 00", 41, 2648, 8, VALUE, durable_from=208
            ),
            step(204, "store", "durable", "token.valid = 01", 40, 2564, 1, VALID, durable_from=208),
            step(205, "flush", "", "clwb", 41, 2640, 64, at(10)),
            step(206, "flush", "", "clwb", 40, 2564, 64, at(11)),
            step(207, "fence", "", "sfence", location=at(12)),
            step(208, "mark", "", "operation 2 ends"),
            step(209, "mark", "", "operation 3 begins"),
            step(210, "store", "lost", "entry.key = 2a 00 00 00 00 00 00 00", 42, 2688, 8, KEY),
            step(211, "store", "lost", "entry.value = 2a 2a 00 00 00 00 00 00", 42, 2696, 8, VALUE),
            step(212, "store", "persisted", "token.valid = 01", 40, 2565, 1, VALID),
            step(213, "flush", "", "clwb", 42, 2688, 64, at(10)),
            step(214, "flush", "", "clwb", 40, 2565, 64, at(11)),
        ),
        nodes=(
            GraphNode(31, "entry.key", "durable", 41, KEY),
            GraphNode(32, "entry.value", "durable", 41, VALUE),
            GraphNode(33, "token.valid", "durable", 40, VALID),
            GraphNode(34, "entry.key", "lost", 42, KEY),
            GraphNode(35, "entry.value", "lost", 42, VALUE),
            GraphNode(36, "token.valid", "persisted", 40, VALID),
        ),
        edges=(
            GraphEdge(31, 32, "same line"),
            GraphEdge(32, 34, "flush and fence"),
            GraphEdge(33, 34, "flush and fence"),
            GraphEdge(34, 35, "same line"),
            GraphEdge(33, 36, "same line"),
            GraphEdge(32, 36, "flush and fence"),
        ),
    ),
    replay="cc1-aaaacmjrf2hqyq3wo5sgk3tfmq",
    states=6,
)

FIXED = replace(
    LEVEL_HASH,
    fix=Fix(
        "flush-fence",
        "flush and fence `entry.value` before `token.valid` is stored",
        (Edit("src/level_hash.c", 9, True, "    clwb(entry);\n    sfence();"),),
        6,
        0,
        "with this edit: 0 of 6 failing states fail on this trace",
        100,
        100,
    ),
)

_MDB = (Frame("mdb_txn_commit", "mdb.c", 4021), Frame("put_batch", "workload.c", 88), Frame("main", "workload.c", 140))
_PAGE = Location("mdb.c", 3540, 3, "mdb_page_flush", "MDB_page.mp_lower", _MDB, "dp->mp_flags &= ~P_DIRTY;")
_META = Location("mdb.c", 3911, 2, "mdb_env_write_meta", "MDB_meta.mm_txnid", _MDB, "mp->mm_txnid = txn->mt_txnid;")

LMDB = Finding(
    id="ORD-02c4d6aa",
    kind=FindingKind.ORDERING,
    model="page-cache",
    message="`MDB_meta.mm_txnid` at mdb.c:3911 may persist before `MDB_page.mp_lower` at mdb.c:3540",
    location=_META,
    evidence=CrashSchedule(
        verdict=Verdict(
            Outcome.SIGNAL,
            None,
            6,
            "mdb.c:2120: Assertion 'IS_LEAF(mp)' failed in mdb_page_search_root()\n",
            False,
            0.011,
        ),
        other=_PAGE,
        crash_point="after the update at mdb.c:3911, in operation 17; 17 operations acknowledged",
        crash_location=None,
        schedule=(
            step(5001, "sync", "", "fdatasync", file="data.mdb"),
            step(5010, "store", "lost", "MDB_page.mp_lower = 5a 00", 7, 28684, 2, _PAGE, file="data.mdb"),
            step(5011, "write", "lost", "4,096 bytes", 8, 32768, 4096, _PAGE, file="data.mdb"),
            step(5012, "truncate", "persisted", "size = 65536", -1, 65536, 0, file="data.mdb"),
            step(
                5020,
                "store",
                "persisted",
                "MDB_meta.mm_txnid = 11 00 00 00 00 00 00 00",
                1,
                4232,
                8,
                _META,
                thread=2,
                file="data.mdb",
            ),
            step(5021, "output", "", "17 lines printed", thread=2),
        ),
        nodes=(
            GraphNode(1, "MDB_page.mp_lower", "lost", 7, _PAGE),
            GraphNode(2, "MDB_page.mp_lower", "lost", 8, _PAGE),
            GraphNode(3, "MDB_meta.mm_txnid", "persisted", 1, _META),
        ),
        edges=(),
    ),
    replay="cc1-aibacmjrgm4dsnzxgezdgnbv",
    states=214,
    note="Holds with MDB_NOSYNC only.",
)

_RECORD = Location(
    "src/journal.c", 77, 9, "journal_append", "record.len", (Frame("main", "src/main.c", 20),), "rec->len = len;"
)

RECORD = Finding(
    id="UNP-11e09b3d",
    kind=FindingKind.UNPERSISTED,
    model="px86",
    message="`record.len` at src/journal.c:77 may be lost after operation 5 was acknowledged",
    location=_RECORD,
    evidence=CrashSchedule(
        verdict=Verdict(Outcome.TIMEOUT, None, None, "", False, 10.0),
        other=None,
        crash_point="after operation 5 ends; 5 operations acknowledged",
        crash_location=None,
        schedule=(
            step(88, "mark", "", "operation 5 begins", file="journal"),
            step(89, "store", "lost", "record.len = 20 00 00 00", 3, 196, 4, _RECORD, file="journal"),
            step(90, "mark", "", "operation 5 ends", file="journal"),
        ),
        nodes=(),
        edges=(),
    ),
    replay="cc1-aaaacmjrgezdgnbvgy3tqoi",
    states=1,
)

UNCERTAIN = with_fields(
    RECORD,
    id="REC-5510aa01",
    kind=FindingKind.RECOVERY_FAILURE,
    message="recovery fails on a legal image: the check was killed by SIGSEGV",
    verdict=Verdict(Outcome.SIGNAL, None, 11, "", False, 0.002),
    crash_location=at(12),
    uncertain="the check reads 16 bytes at table.pool+0x1000 that the trace does not explain",
    depth=2,
)

KILLED = Finding(
    id="ATO-93b1f0e7",
    kind=FindingKind.ATOMICITY,
    model="px86",
    message="a crash after `entry.key` at src/level_hash.c:7 and before `entry.value` at src/level_hash.c:8 leaves an "
    "inconsistent image",
    location=KEY,
    evidence=CrashSchedule(
        verdict=FAIL,
        other=VALUE,
        crash_point="before the store at src/level_hash.c:8, in operation 1; 0 operations acknowledged",
        crash_location=VALUE,
        schedule=(
            step(4, "mark", "", "operation 1 begins"),
            step(31, "store", "persisted", "entry.key = 29 00 00 00 00 00 00 00", 41, 2640, 8, KEY),
            step(32, "store", "unreached", "entry.value = 29 29 00 00 00 00 00 00", 41, 2648, 8, VALUE),
        ),
        nodes=(GraphNode(1, "entry.key", "persisted", 41, KEY), GraphNode(2, "entry.value", "unreached", 41, VALUE)),
        edges=(GraphEdge(1, 2, "same line"),),
    ),
    replay="cc1-abqxa2dfmq",
    states=1,
    note="no reordering needed: `kill -9` shows it",
)

TRACE = TraceSummary(
    path=".crashcheck/trace.cct",
    events=1482,
    stores=610,
    flushes=402,
    fences=200,
    syncs=0,
    threads=1,
    processes=1,
    files=("table.pool",),
    operations=100,
    explained_bytes=9600,
    unexplained_bytes=0,
    unmodelled_calls=(),
)
ALL = StateCounts(412, True, "", 380, 32, 0, 0, 0, 0)
GROUP = GroupRow(
    rank=1,
    types=("token", "entry"),
    instance="table.pm+448",
    operation=13,
    members=40,
    updates=3,
    sites=(VALUE, VALID),
    score=1.85,
    because=("may violate `token.valid` persists after `entry.value`", "3 updates"),
    feasible=6,
    feasible_exact=True,
    executed=8,
    failing=2,
    complete=True,
    verdict=GroupVerdict.FAILING,
    nodes=(),
    edges=(),
)
SOME = StateCounts(10**77, True, "", 400, 12, 3, 7, 1, 1, put_off=2)


def run(
    *findings: Finding,
    states: StateCounts = ALL,
    stop: StopReason = StopReason.EXHAUSTED,
    uncertain: tuple[Finding, ...] = (),
    trace: TraceSummary = TRACE,
    not_instrumented: tuple[NotInstrumented, ...] = (),
    warnings: tuple[str, ...] = (),
    groups: tuple[GroupRow, ...] = (),
    unexercised: tuple[Unexercised, ...] = (),
    unreached: tuple[str, ...] = (),
) -> RunResult:
    """A run with these findings."""
    return RunResult(
        "crashcheck.toml",
        "px86",
        "exhaustive",
        stop,
        states,
        trace,
        tuple(findings),
        uncertain,
        not_instrumented,
        warnings,
        5.31,
        "0.1.0",
        groups,
        unexercised=unexercised,
        unreached=unreached,
    )


CLEAN = run()
ONE = run(LEVEL_HASH, states=replace(ALL, failing=6))
FULL = run(
    LEVEL_HASH,
    LMDB,
    RECORD,
    states=SOME,
    stop=StopReason.BUDGET_SECONDS,
    uncertain=(UNCERTAIN,),
    trace=replace(
        TRACE,
        unexplained_bytes=64,
        unmodelled_calls=("splice on table.pool",),
        threads=2,
        files=("table.pool", "data.mdb", "journal"),
    ),
    not_instrumented=(NotInstrumented("third_party/zlib.c", "compiled plain: CRASHCHECK_FALLBACK=1"),),
    warnings=("the workload wrote to stderr: 3 lines",),
    unexercised=(
        Unexercised("level_expand", "src/level_hash.c", 120, 7),
        Unexercised("level_hash::shrink(unsigned long)", "src/level_hash.cpp", 16, 1),
    ),
    unreached=(
        "The workload updates no file by `sync_all` (src/log.c), which the change touches: no crash there was tested.",
    ),
    groups=(
        GROUP,
        replace(
            GROUP,
            rank=2,
            types=("(reserve)",),
            instance="",
            operation=0,
            members=1,
            score=0.5,
            because=("2 updates",),
            feasible=2**60,
            feasible_exact=False,
            executed=0,
            failing=0,
            complete=False,
            verdict=GroupVerdict.UNTESTED,
        ),
    ),
)
FULL = replace(
    FULL,
    phases=(Phase("building", 1.25), Phase("recording", 0.5), Phase("checking", 3.5)),
    discoveries=(Discovery(LEVEL_HASH.id, 12, 0.75), Discovery(UNCERTAIN.id, 1, 0.25)),
    first_state_s=0.2,
)

NASTY = "</script><script>alert(1)</script>[bold red]::error::\x1b[31m\x1b]0;pwn\x07\u202e{{7*7}}`\udcff&\"'\x00\r\n"


def hostile() -> RunResult:
    """Every text that comes from the program under test is as bad as it can be."""
    place = Location(NASTY + ".c", 3, 1, NASTY * 3, NASTY, (Frame(NASTY, NASTY, 1),) * 100, NASTY + "x" * 10_000_000)
    bad = with_fields(
        LEVEL_HASH,
        id=NASTY,
        model=NASTY,
        message=NASTY + "m" * 10_000_000,
        location=place,
        other=place,
        crash_point=NASTY,
        crash_location=place,
        replay=NASTY,
        note=NASTY,
        fix=Fix(NASTY, NASTY, (Edit(NASTY, 3, True, NASTY * 5), Edit(NASTY, 3, True, NASTY, NASTY)), verified=NASTY),
        verdict=replace(FAIL, output=(NASTY + "y" * 10_000_000) * 2),
        schedule=tuple(
            replace(s, detail=NASTY, file=NASTY if s.file else "", location=place) for s in LEVEL_HASH.evidence.schedule
        ),
        nodes=tuple(replace(n, label=NASTY, location=place) for n in LEVEL_HASH.evidence.nodes),
        edges=tuple(replace(e, reason=NASTY) for e in LEVEL_HASH.evidence.edges),
    )
    return replace(
        run(
            bad,
            uncertain=(replace(bad, uncertain=NASTY),),
            not_instrumented=(NotInstrumented(NASTY, NASTY),),
            warnings=(NASTY,),
            unexercised=(Unexercised(NASTY * 3, NASTY, 3, 1),),
            groups=(replace(GROUP, types=(NASTY,), instance=NASTY, because=(NASTY,), sites=(place,)),),
            trace=replace(TRACE, path=NASTY, files=(NASTY,), unmodelled_calls=(NASTY,), truncated=NASTY),
        ),
        config_path=NASTY,
        strategy=NASTY,
        version=NASTY,
    )


def many(count: int, steps: int = 60) -> RunResult:
    """`count` findings with long schedules over many lines."""

    head = tuple(
        step(i, "store", "durable", f"log.entries[{i}] = {i % 256:02x}", i % 9, (i % 9) * 64, 8, KEY)
        for i in range(steps)
    )
    schedule = head + tuple(replace(s, event=s.event + steps, durable_from=-1) for s in LEVEL_HASH.evidence.schedule)
    return run(
        *(with_fields(LEVEL_HASH, id=f"ORD-{i:08x}", schedule=schedule) for i in range(count)),
        states=replace(SOME, failing=count),
    )


def long_names(count: int) -> RunResult:
    """`count` findings with the names that C++ templates give."""
    function = "std::enable_if_t<is_persistent<Value>>::" * 3 + "BTree<std::basic_string<char>, Value, 64>::split_child"
    frames = tuple(Frame(function, "include/storage/btree/internal/node_split.hpp", 100 + i) for i in range(12))
    place = replace(VALID, function=function, stack=frames, file=frames[0].file, text="node->children[index] = fresh;")
    finding = with_fields(many(1).findings[0], location=place, other=replace(place, line=8))
    schedule = tuple(replace(s, location=replace(place, line=s.event % 50 + 1)) for s in finding.evidence.schedule[:-4])
    last = tuple(replace(s, location=place) for s in finding.evidence.schedule[-4:])
    return run(*(with_fields(finding, id=f"ORD-{i:08x}", schedule=schedule + last) for i in range(count)))
