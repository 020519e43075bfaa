"""How to write files in the language of a program: what a fix of lost data looks like there.

Each text uses `path` and `data`. tests/checker/fixes/test_recipes.py runs it under crashcheck, which finds nothing.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

import numpy as np

from crashcheck.analyzer.persistence.names import RENAME
from crashcheck.analyzer.persistence.pieces import NAME
from crashcheck.checker.findings.cause import Cause
from crashcheck.checker.findings.programs import program_of
from crashcheck.checker.images.folder_content import FolderContent
from crashcheck.checker.subject import Subject


@dataclass(frozen=True, slots=True)
class Language:
    """`replace` writes another file and puts it in place of the old one; `sync` makes durable what is in `file`,
    `folder` the names in its folder. `libraries`: who does the same, in a sentence; "" if nobody well known does.
    `by_path` makes durable what is in the file at `path`, whoever has it open; "" where whoever writes it has it.
    """

    name: str
    replace: str
    sync: str
    folder: str
    libraries: str = ""
    by_path: str = ""


PYTHON = Language(
    "Python",
    """\
with open(path + ".new", "w") as file:
    file.write(data)
    file.flush()
    os.fsync(file.fileno())
os.replace(path + ".new", path)
folder = os.open(os.path.dirname(path) or ".", os.O_RDONLY)
os.fsync(folder)
os.close(folder)""",
    "file.flush()\nos.fsync(file.fileno())",
    'folder = os.open(os.path.dirname(path) or ".", os.O_RDONLY)\nos.fsync(folder)\nos.close(folder)',
    "The package atomicwrites does all of it; it gets no new versions.",
    "file = os.open(path, os.O_RDONLY)\nos.fsync(file)\nos.close(file)",
)
JAVASCRIPT = Language(
    "JavaScript",
    """\
fs.writeFileSync(path + '.new', data, { flush: true }); // from Node 21 on and in 20.10; before: fs.fsyncSync
fs.renameSync(path + '.new', path);
const folder = fs.openSync(dirname(path), 'r'); // dirname of node:path
fs.fsyncSync(folder);
fs.closeSync(folder);""",
    "fs.fsyncSync(file);",
    """\
const folder = fs.openSync(dirname(path), 'r'); // dirname of node:path
fs.fsyncSync(folder);
fs.closeSync(folder);""",
    "The package write-file-atomic does the first two lines.",
    "const file = fs.openSync(path, 'r');\nfs.fsyncSync(file);\nfs.closeSync(file);",
)
GO = Language(
    "Go",
    """\
file, err := os.Create(path + ".new")
if err == nil {
	_, err = file.Write(data)
}
if err == nil {
	err = file.Sync()
}
file.Close()
if err == nil {
	err = os.Rename(path+".new", path)
}
if folder, failed := os.Open(filepath.Dir(path)); err == nil && failed == nil {
	err = folder.Sync()
	folder.Close()
}""",
    "err = file.Sync()",
    "folder, err := os.Open(filepath.Dir(path))\nerr = folder.Sync()",
    "The module github.com/google/renameio does all but the folder's sync.",
)
RUST = Language(
    "Rust",
    """\
let new = path.with_extension("new");
let mut file = File::create(&new)?;
file.write_all(data)?;
file.sync_all()?;
fs::rename(&new, path)?;
File::open(path.parent().filter(|p| *p != Path::new("")).unwrap_or(Path::new(".")))?.sync_all()?;""",
    "file.sync_all()?;",
    'File::open(path.parent().filter(|p| *p != Path::new("")).unwrap_or(Path::new(".")))?.sync_all()?;',
    "The crate tempfile (persist) makes and renames the file; call sync_all before and after that.",
)
JAVA = Language(
    "Java",
    """\
Path fresh = path.resolveSibling(path.getFileName() + ".new");
try (FileChannel file = FileChannel.open(fresh, CREATE, TRUNCATE_EXISTING, WRITE)) {
    for (ByteBuffer rest = ByteBuffer.wrap(data); rest.hasRemaining();) file.write(rest);
    file.force(true);
}
Files.move(fresh, path, ATOMIC_MOVE);
try (FileChannel folder = FileChannel.open(path.toAbsolutePath().getParent(), READ)) {
    folder.force(true);
}""",
    "file.force(true); // of a FileChannel; of a FileOutputStream: flush(), getFD().sync()",
    """\
try (FileChannel folder = FileChannel.open(path.toAbsolutePath().getParent(), READ)) {
    folder.force(true);
}""",
)
C = Language(
    "C",
    """\
