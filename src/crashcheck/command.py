"""A command of crashcheck.toml: an argument vector or a shell command, with placeholders."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace

# Characters that mean something to a shell beyond quoting; placeholders like `{pool}` are taken out first.
_SHELL = re.compile(
    r"[|&;<>()$`*?\[\]~#\n]|^\s*[A-Za-z_]\w*=|^\s*(?:cd|exec|export|set|unset|ulimit|umask|if|for|while|!|\.|:)\s"
)
_EXEC = re.compile(r"\s*(?P<variables>(?:[A-Za-z_]\w*=[\w./:,+-]*\s+)*)exec\s+(?P<rest>[^-\s].*)", re.DOTALL)
_BETWEEN_WORDS = re.compile(r"[\s;&|<>()\"'`=]+")  # of a shell command, roughly
_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")


@dataclass(frozen=True, slots=True)
class Command:
    """A command of crashcheck.toml. It runs in the folder of that file."""

    text: str  # as written; a list is shown joined with shell quoting
    words: tuple[str, ...]  # the argument vector before placeholders are filled in; empty if a shell runs `text`
    folders_at: int = 0  # of a check that is given many folders: where its own words begin; 0: it is given one

    @property
    def shell(self) -> bool:
        return not self.words

    def holds(self, name: str) -> bool:
        """Whether it contains the placeholder `{name}`."""
        return name in self.placeholders()

    def named(self) -> tuple[str, ...]:
        """All words that may name a program or a file: its own, and those that a shell finds in its text, roughly."""
        return (*self.words[self.folders_at :], *_BETWEEN_WORDS.split(self.text))

    def argv(self, **values: str) -> list[str]:
        """The argument vector with each `{name}` replaced by `values[name]`.

        A value is one word, whatever characters it holds: in a shell command it is quoted for the quotes around it.
        """
        if self.shell:
            return ["/bin/sh", "-c", _fill_shell(self.text, values)]
        return [_fill(word, values) for word in self.words]

    def with_values(self, **values: str) -> Command:
        """The same command with these placeholders replaced, as by `argv`."""
        if self.shell:
            return replace(self, text=_fill_shell(self.text, values))
        return replace(self, words=tuple(self.argv(**values)))

    @classmethod
    def of_text(cls, text: str) -> Command:
        """From one string: a shell command if it holds what only a shell understands. Raises ValueError (shlex)."""
        if _SHELL.search(_PLACEHOLDER.sub("x", text)):
            return cls(text, ())
        return cls(text, tuple(shlex.split(text)))

    def without_shell(self) -> tuple[Command, dict[str, str]]:
        """What `NAME=value exec PROGRAM` runs, and the variables that it sets; any other command as it is.

        The shell does nothing else for it.
        """
        found = _EXEC.fullmatch(self.text) if self.shell else None
        if found is None or _SHELL.search(_PLACEHOLDER.sub("x", found["rest"])):
            return self, {}
        variables = dict(one.split("=", 1) for one in found["variables"].split())
        try:
            words = tuple(shlex.split(found["rest"]))
        except ValueError:
            return self, {}
        if not words or ("PATH" in variables and "/" not in words[0]):
            return self, {}
        return Command(self.text, words), variables

    def placeholders(self) -> list[str]:
        """Every name in braces, ours or the program's own, in order."""
        return [name for part in self.words or (self.text,) for name in _PLACEHOLDER.findall(part)]


def _fill(text: str, values: Mapping[str, str]) -> str:
    return _PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), text)


def _quoted(value: str, quote: str) -> str:
    """`value` for a place inside `quote`, or outside of quotes where that is ""."""
    if quote == "'":
        return value.replace("'", "'\\''")
    return re.sub(r'([\\"$`])', r"\\\1", value) if quote else shlex.quote(value)


def _fill_shell(text: str, values: Mapping[str, str]) -> str:
    """Replace placeholders in a shell command, each value quoted for the quotes around it."""
    out: list[str] = []
    quote = ""
    at = 0
    while at < len(text):
        match = _PLACEHOLDER.match(text, at)
        if match and match[1] in values:
            out.append(_quoted(values[match[1]], quote))
            at = match.end()
            continue
        char = text[at]
        if char == "\\" and quote != "'" and at + 1 < len(text):
            out.append(text[at : at + 2])
            at += 2
            continue
        if char in "'\"":
            quote = char if not quote else "" if quote == char else quote
        out.append(char)
        at += 1
    return "".join(out)


def descriptor(output: str) -> int | None:
    """Of an output by name, as "stdout", "stderr" or "fd 5": its number; None of a file."""
    number = {"stdout": 1, "stderr": 2}.get(output)
    return int(output.removeprefix("fd ")) if number is None and output.startswith("fd ") else number
