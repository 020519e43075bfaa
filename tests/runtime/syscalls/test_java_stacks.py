"""Stacks of Java: class, method and line of each frame are those that the program sees, and it prints nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from crashcheck.analyzer.trace.reader import CallSite, Trace, read
from crashcheck.runtime.record import Recording, Workload, record
from crashcheck.runtime.trace_format import Kind
from support.paths import RUNTIME_PROGRAMS
from support.script_stacks import frames_of

PROGRAM = RUNTIME_PROGRAMS / "JavaStacks.java"
JAVA = shutil.which("java") or ""
# Without what it needs to start faster, a machine under load takes long to compile the program.
OPTIONS = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto"]

pytestmark = pytest.mark.skipif(not JAVA, reason="there is no Java here")


def recorded(folder: Path, *words: str, **env: str) -> Recording:
    return record(Workload([*words], ["*"], env=env, timeout_s=300.0, recorder="syscalls"), folder / "run")


def writes(trace: Trace) -> Iterator[tuple[str, list[CallSite], bytes]]:
    """Of each write its file, its frames of the program, innermost first, and what was written."""
    for index in np.flatnonzero(trace.events["kind"] == Kind.WRITE).tolist():
        own = [site for site in frames_of(trace, index) if site.module.startswith("/")]
        yield trace.files[int(trace.events["file"][index])].path, own, trace.data(index)


def test_a_write_has_the_stack_that_the_program_sees_itself_and_it_prints_what_it_prints_without_the_recorder(
    tmp_path: Path,
) -> None:
    recording = recorded(tmp_path, JAVA, *OPTIONS, str(PROGRAM), "{pool}")
    seen: dict[str, int] = {}
    for name, frames, data in writes(read(recording.trace)):
        assert [f"{site.name}:{site.line}" for site in frames] == data.decode().split("\n"), name
        assert {site.module for site in frames} == {str(PROGRAM)}
        seen[name] = seen.get(name, 0) + 1
    assert seen == {"whole": 1, "inner": 1, "deep": 1, "listed": 1, "thread": 1, "pooled": 1, "compiled": 3000}
    assert recording.stderr.read_text() == ""
    printed = recording.stdout.read_text()
    assert "agentpath" not in printed
    assert printed.endswith(f"{PROGRAM} {recording.pool}\n") or f"{PROGRAM.name}" in printed


def test_a_class_of_an_archive_is_named_by_its_package_and_one_whose_source_is_found_by_its_path(
    tmp_path: Path,
) -> None:
    if shutil.which("javac") is None or shutil.which("jar") is None:
        pytest.skip("there is no compiler of Java here")
    source = tmp_path / "src/main/java/shop/Cart.java"
    source.parent.mkdir(parents=True)
    source.write_text(
        "package shop;\n\npublic class Cart {\n    public static void main(String[] words) throws Exception {\n"
        "        new java.io.FileOutputStream(words[0]).write(1);\n    }\n}\n"
    )
    archive = tmp_path / "cart.jar"
    subprocess.run([shutil.which("javac") or "", "-d", str(tmp_path / "out"), str(source)], check=True)
    subprocess.run(
        [shutil.which("jar") or "", "cfe", str(archive), "shop.Cart", "-C", str(tmp_path / "out"), "."], check=True
    )
    command = f"{JAVA} {' '.join(OPTIONS)} -jar {archive} {{pool}}/f"
    for number, (folder, module) in enumerate(((tmp_path, str(source)), (Path("/"), "shop/Cart.java"))):
        work = tmp_path / str(number)
        work.mkdir()
        trace = read(recorded(work, "/bin/sh", "-c", f"cd {folder} && exec {command}").trace)
        (index,) = np.flatnonzero(trace.events["kind"] == Kind.WRITE).tolist()
        assert [(site.module, site.name, site.line) for site in frames_of(trace, index)][-1] == (module, "Cart.main", 5)


def test_a_virtual_machine_that_is_executed_with_options_of_its_own_keeps_them(tmp_path: Path) -> None:
    program = tmp_path / "Shows.java"
    program.write_text(
        "import java.nio.file.*;\npublic class Shows {\n  public static void main(String[] words) throws Exception {\n"
        '    System.out.println(Files.readString(Path.of("/proc/self/cmdline")).replace("\\0", " "));\n'
        '    System.out.println(System.getProperty("set") + System.getenv("JDK_JAVA_OPTIONS"));\n'
        '    Files.writeString(Path.of(words[0]), "x");\n  }\n}\n'
    )
    environment = {key: value for key, value in os.environ.items() if key != "JDK_JAVA_OPTIONS"}
    words = [JAVA, *OPTIONS, "-Dset=1", str(program)]
    recording = recorded(tmp_path, *words, "{pool}/f")
    plain = subprocess.run([*words, str(tmp_path / "f")], env=environment, capture_output=True, text=True, check=True)
    shown = recording.stdout.read_text().replace(f"{recording.pool}/f", str(tmp_path / "f"))
    assert (shown, recording.stderr.read_text()) == (plain.stdout, plain.stderr)
    assert [frames[0].line for _, frames, _ in writes(read(recording.trace))] == [6]


def test_what_a_program_starts_has_the_line_that_starts_it(tmp_path: Path) -> None:
    program = tmp_path / "Start.java"
    program.write_text(
        "class Start {\n  static void start(String... words) throws Exception {\n"
        "    new ProcessBuilder(words).inheritIO().start().waitFor();\n  }\n"
        "  public static void main(String[] words) throws Exception {\n"
        '    start("/bin/sh", "-c", "echo x > " + words[0]);\n  }\n}\n'
    )
    ((_, frames, _),) = writes(read(recorded(tmp_path, JAVA, *OPTIONS, str(program), "{pool}/f").trace))
    own = [(site.name, site.line) for site in frames if site.module == str(program)]
    assert own == [("Start.start", 3), ("Start.main", 6)]


LOAD = """\
import java.sql.*;

class Load {
    static void insert(Connection connection) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            statement.execute("insert into t values (1)");
        }
    }

    public static void main(String[] words) throws SQLException {
        try (Connection connection = DriverManager.getConnection("jdbc:derby:" + words[0] + ";create=true")) {
            connection.createStatement().execute("create table t (a int)");
            insert(connection);
        }
    }
}
"""


@pytest.mark.slow
def test_what_an_embedded_database_writes_has_the_lines_of_the_program_that_calls_it(tmp_path: Path) -> None:
    archive = Path("/usr/share/java/derby.jar")
    if not archive.is_file():
        pytest.skip("there is no Derby here (libderby-java)")
    program = tmp_path / "Load.java"
    program.write_text(LOAD)
    words = [JAVA, *OPTIONS, "-Dderby.stream.error.file=/dev/null", "-cp", str(archive), str(program), "{pool}/db"]
    lines = {
        (name.split("/")[1], own[0].name, own[0].line)
        for name, frames, _ in writes(read(recorded(tmp_path, *words).trace))
        if (own := [site for site in frames if site.module == str(program)])
    }
    assert {("log", "Load.insert", 6), ("log", "Load.main", 11), ("seg0", "Load.main", 12)} <= lines
