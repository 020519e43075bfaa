"""The values of crashcheck.toml: each of the right type and among those allowed, or an error with a hint.

The dataclasses of `settings` declare what a key takes, and msgspec converts a table to one of them. What it refuses is
reported here: an error names the key and the value, shows an example, or asks "did you mean".
"""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from crashcheck.command import Command
from crashcheck.config import server
from crashcheck.errors import CrashcheckError

T = TypeVar("T")
MOST_SECONDS = 10**9  # of a duration: 31 years, far below what the kernel's timers hold
_MOST_MIB = 1 << 40
_MOST_WHOLE = 1 << 62
_SHOWN = 200  # characters of a value in a message


def choice(choices: Iterable[str], expected: str = "", example: str = "") -> Meta:
    """One of these names; an error lists them, or shows `expected` where they are very many."""
    names = tuple(choices)
    pattern = rf"\A({'|'.join(map(re.escape, names))})\Z"
    return Meta(pattern=pattern, description=expected or one_of(names), extra={"choices": names, "example": example})


def one_of(choices: Iterable[object]) -> str:
    *others, last = map(repr, choices)
    return f"{', '.join(others)} or {last}" if others else last


Flag = Annotated[bool, Meta(description="true or false")]
Text = Annotated[str, Meta(description="a string")]
Seconds = Annotated[float, Meta(gt=0, le=MOST_SECONDS, description="a number of seconds")]
Number = Annotated[int, Meta(ge=0, le=_MOST_WHOLE, description="a whole number")]
Count = Annotated[int, Meta(ge=1, le=_MOST_WHOLE, description="a whole number")]
Mebibytes = Annotated[int, Meta(ge=0, le=_MOST_MIB, description="a whole number")]
_TEARS = ("none", 512, 4096)
Tear = Annotated[Literal[0, 512, 4096], Meta(description=one_of(_TEARS), extra={"choices": _TEARS})]
Environment = Annotated[
    Mapping[Annotated[str, Meta(pattern=r"\A[^=]+\Z")], str],
    Meta(description='a table of strings, as in env = { NAME = "value" }'),
]
_Function = Annotated[str, Meta(pattern=r"\A[^\t\n]*\S[^\t\n]*\Z")]
Functions = Annotated[
    tuple[_Function | tuple[_Function, _Function], ...],
    Meta(description='a list of function names, or pairs of them, as in ["put", ["begin", "commit"]]'),
]
Patterns = Annotated[
    tuple[Annotated[str, Meta(min_length=1)], ...],
    Meta(min_length=1, description="a list of file name patterns", extra={"example": '["*.db"]'}),
]

Outputs = Annotated[
    tuple[str, ...], Meta(description='a list of outputs, as in ["stdout", "fd 3", "{pool}/results.txt"]')
]


