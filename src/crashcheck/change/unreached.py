"""Functions of a change that update files, and by which a recorded run made no call: nothing in them was tested. And
syncs that it deletes, to which the run of the base did not come.

This is for programs in any language whose system calls were recorded. What was run is known by the stacks of its calls;
where functions begin in a source is known to git, which names the function of each hunk of a diff.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import chain, pairwise
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from crashcheck.analyzer.trace import Trace, read
from crashcheck.change.diff import Diff, FileDiff, run_git
from crashcheck.checker.findings.provenance import TraceProvenance
from crashcheck.checker.mutation.mutants import persist_rows
from crashcheck.checker.nodes.stacks import facts_of
from crashcheck.checker.results import Frame
from crashcheck.checker.subject import UPDATES, Provenance
from crashcheck.errors import CrashcheckError
from crashcheck.runtime.seal import seal
from crashcheck.source import SourceTree, repository_of, source_lines
from crashcheck.wording import listed

WORKLOAD = "The workload updates no file"
NODES = "In these runs the nodes update no file"
ELSEWHERE = "Of runs on a cluster it is not known which functions that the change touches they executed."
_LISTED = 5  # functions in a sentence
_DRIVERS = {  # of git, by the suffix of a source
    **dict.fromkeys((".sh", ".bash"), "bash"),
    **dict.fromkeys((".c", ".cc", ".cpp", ".cxx", ".h", ".hh", ".hpp"), "cpp"),
    **dict.fromkeys((".js", ".mjs", ".cjs", ".jsx", ".ts", ".mts", ".cts", ".tsx"), "crashcheck-js"),
    **dict.fromkeys((".pl", ".pm"), "perl"),
    ".go": "golang",
    ".java": "java",
    ".kt": "kotlin",
    ".php": "php",
    ".py": "python",
    ".rb": "ruby",
    ".rs": "rust",
}
_JAVASCRIPT = (  # git has no driver of its own for it; a first line that begins with "!" excludes
    r"!^[[:blank:]]*(//|\*|\}|if|for|while|switch|catch|else|do|try|return|throw|await|yield|new)([^A-Za-z0-9_$]|$)"
    "\n"
    r"^[[:blank:]]*(.*[^A-Za-z0-9_$.])?(function)([^A-Za-z0-9_$].*)$"
    "\n"
    r"^[[:blank:]]*([^(]*[=:][[:blank:]]*(async[[:blank:]]+)?(\([^;]*|[A-Za-z_$][A-Za-z0-9_$]*)[[:blank:]]*=>.*)$"
    "\n"
    r"^[[:blank:]]*([^=;.(]*[#A-Za-z0-9_$>]+[[:blank:]]*\([^;]*\)[^;=]*\{)[[:blank:]]*$"
)
# Tests and examples of a project write files, and are no part of the workload.
_OF_TESTS = re.compile(r"(^|[/_.-])(tests?|specs?|__tests__|testing|bench(marks?)?|examples?|docs?)([/_.-]|$)", re.I)
_OTHER = re.compile(r"\s*($|#|//|/?\*|--|(import|from|use|using|package)\s)")  # no code, or the names of other code
_COMPILED = {"cpp", "golang", "java", "kotlin", "rust"}  # languages in which functions hold all that is run
_TAIL_CALLS = {"cpp", "rust"}  # languages whose compilers make a jump of a function's last call
# What names a sync, or an update of a file, in the libraries of these languages; functions that the recorded program
# calls for one are added.
_SYNCS = r"\b(f(data)?sync(Sync)?|sync_(all|data)|syncfs|msync|sync_file_range|[sS]ync\(\)|force\((true|false)\))"
_NAMED_AFTER_SYNCS = r"(?i:\b\w+(fdata|f|m|full)sync\w*\s*\()"  # as macros are
_FLUSHES = r"\b_mm_(clwb|clflush(opt)?|[sm]fence)\b|\bpmem\w*_(persist|flush|drain)\("
_SHELL_SYNC = r"^\s*sync\s*(;|$)"
_SYNC_WORD = re.compile(r"sync|flush|persist|fence|barrier|drain|commit|force|_mm_", re.IGNORECASE)
_UPDATES = (
    rf"{_SYNCS}"
    r"|\bos\.(replace|renames?|remove|unlink|truncate|p?writev?|link|symlink)\(|\bshutil\.(copy|move|rmtree)\w*\("
    r"|\bos\.(Rename|Remove(All)?|WriteFile|Create(Temp)?|OpenFile|Truncate|Link|Symlink)\("
    r"|\b(rename|unlink|truncate)(Sync)?\((?!\))|\.truncate\(|\b(write|append|copy)(File|Text|Bytes)(Sync)?\(|\bwrite_(all|text|bytes)\("
    r"|(?<![.\w])p?writev?\((?!\))|\b(fwrite|file_put_contents|createWriteStream|create_new|renameTo)\b"
    r"|\bf?open\([^)]*,\s*(mode\s*=\s*)?[\"'][rbt]*[wax+>]"
    r"|\bFiles\.(write|move|copy|delete|new(BufferedW|OutputS|ByteC))\w*\(|\b(FileOutputStream|FileWriter|RandomAccessFile)\b"
    r"|\bfs::(write|rename|remove|copy)\w*|\bFile::create\b|\bFile(Utils)?\.(rename|write|delete|open|mv|cp)\b"
)
_SHELL_UPDATES = re.compile(r"^\s*((mv|cp|rm|dd|install|truncate)\s+[^=\s]|sync$)|>>?\s*\"?\$")
_NOT_NAMES = {
    *("func", "function", "async", "def", "fn", "sub", "pub", "static", "public", "private"),
    *("if", "for", "while"),
}
_NAMED = re.compile(r"([\w$]+[?!]?)\s*(?:<[^()]*>)?(?:\(|[=:](?!:))")
_ATTRIBUTE = re.compile(r"__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)")  # of a function in C
_MODIFIERS = (
    r"\s*((export|default|public|private|protected|internal|abstract|final|sealed|data|static|pub(\([^)]*\))?)\s+)*"
)
_HOLDER = re.compile(  # of functions
    _MODIFIERS
    + r"((class|interface|trait|module|mod|namespace|package|object|record)\s+\w|impl\b|type\s"
    + r"|(struct|enum|union)\b[^()]*$)"
)
_OPEN = re.compile(r"(?:[(,=\\]|&&|\|\|)\s*$")  # the next line belongs to the same statement
_CONTINUED = re.compile(r"\s*(?:\.\w|&&|\|\|)")  # and here the line before
_MOST_LINES = 20  # of a statement
_ENDS = re.compile(r"\s*(?:return;)?[})\];]*\s*(?://.*|#.*)?")  # nothing is run there
_CONTINUES = re.compile(r"[{)#]|[A-Za-z_]\w*:$(?<!else:)(?<!try:)(?<!finally:)")  # what no function ends with
_HEAD = re.compile(r"diff --git a/(\d+)")  # without the prefixes that git adds
_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+\d+(?:,\d+)? @@ ?(.*)")
_MARK = "\x01"

Stack = Sequence[Frame]  # innermost first; files relative to the repository, "" outside of it


def recorded_stacks(trace: Trace, provenance: Provenance, folder: Path) -> Iterator[Stack]:
    """The lines by which a recorded program made its calls, by the stacks of its scripts and of its machine code."""
    yield from _stacks_of(trace, trace.one_of_each_call(np.flatnonzero(trace.events["site"])), provenance, folder)


def syncing_functions(trace: Trace, provenance: Provenance, folder: Path) -> Set[str]:
    """The functions that code of the project called to flush, fence or sync, and for no update."""

    def called(rows: NDArray[np.int64]) -> set[str]:
        stacks = _stacks_of(trace, trace.one_of_each_call(rows), provenance, folder)
        return {name for stack in stacks for name in _called_from_here(stack)}

    return called(persist_rows(trace)) - called(trace.rows(*UPDATES))


def _stacks_of(trace: Trace, events: Iterable[int], provenance: Provenance, folder: Path) -> Iterator[Stack]:
    tree, repository = SourceTree(folder), repository_of(folder)

    def named(function: str, file: str, line: int) -> Frame:
        return Frame(function, repository.name(tree.relative(file)), line)

    for event in events:
        sites = map(trace.call_sites.get, _chain(trace, event))
        yield [named(site.name, site.module, site.line) for site in sites if site is not None and site.name]
        own = provenance.of(event)
        if own is not None:
            callers = (named(frame.function, frame.file, frame.line) for frame in own.stack)
            yield [named(own.function, own.file, own.line), *callers]


def _chain(trace: Trace, event: int) -> tuple[int, ...]:
    """The sites of the calls that led to an event, innermost first."""
    row = trace.events[event]
    return (int(row["site"]), *trace.stack(int(row["stack"])))


class StacksOfRuns:
    """`recorded_stacks` of the traces of many runs, of which most make the same calls: `stacks` are those so far.

    `take` may be called by several threads at once. `folder`: of the project.
    """

    def __init__(self, folder: Path) -> None:
        # constant
        self._folder = folder
        # changing
        self.stacks: list[Stack] = []
        self._known: set[tuple[object, ...]] = set()  # calls

    def take(self, path: Path) -> None:
        """Take note of a trace that nobody writes any more; of one that cannot be read, nothing."""
        try:
            seal(path)
            trace = read(path)
        except (CrashcheckError, OSError):  # its run was ended before it had begun
            return
        events = trace.one_of_each_call(np.flatnonzero(trace.events["site"]))
        calls = {tuple(_same_in_all(trace, site) for site in _chain(trace, event)): event for event in events}
        if new := calls.keys() - self._known:
            self._known |= new
            provenance = TraceProvenance(trace, facts_of(trace), self._folder)
            self.stacks += _stacks_of(trace, sorted(map(calls.__getitem__, new)), provenance, self._folder)


def _same_in_all(trace: Trace, site: int) -> object:
    """What a site is in the traces of all runs of a program."""
    unit = trace.unit_of(site)
    return trace.call_sites.get(site) or (unit and (unit.key, site - unit.base))


def unreached(diff: Diff, folder: Path, stacks: Iterable[Stack], what: str = WORKLOAD) -> tuple[str, ...]:
    """A sentence that names functions of the change which update files, and of which no line is on one of the stacks.

    It begins with `what`. Files in languages of which no line is there are left out: that lines of theirs were known,
    nothing shows.
    """
    repository = repository_of(folder)
    sources = [
        file
        for path, file in sorted(diff.files.items())
        if _suffix(path) in _DRIVERS and not _OF_TESTS.search(path.removeprefix(repository.prefix))
    ]
    if not sources:
        return ()
    stacks = list(stacks)
    lines = _lines_of(stacks)
    names: dict[str, set[str]] = {}
    for place in chain.from_iterable(stacks):
        names.setdefault(place.file, set()).update(_words(place.function))
    called = {name for stack in stacks for name in _called_from_here(stack)}
    known = {_suffix(file) for file in lines if file}
    texts = [_Text.of(repository.root, file) for file in sources if _suffix(file.path) in known]
    updates = _calls_of(called, _UPDATES)
    jumped = set(_called_by_jumps(repository.root, lines))
    missed = [
        function.shown
        for function in _functions(texts)
        if function.touched
        and function.may_update(updates)
        and function.name not in names.get(function.file, ())
        and function.name not in jumped
        and not function.lines.keys() & lines.get(function.file, set())
    ]
    return not_run([*dict.fromkeys(missed)], what)


def may_delete_syncs(diff: Diff) -> bool:
    """Whether a change deletes a line that may sync by its words. Of most changes the base's run need not be read."""
    removals = (removal for file in diff.files.values() for removal in file.removals)
    return any(_SYNC_WORD.search(text) for removal in removals for text in removal.old.values())