int file = open(fresh, O_WRONLY | O_CREAT | O_TRUNC, 0644); /* fresh: another name in the folder of path */
bool done = file >= 0 && write(file, data, size) == (ssize_t)size && fsync(file) == 0;
done = close(file) == 0 && done && rename(fresh, path) == 0;
int folder = open(folder_of_path, O_RDONLY | O_DIRECTORY);
done = done && fsync(folder) == 0;
close(folder);""",
    "fsync(file); /* of a FILE: fflush(file), then fsync(fileno(file)) */",
    "int folder = open(folder_of_path, O_RDONLY | O_DIRECTORY);\nfsync(folder);\nclose(folder);",
    "GLib's g_file_set_contents_full does all but the folder's sync with G_FILE_SET_CONTENTS_DURABLE.",
)
RUBY = Language(
    "Ruby",
    """\
File.open(path + ".new", "w") do |file|
  file.write(data)
  file.fsync
end
File.rename(path + ".new", path)
File.open(File.dirname(path)) { |folder| folder.fsync }""",
    "file.fsync",
    "File.open(File.dirname(path)) { |folder| folder.fsync }",
    "File.atomic_write of ActiveSupport syncs nothing.",
    "File.open(path) { |file| file.fsync }",
)
PERL = Language(
    "Perl",
    """\
use File::Basename; use IO::Handle;
open(my $file, '>', "$path.new") or die $!;
print $file $data;
$file->flush && $file->sync && close($file) or die $!;
rename("$path.new", $path) or die $!;
open(my $folder, '<', dirname($path)) or die $!;
IO::Handle::sync($folder) or die $!;""",
    "use IO::Handle;\n$file->flush && $file->sync or die $!;",
    """\
use File::Basename; use IO::Handle;
open(my $folder, '<', dirname($path)) or die $!;
IO::Handle::sync($folder) or die $!;""",
    by_path="use IO::Handle;\nopen(my $file, '<', $path) or die $!;\nIO::Handle::sync($file) or die $!;",
)
PHP = Language(
    "PHP",
    """\
$file = fopen("$path.new", "w");
fwrite($file, $data) === strlen($data) && fsync($file) || exit(1); // fsync: from PHP 8.1 on
fclose($file);
rename("$path.new", $path);
exec('sync ' . escapeshellarg(dirname($path)));""",
    "fsync($file); // from PHP 8.1 on",
    "exec('sync ' . escapeshellarg(dirname($path)));",
    "PHP cannot sync a folder; `sync FOLDER` of coreutils can.",
    "exec('sync ' . escapeshellarg($path));",
)
SHELL = Language(
    "shell",
    """\
printf '%s\\n' "$data" > "$path.new" &&
sync "$path.new" &&
mv "$path.new" "$path" &&
sync "$(dirname "$path")\"""",
    'sync "$file"',
    'sync "$(dirname "$path")"',
)
_BY_FILE = (
    (re.compile(r"\.pyw?$"), PYTHON),
    (re.compile(r"\.([cm]?js|[cm]?ts|[jt]sx)$"), JAVASCRIPT),
    (re.compile(r"\.go$"), GO),
    (re.compile(r"\.rs$"), RUST),
    (re.compile(r"\.java$"), JAVA),
    (re.compile(r"\.(ba)?sh$"), SHELL),
    (re.compile(r"\.(pl|pm|t)$"), PERL),
    (re.compile(r"\.(rb|ru)$"), RUBY),
    (re.compile(r"\.php$"), PHP),
    (re.compile(r"\.([ch]|cc|cpp|cxx|hh|hpp|hxx|C)$"), C),
)
_BY_PROGRAM = (
    (re.compile(r"^(python|pypy)[\d.]*$"), PYTHON),
    (re.compile(r"^(node|nodejs)[\d.-]*$"), JAVASCRIPT),
    (re.compile(r"^java$"), JAVA),
    (re.compile(r"^ruby[\d.]*$"), RUBY),
    (re.compile(r"^perl[\d.]*$"), PERL),
    (re.compile(r"^php[\d.]*$"), PHP),
    (re.compile(r"^(ba|da|z|k|mk|fi)?sh$"), SHELL),
)
_WHOLE = re.compile(r"\b((write|append|copy)File|file_put_contents|(File|IO)\.(bin)?write)")
_BY_DESCRIPTOR = re.compile(r"\b(open|write|append|f?truncate)")
_STREAM = "stream made by "  # javascript.js calls so what writes later than the function that made it returns
_SQLITE = b"SQLite format 3\0"
# Programs that shell scripts are made of: what they do is the script's doing.
_BY_SHELL = {
    "awk", "bzip2", "cat", "cp", "curl", "cut", "dd", "gawk", "grep", "gzip", "head", "install", "jq", "ln", "mawk",
    "mv", "rm", "sed", "sort", "tail", "tar", "tee", "touch", "tr", "truncate", "unzip", "wget", "xz", "zip", "zstd",
}  # fmt: skip


