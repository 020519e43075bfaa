"""A change as a unified diff: the lines of each file that it adds, borders on, and shows.

Reports need this, so it knows nothing of programs; `change` looks up what the lines are in a program.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from crashcheck.errors import CrashcheckError

GIT_TIMEOUT_S = 300
UNTRACKED_MAX_BYTES = 4 << 20  # of one file; a longer one is no source that a person wrote
UNTRACKED_MAX_FILES = 1000


@dataclass(frozen=True, slots=True)
class Removal:
    """Neighbouring lines that a change deletes. `old`: their numbers on the old side, and their texts."""

    old: Mapping[int, str]
    before: int  # the line of the new side that now follows, or what is put in their place
    instead: frozenset[int]  # the lines of the new side that are put in their place


@dataclass(frozen=True, slots=True)
class FileDiff:
    """One changed file. Line numbers start at 1 and are those of the new side, except in `removals`."""

    path: str  # relative to the repository, with "/"
    before: str  # its path on the old side; "" for a new file
    added: frozenset[int]  # lines that are new or changed
    gone: frozenset[int]  # the lines before and after deleted ones, if nothing was added in their place
    shown: frozenset[int]  # all lines in the diff's hunks; GitHub shows no comment on any other line of a pull request
    removals: tuple[Removal, ...] = ()

    @property
    def changed(self) -> frozenset[int]:
        """The lines that the change touches."""
        return self.added | self.gone


@dataclass(frozen=True, slots=True)
class Diff:
    """The files that a change leaves altered, by their path on the new side; what it deletes is not among them."""

    files: Mapping[str, FileDiff] = field(default_factory=dict)

    def changed(self, path: str) -> frozenset[int]:
        """Lines of `path` that the change touches; empty for any other file."""
        found = self.files.get(path)
        return found.changed if found else frozenset()

    def shown(self, path: str) -> frozenset[int]:
        """Lines of `path` that the diff holds; empty for any other file."""
        found = self.files.get(path)
        return found.shown if found else frozenset()


def parse(data: bytes | str) -> Diff:
    """The changes of a unified diff, as `git diff` or `diff -u` write it.

    Names that are not UTF-8 are decoded with replacement, as everywhere in a report. Raises
    CrashcheckError(diff-malformed) where the text ends within a hunk, or is a merge's combined diff.
    """
    raw = data.encode("utf-8", "replace") if isinstance(data, str) else data
    files: dict[str, FileDiff] = {}
    for made in _Parser(raw.split(b"\n")).files():
        known = files.get(made.path)
        if known is not None:  # two patches in one text: what either shows
            made = FileDiff(
                made.path, known.before, known.added | made.added, known.gone | made.gone, known.shown | made.shown
            )
        files[made.path] = made
    return Diff(files)


_HUNK = re.compile(rb"@@ -(\d{1,10})(?:,(\d{1,10}))? \+(\d{1,10})(?:,(\d{1,10}))? @@")
_OCTAL = re.compile(rb"\\([0-7]{3}|.)", re.DOTALL)
_ESCAPED = {b"a": b"\a", b"b": b"\b", b"t": b"\t", b"n": b"\n", b"v": b"\v", b"f": b"\f", b"r": b"\r"}
_QUOTED = re.compile(rb'"((?:[^"\\]|\\.)*)"')
NOTHING = b"/dev/null"


class _Parser:
    """Reads hunks by the counts in their heads: no line of a file can pass for a head of the diff."""

    def __init__(self, lines: list[bytes]) -> None:
        self.lines = lines
        self.at = 0

    def files(self) -> Iterator[FileDiff]:
        """Each file that has a new side."""
        while self.at < len(self.lines):
            text = self.lines[self.at]
            if text.startswith(b"diff --git "):
                self.at += 1
                yield from self._file(_names(text[11:].rstrip(b"\r")))
            elif text.startswith((b"diff --cc ", b"diff --combined ")):
                raise _malformed(self.at, "it is the combined diff of a merge")
            elif text.startswith(b"--- ") and self._next().startswith(b"+++ "):
                yield from self._file((b"", b""))
            else:
                self.at += 1  # a commit message, or a line to report that files are binary

    def _next(self) -> bytes:
        return self.lines[self.at + 1] if self.at + 1 < len(self.lines) else b""

    def _file(self, names: tuple[bytes, bytes]) -> Iterator[FileDiff]:
        old, new = names
        added: set[int] = set()
        gone: set[int] = set()
        shown: set[int] = set()
        removals: list[Removal] = []
        while self.at < len(self.lines):
            text = self.lines[self.at].rstrip(b"\r")
            if text.startswith(b"--- ") and self._next().startswith(b"+++ "):
                old, new = _sides(_name(text[4:]), _name(self._next().rstrip(b"\r")[4:]))
                self.at += 2
                self._hunks(added, gone, shown, removals)
                break
            if text.startswith((b"rename from ", b"copy from ")):
                old = _name(text.split(b" from ", 1)[1])
            elif text.startswith((b"rename to ", b"copy to ")):
                new = _name(text.split(b" to ", 1)[1])
            elif text.startswith(b"new file mode "):
                old = NOTHING
            elif text.startswith(b"deleted file mode "):
                new = NOTHING
            elif not text.startswith((b"index ", b"similarity ", b"dissimilarity ", b"old mode ", b"new mode ")):
                break
            self.at += 1
        if new and new != NOTHING:
            before = "" if old == NOTHING else old.decode("utf-8", "replace")
            yield FileDiff(
                new.decode("utf-8", "replace"),
                before,
                frozenset(added),
                frozenset(gone - added),
                frozenset(shown),
                tuple(removals),
            )

    def _hunks(self, added: set[int], gone: set[int], shown: set[int], removals: list[Removal]) -> None:
        """Add the lines of a file's hunks to the three sets, and what they delete to `removals`."""
        while self.at < len(self.lines) and (head := _HUNK.match(self.lines[self.at])):
            self._hunk(head, added, gone, shown, removals)
            self.at += 1
            while self.at < len(self.lines) and self.lines[self.at].startswith(b"\\"):
                self.at += 1

    def _hunk(
        self, head: re.Match[bytes], added: set[int], gone: set[int], shown: set[int], removals: list[Removal]
    ) -> None:
        """One hunk, by the counts in its head. Ends at its last line."""
        old, old_left = int(head[1]), int(head[2]) if head[2] is not None else 1
        line, new_left = int(head[3]), int(head[4]) if head[4] is not None else 1
        start = self.at + 1
        if new_left == 0:
            line += 1  # the head of a hunk without a new side names the line before it
        taken: dict[int, str] = {}  # since the last line that both sides have
        put: set[int] = set()

        def end() -> None:
            if taken:
                removals.append(Removal(dict(taken), min(put, default=line), frozenset(put)))
            taken.clear()
            put.clear()

        while old_left > 0 or new_left > 0:
            sign = self._sign(start)
            if sign == b"-":
                taken[old] = self.lines[self.at][1:].rstrip(b"\r").decode("utf-8", "replace")
                old, old_left = old + 1, old_left - 1
            elif sign == b"+":
                added.add(line)
                shown.add(line)
                put.add(line)
                line, new_left = line + 1, new_left - 1
            elif sign in (b" ", b"", b"\r"):  # some mailers strip the space of an empty line
                if taken and not put:
                    gone |= {line - 1, line} - {0}
                end()
                shown.add(line)
                old, line, old_left, new_left = old + 1, line + 1, old_left - 1, new_left - 1
            elif sign != b"\\":  # "\ No newline at end of file"
                raise _malformed(self.at, "this is no line of a hunk")
        if old_left < 0 or new_left < 0:
            raise _malformed(start, "this hunk is longer than its head declares")
        if taken and not put and line > 1:
            gone.add(line - 1)
        end()

    def _sign(self, start: int) -> bytes:
        """Go to the next line of the hunk that begins at `start`; its first character."""
        self.at += 1
        if self.at >= len(self.lines) or (self.at == len(self.lines) - 1 and not self.lines[self.at]):
            raise _malformed(start, "the text ends within this hunk")
        return self.lines[self.at][:1]


