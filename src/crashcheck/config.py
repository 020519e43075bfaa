"""What the user asks for: crashcheck.toml and the command line's overrides of it, as one checked value."""

from __future__ import annotations

import difflib
import re
import shlex
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from crashcheck.errors import CrashcheckError

FILE_NAME = "crashcheck.toml"

MODELS = ("px86", "eadr", "page-cache")
STRATEGIES = ("ranked", "pathfinder", "witcher", "bounded", "exhaustive", "random")
ORACLES = ("exit-status", "output-equivalence")
FIRST = ("check", "skip")
FILE_SYSTEMS = ("ext4", "posix")
TEARS = ("none", 512, 4096)
MAPPINGS = ("fixed",)
MEMORIES = ("persistent", "all")
FAIL_ON = ("none", "note", "warning", "error")
FINDING_KINDS = ("ordering", "atomicity", "unpersisted", "recovery-failure", "*")
DEFAULT_SECONDS = 300.0

# Characters that mean something to a shell beyond quoting; `{pool}` and its like are taken out first.
_SHELL = re.compile(
    r"[|&;<>()$`*?\[\]~#\n]|^\s*[A-Za-z_]\w*=|^\s*(?:cd|exec|export|set|unset|ulimit|umask|if|for|while|!|\.|:)\s"
)
_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")


@dataclass(frozen=True, slots=True)
class Command:
    """A command of crashcheck.toml. It runs in the folder of that file."""

    text: str  # as written; a list is shown joined with shell quoting
    words: tuple[str, ...]  # the argument vector before placeholders are filled in; empty if a shell runs `text`

    @property
    def shell(self) -> bool:
        return not self.words

    def holds(self, name: str) -> bool:
        """Whether the placeholder `{name}` stands in it."""
        return any(name in _PLACEHOLDER.findall(part) for part in self.words or (self.text,))

    def argv(self, **values: str) -> list[str]:
        """The argument vector with each `{name}` replaced by `values[name]`.

        A value is one word, whatever characters it holds: in a shell command it is quoted for the place it stands in.
        """
        if self.shell:
            return ["/bin/sh", "-c", _fill_shell(self.text, values)]
        return [_fill(word, values) for word in self.words]


@dataclass(frozen=True, slots=True)
class BuildConfig:
    command: Command | None = None


@dataclass(frozen=True, slots=True)
class SetupConfig:
    """Makes what the workload starts from. It runs before the recording; its result is the first image."""

    command: Command | None = None


@dataclass(frozen=True, slots=True)
class WorkloadConfig:
    command: Command
    env: Mapping[str, str]
    timeout_s: float = 60.0
    operations_file: str = ""  # one operation a line; {ops} in commands
    operations: tuple[str, ...] = ()  # functions that are marked as operations


@dataclass(frozen=True, slots=True)
class PoolConfig:
    files: tuple[str, ...]  # glob patterns relative to the pool folder


@dataclass(frozen=True, slots=True)
class CheckConfig:
    command: Command
    env: Mapping[str, str]
    oracle: str = "exit-status"
    first: str = "check"  # "skip": the first image is not meant to pass
    timeout_s: float = 10.0
    memory_mib: int = 4096  # address space of a check; 0: no limit
    file_mib: int = 8192  # size of any one file that a check writes; 0: no limit


@dataclass(frozen=True, slots=True)
class ModelConfig:
    name: str = "px86"
    tear: int = 0  # bytes of a sector that persists on its own; 0: pages do not tear
    files: str = "ext4"  # what makes a new file's name durable (crash-model.md, page-cache rule 5)


@dataclass(frozen=True, slots=True)
class StrategyConfig:
    name: str = "ranked"
    deviations: int = 2  # bounded: at most this many lines (pages) that lost, or kept, something


@dataclass(frozen=True, slots=True)
class BudgetConfig:
    """Where neither is given, DEFAULT_SECONDS: most programs have more crash states than anyone can wait for."""

    seconds: float | None = None
    states: int | None = None


@dataclass(frozen=True, slots=True)
class RecordConfig:
    mapping: str = "fixed"  # watched files reopen at the address where they were first mapped
    memory: str = "persistent"  # whose loads and stores are recorded: "all" includes memory that a crash loses


