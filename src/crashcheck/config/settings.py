"""The configuration: crashcheck.toml and the options of the command line, as one checked value.

A key of the file is a field of its section's dataclass, with its default; its type declares what values it takes.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from fnmatch import fnmatchcase
from itertools import combinations
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from crashcheck.command import Command, descriptor
from crashcheck.config import folders, server
from crashcheck.config.faults import Fault, NodeFault
from crashcheck.config.nodes import NO_CRASH_MODEL, NodeConfig, NodesConfig, read_nodes
from crashcheck.config.values import (
    MOST_SECONDS,
    Count,
    Environment,
    Flag,
    Functions,
    Mebibytes,
    Number,
    Outputs,
    Patterns,
    Seconds,
    T,
    Table,
    Tear,
    Text,
    choice,
    known_only,
    type_error,
    without_null,
)
from crashcheck.errors import CrashcheckError
from crashcheck.models import FAMILIES

FILE_NAME = "crashcheck.toml"
TRIED = ".tried"  # beside a file that `crashcheck try` has written: a link to the folder in which it ran the command

MODELS = tuple(FAMILIES)
STRATEGIES = ("ranked", "pathfinder", "witcher", "bounded", "exhaustive", "random")
FAIL_ON = ("none", "note", "warning", "error")
FINDING_KINDS = ("ordering", "atomicity", "unpersisted", "recovery-failure", "reopen", "actions", "*")
DEFAULT_SECONDS = 300.0
MOST_FAULTS = 60
_NO_CHECK = Command("true", ("true",))  # of an oracle that judges the files itself


@dataclass(frozen=True, slots=True)
class BuildConfig:
    """[build]: makes the programs of the project."""

    command: Command | None = None


@dataclass(frozen=True, slots=True)
class SetupConfig:
    """[setup]: makes the files that the workload starts from, the first image. It is not recorded."""

    command: Command | None = None
    env: Environment = field(default_factory=dict)  # added to that of the workload, which it gets, too
    timeout_s: Seconds = 60.0


@dataclass(frozen=True, slots=True)
class WorkloadConfig:
    """[workload]: what is recorded."""

    command: Command
    env: Environment = field(default_factory=dict)
    timeout_s: Seconds = 60.0
    operations_file: Text = ""  # one operation per line; {ops} in commands
    operations: Functions = ()  # functions whose outermost calls are operations, or pairs that begin and end one
    recorder: Literal["linked", "syscalls"] = "linked"  # by crashcheck-cc; "syscalls": of any program

    @property
    def operation_functions(self) -> tuple[str, ...]:
        """Functions whose outermost calls are operations."""
        return tuple(item.strip() for item in self.operations if isinstance(item, str))

    @property
    def operation_pairs(self) -> tuple[tuple[str, str], ...]:
        """Functions that begin an operation, and those that end it."""
        return tuple((item[0].strip(), item[1].strip()) for item in self.operations if not isinstance(item, str))


@dataclass(frozen=True, slots=True)
class PoolConfig:
    """[pool]: the files that may lose updates in a crash."""

    files: Patterns  # glob patterns relative to the pool folder


@dataclass(frozen=True, slots=True)
class CheckConfig:
    """[check]: decides whether the files that a crash left are consistent."""

    command: Command
    env: Environment = field(default_factory=dict)
    oracle: Literal["exit-status", "output-equivalence", "snapshot"] = "exit-status"
    first: Literal["check", "skip"] = "check"  # "skip": the first image need not pass
    timeout_s: Seconds = 10.0
    memory_mib: Mebibytes = 4096  # data of a check, as RLIMIT_DATA counts it; 0: no limit
    file_mib: Mebibytes = 8192  # size of each file that a check writes; 0: no limit
    outputs: Outputs = ("stdout",)  # what output equivalence compares
    acknowledged: Literal["output", "exit"] = "output"  # of system calls; "exit": that it ended, too

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Those of the outputs that a program does not have by itself: a driver finds them open."""
        numbers = [number for number in map(descriptor, self.outputs) if number is not None]
        return tuple(number for number in numbers if number > 2)


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """[model]: which updates may survive a crash."""

    name: Annotated[str, choice(MODELS)] = "px86"  # with recorder = "syscalls": "ext4"
    tear: Tear = 0  # bytes of a sector that persists on its own; 0: pages do not tear
    files: Literal["ext4", "posix"] = "ext4"  # what makes a new name durable: crash-model.md, page-cache rule 5
    amplify: Flag = False  # a sync after each call that empties or creates a file (system-calls.md, `--amplify`)