def _malformed(index: int, why: str) -> CrashcheckError:
    return CrashcheckError(
        "diff-malformed",
        f"the diff cannot be read: line {index + 1}: {why}.",
        "Give a unified diff with a header for each file, as `git diff` writes it.",
    )


def _unquoted(body: bytes) -> bytes:
    def plain(match: re.Match[bytes]) -> bytes:
        code = match[1]
        return bytes([int(code, 8) & 0xFF]) if len(code) == 3 else _ESCAPED.get(code, code)

    return _OCTAL.sub(plain, body)


def _name(text: bytes) -> bytes:
    """A name as written after `+++ `, `rename to ` or similar: quoted, or with a tab and a date after it."""
    quoted = _QUOTED.match(text)
    return _unquoted(quoted[1]) if quoted else text.split(b"\t", 1)[0]


def _sides(old: bytes, new: bytes) -> tuple[bytes, bytes]:
    """Both names without the `a/` and `b/` of git, if they have them."""
    if (old == NOTHING or old.startswith(b"a/")) and (new == NOTHING or new.startswith(b"b/")):
        return old if old == NOTHING else old[2:], new if new == NOTHING else new[2:]
    return old, new


def _names(text: bytes) -> tuple[bytes, bytes]:
    """The names after `diff --git `: needed where no other line has them (a changed mode, a binary or empty file).

    Without quotes the line is ambiguous unless both names are equal, and then they are: git lists a rename apart.
    """
    first = _QUOTED.match(text)
    if first:
        rest = text[first.end() :].lstrip(b" ")
        return _sides(_unquoted(first[1]), _name(rest))
    half = len(text) // 2
    if len(text) % 2 and text[half : half + 1] == b" " and text[2:half] == text[half + 3 :]:
        return _sides(text[:half], text[half + 1 :])
    old, _, new = text.partition(b" ")
    return _sides(old, _name(new))