def never_run(
    diff: Diff,
    folder: Path,
    base: Path,
    stacks: Iterable[Stack],
    syncing: Iterable[str],
    known: Sequence[str] = (),
) -> tuple[str, ...]:
    """A sentence that names syncs, flushes and fences which the change deletes, and to which the run of the base did
    not come: their lines were on none of its stacks. What a crash leaves without them shows in no run.

    `folder`: of the project; `base`: the same in the base, of which the stacks are; `syncing`: functions of both.
    `known`: sentences of `unreached`; what is in a function that they name is left out.
    """
    repository, here = repository_of(base), repository_of(folder)
    stacks = list(stacks)
    reached = _lines_of(stacks)
    named = {word for place in chain.from_iterable(stacks) for word in _words(place.function)}
    named.update(_called_by_jumps(repository.root, reached))
    calls = _calls_of(syncing, _SYNCS, _NAMED_AFTER_SYNCS, _FLUSHES, _SHELL_SYNC)
    deleted = {
        file.before: found
        for file in diff.files.values()
        if file.before in reached and _suffix(file.before) in _DRIVERS
        if not _OF_TESTS.search(file.before.removeprefix(repository.prefix))
        if (found := _deleted_calls(file, calls, source_lines(here.root / file.path)))
    }
    texts = [_Text.before(repository.root, name, lines) for name, lines in sorted(deleted.items())]
    passed = [
        f"`{' '.join(function.lines[at].split())}` ({function.file}:{at} in the base)"
        for function in _functions(texts)
        if function.lines.keys() & reached[function.file]
        or (function.name not in named and not any(function.shown in sentence for sentence in known))
        for at in sorted(function.lines.keys() & deleted[function.file])
        if calls.search(function.texts[0] if at == min(function.lines) else function.lines[at])
        if not reached[function.file] & {*function.statement(at)} and not function.may_jump(at)
    ]
    if not passed:
        return ()
    return (
        f"The workload does not run {listed(passed, _LISTED)}, which the change deletes: no crash there was tested.",
    )


