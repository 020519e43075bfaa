"""crashcheck.toml: what output equivalence needs, and the error where it is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from crashcheck.config import parse
from crashcheck.errors import CrashcheckError

BOTH = "./driver {pool}/p {ops}"
FILE = 'operations_file = "ops.txt"'
ORACLE = 'oracle = "output-equivalence"'


def text(workload: str, keys: str, check: str, more: str) -> str:
    return f'[workload]\ncommand = "{workload}"\n{keys}\n[pool]\nfiles = ["p"]\n[check]\ncommand = "{check}"\n{more}\n'


def test_what_is_needed_is_enough() -> None:
    config = parse(text(BOTH, FILE + '\noperations = ["put"]', BOTH, ORACLE), Path("c.toml"))
    assert (config.check.oracle, config.workload.operations_file, config.workload.operation_functions) == (
        "output-equivalence",
        "ops.txt",
        ("put",),
    )


def test_functions_and_pairs_of_them_are_operations() -> None:
    keys = FILE + '\noperations = ["put", ["begin", "commit"], ["begin", " give_up "]]'
    workload = parse(text(BOTH, keys, BOTH, ORACLE), Path("c.toml")).workload
    assert workload.operation_functions == ("put",)
    assert workload.operation_pairs == (("begin", "commit"), ("begin", "give_up"))


def test_the_workload_may_have_its_operations_from_a_file_with_any_oracle() -> None:
    assert parse(text(BOTH, FILE, "./check {pool}/p", ""), Path("c.toml")).check.oracle == "exit-status"


@pytest.mark.parametrize(
    ("workload", "keys", "check", "more", "slug", "said"),
    [
        (BOTH, "", BOTH, ORACLE, "config-required", "[workload] operations_file is missing"),
        (BOTH, 'operations_file = ""', BOTH, ORACLE, "config-required", "[workload] operations_file is missing"),
        ("./driver {pool}/p", FILE, BOTH, ORACLE, "config-required", "[workload] command has no {ops}"),
        (BOTH, FILE, "./driver {ops}", ORACLE, "config-required", "[check] command has no {pool}"),
        (BOTH, FILE, "./driver {pool}/p", ORACLE, "config-required", "[check] command has no {ops}"),
        (BOTH, "", "./check {pool}/p", "", "config-required", "{ops} is replaced by its path"),
        (BOTH, FILE, BOTH, "", "config-placeholder", "can be used only with oracle = 'output-equivalence'"),
        (BOTH, FILE + '\noperations = "put"', BOTH, ORACLE, "config-type", "a list of function names"),
        (BOTH, FILE + '\noperations = [["a", "b", "c"]]', BOTH, ORACLE, "config-type", "or pairs of them"),
        (BOTH, FILE + '\noperations = [["a", ""]]', BOTH, ORACLE, "config-type", "or pairs of them"),
        (BOTH, FILE + '\noperations = ["a", ["b", "a"]]', BOTH, ORACLE, "config-value", "'a' has two meanings"),
        (BOTH, FILE + '\noperations = [["a", "b"], ["b", "c"]]', BOTH, ORACLE, "config-value", "'b' has two meanings"),
        (BOTH, FILE, "./check {pool}/p", 'outputs = ["stderr"]', "config-value", "only with oracle"),
        (BOTH, FILE, BOTH, ORACLE + '\noutputs = ["{pool}/p"]', "config-value", "is one of [pool] files ('p')"),
        (BOTH, FILE, BOTH, ORACLE + '\noutputs = ["{pool}/../q"]', "config-value", "is no output"),
        (BOTH, FILE, BOTH, ORACLE + '\noutputs = ["fd 2"]', "config-value", "is no output"),
        (BOTH, FILE, BOTH, ORACLE + "\noutputs = []", "config-value", "names no output"),
        (BOTH, "operations_file = 3", BOTH, ORACLE, "config-type", "expected a string"),
    ],
)
def test_what_is_missing_is_named(workload: str, keys: str, check: str, more: str, slug: str, said: str) -> None:
    with pytest.raises(CrashcheckError) as raised:
        parse(text(workload, keys, check, more), Path("c.toml"))
    assert raised.value.slug == slug
    assert said in raised.value.message


def test_operations_are_no_placeholder_of_the_setup() -> None:
    with pytest.raises(CrashcheckError) as raised:
        parse(text(BOTH, FILE, BOTH, ORACLE) + '[setup]\ncommand = "./make {ops}"\n', Path("c.toml"))
    assert raised.value.message.endswith("{ops} can be used only in [workload] and [check] command.")
