"""Stacks of PHP: file, function and line of each frame are those that `debug_backtrace` shows."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from crashcheck.analyzer.trace.reader import read
from crashcheck.runtime.record import Workload, record
from crashcheck.runtime.trace_format import Kind

PHP = shutil.which("php") or ""
# What writes is the caller of `show`, in the same line: it writes what `show` shows.
PROGRAM = """\
<?php
function show() {
    $text = '';
    $called = debug_backtrace(DEBUG_BACKTRACE_IGNORE_ARGS);
    foreach ($called as $at => $frame)
        if (isset($frame['file']))
            $text .= $frame['file'] . '|' . ($called[$at + 1]['function'] ?? 'main') . '|' . $frame['line'] . "\\n";
    return $text;
}
class Store {
    function save() { fwrite($GLOBALS['file'], show()); }
    function __destruct() { fwrite($GLOBALS['file'], show()); }
}
function deep($left) {
    if ($left) return deep($left - 1);
    (new Store)->save();
}
$file = fopen($argv[1], 'a');
deep(0);
deep(40);
$closure = function () {
    fwrite($GLOBALS['file'], show());
};
$closure();
function fail() {
    try {
        throw new Exception();
    } catch (Exception $error) {
        fwrite($GLOBALS['file'], show());
    }
}
fail();
fwrite($file, show());
"""

pytestmark = pytest.mark.skipif(not PHP, reason="there is no PHP here")


def stacks(folder: Path, *words: str) -> list[tuple[list[tuple[str, str, int]], bytes]]:
    """Of each write its frames of the script, innermost first, and what was written."""
    recording = record(Workload([*words], ["*"], timeout_s=60.0, recorder="syscalls"), folder / "run")
    trace = read(recording.trace)
    out = []
    for index in np.flatnonzero(trace.events["kind"] == Kind.WRITE).tolist():
        event = trace.events[index]
        sites = [trace.call_sites[site] for site in (int(event["site"]), *trace.stack(int(event["stack"])))]
        out.append(([(site.module, site.name, site.line) for site in sites if site.name], trace.data(index)))
    return out


def test_a_write_has_the_stack_that_the_program_sees_itself(tmp_path: Path) -> None:
    program = tmp_path / "program.php"
    program.write_text(PROGRAM)
    writes = stacks(tmp_path, PHP, str(program), "{pool}/f")
    for frames, data in writes:
        lines = [line.split("|") for line in data.decode().splitlines()]
        assert frames == [(file, name, int(line)) for file, name, line in lines]
    assert len(writes) == 7


def test_code_that_is_in_no_file_has_its_line_and_a_copy_of_the_program_under_another_name_none(tmp_path: Path) -> None:
    renamed = shutil.copy(Path(PHP).resolve(), tmp_path / "hypertext")
    program = "function save($name) {\n  file_put_contents($name, 'x'); }\neval('save($argv[1]);');"
    expected = [("<string>", "save", 2), ("<string>", "main", 1), ("<string>", "main", 3)]
    for number, (php, frames) in enumerate(((PHP, expected), (str(renamed), []))):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert stacks(folder, php, "-r", program, "{pool}/f") == [(frames, b"x")]