def _deleted_calls(file: FileDiff, calls: re.Pattern[str], new: Sequence[str]) -> set[int]:
    """Lines of the old side with such a call, which have not moved, and in whose place there is none."""
    added = {number: new[number - 1] for number in file.added if number <= len(new)}
    texts = {text.strip() for text in added.values()}
    return {
        number
        for removal in file.removals
        if not any(calls.search(added.get(line, "")) for line in removal.instead)
        for number, text in removal.old.items()
        if calls.search(text) and not _OTHER.match(text) and text.strip() not in texts
    }


def _lines_of(stacks: Iterable[Stack]) -> dict[str, set[int]]:
    """The lines on stacks, by file."""
    lines: dict[str, set[int]] = {}
    for place in chain.from_iterable(stacks):
        lines.setdefault(place.file, set()).add(place.line)
    return lines


def _called_from_here(stack: Stack) -> Iterator[str]:
    """The functions that code of the repository calls on a stack."""
    for inner, outer in pairwise(stack):
        yield from _words(inner.function)[-1:] if outer.file else ()


def _calls_of(names: Iterable[str], *known: str) -> re.Pattern[str]:
    return re.compile("|".join([*known, *(rf"\b{re.escape(name)}\(" for name in sorted(names))]))


def _called_by_jumps(root: Path, lines: Mapping[str, Iterable[int]]) -> Iterator[str]:
    """What lines of stacks call, where compilers make a jump of a last call: what jumps is on no stack."""
    for file, numbers in lines.items():
        if _DRIVERS.get(_suffix(file)) in _TAIL_CALLS:
            texts = source_lines(root / file)
            yield from (
                name for at in numbers if 0 < at <= len(texts) for name in re.findall(r"(\w+)\(", texts[at - 1])
            )