@dataclass(frozen=True, slots=True)
class StrategyConfig:
    """[strategy]: which crash states are checked, and in which order."""

    name: Annotated[str, choice(STRATEGIES)] = "ranked"
    deviations: Number = 2  # bounded: at most this many cache lines (pages) that lost, or kept, updates
    libraries: Literal["last", "equal"] = "last"  # ranked: where groups of code outside the project are
    explore: Flag = True  # ranked, exhaustive: decide whole crash points by explored runs


@dataclass(frozen=True, slots=True)
class BudgetConfig:
    """[budget]: how long to search. DEFAULT_SECONDS if neither is given: most programs have too many states for all."""

    seconds: Seconds | None = None
    states: Count | None = None


@dataclass(frozen=True, slots=True)
class RecordConfig:
    """[record]: how the workload is recorded."""

    io_uring: Literal["refuse", "allow"] = "refuse"  # of a traced program: "allow" gives up the verdict


@dataclass(frozen=True, slots=True)
class ReportConfig:
    """[report]: what a run reports, and when it fails."""

    notes: Flag = False  # report redundant flushes, fences and syncs
    fixes: Flag = True  # suggest a fix for each finding, tried on the recorded run
    fail_on: Annotated[str, choice(FAIL_ON)] = "warning"  # the lowest severity of a finding that makes the exit code 1


@dataclass(frozen=True, slots=True)
class SuppressConfig:
    """[[suppress]]: findings to accept: those with this id, in these files, or both."""

    reason: Text = ""
    id: Text = ""
    file: Text = ""
    kinds: Annotated[
        tuple[Annotated[str, choice(FINDING_KINDS)], ...],
        Meta(description='a list of kinds, as in ["ordering"]', extra={"choices": FINDING_KINDS}),
    ] = ("*",)


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
    faults: tuple[Fault, ...] = ()  # [[faults]]: calls of the workload that fail
    nodes: NodesConfig | None = None  # [[node]]: then there is no workload, pool or check of files

    @property
    def dax(self) -> dict[str, str]:
        """For the environment of what maps the pool: models of memory allow MAP_SYNC on any file system."""
        return {} if FAMILIES[self.model.name].by_sync else {"CRASHCHECK_DAX": "1"}


def load(path: Path | str, *, nodes: bool = False, files: bool = True) -> Config:
    """Read and check `path`, a crashcheck.toml or a folder that holds one.

    `nodes`: it may describe nodes; `files`: the command works on files, so that [pool] and [check] must be there.

    Raises CrashcheckError: config-missing, config-syntax, config-unknown-key, config-required, config-type,
    config-value, config-placeholder, config-nodes.
    """
    file = Path(path)
    try:
        if file.is_dir():
            file = file / FILE_NAME
        text = file.read_bytes().decode("utf-8")
    except FileNotFoundError:
        hint = "`crashcheck init` writes one here; `-c PATH` names another."
        raise CrashcheckError("config-missing", f"There is no {file}.", hint) from None
    except OSError as error:
        raise CrashcheckError("config-missing", f"{file} cannot be read: {error.strerror}.") from None
    except MemoryError:  # a device that never ends
        raise CrashcheckError("config-missing", f"{file} cannot be read: it is too large.") from None
    except UnicodeDecodeError as error:
        message = f"{file} is not UTF-8: byte {error.start} is {error.object[error.start]:#04x}."
        raise CrashcheckError("config-syntax", message) from None
    config = parse(text, file, files=files)
    if config.nodes is not None and not nodes:
        message = f"{file} describes nodes ([[node]]), and this command works on the files of one program."
        raise CrashcheckError("config-nodes", message, "`crashcheck run` and `crashcheck replay` work on nodes.")
    return config


