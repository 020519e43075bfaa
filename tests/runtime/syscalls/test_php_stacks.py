"""Stacks of PHP: file, function and line of each frame are those that `debug_backtrace` shows."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from crashcheck.runtime.trace_format import Kind
from support.script_stacks import of_kind, traced

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
    return str_replace('|include|', '|main|', $text);
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
foreach ([1, 2, 3, 2] as $lines) { // code that is gone when the next is compiled, often at its place
    $part = dirname($argv[0]) . '/part' . $lines % 2 . '.php';
    [$before, $behind] = [str_repeat("\\n", $lines), str_repeat("\\n", 3 - $lines)];
    file_put_contents($part, "<?php{$before}fwrite(\\$file, show());$behind");
    include $part;
}
fwrite($file, show());
"""

pytestmark = pytest.mark.skipif(not PHP, reason="there is no PHP here")


def test_a_write_has_the_stack_that_the_program_sees_itself(tmp_path: Path) -> None:
    program = tmp_path / "program.php"
    program.write_text(PROGRAM)
    writes = list(of_kind(traced(tmp_path, PHP, str(program), "{pool}/f"), Kind.WRITE))
    for frames, data in writes:
        lines = [line.split("|") for line in data.decode().splitlines()]
        assert frames == [(file, name, int(line)) for file, name, line in lines]
    assert len(writes) == 11


def test_code_that_is_in_no_file_has_its_line_and_a_copy_of_the_program_under_another_name_none(tmp_path: Path) -> None:
    renamed = shutil.copy(Path(PHP).resolve(), tmp_path / "hypertext")
    program = "function save($name) {\n  file_put_contents($name, 'x'); }\neval('save($argv[1]);');"
    expected = [("<-r>", "save", 2), ("<string>", "main", 1), ("<-r>", "main", 3)]
    for number, (php, frames) in enumerate(((PHP, expected), (str(renamed), []))):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert list(of_kind(traced(folder, php, "-r", program, "{pool}/f"), Kind.WRITE)) == [(frames, b"x")]