def not_run(functions: Sequence[str], what: str = WORKLOAD, way_out: str = "") -> tuple[str, ...]:
    """A sentence that names functions of the change which were not run; nothing if there are none."""
    if not functions:
        return ()
    which = listed(functions, _LISTED)
    return (f"{what} by {which}, which the change touches: no crash there was tested{way_out}.",)


def _suffix(path: str) -> str:
    return PurePosixPath(path).suffix


def _words(name: str) -> list[str]:
    return re.findall(r"[\w$]+", name)


class _Line(NamedTuple):
    text: str
    number: int  # of the new side; 0: it was deleted
    touched: bool


@dataclass(frozen=True, slots=True)
class _Text:
    """A changed file with what was deleted from it."""

    path: str
    lines: Sequence[_Line]

    @classmethod
    def of(cls, root: Path, file: FileDiff) -> _Text:
        deleted = {removal.before: removal.old.values() for removal in file.removals}
        lines: list[_Line] = []
        for number, text in enumerate((*source_lines(root / file.path), ""), 1):
            lines += (_Line(old, 0, True) for old in deleted.get(number, ()))
            lines.append(_Line(text, number, number in file.added))
        return cls(file.path, lines)

    @classmethod
    def before(cls, root: Path, name: str, deleted: Set[int]) -> _Text:
        """A file of the base."""
        texts = enumerate((*source_lines(root / name), ""), 1)
        return cls(name, [_Line(text, number, number in deleted) for number, text in texts])