def parse(text: str, path: Path, *, files: bool = True) -> Config:
    """Check `text` as if it were read from `path`; see `load`."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise CrashcheckError(
            "config-syntax", f"{path} is not valid TOML: {error}.", "https://toml.io shows the format."
        ) from None
    except RecursionError:
        raise CrashcheckError("config-syntax", f"{path} cannot be read: its values are nested too deeply.") from None
    except ValueError as error:  # of a number: tomllib leaves the limit on its digits to Python
        raise CrashcheckError("config-syntax", f"{path} cannot be read: {error}.") from None
    without_null(path, document)
    sections = [each.name for each in fields(Config) if each.name not in ("path", "folder", "nodes")]
    known_only(path, "", document, [*sections, "node", "bounds", "time"])
    if tables := _tables(path, "node", NodeConfig, document):
        faults = _tables(path, "faults", NodeFault, document)
        return _of_nodes(path, document, read_nodes(path, document, tables, faults, parse_duration))
    for name in ("bounds", "time"):
        if name in document:
            raise CrashcheckError("config-nodes", f"{path}: [{name}] is of runs of nodes, and there is no [[node]].")

    if not files:
        document = {"pool": {"files": ["*"]}, "check": {"command": "true"}, **document}

    def section(name: str, kind: type[T], also: tuple[str, ...] = ()) -> Table[T]:
        return Table.of(path, name, document.get(name, {}), kind, also)

    build = section("build", BuildConfig)
    setup = section("setup", SetupConfig)
    workload = section("workload", WorkloadConfig, server.KEYS)
    pool = section("pool", PoolConfig)
    check = section("check", CheckConfig, server.KEYS)
    model = section("model", ModelConfig)
    strategy = section("strategy", StrategyConfig)
    budget = section("budget", BudgetConfig)
    record = section("record", RecordConfig)
    report = section("report", ReportConfig)
    recorded = _workload(workload)
    pool_files = pool.read().files
    pool.inside_the_pool("files", *pool_files)
    config = Config(
        path=path.absolute(),
        folder=path.absolute().parent,
        build=build.read(command=build.command("command")),
        setup=setup.read(**{"timeout_s": recorded.timeout_s, **setup.values, "command": setup.command("command")}),
        workload=recorded,
        pool=PoolConfig(pool_files),
        check=_check(check, pool_files),
        model=_model(model, "ext4" if recorded.recorder == "syscalls" else "px86"),
        strategy=strategy.read(),
        budget=budget.read(**budget.values or {"seconds": DEFAULT_SECONDS}),
        record=record.read(),
        report=report.read(),
        suppress=tuple(map(_suppression, _tables(path, "suppress", SuppressConfig, document))),
        faults=tuple(map(_fault, _tables(path, "faults", Fault, document))),
    )
    if len(config.faults) > MOST_FAULTS:
        message = f"{path}: [[faults]] has {len(config.faults)} tables; the most is {MOST_FAULTS}."
        raise CrashcheckError("config-value", message)
    if config.faults and config.workload.recorder != "syscalls":
        message = f"{path}: [[faults]] are injected where system calls are recorded."
        raise CrashcheckError("config-value", message, 'Add to [workload]:\n    recorder = "syscalls"')
    _check_operations(config)
    return config


def _of_nodes(path: Path, document: Mapping[str, object], nodes: NodesConfig) -> Config:
    """A configuration of nodes; what is of one program only means nothing in it."""

    def section(name: str, kind: type[T]) -> Table[T]:
        return Table.of(path, name, document.get(name, {}), kind)

    build, budget = section("build", BuildConfig), section("budget", BudgetConfig)
    return Config(
        path=path.absolute(),
        folder=path.absolute().parent,
        build=build.read(command=build.command("command", ())),
        setup=SetupConfig(),
        workload=WorkloadConfig(_NO_CHECK),
        pool=PoolConfig(()),
        check=CheckConfig(_NO_CHECK),
        model=_model_of_nodes(section("model", ModelConfig)),
        strategy=StrategyConfig(name=nodes.strategy.name),
        budget=budget.read(**budget.values or {"seconds": DEFAULT_SECONDS}),
        record=RecordConfig(),
        report=section("report", ReportConfig).read(),
        suppress=tuple(map(_suppression, _tables(path, "suppress", SuppressConfig, document))),
        nodes=nodes,
    )


def _model_of_nodes(section: Table[ModelConfig]) -> ModelConfig:
    """What a crash of a machine leaves of a node's folder; by default all that was written."""
    if section.values.get("name", NO_CRASH_MODEL) == NO_CRASH_MODEL:
        return replace(section.read(name="px86"), name=NO_CRASH_MODEL)
    model = _model(section, "px86")
    if not FAMILIES[model.name].names:
        names = ", ".join(f'"{name}"' for name, family in FAMILIES.items() if family.names)
        hint = f'Write one of {names}, or "{NO_CRASH_MODEL}": what was written stays.'
        raise section.value_error("name", f" is {model.name!r}, and what nodes write are files and folders.", hint)
    return model


