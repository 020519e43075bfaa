"""`crashcheck ops`: the same options give the same file, and every option has the effect that its help describes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from crashcheck import cli
from crashcheck.cli.ops import OperationMix, generate


def test_the_lines_of_a_seed_never_change() -> None:
    assert generate(OperationMix(seed=7, length=6, keys=4)) == LINES


def test_another_seed_gives_other_lines() -> None:
    assert generate(OperationMix(seed=8, length=20)) != generate(OperationMix(seed=9, length=20))


def test_the_mix_is_kept_in_the_long_run() -> None:
    mix = {"insert": 50, "update": 20, "delete": 10, "query": 15, "scan": 5}
    counts = Counter(line.split()[0] for line in generate(OperationMix(length=20_000, shares=mix)))
    assert set(counts) == set(mix)
    assert [op for op, count in counts.items() if abs(count / 200 - mix[op]) > 1] == []


def test_keys_stay_within_their_number() -> None:
    keys = {int(line.split()[1]) for line in generate(OperationMix(length=500, keys=7))}
    assert keys == set(range(1, 8))


def reused(reuse: int) -> float:
    """The share of queries for a key that an earlier line named."""
    seen: set[str] = set()
    hits = queries = 0
    for line in generate(OperationMix(length=4000, keys=1_000_000, shares={"insert": 50, "query": 50}, reuse=reuse)):
        op, key, *_ = line.split()
        if op == "query":
            queries += 1
            hits += key in seen
        seen.add(key)
    return hits / queries


def test_queries_take_used_keys_as_often_as_asked() -> None:
    assert [round(reused(percent), 1) for percent in (0, 50, 80, 100)] == [0.0, 0.5, 0.8, 1.0]


def test_values_have_the_sizes_asked_for() -> None:
    values = [line.split()[2] for line in generate(OperationMix(length=300, shares={"insert": 1}, value_bytes=(3, 5)))]
    assert {len(value) for value in values} == {3, 4, 5}


def test_reading_back_ends_with_a_query_of_every_key_used() -> None:
    lines = generate(OperationMix(length=30, keys=9, read_back=True))
    used = {int(line.split()[1]) for line in lines[:30]}
    assert lines[30:] == [f"query {key}" for key in sorted(used)]


def test_operations_of_ones_own_can_read_back(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--mix", "put=1", "--template", "put=put {key}", "--template", "get=get {key}", "--read-back", "get"]
    assert cli.main(["ops", "--length", "20", "--keys", "3", *words]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[20:] == sorted({line.replace("put", "get") for line in lines[:20]})


def test_a_template_makes_the_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["ops", "--length", "1", "--keys", "1", "--mix", "push=1", "--template", "push=P {key};{op}"]) == 0
    assert capsys.readouterr().out == "P 1;push\n"


def test_the_file_is_what_would_be_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "ops.txt"
    assert cli.main(["ops", "--seed", "7", "--length", "6", "--keys", "4", "-o", str(path)]) == 0
    assert path.read_text().splitlines() == LINES
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--length", "0"], "--length 0"),
        (["--reuse", "101"], "--reuse 101"),
        (["--mix", "insert"], "'insert' is not OP=SHARE"),
        (["--mix", "insert=0"], "no operation with a share above zero"),
        (["--mix", "push=1"], "'push', which has no template"),
        (["--template", "insert={op} {keys}"], "{keys} is not a field"),
        (["--template", "insert"], "names no operation"),
        (["--value-size", "9-3"], "not a size above zero"),
        (["--value-size", "0"], "not a size above zero"),
        (["--value-size", "²"], "not a size above zero"),
        (["--mix", "insert=²"], "'insert=²' is not OP=SHARE"),
        (["--mix", "insert=" + "9" * 5000], "is not OP=SHARE"),
        (["--length", "9" * 4000], "is out of range"),
        (["--mix", "insert=1", "--read-back", "get"], "--read-back names 'get', which has no template"),
    ],
)
def test_what_cannot_be_done_is_reported(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["ops", *words]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "[bad-option]" in error


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["ops", "-o", str(tmp_path / "gone" / "ops.txt")]) == 2
    assert "[ops-unwritable]" in capsys.readouterr().err


LINES = ["insert 1 uqiqleod", "query 3", "update 2 bnkuvc7h", "query 1", "insert 2 wmn5oqm2", "scan 1 7"]
