"""Warnings of functions that a change touches and that no recorded call came from, for programs in many languages."""

from __future__ import annotations

from pathlib import Path

import pytest

from crashcheck.change.diff import parse
from crashcheck.change.unreached import never_run, unreached
from crashcheck.checker.results import Frame
from support import ledger, settings_store
from support.versions import Project

# Of each language: a function that was run, `save`, and one that was not, `tidy`. A line of "tidy" begins it.
SOURCES = {
    "a.py": """class Store(Base):
    def rename(self, name): return name
    def save(
        self,
    ) -> None:
        os.replace("a", "b")
    async def tidy(self):
        print(self)
        def nested(): pass
        os.fsync(3)
if __name__ == "__main__":
    Store().save()
""",
    "a.ts": """import { rename } from 'fs';
export class Store {
  async save(x: string): Promise<void> {
    if (x) {
      await fs.promises.writeFile(this.path, x);
    }
  }
  private tidy<T>(x: T): boolean {
    if (x) {
      fs.unlinkSync(this.path);
    }
  }
}
""",
    "arrow.js": """const save = async (p) => {
  fs.renameSync(p, 'x');
};
exports.tidy = function (p) {
\tif (p) {
\t\tfs.fsyncSync(p);
\t}
};
""",
    "A.java": """import java.io.FileWriter;
public class A {
    private FileWriter writer;
    public void save(String x) throws IOException {
        Files.write(path, x.getBytes());
    }
    protected <T> List<T> tidy(
            T a)
            throws IOException
    {
        channel.force(true);
    }
}
""",
    "a.go": """package main
type Store struct {
	file *os.File
}
func (s *Store) save(x string) error {
	return os.Rename("a", "b")
}
func tidy() {
	if err := f.Sync(); err != nil {
		panic(err)
	}
}
""",
    "a.rs": """impl Store {
    pub fn save(&mut self) -> std::io::Result<()> {
        self.file.sync_all()
    }
}
pub(crate) fn tidy<T: AsRef<Path>>(p: T) {
    fs::remove_file(p);
}
""",
    "a.rb": """class Store
  def save(x)
    File.rename x, "b"
  end

  def self.tidy
    @file.fsync
  end
end
""",
    "a.php": """<?php
class Store
{
    public function save($x): void
    {
        file_put_contents($this->path, $x);
    }
}
function tidy($p) {
    rename($p, "x");
}
""",
    "a.pl": """sub save {
    open(my $f, '>', "a") or die;
}
sub tidy
{
    rename("a", "b");
}
""",
    "a.sh": """save() {
  echo "$1" > "$2"
}
function tidy {
  mv "$1" "$2"
}
""",
    "a.c": """static int
save(const char *p)
{
#ifdef O_DSYNC
	p++;
#endif
	if (fd < 0)
		goto out;
out:
	return fsync(fd);
}
__attribute__((noinline, format(printf, 1, 2))) int tidy(const char *p)
{
	return rename(p, "x");
}
""",
}


def new_file(name: str, text: str) -> str:
    rows = text.splitlines()
    return f"--- /dev/null\n+++ b/{name}\n@@ -0,0 +1,{len(rows)} @@\n" + "".join(f"+{row}\n" for row in rows)