def _model(section: Table[ModelConfig], default: str) -> ModelConfig:
    tear = {"tear": 0} if section.values.get("tear") == "none" else {}
    return section.read(name=section.values.get("name", default), **tear)


def _workload(section: Table[WorkloadConfig]) -> WorkloadConfig:
    if section.values.get("recorder") == "strace":
        raise section.value_error(
            "recorder",
            " is 'strace', which crashcheck no longer uses.",
            'Write recorder = "syscalls": it records more, and runs in containers that refuse seccomp filters, too. If '
            "there is no C compiler: pip install ziglang",
        )
    workload = section.read(command=section.command_or_server(("pool", "ops", "run", "port")))
    pairs = workload.operation_pairs
    roles = (set(workload.operation_functions), {first for first, _ in pairs}, {second for _, second in pairs})
    for name in sorted(set().union(*(role & other for role, other in combinations(roles, 2)))):
        meanings = "has two meanings: a function is an operation, begins one, or ends one."
        raise section.value_error("operations", f": {name!r} {meanings}")
    return workload


def _check(section: Table[CheckConfig], pool_files: tuple[str, ...]) -> CheckConfig:
    by_files = section.values.get("oracle") == "snapshot"
    placeholders = ("pool", "acked", "stdout", "ops", "port", "folders")
    command = _NO_CHECK if by_files else section.command_or_server(placeholders)
    check = section.read(command=_given_folders(section, command) if command.holds("folders") else command)
    if not check.outputs:
        raise section.value_error("outputs", " names no output.")
    for name in check.outputs:
        inside = name.removeprefix("{pool}/")
        if inside != name and inside and not {"", ".", ".."} & set(inside.split("/")):
            pattern = next((each for each in pool_files if fnmatchcase(inside, each)), None)
            if pattern is not None:
                why = f": {name!r} is one of [pool] files ({pattern!r}): a crash may lose what it holds."
                hint = "Let the driver print its results to a file that no pattern matches."
                raise section.value_error("outputs", why, hint)
        elif not re.fullmatch("stdout|stderr|fd ([3-9]|[1-5][0-9]|6[0-3])", name):
            hint = 'Write "stdout", "stderr", a descriptor from "fd 3" to "fd 63", or "{pool}/FILE".'
            raise section.value_error("outputs", f": {name!r} is no output.", hint)
    return replace(check, outputs=tuple(dict.fromkeys(check.outputs)))


def _given_folders(section: Table[CheckConfig], command: Command) -> Command:
    """A check that is given many folders. Raises CrashcheckError config-placeholder."""
    where = f"{section.path}: {section.label('command')}"
    if "command" not in section.values:
        raise CrashcheckError("config-placeholder", f"{where}: {{folders}} can be used only here, not for a server.")
    excluded = next((name for name in folders.EXCLUDED if command.holds(name)), None)
    if excluded is not None:
        raise CrashcheckError(
            "config-placeholder",
            f"{where}: {{folders}} and {{{excluded}}} exclude one another.",
            "With {folders} the check reads a line for each state: the folder, {acked} and {stdout}, between tabs.",
        )
    return folders.folders_command(command)


