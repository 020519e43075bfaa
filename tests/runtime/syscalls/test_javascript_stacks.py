"""Stacks of Node: file, function and line of each frame are those that the program sees, and it sees nothing else."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from crashcheck.analyzer.trace.reader import CallSite, Trace, read
from crashcheck.runtime.build import JAVASCRIPT
from crashcheck.runtime.record import Recording, Workload, record
from crashcheck.runtime.trace_format import Kind
from support.paths import RUNTIME_PROGRAMS
from support.script_stacks import frames_of

PROGRAM = RUNTIME_PROGRAMS / "javascript_stacks.js"
NODE = shutil.which("node") or ""

pytestmark = pytest.mark.skipif(not NODE, reason="there is no Node here")


def recorded(folder: Path, *words: str, **env: str) -> Recording:
    return record(Workload([*words], ["*"], env=env, timeout_s=120.0, recorder="syscalls"), folder / "run")


def writes(trace: Trace) -> Iterator[tuple[str, list[CallSite], bytes]]:
    """Of each write its file, its frames of JavaScript, innermost first, and what was written."""
    for index in np.flatnonzero(trace.events["kind"] == Kind.WRITE).tolist():
        yield trace.files[int(trace.events["file"][index])].path, frames_of(trace, index), trace.data(index)


def test_a_program_on_the_command_line_has_its_line(tmp_path: Path) -> None:
    program = "const fs = require('fs')\nfs.writeFileSync(process.argv[1] + '/f', 'x')"
    ((_, frames, _),) = writes(read(recorded(tmp_path, NODE, "-e", program, "{pool}").trace))
    assert [(site.module, site.line) for site in frames if not site.module.startswith("node:")] == [("<-e>", 2)]


def test_a_write_has_the_stack_that_the_program_sees_itself_also_if_another_thread_makes_it(tmp_path: Path) -> None:
    trace = read(recorded(tmp_path, NODE, str(PROGRAM), "{pool}").trace)
    seen = []
    for name, frames, data in writes(trace):
        shown = [[site.module, site.name, site.line] for site in frames]
        expected = json.loads(data)
        if name == "streamed":  # by Node, when the function has returned
            expected[0][1] = f"stream made by {expected[0][1]}"
        if name in ("whole", "streamed"):  # the program asked for its stack a little before: in the same function
            assert [frame[:2] for frame in shown[-len(expected) :]] == [frame[:2] for frame in expected]
            assert abs(shown[0][2] - expected[0][2]) <= 1
        else:
            assert shown == expected
        seen.append(name)
    assert seen == [
        *("sync", "appended", "appended", "promised", "called", "whole", "streamed", "promised", "promised", "worker")
    ]


def test_a_program_sees_its_options_its_environment_and_its_errors_as_without_the_recorder(tmp_path: Path) -> None:
    script = tmp_path / "shows.js"
    script.write_text(
        "const fs = require('fs'), { execFileSync } = require('child_process');\n"
        "const failed = (act) => { try { act(); } catch (error) { return error.stack; } };\n"
        "console.log(JSON.stringify([process.env, process.execArgv, Object.keys(require.cache),\n"
        "  Error.stackTraceLimit, 'prepareStackTrace' in Error, process.noDeprecation,\n"
        "  failed(() => fs.writeFileSync('/no/such', 'x')), failed(() => fs.openSync('/no/such', 'r')),\n"
        "  failed(() => fs.renameSync('/no/such', '/nor/this')), failed(() => fs.accessSync('/no/such', 7)),\n"
        "  fs.writeFileSync.length, String(fs.writeSync), execFileSync('env').toString()]));\n"
        "fs.rename('/no/such', '/nor/this', (error) => {\n"
        "  console.log(error.stack); fs.promises.open('/no/such').catch((error) => console.log(error.stack)); });\n"
        "if (process.argv[2]) fs.writeFileSync(process.argv[2], 'x');\n"
    )
    for number, options in enumerate(("", "--stack-trace-limit=7 --max-http-header-size=9000", None)):
        folder = tmp_path / str(number)
        folder.mkdir()
        given = {} if options is None else {"NODE_OPTIONS": options}
        environment = {key: value for key, value in os.environ.items() if key != "NODE_OPTIONS"}
        recording = recorded(folder, NODE, str(script), "{pool}/f", **given)
        printed = recording.stdout.read_text()
        # The recorder's own variables are there in both.
        ours = {key: value for key, value in json.loads(printed.splitlines()[0])[0].items() if key not in environment}
        plain = subprocess.run(
            [NODE, str(script)], env={**environment, **ours}, capture_output=True, text=True, check=True
        )
        masked = [re.sub(r'"_":"[^"]*"|^_=.*$|\b_=[^\\]*\\n', "", text) for text in (printed, plain.stdout)]
        assert masked[0] == masked[1]
        assert [frames[0].line for _, frames, _ in writes(read(recording.trace))] == [10]


def test_children_of_node_and_of_shells_are_recorded_as_well(tmp_path: Path) -> None:
    child = tmp_path / "child.js"
    child.write_text("\n\nrequire('fs').writeFileSync(process.argv[2], 'x');\n")
    parent = tmp_path / "parent.js"
    parent.write_text(f"require('child_process').execSync('{NODE} {child} ' + process.argv[2], {{ env: {{}} }});\n")
    trace = read(recorded(tmp_path, "/bin/sh", "-c", f"{NODE} {parent} {{pool}}/f; true").trace)
    ((_, frames, _),) = writes(trace)
    assert [(site.module, site.line) for site in frames] == [(str(child), 3), (str(parent), 1)]


@pytest.mark.parametrize(
    "start",
    [
        "execSync(`cp ${process.execPath} ${process.argv[2]}`)",
        "spawnSync('cp', [process.execPath, process.argv[2]])",
        "spawn('cp', [process.execPath, process.argv[2]])",
        "exec(`true; cp ${process.execPath} ${process.argv[2]}`)",
    ],
)
def test_what_a_program_of_node_starts_has_the_line_that_starts_it(start: str, tmp_path: Path) -> None:
    script = tmp_path / "start.js"
    script.write_text(f"function copy() {{\n  require('child_process').{start};\n}}\n\ncopy();\n")
    trace = read(recorded(tmp_path, NODE, str(script), "{pool}/f").trace)
    (created,) = np.flatnonzero(trace.events["kind"] == Kind.NAME_CREATE).tolist()
    assert [(site.name, site.line) for site in frames_of(trace, created)[:2]] == [("copy", 2), ("<anonymous>", 5)]


def test_a_module_has_its_path_and_typescript_without_a_source_map_has_no_line(tmp_path: Path) -> None:
    module = tmp_path / "a b.mjs"
    module.write_text("import { writeFileSync } from 'node:fs';\n\nwriteFileSync(process.argv[2], 'x');\n")
    (tmp_path / "typed.ts").write_text(
        "exports.save = function save() {\n  require('fs').writeFileSync(process.argv[3], 'x');\n};\n"
    )
    module.write_text(module.read_text() + "import typed from './typed.ts.cjs';\ntyped.save();\n")
    (tmp_path / "typed.ts.cjs").write_text("module.exports = require('./typed.ts');\n")
    trace = read(recorded(tmp_path, NODE, str(module), "{pool}/f", "{pool}/g").trace)
    shown = [[(site.module, site.name, site.line) for site in frames][:2] for _, frames, _ in writes(trace)]
    assert shown == [
        [(str(module), "<anonymous>", 3)],
        [(str(tmp_path / "typed.ts"), "save", 0), (str(module), "<anonymous>", 5)],
    ]


@pytest.mark.parametrize("option", ["--frozen-intrinsics", "--pending-deprecation", "--disable-proto=throw"])
def test_options_that_forbid_to_look_leave_the_program_as_it_is(option: str, tmp_path: Path) -> None:
    script = tmp_path / "save.js"
    script.write_text("require('fs').writeFileSync(process.argv[2], 'x');\nconsole.log('saved');\n")
    recording = recorded(tmp_path, NODE, option, str(script), "{pool}/f")
    assert recording.stdout.read_text() == "saved\n"
    plain = subprocess.run([NODE, option, str(script), str(tmp_path / "g")], capture_output=True, text=True, check=True)
    shown, expected = (re.sub(r"\(node:\d+\)", "", text) for text in (recording.stderr.read_text(), plain.stderr))
    assert shown == expected


def test_a_call_in_a_loop_and_one_of_several_calls_keep_their_own_lines(tmp_path: Path) -> None:
    script = tmp_path / "turns.js"
    script.write_text(
        "const fs = require('fs'), fd = fs.openSync(process.argv[2], 'w');\n"
        "for (let turn = 0; turn < 3; turn++) {\n"
        "  fs.writeSync(fd, 'a');\n"
        "  if (turn === 1) fs.writeFileSync(process.argv[3], 'whole');\n"
        "  if (turn === 1) fs.copyFileSync(process.argv[3], process.argv[4]);\n"
        "  fs.writeSync(fd, 'b');\n"
        "}\n"
    )
    trace = read(recorded(tmp_path, NODE, str(script), "{pool}/f", "{pool}/g", "{pool}/h").trace)
    shown = [(name, [site.line for site in frames]) for name, frames, _ in writes(trace)]
    assert shown == [
        *[("f", [3]), ("f", [6]), ("f", [3]), ("g", [4]), ("h", [5]), ("f", [6]), ("f", [3]), ("f", [6])],
    ]


def test_a_file_that_an_object_writes_in_another_thread_has_the_stack_that_made_the_object(tmp_path: Path) -> None:
    """As Node 26 does for `fs.promises.writeFile`; here an object of the same name is used."""
    script = tmp_path / "job.js"
    script.write_text(
        "const fs = require('fs'), known = process.binding('fs'), binding = Object.create(known);\n"
        "class Job { constructor(...words) { this.words = words; } run() { fs.open(...this.words, () => {}); } }\n"
        "Object.defineProperty(binding, 'WriteFileJob', { value: Job, configurable: true });\n"
        "process.binding = () => binding;\n"
        "require(process.argv[3]);\n"
        "function save(path) {\n"
        "  return new binding.WriteFileJob(path, 'w');\n"
        "}\n"
        "const job = save(process.argv[2]);\n"
        "if (job instanceof Job) job.run();\n"
    )
    trace = read(recorded(tmp_path, NODE, str(script), "{pool}/f", str(JAVASCRIPT)).trace)
    (opened,) = np.flatnonzero(trace.events["kind"] == Kind.NAME_CREATE).tolist()
    assert [(site.name, site.line) for site in frames_of(trace, opened)][:2] == [("save", 7), ("<anonymous>", 9)]
