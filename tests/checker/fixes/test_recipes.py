"""Each recipe is code that runs, and crashcheck finds nothing in it."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent

import pytest

from crashcheck.checker.fixes import recipes
from crashcheck.checker.fixes.recipes import Language
from support.command_line import run_crashcheck
from support.compilers import c_compiler

WRITTEN = '{"colour": "blue"}'


@dataclass(frozen=True)
class Whole:
    """A recipe in a program: the program's file, `%s` for the recipe, and what builds (into `program`) or runs it."""

    language: Language
    file: str
    text: str
    builds: tuple[str, ...] = ()
    runs: tuple[str, ...] = ("./program",)
    margin: str = ""


WHOLES = [
    Whole(
        recipes.PYTHON,
        "save.py",
        f"import os\npath, data = 'cfg.json', '{WRITTEN}'\n%s\nprint('saved')\n",
        runs=("python3", "save.py"),
    ),
    Whole(recipes.SHELL, "save.sh", f"path=cfg.json data='{WRITTEN}'\n%s &&\necho saved\n", runs=("sh", "save.sh")),
    Whole(
        recipes.JAVASCRIPT,
        "save.mjs",
        f"import fs from 'node:fs'; import {{ dirname }} from 'node:path';\n"
        f"const path = 'cfg.json', data = '{WRITTEN}';\n%s\nconsole.log('saved');\n",
        runs=("node", "save.mjs"),
    ),
    Whole(
        recipes.RUBY, "save.rb", f"path, data = 'cfg.json', '{WRITTEN}'\n%s\nputs 'saved'\n", runs=("ruby", "save.rb")
    ),
    Whole(
        recipes.PERL,
        "save.pl",
        f"use strict; use warnings;\nmy ($path, $data) = ('cfg.json', '{WRITTEN}');\n%s\nprint \"saved\\n\";\n",
        runs=("perl", "save.pl"),
    ),
    Whole(
        recipes.PHP,
        "save.php",
        f"<?php\n$path = 'cfg.json'; $data = '{WRITTEN}';\n%s\necho \"saved\\n\";\n",
        runs=("php", "save.php"),
    ),
    Whole(
        recipes.C,
        "save.c",
        "#include <fcntl.h>\n#include <stdbool.h>\n#include <stdio.h>\n#include <string.h>\n#include <unistd.h>\n"
        'static const char path[] = "cfg.json", fresh[] = "cfg.json.new", folder_of_path[] = ".";\n'
        'int main(void)\n{\n    const char *data = "{}{}{}";\n    size_t size = strlen(data);\n%s\n'
        '    if (done)\n        puts("saved");\n    return !done;\n}\n',
        builds=("cc", "-Wall", "-Werror", "-o", "program", "save.c"),
        margin="    ",
    ),
    Whole(
        recipes.GO,
        "save.go",
        'package main\n\nimport (\n\t"fmt"\n\t"os"\n\t"path/filepath"\n)\n\nfunc main() {\n'
        f'\tpath, data := "cfg.json", []byte(`{WRITTEN}`)\n%s\n'
        '\tif err != nil {\n\t\tpanic(err)\n\t}\n\tfmt.Println("saved")\n}\n',
        builds=("go", "build", "-o", "program", "save.go"),
        margin="\t",
    ),
    Whole(
        recipes.RUST,
        "save.rs",
        "use std::fs::{self, File};\nuse std::io::Write;\nuse std::path::Path;\n\nfn main() -> std::io::Result<()> {\n"
        '    let (path, data) = (Path::new("cfg.json"), b"{}{}{}");\n%s\n    println!("saved");\n    Ok(())\n}\n',
        builds=("rustc", "-o", "program", "save.rs"),
        margin="    ",
    ),
    Whole(
        recipes.JAVA,
        "Save.java",
        "import static java.nio.file.StandardCopyOption.*;\nimport static java.nio.file.StandardOpenOption.*;\n"
        "import java.nio.ByteBuffer;\nimport java.nio.channels.FileChannel;\nimport java.nio.file.*;\n\n"
        "class Save {\n    public static void main(String[] arguments) throws Exception {\n"
        '        Path path = Path.of("cfg.json");\n        byte[] data = "{}{}{}".getBytes();\n%s\n'
        '        System.out.println("saved");\n    }\n}\n',
        runs=("java", "Save.java"),
        margin="        ",
    ),
]
QUICK = (recipes.PYTHON, recipes.SHELL)


def of(whole: Whole) -> object:
    return pytest.param(whole, id=whole.language.name, marks=[] if whole.language in QUICK else [pytest.mark.slow])


@pytest.mark.parametrize("whole", [of(whole) for whole in WHOLES])
def test_a_recipe_runs_and_a_crash_loses_nothing(whole: Whole, tmp_path: Path, environment: dict[str, str]) -> None:
    program = (whole.builds or whole.runs)[0]
    if program != "cc" and shutil.which(program) is None:
        pytest.skip(f"there is no {program} here")
    text = whole.text % indent(whole.language.replace, whole.margin)
    (tmp_path / whole.file).write_text(text)
    if whole.builds:
        words = [*c_compiler(), *whole.builds[1:]] if program == "cc" else whole.builds
        subprocess.run(words, cwd=tmp_path, check=True)
    runs = [str(tmp_path / word) if word in ("./program", whole.file) else word for word in whole.runs]
    folder = tmp_path / "settings"
    folder.mkdir()
    (folder / "cfg.json").write_text("{}")
    done = run_crashcheck("try", "--budget", "60s", "--states", "60", "--", *runs, cwd=folder, env=environment)
    assert (done.returncode, done.stdout) == (0, "saved\n"), done.stderr
    assert len((folder / "cfg.json").read_text()) > 5
    assert sorted(path.name for path in folder.iterdir()) == ["cfg.json"]