@pytest.mark.parametrize("name", SOURCES)
def test_of_a_new_file_the_function_that_was_not_run_is_named(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(SOURCES[name], encoding="utf-8")
    change = parse(new_file(name, SOURCES[name]))
    (warning,) = unreached(change, tmp_path, [[Frame("Store.save", name, 0)]])
    what = f"`tidy` ({name}), which the change touches"
    assert warning == f"The workload updates no file by {what}: no crash there was tested."
    assert unreached(change, tmp_path, [[Frame("save", name, 0)], [Frame("tidy", name, 0)]]) == ()
    tidy_line = next(at for at, row in enumerate(SOURCES[name].split("\n"), 1) if "tidy" in row)
    assert unreached(change, tmp_path, [[Frame("save", name, 0)], [Frame("(anonymous)", name, tidy_line + 1)]]) == ()


BEFORE = """import os
def save(path):
    write(path)
def export(path):
    os.fsync(path)
    print(path)
def show(path):
    print(path)
"""


def test_a_sync_that_was_deleted_in_code_that_was_not_run_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(BEFORE.replace("    os.fsync(path)\n", ""), encoding="utf-8")
    change = parse(
        "--- a/a.py\n+++ b/a.py\n@@ -4,3 +4,2 @@\n def export(path):\n-    os.fsync(path)\n     print(path)\n"
    )
    (warning,) = unreached(change, tmp_path, [[Frame("save", "a.py", 3)]])
    assert "`export` (a.py)" in warning


@pytest.mark.parametrize(
    "change",
    [
        "@@ -8,0 +8,1 @@\n+    print(path)\n",  # updates nothing
        "@@ -3,0 +3,1 @@\n+    write(path)\n",  # was run
        "@@ -6,0 +6,1 @@\n+    # of export\n",  # a comment
    ],
)
def test_functions_that_update_nothing_or_were_run_or_did_not_change_are_not_named(change: str, tmp_path: Path) -> None:
    (number,) = (int(part) for part in [change.split("+")[1].split(",")[0]])
    rows = BEFORE.split("\n")
    rows.insert(number - 1, change.split("\n+")[1].rstrip("\n"))
    (tmp_path / "a.py").write_text("\n".join(rows), encoding="utf-8")
    stacks = [[Frame("save", "a.py", 3)]]
    assert unreached(parse(f"--- a/a.py\n+++ b/a.py\n{change}"), tmp_path, stacks) == ()


def test_functions_are_named_in_each_changed_file(tmp_path: Path) -> None:
    whole = "".join(new_file(name, text) for name, text in SOURCES.items())
    for name, text in SOURCES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    (warning,) = unreached(parse(whole), tmp_path, [[Frame("save", name, 0)] for name in SOURCES])
    assert warning.split(", which")[0].endswith(f"and {len(SOURCES) - 5} more")


def test_what_the_workload_calls_for_its_updates_is_known_to_update(tmp_path: Path) -> None:
    text = "def save(path):\n    pack.put(path)\ndef export(path):\n    pack.put(path)\n"
    (tmp_path / "a.py").write_text(text, encoding="utf-8")
    stack = [Frame("put", "", 9), Frame("save", "a.py", 2)]
    (warning,) = unreached(parse(new_file("a.py", text)), tmp_path, [stack])
    assert "`export` (a.py)" in warning
    assert unreached(parse(new_file("a.py", text)), tmp_path, [[Frame("save", "a.py", 2)]]) == ()


def test_of_a_function_whose_last_call_is_a_jump_the_call_is_on_a_stack(tmp_path: Path) -> None:
    """The stack has `main`, and where `rename` returns to: also in `main`."""
    text = SOURCES["a.c"] + "int main(void)\n{\n\treturn tidy(path);\n}\n"
    (tmp_path / "a.c").write_text(text, encoding="utf-8")
    at = next(at for at, row in enumerate(text.split("\n"), 1) if "tidy(path)" in row)
    stacks = [[Frame("save", "a.c", 0)], [Frame("main", "a.c", at)]]
    assert unreached(parse(new_file("a.c", text)), tmp_path, stacks) == ()


def test_tests_and_languages_of_which_no_line_is_known_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    for name in ("tests/a.py", "a.go"):
        (tmp_path / name).write_text(SOURCES[Path(name).name], encoding="utf-8")
    text = "".join(new_file(name, SOURCES[Path(name).name]) for name in ("tests/a.py", "a.go"))
    assert unreached(parse(text), tmp_path, [[Frame("save", "store.py", 1)]]) == ()


def test_a_pull_request_with_no_finding_names_what_was_not_run(project: Project) -> None:
    tool = 'import os\n\n\ndef export(path):\n    os.fsync(3)\n    os.rename(path, "x")\n'
    for text in (tool, tool.replace("    os.fsync(3)\n", "")):
        project.write("", more={**settings_store.files(), "tool.py": text})
    code, report = project.run()
    assert (code, report["findings"]) == (0, [])
    assert report["run"]["caveats"] == [
        "The workload updates no file by `export` (tool.py), which the change touches: no crash there was tested."
    ]


PASSED = """int put(int fd, int late)
{
\tif (late)
\t\tsync_file(fd,
\t\t          late);
\tif (late > 1)
\t\treturn fsync(fd);
\tif (late > 2) {
\t\tMY_FSYNC(fd);
\t}
\tdone(fd);
\tif (late > 3)
\t\tfsync(fd + 1);
}
"""
PUT = [Frame("put", "a.c", 11)]


def without(lines: set[int], instead: str, folder: Path) -> str:
    """The diff that deletes these lines of PASSED, and puts one in the place of the last."""
    rows = PASSED.split("\n")[:-1]
    old = [f"-{row}\n" if at in lines else f" {row}\n" for at, row in enumerate(rows, 1)]
    old[max(lines) - 1] += f"+{instead}\n" if instead else ""
    for side, sign in (("before", "-"), ("after", "+")):
        (folder / side).mkdir()
        text = "".join(row[1:] for row in "".join(old).splitlines(keepends=True) if row[0] in (sign, " "))
        (folder / side / "a.c").write_text(text, encoding="utf-8")
    new = len(rows) - len(lines) + bool(instead)
    return f"--- a/a.c\n+++ b/a.c\n@@ -1,{len(rows)} +1,{new} @@\n" + "".join(old)


@pytest.mark.parametrize(
    ("lines", "instead", "stack", "named"),
    [
        ({9}, "", PUT, "`MY_FSYNC(fd);` (a.c:9 in the base)"),
        ({9}, "\t\tfdatasync(fd);", PUT, ""),  # another sync is in its place
        ({9}, "\t\tMY_FSYNC(fd);", PUT, ""),  # moved
        ({9}, "", [Frame("put", "a.c", 9)], ""),  # was run
        ({9}, "", [Frame("other", "a.c", 99)], "`MY_FSYNC(fd);` (a.c:9 in the base)"),  # nor was its function
        ({9}, "", [Frame("other", "a.c", 99), Frame("put", "b.c", 5)], ""),  # its function was, perhaps
        ({1}, "int put_away(int fd, int late)", [Frame("other", "a.c", 99)], ""),  # a function that syncs, renamed
        ({4, 5}, "", PUT, "`sync_file(fd,` (a.c:4 in the base)"),  # is known to sync
        ({4, 5}, "", [Frame("put", "a.c", 5)], ""),  # another line of the statement was on a stack
        ({13}, "", PUT, ""),  # the last call: a jump leaves no stack
        ({7}, "", PUT, ""),  # likewise
        ({11}, "", [Frame("put", "a.c", 4)], ""),  # is not known to sync
    ],
)
def test_a_deleted_sync_which_the_base_did_not_run_is_named(
    lines: set[int], instead: str, stack: list[Frame], named: str, tmp_path: Path
) -> None:
    change = parse(without(lines, instead, tmp_path))
    found = never_run(change, tmp_path / "after", tmp_path / "before", [stack], ["sync_file", "put"])
    sentence = f"The workload does not run {named}, which the change deletes: no crash there was tested."
    assert found == ((sentence,) if named else ())


def test_a_deleted_sync_of_a_function_that_is_named_as_not_run_is_not_named(tmp_path: Path) -> None:
    change = parse(without({9}, "", tmp_path))
    known = ["The workload updates no file by `put` (a.c), which the change touches: no crash there was tested."]
    stacks = [[Frame("other", "a.c", 99)]]
    assert never_run(change, tmp_path / "after", tmp_path / "before", stacks, ["sync_file"], known) == ()


def test_a_pull_request_that_deletes_a_sync_which_no_run_came_to_warns(project: Project) -> None:
    rare = f"{ledger.PERSISTED}\n    if (owner == 999) {{\n        {ledger.PERSISTED}\n    }}"
    for first in (rare, ledger.PERSISTED):
        project.write(first)
    code, report = project.run()
    assert (code, report["findings"]) == (0, [])
    assert report["run"]["caveats"] == [
        "The workload does not run `persist(&account->owner);` (ledger.c:19 in the base), which the change deletes: "
        "no crash there was tested."
    ]


def test_a_pull_request_that_deletes_a_sync_of_a_script_which_no_run_came_to_warns(project: Project) -> None:
    synced = f"{settings_store.SYNC}\n        if value > 9:\n            {settings_store.SYNC}"
    for sync in (synced, settings_store.SYNC):
        project.write("", more=settings_store.files(sync))
    code, report = project.run()
    assert (code, report["findings"]) == (0, [])
    assert report["run"]["caveats"] == [
        "The workload does not run `os.fsync(file.fileno())` (store.py:10 in the base), which the change deletes: "
        "no crash there was tested."
    ]