@dataclass(frozen=True, slots=True)
class Table(Generic[T]):
    """One table of the file, or options of the command line, that becomes a value of the dataclass `kind`."""

    path: Path
    name: str
    values: Mapping[str, Any]
    kind: type[T]
    options: Mapping[str, str] = field(default_factory=dict)  # what the command line calls a key

    @classmethod
    def of(cls, path: Path, name: str, values: object, kind: type[T], also: tuple[str, ...] = ()) -> Table[T]:
        """A table whose keys are the fields of `kind`, or in `also`: those that `read` is given a value for."""
        if not isinstance(values, dict):
            raise type_error(path, f"[{name}]", values, "a table")
        first, *rest = (each.name for each in fields(kind))  # type: ignore[arg-type]  # it is a dataclass
        known_only(path, name, values, (first, *also, *rest))
        return cls(path, name, values, kind)

    def label(self, key: str) -> str:
        return self.options.get(key) or (f"[{self.name}] {key}" if self.name else key)

    def read(self, **instead: object) -> T:
        """The table as a value of `kind`, with some values replaced. Raises CrashcheckError."""
        values = {**self.values, **instead}
        try:
            return msgspec.convert(values, self.kind)
        except msgspec.ValidationError as error:
            raise self._refusal(str(error), values) from None

    def _refusal(self, error: str, values: Mapping[str, Any]) -> CrashcheckError:
        """An error of msgspec as the person who wrote the file needs it.

        It ends with the place, as "`$.kinds[0]`", or "`$.env[...]`" for a value of a table and "`key` in `$.env`" for
        its key; a wrong type is "Expected `int`, got `str`".
        """
        types = get_type_hints(self.kind, include_extras=True)
        missing = re.match("Object missing required field `(.*)`", error)
        if missing:
            key = missing[1]
            return self.missing(key, f"{key} = {_meta(types[key]).extra['example']}")
        within = re.search(r"\$\.(\w+)(?:\[(\d+)\])?", error)
        assert within is not None
        key, index = within.groups()
        value, meta = values[key], _meta(types[key])
        if "`key`" in error:
            name = next(name for name in value if not name or "=" in name)
            return self.value_error(key, f": {name!r} cannot be the name of a variable.")
        if "[...]" in error:
            name, item = next(each for each in value.items() if not isinstance(each[1], str))
            return type_error(self.path, self.label(f"{key}.{name}"), item, "a string")
        choices = (meta.extra or {}).get("choices", ())
        item = value if index is None else value[int(index)]
        if choices and isinstance(item, tuple(map(type, choices))) and "`array`, got" not in error:
            allowed = meta.description if index is None else one_of(choices)
            hint = _did_you_mean(str(item), [each for each in choices if isinstance(each, str)])
            return self.value_error(key, f" is {shown(item)}; it must be {allowed}.", hint)
        if "got `" in error or isinstance(value, list):
            return type_error(self.path, self.label(key), value, meta.description)
        return self.value_error(key, f" is {shown(value)}; {_allowed(value, meta)}.")

    def missing(self, key: str, example: str) -> CrashcheckError:
        hint = f"For example:\n    [{self.name}]\n    {example}"
        return CrashcheckError("config-required", f"{self.path}: {self.label(key)} is missing.", hint)

    def value_error(self, key: str, why: str, hint: str = "") -> CrashcheckError:
        return CrashcheckError("config-value", f"{self.path}: {self.label(key)}{why}", hint)

    def inside_the_pool(self, key: str, *patterns: str) -> None:
        for pattern in patterns:
            if pattern.startswith("/") or ".." in pattern.split("/") or "\n" in pattern or "{" in pattern:
                hint = "Patterns are relative to the pool folder, the one that {pool} names in commands."
                raise self.value_error(key, f": {pattern!r} is outside the pool.", hint)

    def command(self, key: str, placeholders: tuple[str, ...] = ("pool",)) -> Command | None:
        if key not in self.values:
            return None
        value = self.values[key]
        if isinstance(value, str) and value.strip():
            try:
                command = Command.of_text(value)
            except ValueError as error:
                raise self.value_error(key, f" is {shown(value)}: {str(error).lower()}.") from None
        elif isinstance(value, list) and value and all(isinstance(word, str) for word in value) and value[0]:
            command = Command(shlex.join(value), tuple(value))
        else:
            raise type_error(self.path, self.label(key), value, "a command: a string, or a list of strings")
        _check_placeholders(self.path, self.label(key), command, placeholders)
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
            hint = "A server is described by start, ready, client and stop."
            raise self.value_error("command", f" and {self.label(given[0])} exclude one another.", hint)
        start, ready, client = (
            self.required_command(key, placeholders, example) for key, example in server.EXAMPLES.items()
        )
        return server.server_command(start, ready, client, self.command("stop", placeholders))


def _meta(kind: Any) -> Any:
    """The declaration of the values that a key takes."""
    if get_origin(kind) is Literal:
        return choice(get_args(kind))
    return next(part.__metadata__[0] for part in (kind, *get_args(kind)) if hasattr(part, "__metadata__"))


def _allowed(value: float, meta: Meta) -> str:
    if meta.le is not None and value > meta.le:
        return f"the most is {meta.le}"
    return "it must be a number above zero" if meta.gt == 0 else f"the least is {meta.ge}"


def _check_placeholders(path: Path, label: str, command: Command, allowed: tuple[str, ...]) -> None:
    known = ("pool", "acked", "stdout", "ops", "run", "port", "folders", "states")
    for name in command.placeholders():
        if name in allowed:
            continue
        where = f"{path}: {label}"
        if name in known:
            places = {
                "ops": "[workload] and [check] command",
                "port": "[workload] and [check] command",
                "run": "[workload] command",
                "states": "[check] after and end, beside [[node]]",
            }.get(name, "[check] command")
            raise CrashcheckError("config-placeholder", f"{where}: {{{name}}} can be used only in {places}.")
        # Other braces are the program's own (awk, jq), unless they look like a misspelt placeholder.
        close = difflib.get_close_matches(name, sorted({*allowed, *known}), 1, 0.7)
        if close:
            raise CrashcheckError(
                "config-placeholder", f"{where}: {{{name}}} is not a placeholder.", f"Did you mean {{{close[0]}}}?"
            )


def known_only(path: Path, section: str, values: Mapping[str, Any], known: Sequence[str]) -> None:
    for key in values:
        if key not in known:
            where = f"[{section}] {key}" if section else f"[{key}]" if isinstance(values[key], dict) else key
            hint = _did_you_mean(key, known) or f"Known here: {', '.join(known)}."
            raise CrashcheckError("config-unknown-key", f"{path}: {where} is not a key that crashcheck knows.", hint)


def _did_you_mean(value: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(value.lower().replace("_", "-"), known, 1, 0.6) or difflib.get_close_matches(
        value, known, 1, 0.6
    )
    return f"Did you mean {close[0]!r}?" if close else ""


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