@pytest.mark.parametrize(
    ("careless", "pragma"), [("synchronous = OFF", "FULL"), ("journal_mode = WAL; PRAGMA synchronous = NORMAL", "FULL")]
)
def test_the_recipe_of_sqlite_is_a_pragma_with_which_nothing_is_found(
    careless: str, pragma: str, tmp_path: Path, environment: dict[str, str]
) -> None:
    program = tmp_path / "store.py"
    for options in (careless, f"{careless}; PRAGMA synchronous = {pragma}"):
        program.write_text(
            "import sqlite3\nstore = sqlite3.connect('store.db', isolation_level=None)\n"
            f"store.executescript('PRAGMA {options}; CREATE TABLE IF NOT EXISTS rows (value)')\n"
            "store.execute('INSERT INTO rows VALUES (zeroblob(5000))')\nprint('stored', flush=True)\n"
        )
        folder = tmp_path / str(len(options))
        folder.mkdir()
        subprocess.run(["python3", str(program)], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        words = ("try", "--budget", "60s", "--states", "60", "--", "python3", str(program))
        done = run_crashcheck(*words, cwd=folder, env=environment)
        advised = f"by SQLite:\n           PRAGMA synchronous = {pragma}; -- in each connection\n" in done.stderr
        assert (done.returncode, advised) == ((1, True) if options == careless else (0, False)), done.stderr


ADDON = """\
#include <fcntl.h>
#include <unistd.h>
void *napi_register_module_v1(void *environment, void *exports)
{
    (void)environment;
    int file = open("cfg.json", O_WRONLY | O_TRUNC);
    return write(file, "{1: 2}", 6) == 6 && close(file) == 0 ? exports : NULL;
}
"""


def test_what_an_addon_of_node_writes_has_no_recipe_in_javascript(tmp_path: Path, environment: dict[str, str]) -> None:
    if shutil.which("node") is None:
        pytest.skip("there is no node here")
    (tmp_path / "store.c").write_text(ADDON)
    subprocess.run([*c_compiler(), "-shared", "-fPIC", "-o", "store.node", "store.c"], cwd=tmp_path, check=True)
    folder = tmp_path / "settings"
    folder.mkdir()
    (folder / "cfg.json").write_text("{}")
    words = ("try", "--budget", "60s", "--states", "60", "--", "node", "-e", f"require('{tmp_path / 'store.node'}')")
    done = run_crashcheck(*words, cwd=folder, env=environment)
    assert done.returncode == 1
    assert "`cfg.json` can be empty after a crash: it is emptied before it is written\n" in done.stderr
    assert "no sync can help" in done.stderr
    assert "in JavaScript" not in done.stderr


# Programs whose file a library has: what is lost, and nothing once the advice is in the place of `%s`.
BY_PATH = {
    "python3 save.py": (
        recipes.PYTHON,
        "import os\nfrom pathlib import Path\npath = 'cfg.json'\nPath(path).write_text('[1]')\n%s\n"
        "print('saved', flush=True)\n",
    ),
    "node save.js": (
        recipes.JAVASCRIPT,
        "const fs = require('fs'), path = 'cfg.json', stream = fs.createWriteStream(path);\n"
        "stream.end('[1]', () => {\n%s\nconsole.log('saved');\n});\n",
    ),
    "node whole.js": (
        recipes.JAVASCRIPT,
        "const fs = require('fs'), path = 'cfg.json';\nfs.writeFileSync(path, '[1]');\n{\n%s\n}\n"
        "console.log('saved');\n",
    ),
    "ruby save.rb": (
        recipes.RUBY,
        "require 'fileutils'\npath = 'cfg.json'\nFileUtils.cp('old', path)\n%s\nputs 'saved'\n",
    ),
    "perl save.pl": (
        recipes.PERL,
        "use File::Copy;\nmy $path = 'cfg.json';\ncopy('old', $path);\n%s\nprint \"saved\\n\";\n",
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    "command",
    [pytest.param(each, marks=[] if "py" in each else [pytest.mark.slow], id=each) for each in BY_PATH],
)
def test_a_file_that_a_library_has_is_synced_by_its_path(
    command: str, tmp_path: Path, environment: dict[str, str]
) -> None:
    language, program = BY_PATH[command]
    words = command.split()
    if shutil.which(words[0]) is None:
        pytest.skip(f"there is no {words[0]} here")
    advised = f"in {language.name}, after what writes the file has flushed or closed it:\n"
    folder = tmp_path / "work"
    for text in ("", language.by_path):
        folder.mkdir()
        (folder / "old").write_text("[1]")
        (tmp_path / words[1]).write_text(program % text)
        run = ("try", "--budget", "60s", "--states", "60", "--", words[0], str(tmp_path / words[1]))
        done = run_crashcheck(*run, cwd=folder, env=environment)
        shutil.rmtree(folder)
        assert (done.returncode, advised in done.stderr) == (int(not text), not text), done.stderr


def test_each_language_has_a_recipe_that_is_run() -> None:
    named = {value for value in vars(recipes).values() if isinstance(value, Language)}
    assert {whole.language for whole in WHOLES} == named