def base_commit(folder: Path, base: str) -> str:
    """Where the present commit left `base`: the old side of `git_diff`. Raises as that does."""
    root = Path(os.fsdecode(run_git(folder, "rev-parse", "--show-toplevel").rstrip(b"\n")))
    merge_base = _try_git(root, "merge-base", _commit(root, base), "HEAD")
    if merge_base.returncode != 0:
        raise CrashcheckError(
            "diff-unknown-base",
            f"{base} and the present commit have no common ancestor in {root}.",
            "If the clone is shallow, fetch its history: `git fetch --unshallow`, or `fetch-depth: 0` on GitHub.",
        )
    return merge_base.stdout.decode("ascii", "replace").strip()


def head_commit(folder: Path) -> str:
    """The commit that is checked out, of a merge that GitHub made for a pull request the one that was pushed; "" if
    that is not known."""
    names = ("HEAD^2", "HEAD") if os.environ.get("GITHUB_BASE_REF") else ("HEAD",)
    tried = (_try_git(folder, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}") for name in names)
    return next((one.stdout.decode("ascii", "replace").strip() for one in tried if one.returncode == 0), "")


def changed_names(folder: Path, commit: str) -> tuple[str, ...]:
    """All files of the repository that differ from a commit, deleted, renamed and untracked ones as well."""
    root = Path(os.fsdecode(run_git(folder, "rev-parse", "--show-toplevel").rstrip(b"\n")))
    listed = run_git(root, "diff", "--no-ext-diff", "--name-only", "--no-renames", "-z", commit, "--")
    others = run_git(root, "ls-files", "--others", "--exclude-standard", "-z")
    names = (listed + others).split(b"\0")
    return tuple(name.decode("utf-8", "replace") for name in names if name)


def file_at(root: Path, commit: str, name: str) -> str:
    """The text of a file of the repository at a commit; "" if it was not there."""
    found = _try_git(root, "show", f"{commit}:{name}")
    return found.stdout.decode("utf-8", "replace") if found.returncode == 0 and name else ""


def git_diff(folder: Path, base: str) -> Diff:
    """What the working tree of `folder`'s repository changes since it left `base`, committed or not.

    Paths are relative to the repository. The old side is the merge base of `base` and HEAD, as on a pull request. Files
    that git does not know (and does not ignore) count as new. No program that the repository's settings name is run.
    Raises CrashcheckError(diff-no-git, diff-unknown-base, diff-git-failed).
    """
    root = Path(os.fsdecode(run_git(folder, "rev-parse", "--show-toplevel").rstrip(b"\n")))
    old = base_commit(root, base)
    changed = parse(
        run_git(
            root,
            "diff",
            "--no-ext-diff",
            "--no-textconv",
            "--no-color",
            "--no-relative",
            "--src-prefix=a/",
            "--dst-prefix=b/",
            "--unified=3",
            "--inter-hunk-context=0",
            "--find-renames",
            "--ignore-submodules=dirty",
            "--submodule=short",
            old,
            "--",
        )
    )
    return Diff({**_untracked(root), **changed.files})


def _commit(root: Path, base: str) -> str:
    # A name that begins with "-" would be an option, and one with ".." or "^" more than a commit.
    found = (
        None
        if base.startswith("-") or "\0" in base
        else _try_git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{base}^{{commit}}")
    )
    if found is None or found.returncode != 0:
        raise CrashcheckError(
            "diff-unknown-base",
            f"{base!r} names no commit of {root}.",
            "Name a branch or a commit that is here; `git fetch origin` brings the branches of the remote.",
        )
    return found.stdout.decode("ascii", "replace").strip()


def _untracked(root: Path) -> dict[str, FileDiff]:
    listed = run_git(root, "ls-files", "--others", "--exclude-standard", "-z").split(b"\0")
    files: dict[str, FileDiff] = {}
    for name in listed[:UNTRACKED_MAX_FILES]:
        path = root / os.fsdecode(name)
        try:
            if not name or path.is_symlink() or not path.is_file() or path.stat().st_size > UNTRACKED_MAX_BYTES:
                continue
            data = path.read_bytes()
        except OSError:
            continue
        if b"\0" in data:
            continue
        lines = frozenset(range(1, data.count(b"\n") + (not data.endswith(b"\n") and bool(data)) + 1))
        shown = name.decode("utf-8", "replace")
        files[shown] = FileDiff(shown, "", lines, frozenset(), lines)
    return files


def run_git(folder: Path, *arguments: str, differs: bool = False) -> bytes:
    """The output of a git command; of one that `differs`, 1 is no failure. Raises CrashcheckError(diff-git-failed)."""
    done = _try_git(folder, *arguments)
    if done.returncode not in (0, int(differs)):
        shown = done.stderr.decode("utf-8", "replace").strip()[:500]
        raise CrashcheckError("diff-git-failed", f"`git {arguments[0]}` failed in {folder}: {shown}")
    return done.stdout


_DROPPED = (
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_PREFIX",
    "GIT_EXTERNAL_DIFF",
    "GIT_DIFF_OPTS",
    "GIT_TRACE",
)


def _try_git(folder: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Run git: it prints the same everywhere, asks for no input, fetches nothing and starts no other program."""
    environment = {name: value for name, value in os.environ.items() if name not in _DROPPED}
    environment |= {
        "LC_ALL": "C",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_LITERAL_PATHSPECS": "1",
    }
    command = [
        "git",
        "--no-pager",
        "-c",
        "core.fsmonitor=false",
        "-c",
        "core.quotePath=true",
        "-c",
        "core.hooksPath=/dev/null",
        "-C",
        str(folder),
    ]
    try:
        return subprocess.run(
            [*command, *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=GIT_TIMEOUT_S,
        )
    except FileNotFoundError as error:
        raise CrashcheckError(
            "diff-no-git", "git was not found; a diff needs it.", "Install git, or leave the base out."
        ) from error
    except subprocess.TimeoutExpired as error:
        raise CrashcheckError(
            "diff-git-failed", f"`git {arguments[0]}` did not end within {GIT_TIMEOUT_S} s in {folder}."
        ) from error