@dataclass(frozen=True, slots=True)
class ReportConfig:
    notes: bool = False  # flushes, fences and syncs that made nothing durable
    fixes: bool = True  # for each finding, what would mend it, tried on the recorded run
    fail_on: str = "warning"  # the least grave level of a finding that makes the exit code 1


@dataclass(frozen=True, slots=True)
class SuppressConfig:
    """Findings to live with: those of one id, or of a file pattern, or both."""

    reason: str
    id: str = ""
    file: str = ""
    kinds: tuple[str, ...] = ("*",)


@dataclass(frozen=True, slots=True)
class Config:
    """A checked crashcheck.toml. Relative paths in it are relative to `folder`."""

    path: Path
    folder: Path
    build: BuildConfig
    setup: SetupConfig
    workload: WorkloadConfig
    pool: PoolConfig
    check: CheckConfig
    model: ModelConfig
    strategy: StrategyConfig
    budget: BudgetConfig
    record: RecordConfig
    report: ReportConfig
    suppress: tuple[SuppressConfig, ...] = ()


def load(path: Path | str) -> Config:
    """Reads and checks `path`, a crashcheck.toml or a folder that holds one.

    Raises CrashcheckError: config-missing, config-syntax, config-unknown-key, config-required, config-type,
    config-value, config-placeholder.
    """
    file = Path(path)
    if file.is_dir():
        file = file / FILE_NAME
    try:
        text = file.read_bytes().decode("utf-8")
    except FileNotFoundError:
        hint = "`crashcheck init` writes one here; `-c PATH` names another."
        raise CrashcheckError("config-missing", f"There is no {file}.", hint) from None
    except OSError as error:
        raise CrashcheckError("config-missing", f"{file} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        message = f"{file} is not UTF-8: byte {error.start} is {error.object[error.start]:#04x}."
        raise CrashcheckError("config-syntax", message) from None
    return parse(text, file)


def parse(text: str, path: Path) -> Config:
    """Checks `text` as if it were read from `path`; see `load`."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise CrashcheckError(
            "config-syntax", f"{path} is not valid TOML: {error}.", "https://toml.io shows the format."
        ) from None
    sections = (
        *("build", "setup", "workload", "pool", "check", "model", "strategy", "budget", "record", "report"),
        "suppress",
    )
    _known(path, "", document, sections)

    def section(name: str, keys: tuple[str, ...]) -> _Section:
        values = document.get(name, {})
        if not isinstance(values, dict):
            raise _type_error(path, f"[{name}]", values, "a table")
        _known(path, name, values, keys)
        return _Section(path, name, values)

    build = section("build", ("command",))
    setup = section("setup", ("command",))
    workload = section("workload", ("command", "env", "timeout_s", "operations_file", "operations"))
    pool = section("pool", ("files",))
    check = section("check", ("command", "oracle", "first", "timeout_s", "memory_mib", "file_mib", "env"))
    model = section("model", ("name", "tear", "files"))
    strategy = section("strategy", ("name", "deviations"))
    budget = section("budget", ("seconds", "states"))
    report = section("report", ("notes", "fixes", "fail_on"))
    record = section("record", ("mapping", "memory"))
    config = Config(
        path=path.absolute(),
        folder=path.absolute().parent,
        build=BuildConfig(build.command("command")),
        setup=SetupConfig(setup.command("command")),
        workload=WorkloadConfig(
            workload.required_command("command", ("pool", "ops", "run")),
            workload.env(),
            workload.seconds("timeout_s", 60.0),
            workload.text("operations_file"),
            workload.names("operations"),
        ),
        pool=PoolConfig(pool.patterns("files")),
        check=CheckConfig(
            command=check.required_command("command", ("pool", "acked", "stdout", "ops")),
            env=check.env(),
            oracle=check.choice("oracle", ORACLES, "exit-status"),
            first=check.choice("first", FIRST, "check"),
            timeout_s=check.seconds("timeout_s", 10.0),
            memory_mib=check.whole("memory_mib", 4096, least=0),
            file_mib=check.whole("file_mib", 8192, least=0),
        ),
        model=ModelConfig(
            name=model.choice("name", MODELS, "px86"),
            tear=model.tear("tear"),
            files=model.choice("files", FILE_SYSTEMS, "ext4"),
        ),
        strategy=StrategyConfig(
            name=strategy.choice("name", STRATEGIES, "ranked"),
            deviations=strategy.whole("deviations", 2, least=0),
        ),
        budget=BudgetConfig(
            seconds=None if set(budget.values) == {"states"} else budget.seconds("seconds", DEFAULT_SECONDS),
            states=budget.whole("states", 1, least=1) if "states" in budget.values else None,
        ),
        record=RecordConfig(
            mapping=record.choice("mapping", MAPPINGS, "fixed"),
            memory=record.choice("memory", MEMORIES, "persistent"),
        ),
        report=ReportConfig(
            report.flag("notes"), report.flag("fixes", True), report.choice("fail_on", FAIL_ON, "warning")
        ),
        suppress=_suppressions(path, document.get("suppress", [])),
    )
    _check_operations(config)
    return config


def override(
    config: Config,
    *,
    model: str | None = None,
    tear: str | int | None = None,
    strategy: str | None = None,
    deviations: int | None = None,
    budget: str | None = None,
    states: int | None = None,
    notes: bool = False,
    fixes: bool | None = None,
    fail_on: str | None = None,
) -> Config:
    """`config` with what the command line said; None leaves a value as it is. `budget` is a duration ("60s").

    Raises CrashcheckError(config-value) as `load` does, naming the option.
    """
    line = _Section(
        Path("command line"),
        "",
        {
            key: value
            for key, value in {
                "--model": model,
                "--tear": int(tear) if isinstance(tear, str) and tear.isdigit() else tear,
                "--strategy": strategy,
                "--deviations": deviations,
                "--states": states,
                "--fail-on": fail_on,
            }.items()
            if value is not None
        },
    )
    return replace(
        config,
        model=replace(
            config.model,
            name=line.choice("--model", MODELS, config.model.name),
            tear=line.tear("--tear", config.model.tear),
        ),
        strategy=replace(
            config.strategy,
            name=line.choice("--strategy", STRATEGIES, config.strategy.name),
            deviations=line.whole("--deviations", config.strategy.deviations, least=0),
        ),
        budget=replace(
            config.budget,
            seconds=config.budget.seconds if budget is None else parse_duration(budget),
            states=config.budget.states if states is None else line.whole("--states", 1, least=1),
        ),
        report=ReportConfig(
            config.report.notes or notes,
            config.report.fixes if fixes is None else fixes,
            line.choice("--fail-on", FAIL_ON, config.report.fail_on),
        ),
    )


def parse_duration(text: str) -> float:
    """Seconds in "90", "90s", "500ms", "10m", "1.5h" or "1m30s". Raises CrashcheckError(config-value)."""
    units = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "": 1.0}
    whole = text.strip()
    parts = re.findall(r"(\d+(?:\.\d+)?)(ms|s|m|h|)", whole)
    seconds = sum(float(number) * units[unit] for number, unit in parts)
    if "".join(number + unit for number, unit in parts) != whole or seconds <= 0:
        raise CrashcheckError(
            "config-value", f"{text!r} is not a duration above zero.", 'Write for example "60s", "10m" or "1h30m".'
        )
    return seconds


@dataclass(frozen=True, slots=True)
class _Section:
    """One table of the file; each method takes one key out of it, checked."""

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
            command = _command_of_text(self, key, value)
        elif isinstance(value, list) and value and all(isinstance(word, str) for word in value) and value[0]:
            command = Command(shlex.join(value), tuple(value))
        else:
            raise _type_error(self.path, self.label(key), value, "a command: a string, or a list of strings")
        _check_placeholders(self, key, command, placeholders)
        return command

    def required_command(self, key: str, placeholders: tuple[str, ...] = ("pool",)) -> Command:
        command = self.command(key, placeholders)
        if command is None:
            raise self.missing(key, f'{key} = "./program {{pool}}/data.db"')
        return command

    def patterns(self, key: str) -> tuple[str, ...]:
        if key not in self.values:
            raise self.missing(key, f'{key} = ["*.db"]')
        value = self.values[key]
        if not isinstance(value, list) or not value or not all(isinstance(item, str) and item for item in value):
            raise _type_error(self.path, self.label(key), value, "a list of file name patterns")
        for pattern in value:
            parts = pattern.split("/")
            if pattern.startswith("/") or ".." in parts or "\n" in pattern or "{" in pattern:
                hint = "Patterns are relative to the pool folder, the one that {pool} names in commands."
                raise CrashcheckError(
                    "config-value", f"{self.path}: {self.label(key)}: {pattern!r} lies outside the pool.", hint
                )
        return tuple(value)

    def env(self) -> Mapping[str, str]:
        value = self.values.get("env", {})
        if not isinstance(value, dict):
            raise _type_error(self.path, self.label("env"), value, 'a table of strings, as in env = { NAME = "value" }')
        for name, item in value.items():
            if not isinstance(item, str):
                raise _type_error(self.path, self.label(f"env.{name}"), item, "a string")
        return dict(value)

    def names(self, key: str, expected: str = 'a list of function names, as in ["store_put"]') -> tuple[str, ...]:
        value = self.values.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) and item.strip() for item in value):
            raise _type_error(self.path, self.label(key), value, expected)
        return tuple(item.strip() for item in value)

    def flag(self, key: str, default: bool = False) -> bool:
        value = self.values.get(key, default)
        if not isinstance(value, bool):
            raise _type_error(self.path, self.label(key), value, "true or false")
        return value

    def text(self, key: str) -> str:
        value = self.values.get(key, "")
        if not isinstance(value, str):
            raise _type_error(self.path, self.label(key), value, "a string")
        return value

    def seconds(self, key: str, default: float) -> float:
        value = self.values.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise _type_error(self.path, self.label(key), value, "a number of seconds")
        if not 0 < value < float("inf"):
            raise CrashcheckError(
                "config-value", f"{self.path}: {self.label(key)} is {value!r}; it must be a number above zero."
            )
        return float(value)

    def whole(self, key: str, default: int, least: int) -> int:
        value = self.values.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise _type_error(self.path, self.label(key), value, "a whole number")
        if value < least:
            raise CrashcheckError("config-value", f"{self.path}: {self.label(key)} is {value}; the least is {least}.")
        return value

    def choice(self, key: str, choices: tuple[str, ...], default: str) -> str:
        value = self.values.get(key, default)
        if not isinstance(value, str):
            raise _type_error(self.path, self.label(key), value, _one_of(choices))
        if value not in choices:
            message = f"{self.path}: {self.label(key)} is {value!r}; it must be {_one_of(choices)}."
            raise CrashcheckError("config-value", message, _did_you_mean(value, choices))
        return value

    def tear(self, key: str, default: int = 0) -> int:
        value = self.values.get(key, default or "none")
        if isinstance(value, bool) or value not in TEARS:
            raise CrashcheckError(
                "config-value", f"{self.path}: {self.label(key)} is {value!r}; it must be {_one_of(TEARS)}."
            )
        return value if isinstance(value, int) else 0

    def missing(self, key: str, example: str) -> CrashcheckError:
        return CrashcheckError(
            "config-required",
            f"{self.path}: {self.label(key)} is missing.",
            f"For example:\n    [{self.name}]\n    {example}",
        )


def _suppressions(path: Path, tables: object) -> tuple[SuppressConfig, ...]:
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise _type_error(path, "suppress", tables, "tables, each headed [[suppress]]")
    out = []
    for table in tables:
        _known(path, "[suppress]", table, ("id", "file", "kinds", "reason"))
        section = _Section(path, "[suppress]", table)
        id_, file, reason = section.text("id").strip(), section.text("file").strip(), section.text("reason").strip()
        if not reason:
            raise section.missing("reason", 'reason = "why this finding may stay"')
        if not id_ and not file:
            raise section.missing("id", 'id = "3f9a0c12be77" (a finding), or file = "src/old/*.c"')
        kinds = section.names("kinds", 'a list of kinds, as in ["ordering"]') or ("*",)
        for kind in kinds:
            if kind not in FINDING_KINDS:
                hint = f"The kinds are {_one_of(FINDING_KINDS)}."
                raise CrashcheckError("config-value", f"{path}: {section.label('kinds')}: {kind!r} is none.", hint)
        out.append(SuppressConfig(reason, id_, file, kinds))
    return tuple(out)


def _check_operations(config: Config) -> None:
    """{ops} needs a file of operations, and output equivalence needs both in both commands."""
    commands = (("[workload] command", config.workload.command), ("[check] command", config.check.command))
    equivalence = config.check.oracle == "output-equivalence"
    named = any(command.holds("ops") for _, command in commands)
    if not config.workload.operations_file and (equivalence or named):
        raise CrashcheckError(
            "config-required",
            f"{config.path}: [workload] operations_file is missing; "
            + ("[check] oracle = 'output-equivalence' needs it." if equivalence else "{ops} stands for its path."),
            'For example:\n    [workload]\n    operations_file = "ops.txt"   # `crashcheck ops` writes one',
        )
    if not equivalence:
        if commands[1][1].holds("ops"):
            raise CrashcheckError(
                "config-placeholder",
                f"{config.path}: [check] command: {{ops}} is known only with oracle = 'output-equivalence'.",
            )
        return
    for label, command in commands:
        for name in ("pool", "ops"):
            if not command.holds(name):
                raise CrashcheckError(
                    "config-required",
                    f"{config.path}: {label} has no {{{name}}}; [check] oracle = 'output-equivalence' needs it.",
                    'For example:\n    command = "./driver {pool}/data.db {ops}"',
                )


def _command_of_text(section: _Section, key: str, text: str) -> Command:
    if _SHELL.search(_PLACEHOLDER.sub("x", text)):
        return Command(text, ())
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        message = f"{section.path}: {section.label(key)} is {text!r}: {str(error).lower()}."
        raise CrashcheckError("config-value", message) from None
    return Command(text, words)


def _check_placeholders(section: _Section, key: str, command: Command, allowed: tuple[str, ...]) -> None:
    known = ("pool", "acked", "stdout", "ops", "run")
    for part in command.words or (command.text,):
        for name in _PLACEHOLDER.findall(part):
            where = f"{section.path}: {section.label(key)}"
            if name in known and name not in allowed:
                places = {"ops": "[workload] and [check] command", "run": "[workload] command"}.get(
                    name, "[check] command"
                )
                raise CrashcheckError("config-placeholder", f"{where}: {{{name}}} is known only in {places}.")
            # Other braces are the program's own business (awk, jq), unless they look like a slip of ours.
            close = difflib.get_close_matches(name, known, 1, 0.7)
            if name not in known and close:
                raise CrashcheckError(
                    "config-placeholder", f"{where}: {{{name}}} is no placeholder.", f"Did you mean {{{close[0]}}}?"
                )


def _fill(text: str, values: Mapping[str, str]) -> str:
    return _PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), text)


def _fill_shell(text: str, values: Mapping[str, str]) -> str:
    """Replaces placeholders in a shell command, each value quoted for the quotes it stands in."""
    out: list[str] = []
    quote = ""
    at = 0
    while at < len(text):
        match = _PLACEHOLDER.match(text, at)
        if match and match[1] in values:
            value = values[match[1]]
            if quote == "'":
                out.append(value.replace("'", "'\\''"))
            elif quote == '"':
                out.append(re.sub(r'([\\"$`])', r"\\\1", value))
            else:
                out.append(shlex.quote(value))
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


def _known(path: Path, section: str, values: Mapping[str, Any], known: tuple[str, ...]) -> None:
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


def _one_of(choices: Iterable[object]) -> str:
    *others, last = [repr(choice) for choice in choices]
    return f"{', '.join(others)} or {last}" if others else last


def _type_error(path: Path, label: str, value: object, expected: str) -> CrashcheckError:
    kind = {
        bool: "a boolean",
        int: "a whole number",
        float: "a number",
        str: "a string",
        list: "a list",
        dict: "a table",
    }
    got = kind.get(type(value), type(value).__name__)
    return CrashcheckError("config-type", f"{path}: {label} is {value!r}, {got}; expected {expected}.")