def _tables(path: Path, name: str, kind: type[T], document: Mapping[str, object]) -> list[Table[T]]:
    tables = document.get(name, [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise type_error(path, name, tables, f"tables, each headed [[{name}]]")
    return [Table.of(path, f"[{name}]", table, kind) for table in tables]


def _suppression(section: Table[SuppressConfig]) -> SuppressConfig:
    rule = section.read()
    rule = SuppressConfig(rule.reason.strip(), rule.id.strip(), rule.file.strip(), rule.kinds or ("*",))
    if not rule.reason:
        raise section.missing("reason", 'reason = "why this finding may stay"')
    if not rule.id and not rule.file:
        raise section.missing("id", 'id = "3f9a0c12be77" (a finding), or file = "src/old/*.c"')
    return rule


def _fault(section: Table[Fault]) -> Fault:
    fault = section.read()
    section.inside_the_pool("file", fault.file)
    return fault


def override(
    config: Config,
    *,
    model: str | None = None,
    tear: str | int | None = None,
    amplify: bool = False,
    strategy: str | None = None,
    deviations: int | None = None,
    budget: str | None = None,
    states: int | None = None,
    explore: bool | None = None,
    notes: bool = False,
    fixes: bool | None = None,
    fail_on: str | None = None,
) -> Config:
    """`config` with the options of the command line; None leaves a value as it is. `budget` is a duration ("60s").

    Raises CrashcheckError(config-value) as `load` does, naming the option.
    """

    def changed(section: T, option: str, **values: object) -> T:
        """A section with those values of its keys that were given; `option`: what sets its name, if it has one."""
        given = {key: value for key, value in values.items() if value is not None}
        options = {key: option if key == "name" else f"--{key.replace('_', '-')}" for key in given}
        read = Table(Path("command line"), "", given, type(section), options).read()
        return replace(section, **{key: getattr(read, key) for key in given})  # type: ignore[type-var]  # dataclasses

    if config.nodes is not None:
        given = {"--model": model, "--tear": tear, "--explore": explore, "--notes": notes or None, "--no-fixes": fixes}
        for option, value in given.items():
            if value is not None:
                raise CrashcheckError("bad-option", f"{option} has no meaning for nodes ([[node]]).", "Leave it out.")
        plan = changed(config.nodes.strategy, "--strategy", name=strategy, deviations=deviations)
        config = replace(config, nodes=replace(config.nodes, strategy=plan))
        strategy = deviations = None
    tears: dict[object, object] = {"none": 0, "512": 512, "4096": 4096}
    return replace(
        config,
        model=changed(config.model, "--model", name=model, tear=tears.get(tear, tear), amplify=amplify or None),
        strategy=changed(config.strategy, "--strategy", name=strategy, deviations=deviations, explore=explore),
        budget=changed(config.budget, "", seconds=None if budget is None else parse_duration(budget), states=states),
        report=changed(config.report, "", notes=notes or None, fixes=fixes, fail_on=fail_on),
    )


def parse_duration(text: str) -> float:
    """Seconds in "90", "90s", "500ms", "10m", "1.5h" or "1m30s". Raises CrashcheckError(config-value)."""
    units = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "": 1.0}
    whole = text.strip()
    parts = re.findall(r"(\d+(?:\.\d+)?)(ms|s|m|h|)", whole)
    seconds = sum(float(number) * units[unit] for number, unit in parts)
    if "".join(number + unit for number, unit in parts) != whole or not 0 < seconds <= MOST_SECONDS:
        raise CrashcheckError(
            "config-value",
            f"{text[:60]!r} is not a duration above zero.",
            f'Write for example "60s", "10m" or "1h30m"; the most is {MOST_SECONDS:g} seconds.',
        )
    return seconds


def parse_fault(text: str) -> Fault:
    """`--fault CALL=ERROR[,file=PATTERN][,nth=N][,times=N]`. Raises CrashcheckError as `load` does."""
    head, *rest = text.split(",")
    values: dict[str, str | int] = {}
    call, equals, error = head.partition("=")
    values["call"], values["error"] = call, error if equals else "EIO"
    for part in rest:
        key, _, value = part.partition("=")
        values[key] = int(value) if key != "file" and re.fullmatch("[0-9]{1,18}", value) else value
    return _fault(Table.of(Path("--fault"), "", values, Fault))


def _check_operations(config: Config) -> None:
    """{ops} needs a file of operations, and output equivalence needs both in both commands."""
    commands = (("[workload] command", config.workload.command), ("[check] command", config.check.command))
    equivalence = config.check.oracle == "output-equivalence"
    named = any(command.holds("ops") for _, command in commands)
    if not config.workload.operations_file and (equivalence or named):
        raise CrashcheckError(
            "config-required",
            f"{config.path}: [workload] operations_file is missing; "
            + ("[check] oracle = 'output-equivalence' needs it." if equivalence else "{ops} is replaced by its path."),
            'For example:\n    [workload]\n    operations_file = "ops.txt"   # `crashcheck ops` writes one',
        )
    if not equivalence and config.check.outputs != ("stdout",):
        raise CrashcheckError(
            "config-value",
            f"{config.path}: [check] outputs are compared only with oracle = 'output-equivalence'.",
        )
    if not equivalence:
        if commands[1][1].holds("ops"):
            raise CrashcheckError(
                "config-placeholder",
                f"{config.path}: [check] command: {{ops}} can be used only with oracle = 'output-equivalence'.",
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
