"""The configuration: crashcheck.toml and the options of the command line, as one checked value.

Read by hand and not by a library, because an error names the key, shows an example, or asks "did you mean".
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from crashcheck.command import Command, descriptor
from crashcheck.config import server
from crashcheck.config.faults import CALLS, ERRORS, Fault
from crashcheck.config.values import (
    MOST_MIB,
    MOST_SECONDS,
    Section,
    known_only,
    one_of,
    type_error,
    without_null,
)
from crashcheck.errors import CrashcheckError
from crashcheck.models import FAMILIES

FILE_NAME = "crashcheck.toml"

MODELS = tuple(FAMILIES)
STRATEGIES = ("ranked", "pathfinder", "witcher", "bounded", "exhaustive", "random")
ORACLES = ("exit-status", "output-equivalence", "snapshot")
ACKNOWLEDGED = ("output", "exit")
FIRST = ("check", "skip")
FILE_SYSTEMS = ("ext4", "posix")
MEMORIES = ("persistent", "all")
IO_URING = ("refuse", "allow")
RECORDERS = ("linked", "syscalls")
FAIL_ON = ("none", "note", "warning", "error")
FINDING_KINDS = ("ordering", "atomicity", "unpersisted", "recovery-failure", "reopen", "*")
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
    env: Mapping[str, str] = field(default_factory=dict)  # added to that of the workload, which it gets, too
    timeout_s: float = 60.0


@dataclass(frozen=True, slots=True)
class WorkloadConfig:
    """[workload]: what is recorded."""

    command: Command
    env: Mapping[str, str]
    timeout_s: float = 60.0
    operations_file: str = ""  # one operation per line; {ops} in commands
    operations: tuple[str, ...] = ()  # functions whose outermost calls are operations
    operation_pairs: tuple[tuple[str, str], ...] = ()  # functions that begin an operation, and those that end it
    recorder: str = "linked"  # in the program, by crashcheck-cc; "syscalls": from outside, of any program


@dataclass(frozen=True, slots=True)
class PoolConfig:
    """[pool]: the files that may lose updates in a crash."""

    files: tuple[str, ...]  # glob patterns relative to the pool folder


@dataclass(frozen=True, slots=True)
class CheckConfig:
    """[check]: decides whether the files that a crash left are consistent."""

    command: Command
    env: Mapping[str, str]
    oracle: str = "exit-status"
    first: str = "check"  # "skip": the first image need not pass
    timeout_s: float = 10.0
    memory_mib: int = 4096  # address space of a check; 0: no limit
    file_mib: int = 8192  # size of each file that a check writes; 0: no limit
    outputs: tuple[str, ...] = ("stdout",)  # what output equivalence compares
    acknowledged: str = "output"  # of a trace of system calls: "exit" counts that the command ended, too

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Those of the outputs that a program does not have by itself: a driver finds them open."""
        numbers = [number for number in map(descriptor, self.outputs) if number is not None]
        return tuple(number for number in numbers if number > 2)


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """[model]: which updates may survive a crash."""

    name: str = "px86"
    tear: int = 0  # bytes of a sector that persists on its own; 0: pages do not tear
    files: str = "ext4"  # what makes a new file's name durable (crash-model.md, page-cache rule 5)
    amplify: bool = False  # a sync after each call that empties or creates a file (system-calls.md, Amplification)


@dataclass(frozen=True, slots=True)
class StrategyConfig:
    """[strategy]: which crash states are checked, and in which order."""

    name: str = "ranked"
    deviations: int = 2  # bounded: at most this many cache lines (pages) that lost, or kept, updates
    libraries: str = "last"  # ranked: where groups of code outside the project are, "last" or "equal"
    explore: bool = True  # ranked, exhaustive: decide whole crash points by explored runs


@dataclass(frozen=True, slots=True)
class BudgetConfig:
    """[budget]: how long to search. DEFAULT_SECONDS if neither is given: most programs have too many states for all."""

    seconds: float | None = None
    states: int | None = None


@dataclass(frozen=True, slots=True)
class RecordConfig:
    """[record]: how the workload is recorded."""

    memory: str = "persistent"  # whose loads and stores are recorded: "all" includes memory that a crash loses
    io_uring: str = "refuse"  # of a traced program: "allow" gives up the verdict