@dataclass(slots=True)
class _Function:
    """`name` is "" for what is in no function."""

    file: str
    name: str
    touched: bool = False
    texts: list[str] = field(default_factory=list)
    lines: dict[int, str] = field(default_factory=dict)  # those that are numbered

    @property
    def shown(self) -> str:
        return f"`{self.name}` ({self.file})" if self.name else self.file

    def add(self, line: _Line) -> None:
        self.touched |= line.touched and not _OTHER.match(line.text)
        self.texts.append(line.text.replace(f"{self.name}(", "", not self.texts))  # its own name is no call
        if line.number:
            self.lines[line.number] = line.text

    def may_update(self, calls: re.Pattern[str]) -> bool:
        """Whether a line has one of the calls that update files, or, in a shell, a command that does."""
        updates = _SHELL_UPDATES if _DRIVERS[_suffix(self.file)] == "bash" else calls
        return any(updates.search(text) and not _OTHER.match(text) for text in self.texts)

    def statement(self, at: int) -> range:
        """The lines of the statement that a line belongs to: any of them may be that of its calls."""
        first = last = at
        while _OPEN.search(self.lines.get(first - 1, "")) or _CONTINUED.match(self.lines.get(first, "")):
            first -= 1
        while last < at + _MOST_LINES and _unclosed(self.lines.get(line, "") for line in range(first, last + 1)):
            last += 1
        return range(first, last + 1)

    def may_jump(self, at: int) -> bool:
        """Whether a line may be the last that is run, and its call a jump, which is on no stack."""
        after = (text for line, text in self.lines.items() if line > at)
        returns = self.lines[at].lstrip().startswith("return") or all(_ENDS.fullmatch(text) for text in after)
        return returns and _DRIVERS[_suffix(self.file)] in _TAIL_CALLS


def _unclosed(texts: Iterable[str]) -> bool:
    text = "".join(texts)
    return text.count("(") > text.count(")")


def _functions(files: Sequence[_Text]) -> Iterator[_Function]:
    """The functions that are still there; a line is of the innermost one by which it is indented."""
    for file, begun in zip(files, _beginnings(files), strict=True):
        outside = _Function(file.path, "")
        is_compiled = _DRIVERS[_suffix(file.path)] in _COMPILED
        found = [outside]
        around: list[tuple[int, _Function]] = []  # by their indentation
        for at, line in enumerate(file.lines):
            text, spaced = line.text.strip(), line.text.expandtabs()
            indent = len(spaced) - len(spaced.lstrip())
            if text and not _CONTINUES.match(text):
                around = [each for each in around if each[0] < indent]
            if at in begun and line.number:
                function = _Function(file.path, _name(text)) if not _HOLDER.match(text) else outside
                found.append(function)
                around.append((indent, function))
            inner = around[-1][1] if around else outside
            if inner is not outside or (line.touched and not is_compiled):
                inner.add(line)
        yield from {id(function): function for function in found}.values()


def _name(head: str) -> str:
    """Of a function that begins with a line."""
    head = _ATTRIBUTE.sub("", head)
    names = (found[1] for found in _NAMED.finditer(head) if found[1] not in _NOT_NAMES)
    return next(names, (_words(head) or [head])[-1])


def _beginnings(files: Sequence[_Text]) -> list[set[int]]:
    """The indices of the lines with which functions begin.

    Each line is followed by one that differs in a diff, which names the nearest such line before each difference.
    """
    with tempfile.TemporaryDirectory(prefix="crashcheck-diff-") as name:
        folder = Path(name)
        for side, mark in (("a", ""), ("b", f"{_MARK}\n")):
            (folder / side).mkdir()
            for at, file in enumerate(files):
                text = "".join(f"{line.text}\n{mark}" for line in file.lines)
                (folder / side / f"{at:05}{_suffix(file.path)}").write_text(text, encoding="utf-8")
        attributes = "".join(f"*{suffix} diff={driver}\n" for suffix, driver in _DRIVERS.items())
        (folder / "attributes").write_text(attributes, encoding="utf-8")
        attributes_file = f"core.attributesFile={folder}/attributes"
        settings = ("-c", attributes_file, "-c", f"diff.crashcheck-js.xfuncname={_JAVASCRIPT}")
        options = ("--no-index", "--no-ext-diff", "--no-color", "-U0", "--no-prefix", "--inter-hunk-context=0")
        shown = run_git(folder, *settings, "diff", *options, "a", "b", differs=True)
    begun: list[set[int]] = [set() for _ in files]
    number = 0
    for text in shown.decode("utf-8", "replace").split("\n"):
        if head := _HEAD.match(text):
            number = int(head[1])
        elif (hunk := _HUNK.match(text)) and hunk[2]:
            at = int(hunk[1]) - 1
            if files[number].lines[at].text.strip().startswith(hunk[2].strip()):
                begun[number].add(at)
    return begun