def recipe(subject: Subject, cause: Cause, *, replace: bool) -> tuple[str, ...]:
    """The lines of a recipe, the language first; () if that is not known.

    `replace`: what to do is to write another file; otherwise a sync is missing, of the lost content or name.
    """
    piece = cause.kept if cause.kept is not None else cause.lost
    if piece is None:
        return ()
    pragma = _pragma(subject, cause)
    if pragma:
        return ("by SQLite:", pragma)
    language = _language(subject, subject.event_of(piece))
    if language is None:
        return ()
    if replace or _is_renamed(subject, cause):
        return (f"in {language.name}:", *language.replace.split("\n"), *filter(None, (language.libraries,)))
    if cause.lost is not None and subject.graph.kind[subject.graph.whole(cause.lost)] == NAME:
        return (f"in {language.name}:", *language.folder.split("\n"))
    if language.by_path and cause.lost is not None and not _has_file(subject, cause.lost):
        return (
            f"in {language.name}, after what writes the file has flushed or closed it:",
            *language.by_path.split("\n"),
        )
    return (f"in {language.name}:", *language.sync.split("\n"))


def _pragma(subject: Subject, cause: Cause) -> str:
    """What makes SQLite sync one of its files or names; "" where what is lost is in no file of its own."""
    if cause.lost is None or not isinstance(subject.content, FolderContent):
        return ""
    graph, row = subject.graph, subject.graph.whole(cause.lost)
    inodes = {path: inode for inode, (_, paths) in graph.names.paths.items() for path in paths}
    path = graph.names.true_path(int(graph.file[row]), int(graph.event[row]))
    database = path.removesuffix("-journal").removesuffix("-wal")
    if database not in inodes or not inodes.keys() & {f"{database}-journal", f"{database}-wal"}:
        return ""
    held = subject.content.bytes_issued(subject.space.moment(cause.state.point), inodes[database])
    level = "EXTRA" if graph.kind[row] == NAME else "FULL"
    return f"PRAGMA synchronous = {level}; -- in each connection" if held.read(0, 16) == _SQLITE else ""


def _is_renamed(subject: Subject, cause: Cause) -> bool:
    """Whether what survives is a rename of the file whose content is lost."""
    graph = subject.graph
    if cause.kept is None or cause.lost is None:
        return False
    kept, lost = graph.whole(cause.kept), graph.whole(cause.lost)
    if graph.kind[kept] != NAME or graph.kind[lost] == NAME or graph.file[kept] != graph.file[lost]:
        return False
    return graph.name_change(kept).what == RENAME


def _has_file(subject: Subject, lost: int) -> bool:
    """Whether the function that a finding names has the file: it made or writes it, and no function that it calls."""
    graph, row = subject.graph, subject.graph.whole(lost)
    first = np.flatnonzero(graph.file == graph.file[row])[:1]  # perhaps what made or emptied it
    return any(_is_innermost(subject, int(graph.event[at])) for at in (row, *first)) and not _is_whole(subject, row)


def _is_whole(subject: Subject, row: int) -> bool:
    """Whether the line of a finding shows no descriptor: one call writes a whole file, or Node was asked before.

    A function of JavaScript that began an asynchronous call need not be in its stack.
    """
    here = subject.provenance.of(int(subject.graph.event[row]))
    if here is None:
        return False
    in_node = JAVASCRIPT is _language(subject, int(subject.graph.event[row]))
    return bool(_WHOLE.search(here.text)) or (in_node and not _BY_DESCRIPTOR.search(here.text))


def _is_innermost(subject: Subject, event: int) -> bool:
    """Whether the place of a call is the innermost function of its script; also where no script made it."""
    trace, here = subject.trace, subject.provenance.of(event)
    known = map(trace.call_sites.get, trace.stack(int(trace.events["stack"][event])))
    script = next((site for site in known if site is not None and site.name), None)
    if script is None or here is None:
        return True
    return script.line == here.line and script.module.endswith(here.file) and not script.name.startswith(_STREAM)


def _is_of_addon(subject: Subject, event: int) -> bool:
    """Whether a library that is loaded into Node made a call: no code of JavaScript has its descriptors."""
    trace = subject.trace
    row = trace.events[event]
    known = map(trace.call_sites.get, (int(row["site"]), *trace.stack(int(row["stack"]))))
    return any(site is not None and site.module.endswith(".node") for site in known)


def _language(subject: Subject, event: int) -> Language | None:
    here = subject.provenance.of(event)
    if here is not None and here.line:
        named = next((language for ends, language in _BY_FILE if ends.search(here.file)), None)
        if named is not None or os.path.splitext(here.file)[1]:
            return named
    if _is_of_addon(subject, event):
        return None
    program = program_of(subject.trace, event)
    if program in _BY_SHELL:
        return SHELL
    return next((language for named, language in _BY_PROGRAM if named.search(program)), None)