@dataclass(frozen=True, slots=True)
class ReportConfig:
    """[report]: what a run reports, and when it fails."""

    notes: bool = False  # report redundant flushes, fences and syncs
    fixes: bool = True  # suggest a fix for each finding, tried on the recorded run
    fail_on: str = "warning"  # the lowest severity of a finding that makes the exit code 1


@dataclass(frozen=True, slots=True)
class SuppressConfig:
    """[[suppress]]: findings to accept: those with this id, in these files, or both."""

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
    faults: tuple[Fault, ...] = ()  # [[faults]]: calls of the workload that fail


def load(path: Path | str) -> Config:
    """Read and check `path`, a crashcheck.toml or a folder that holds one.

    Raises CrashcheckError: config-missing, config-syntax, config-unknown-key, config-required, config-type,
    config-value, config-placeholder.
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
    return parse(text, file)


def parse(text: str, path: Path) -> Config:
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
    sections = (
        *("build", "setup", "workload", "pool", "check", "model", "strategy", "budget", "record", "report"),
        *("suppress", "faults"),
    )
    known_only(path, "", document, sections)

    def section(name: str, keys: tuple[str, ...]) -> Section:
        values = document.get(name, {})
        if not isinstance(values, dict):
            raise type_error(path, f"[{name}]", values, "a table")
        known_only(path, name, values, keys)
        return Section(path, name, values)

    build = section("build", ("command",))
    setup = section("setup", ("command", "env", "timeout_s"))
    workload = section(
        "workload", ("command", *server.KEYS, "env", "timeout_s", "operations_file", "operations", "recorder")
    )
    pool = section("pool", ("files",))
    check = section(
        "check",
        (
            "command",
            *server.KEYS,
            "oracle",
            "first",
            "timeout_s",
            "memory_mib",
            "file_mib",
            "env",
            "outputs",
            "acknowledged",
        ),
    )
    model = section("model", ("name", "tear", "files", "amplify"))
    strategy = section("strategy", ("name", "deviations", "libraries", "explore"))
    budget = section("budget", ("seconds", "states"))
    report = section("report", ("notes", "fixes", "fail_on"))
    record = section("record", ("memory", "io_uring"))
    workload_s = workload.seconds("timeout_s", 60.0)
    config = Config(
        path=path.absolute(),
        folder=path.absolute().parent,
        build=BuildConfig(build.command("command")),
        setup=SetupConfig(setup.command("command"), setup.env(), setup.seconds("timeout_s", workload_s)),
        workload=WorkloadConfig(
            workload.command_or_server(("pool", "ops", "run", "port")),
            workload.env(),
            workload_s,
            workload.text("operations_file"),
            *workload.functions_and_pairs("operations"),
            recorder=_recorder(workload),
        ),
        pool=PoolConfig(pool.patterns("files")),
        check=CheckConfig(
            command=_NO_CHECK
            if check.values.get("oracle") == "snapshot"
            else check.command_or_server(("pool", "acked", "stdout", "ops", "port")),
            env=check.env(),
            oracle=check.choice("oracle", ORACLES, "exit-status"),
            first=check.choice("first", FIRST, "check"),
            timeout_s=check.seconds("timeout_s", 10.0),
            memory_mib=check.whole("memory_mib", 4096, least=0, most=MOST_MIB),
            file_mib=check.whole("file_mib", 8192, least=0, most=MOST_MIB),
            outputs=check.outputs("outputs", pool.patterns("files")),
            acknowledged=check.choice("acknowledged", ACKNOWLEDGED, "output"),
        ),
        model=ModelConfig(
            name=model.choice("name", MODELS, "px86"),
            tear=model.tear("tear"),
            files=model.choice("files", FILE_SYSTEMS, "ext4"),
            amplify=model.flag("amplify"),
        ),
        strategy=StrategyConfig(
            name=strategy.choice("name", STRATEGIES, "ranked"),
            deviations=strategy.whole("deviations", 2, least=0),
            libraries=strategy.choice("libraries", ("last", "equal"), "last"),
            explore=strategy.flag("explore", True),
        ),
        budget=BudgetConfig(
            seconds=None if set(budget.values) == {"states"} else budget.seconds("seconds", DEFAULT_SECONDS),
            states=budget.whole("states", 1, least=1) if "states" in budget.values else None,
        ),
        record=RecordConfig(
            memory=record.choice("memory", MEMORIES, "persistent"),
            io_uring=record.choice("io_uring", IO_URING, "refuse"),
        ),
        report=ReportConfig(
            report.flag("notes"), report.flag("fixes", True), report.choice("fail_on", FAIL_ON, "warning")
        ),
        suppress=_suppressions(path, document.get("suppress", [])),
        faults=_faults(path, document.get("faults", [])),
    )
    if config.faults and config.workload.recorder != "syscalls":
        message = f"{path}: [[faults]] are injected where system calls are recorded."
        raise CrashcheckError("config-value", message, 'Add to [workload]:\n    recorder = "syscalls"')
    _check_operations(config)
    return config


def _recorder(workload: Section) -> str:
    if workload.values.get("recorder") == "strace":
        raise CrashcheckError(
            "config-value",
            f"{workload.path}: [workload] recorder is 'strace', which crashcheck no longer uses.",
            'Write recorder = "syscalls": it records more, and runs in containers that refuse seccomp filters, too. If '
            "there is no C compiler: pip install ziglang",
        )
    return workload.choice("recorder", RECORDERS, "linked")


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
    line = Section(
        Path("command line"),
        "",
        {
            key: value
            for key, value in {
                "--model": model,
                "--tear": _tear(tear),
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
            amplify=config.model.amplify or amplify,
        ),
        strategy=replace(
            config.strategy,
            name=line.choice("--strategy", STRATEGIES, config.strategy.name),
            deviations=line.whole("--deviations", config.strategy.deviations, least=0),
            explore=config.strategy.explore if explore is None else explore,
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


def _tear(value: str | int | None) -> str | int | None:
    """The value of --tear as TOML would have it."""
    return int(value) if value in ("512", "4096") else value


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


def _suppressions(path: Path, tables: object) -> tuple[SuppressConfig, ...]:
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise type_error(path, "suppress", tables, "tables, each headed [[suppress]]")
    out = []
    for table in tables:
        known_only(path, "[suppress]", table, ("id", "file", "kinds", "reason"))
        section = Section(path, "[suppress]", table)
        id_, file, reason = section.text("id").strip(), section.text("file").strip(), section.text("reason").strip()
        if not reason:
            raise section.missing("reason", 'reason = "why this finding may stay"')
        if not id_ and not file:
            raise section.missing("id", 'id = "3f9a0c12be77" (a finding), or file = "src/old/*.c"')
        kinds = section.names("kinds", 'a list of kinds, as in ["ordering"]') or ("*",)
        for kind in kinds:
            if kind not in FINDING_KINDS:
                hint = f"The kinds are {one_of(FINDING_KINDS)}."
                raise CrashcheckError(
                    "config-value", f"{path}: {section.label('kinds')}: {kind!r} is not a kind.", hint
                )
        out.append(SuppressConfig(reason, id_, file, kinds))
    return tuple(out)


def _faults(path: Path, tables: object) -> tuple[Fault, ...]:
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise type_error(path, "faults", tables, "tables, each headed [[faults]]")
    if len(tables) > MOST_FAULTS:
        message = f"{path}: [[faults]] has {len(tables)} tables; the most is {MOST_FAULTS}."
        raise CrashcheckError("config-value", message)
    return tuple(_fault(Section(path, "[faults]", table)) for table in tables)


def _fault(section: Section) -> Fault:
    known_only(section.path, section.name, section.values, ("call", "error", "file", "nth", "times"))
    if "call" not in section.values:
        raise section.missing("call", 'call = "fsync"')
    return Fault(
        section.choice("call", CALLS, ""),
        section.choice("error", ERRORS, "EIO", "the name of an error, as 'EIO' or 'ENOSPC'"),
        section.pattern("file"),
        section.whole("nth", 1, least=1),
        section.whole("times", 1, least=0),
    )


def parse_fault(text: str) -> Fault:
    """`--fault CALL=ERROR[,file=PATTERN][,nth=N][,times=N]`. Raises CrashcheckError as `load` does."""
    head, *rest = text.split(",")
    values: dict[str, str | int] = {}
    call, equals, error = head.partition("=")
    values["call"], values["error"] = call, error if equals else "EIO"
    for part in rest:
        key, _, value = part.partition("=")
        values[key] = int(value) if key != "file" and re.fullmatch("[0-9]{1,18}", value) else value
    return _fault(Section(Path("--fault"), "", values))


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
