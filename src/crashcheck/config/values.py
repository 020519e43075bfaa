"""The values of crashcheck.toml one by one: of the right type and among those allowed, or an error with a hint."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import combinations
from pathlib import Path
from typing import Any

from crashcheck.command import Command
from crashcheck.config import server
from crashcheck.errors import CrashcheckError

TEARS = ("none", 512, 4096)
MOST_SECONDS = 1e9  # of a duration: 31 years, far below what the kernel's timers hold
MOST_MIB = 1 << 40
MOST_WHOLE = 1 << 62
_DESCRIPTOR = re.compile(r"fd [0-9]{1,2}")
_SHOWN = 200  # characters of a value in a message


@dataclass(frozen=True, slots=True)
class Section:
    """One table of the file; each method returns the checked value of one key, or raises a CrashcheckError."""

    path: Path
    name: str
    values: Mapping[str, Any]

    def label(self, key: str) -> str:
        return f"[{self.name}] {key}" if self.name else key

    def command(self, key: str, placeholders: tuple[str, ...] = ("pool",)) -> Command | None:
        if key not in self.values:
            return None
        value = self.values[key]
        if isinstance(value, str) and value.strip():
            try:
                command = Command.of_text(value)
            except ValueError as error:
                message = f"{self.path}: {self.label(key)} is {shown(value)}: {str(error).lower()}."
                raise CrashcheckError("config-value", message) from None
        elif isinstance(value, list) and value and all(isinstance(word, str) for word in value) and value[0]:
            command = Command(shlex.join(value), tuple(value))
        else:
            raise type_error(self.path, self.label(key), value, "a command: a string, or a list of strings")
        _check_placeholders(self, key, command, placeholders)
        return command

    def required_command(
        self, key: str, placeholders: tuple[str, ...] = ("pool",), example: str = "./program {pool}/data.db"
    ) -> Command:
        command = self.command(key, placeholders)
        if command is None:
            raise self.missing(key, f'{key} = "{example}"')
        return command

    def command_or_server(self, placeholders: tuple[str, ...]) -> Command:
        """What runs once: `command`, or a server with its client."""
        given = [key for key in server.KEYS if key in self.values]
        if not given:
            return self.required_command("command", placeholders)
        if "command" in self.values:
            message = f"{self.path}: {self.label('command')} and {self.label(given[0])} exclude one another."
            raise CrashcheckError("config-value", message, "A server is described by start, ready, client and stop.")
        start, ready, client = (
            self.required_command(key, placeholders, example) for key, example in server.EXAMPLES.items()
        )
        return server.server_command(start, ready, client, self.command("stop", placeholders))

    def patterns(self, key: str) -> tuple[str, ...]:
        if key not in self.values:
            raise self.missing(key, f'{key} = ["*.db"]')
        value = self.values[key]
        if not isinstance(value, list) or not value or not all(isinstance(item, str) and item for item in value):
            raise type_error(self.path, self.label(key), value, "a list of file name patterns")
        for pattern in value:
            parts = pattern.split("/")
            if pattern.startswith("/") or ".." in parts or "\n" in pattern or "{" in pattern:
                hint = "Patterns are relative to the pool folder, the one that {pool} names in commands."
                raise CrashcheckError(
                    "config-value", f"{self.path}: {self.label(key)}: {pattern!r} is outside the pool.", hint
                )
        return tuple(value)

    def pattern(self, key: str) -> str:
        """One file name pattern; "" where none is given."""
        text = self.text(key)
        return Section(self.path, self.name, {key: [text]}).patterns(key)[0] if text else ""

    def env(self) -> Mapping[str, str]:
        value = self.values.get("env", {})
        if not isinstance(value, dict):
            raise type_error(self.path, self.label("env"), value, 'a table of strings, as in env = { NAME = "value" }')
        for name, item in value.items():
            if not isinstance(item, str):
                raise type_error(self.path, self.label(f"env.{name}"), item, "a string")
            if not name or "=" in name or "\0" in name:
                message = f"{self.path}: {self.label('env')}: {name!r} cannot be the name of a variable."
                raise CrashcheckError("config-value", message)
        return dict(value)

    def names(self, key: str, expected: str = 'a list of function names, as in ["store_put"]') -> tuple[str, ...]:
        value = self.values.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) and item.strip() for item in value):
            raise type_error(self.path, self.label(key), value, expected)
        return tuple(item.strip() for item in value)

    def functions_and_pairs(self, key: str) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
        """Names of functions, and pairs of them, as in ["put", ["begin", "commit"]]."""
        value = self.values.get(key, [])
        items = value if isinstance(value, list) else [value]
        functions = tuple(item.strip() for item in items if isinstance(item, str))
        pairs = tuple((str(item[0]).strip(), str(item[1]).strip()) for item in items if _is_pair(item))
        named = (*functions, *(name for pair in pairs for name in pair))
        whole = isinstance(value, list) and len(functions) + len(pairs) == len(items)
        if not whole or not all(named) or any("\t" in name or "\n" in name for name in named):
            expected = 'a list of function names, or pairs of them, as in ["put", ["begin", "commit"]]'
            raise type_error(self.path, self.label(key), value, expected)
        roles = (set(functions), {first for first, _ in pairs}, {second for _, second in pairs})
        for one, other in combinations(roles, 2):
            for name in sorted(one & other):
                raise CrashcheckError(
                    "config-value",
                    f"{self.path}: {self.label(key)}: {name!r} has two meanings: a function is an operation, begins "
                    "one, or ends one.",
                )
        return functions, pairs

    def outputs(self, key: str, pool_files: tuple[str, ...]) -> tuple[str, ...]:
        """Descriptors and files of the pool folder that no crash changes, each once."""
        names = self.names(key, 'a list of outputs, as in ["stdout", "fd 3", "{pool}/results.txt"]')
        if key in self.values and not names:
            raise CrashcheckError("config-value", f"{self.path}: {self.label(key)} names no output.")
        for name in names:
            inside = name.removeprefix("{pool}/")
            if inside != name and inside and not {"", ".", ".."} & set(inside.split("/")):
                pattern = next((each for each in pool_files if fnmatchcase(inside, each)), None)
                if pattern is None:
                    continue
                message = f"{name!r} is one of [pool] files ({pattern!r}): a crash may lose what it holds"
                hint = "Let the driver print its results to a file that no pattern matches."
            elif name in ("stdout", "stderr") or (_DESCRIPTOR.fullmatch(name) and 2 < int(name[3:]) < 64):
                continue
            else:
                message = f"{name!r} is no output"
                hint = 'Write "stdout", "stderr", a descriptor from "fd 3" to "fd 63", or "{pool}/FILE".'
            raise CrashcheckError("config-value", f"{self.path}: {self.label(key)}: {message}.", hint)
        return tuple(dict.fromkeys(names)) or ("stdout",)

    def flag(self, key: str, default: bool = False) -> bool:
        value = self.values.get(key, default)
        if not isinstance(value, bool):
            raise type_error(self.path, self.label(key), value, "true or false")
        return value

    def text(self, key: str) -> str:
        value = self.values.get(key, "")
        if not isinstance(value, str):
            raise type_error(self.path, self.label(key), value, "a string")
        return value

    def seconds(self, key: str, default: float) -> float:
        value = self.values.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise type_error(self.path, self.label(key), value, "a number of seconds")
        if not 0 < value <= MOST_SECONDS:
            allowed = f"the most is {MOST_SECONDS:g}" if value > 0 else "it must be a number above zero"
            raise CrashcheckError("config-value", f"{self.path}: {self.label(key)} is {shown(value)}; {allowed}.")
        return float(value)

    def whole(self, key: str, default: int, least: int, most: int = MOST_WHOLE) -> int:
        value = self.values.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise type_error(self.path, self.label(key), value, "a whole number")
        if value < least:
            raise CrashcheckError(
                "config-value", f"{self.path}: {self.label(key)} is {shown(value)}; the least is {least}."
            )
        if value > most:
            raise CrashcheckError(
                "config-value", f"{self.path}: {self.label(key)} is {shown(value)}; the most is {most}."
            )
        return value

    def choice(self, key: str, choices: tuple[str, ...], default: str, expected: str = "") -> str:
        """One of the choices, or an error that lists them, or `expected` where they are very many."""
        value = self.values.get(key, default)
        if not isinstance(value, str):
            raise type_error(self.path, self.label(key), value, expected or one_of(choices))
        if value not in choices:
            message = f"{self.path}: {self.label(key)} is {shown(value)}; it must be {expected or one_of(choices)}."
            raise CrashcheckError("config-value", message, _did_you_mean(value, choices))
        return value

    def tear(self, key: str, default: int = 0) -> int:
        value = self.values.get(key, default or "none")
        if isinstance(value, bool) or value not in TEARS:
            raise CrashcheckError(
                "config-value", f"{self.path}: {self.label(key)} is {shown(value)}; it must be {one_of(TEARS)}."
            )
        return value if isinstance(value, int) else 0

    def missing(self, key: str, example: str) -> CrashcheckError:
        return CrashcheckError(
            "config-required",
            f"{self.path}: {self.label(key)} is missing.",
            f"For example:\n    [{self.name}]\n    {example}",
        )


def _is_pair(item: object) -> bool:
    return isinstance(item, list) and len(item) == 2 and all(isinstance(name, str) for name in item)


def _check_placeholders(section: Section, key: str, command: Command, allowed: tuple[str, ...]) -> None:
    known = ("pool", "acked", "stdout", "ops", "run", "port")
    for name in command.placeholders():
        where = f"{section.path}: {section.label(key)}"
        if name in known and name not in allowed:
            places = {
                "ops": "[workload] and [check] command",
                "port": "[workload] and [check] command",
                "run": "[workload] command",
            }.get(name, "[check] command")
            raise CrashcheckError("config-placeholder", f"{where}: {{{name}}} can be used only in {places}.")
        # Other braces are the program's own (awk, jq), unless they look like a misspelt placeholder.
        close = difflib.get_close_matches(name, known, 1, 0.7)
        if name not in known and close:
            raise CrashcheckError(
                "config-placeholder", f"{where}: {{{name}}} is not a placeholder.", f"Did you mean {{{close[0]}}}?"
            )


def known_only(path: Path, section: str, values: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for key in values:
        if key not in known:
            where = f"[{section}] {key}" if section else f"[{key}]" if isinstance(values[key], dict) else key
            hint = _did_you_mean(key, known) or f"Known here: {', '.join(known)}."
            raise CrashcheckError("config-unknown-key", f"{path}: {where} is not a key that crashcheck knows.", hint)


def _did_you_mean(value: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(value.lower().replace("_", "-"), known, 1, 0.6) or difflib.get_close_matches(
        value, known, 1, 0.6
    )
    return f"Did you mean {close[0]!r}?" if close else ""


def one_of(choices: Iterable[object]) -> str:
    *others, last = [repr(choice) for choice in choices]
    return f"{', '.join(others)} or {last}" if others else last


def type_error(path: Path, label: str, value: object, expected: str) -> CrashcheckError:
    kind = {
        bool: "a boolean",
        int: "a whole number",
        float: "a number",
        str: "a string",
        list: "a list",
        dict: "a table",
    }
    got = kind.get(type(value), type(value).__name__)
    return CrashcheckError("config-type", f"{path}: {label} is {shown(value)}, {got}; expected {expected}.")


def shown(value: object) -> str:
    """A value of the file for a message, cut short. A number of very many digits cannot be printed in decimal."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):
        return "a value too long to be shown"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def without_null(path: Path, value: object, label: str = "") -> None:
    """Raise CrashcheckError(config-value) if a text holds a null character: no command, name or path can."""
    if isinstance(value, str) and "\0" in value:
        raise CrashcheckError("config-value", f"{path}: {label} holds a null character: {shown(value)}.")
    if isinstance(value, dict):
        for key, inner in value.items():
            without_null(path, key, f"{label or 'the file'}: a key")
            without_null(path, inner, f"[{label}] {key}" if label and not label.startswith("[") else label or key)
    elif isinstance(value, list):
        for inner in value:
            without_null(path, inner, label)
