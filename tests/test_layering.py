"""Imports run one way: base, runtime, analyzer, checker, reports, and above them the pipeline and the command line."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LAYERS = ("base", "runtime", "analyzer", "checker", "reports", "top")
# The rooms of the analyser, each importing from those before it; `arrays` is for all of them.
ANALYZER_ROOMS = ("compile", "trace", "persistence", "behaviours", "concurrency", "invariants")
BASE = {
    "cache",
    "change.diff",
    "command",
    "config",
    "errors",
    "interruption",
    "masking",
    "models",
    "one_folder",
    "ports",
    "source",
    "wording",
}


def layer_of(module: str) -> str:
    """The layer of a dotted name under crashcheck; the package's root itself, with the version, is base."""
    parts = module.split(".")
    if len(parts) == 1 or parts[1].startswith("__version") or BASE & {parts[1], ".".join(parts[1:3])}:
        return "base"
    return parts[1] if parts[1] in LAYERS else "top"


def modules() -> Iterator[tuple[str, Path]]:
    source = ROOT / "src"
    for room in ("", "change", "cli", "config", "stages", "testing", *LAYERS[1:-1]):
        folder = f"crashcheck/{room}".rstrip("/")
        pattern = "*.py" if folder == "crashcheck" else "**/*.py"
        for path in sorted((source / folder).glob(pattern)):
            parts = path.relative_to(source).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


@functools.cache
def imports(module: str, path: Path) -> list[tuple[str, int]]:
    return list(_imports(module, path))


def _imports(module: str, path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
            stem = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            name = ".".join(part for part in (stem, node.module or "") if part)
            # `from crashcheck import analyzer` imports a module by its last name.
            yield from ((f"{name}.{alias.name}" if name == "crashcheck" else name, node.lineno) for alias in node.names)


def test_the_modules_are_found() -> None:
    names = {name for name, _ in modules()}
    assert {"crashcheck", "crashcheck.errors", "crashcheck.cli.init", "crashcheck.checker.results"} <= names


def test_no_module_imports_from_a_layer_above_its_own() -> None:
    upward = [
        f"{path.relative_to(ROOT)}:{line}: {layer_of(module)} imports {name} of {layer_of(name)}"
        for module, path in modules()
        for name, line in imports(module, path)
        if name.split(".")[0] == "crashcheck" and LAYERS.index(layer_of(name)) > LAYERS.index(layer_of(module))
    ]
    assert upward == []


def test_no_module_imports_a_wing_by_its_bare_name() -> None:
    """`import analyzer` would take any folder of that name in the user's project."""
    bare = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for module, path in modules()
        for name, line in imports(module, path)
        if name.split(".")[0] in LAYERS
    ]
    assert bare == []


def test_reports_never_import_the_analysis_or_run_anything() -> None:
    forbidden = ("crashcheck.runtime", "crashcheck.analyzer", "subprocess", "ctypes", "llvmlite")
    calls_back = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for module, path in modules()
        if layer_of(module) == "reports"
        for name, line in imports(module, path)
        if f"{name}.".startswith(tuple(f"{word}." for word in forbidden))
    ]
    assert calls_back == []


def room_of(module: str) -> int:
    """The place of a module of the analyser in ANALYZER_ROOMS; -1 for `arrays` and all that is no module of it."""
    parts = module.split(".")
    in_room = parts[:2] == ["crashcheck", "analyzer"] and len(parts) > 2 and parts[2] in ANALYZER_ROOMS
    return ANALYZER_ROOMS.index(parts[2]) if in_room else -1


def test_the_rooms_of_the_analyser_import_one_way() -> None:
    rooms = {path.parent.name for path in (ROOT / "analyzer").glob("*/__init__.py")}
    assert rooms == set(ANALYZER_ROOMS)
    backward = [
        f"{path.relative_to(ROOT)}:{line}: imports {name}"
        for module, path in modules()
        if module.startswith("crashcheck.analyzer.") and module != "crashcheck.analyzer.arrays"
        for name, line in imports(module, path)
        if room_of(name) > room_of(module)
    ]
    assert backward == []


# The rooms of the checker and the modules beside them, each importing only from those before it.
CHECKER_ROOMS = (
    ("results", "budget", "store"),
    ("states", "evidence"),
    ("token", "images"),
    ("execution", "subject"),
    ("kept",),
    ("oracles", "strategies"),
    ("verdicts",),
    ("findings", "exploration", "remote"),
    ("search",),
    ("nodes",),
    ("fixes", "mutation", "replay"),
    ("baseline",),
    ("policy",),
)
# Reading C source: provenance names what is stored to by it, as the fixes do.
READ_BY_FINDINGS = ("crashcheck.checker.fixes.source.c_source", "crashcheck.checker.fixes.source.c_targets")


def checker_room(module: str) -> str:
    return module.split(".")[2]


def test_the_rooms_of_the_checker_import_one_way() -> None:
    there = {checker_room(module) for module, _ in modules() if module.startswith("crashcheck.checker.")}
    assert there == {room for rooms in CHECKER_ROOMS for room in rooms}
    rank = {room: number for number, rooms in enumerate(CHECKER_ROOMS) for room in rooms}
    against = [
        f"{path.relative_to(ROOT)}:{line}: {checker_room(module)} imports {name}"
        for module, path in modules()
        if module.startswith("crashcheck.checker.")
        for name, line in imports(module, path)
        if name.startswith("crashcheck.checker.")
        and checker_room(name) != checker_room(module)
        and rank[checker_room(name)] >= rank[checker_room(module)]
        and name not in READ_BY_FINDINGS
    ]
    assert against == []


def room_folder(module: str, path: Path) -> str:
    """The folder of a module, as a dotted name: that is its room."""
    return module if path.name == "__init__.py" else module.rpartition(".")[0]


def test_every_room_names_in_its_docstring_the_modules_that_other_rooms_import() -> None:
    paths = dict(modules())
    rooms = {name: path for name, path in paths.items() if path.name == "__init__.py" and name.count(".") > 1}
    rooms["crashcheck.runtime"] = paths["crashcheck.runtime"]
    used: dict[str, set[str]] = {room: set() for room in rooms}
    for module, path in paths.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ImportFrom) or node.module is None:
                continue
            for full in {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)} & paths.keys() - rooms:
                room = full.rpartition(".")[0]
                if room in rooms and room != room_folder(module, path):
                    used[room].add(full.rpartition(".")[2])
    for room, path in rooms.items():
        docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        first, *rest = docstring.split("\n\n")
        assert re.fullmatch(r"(?:[^.\n]|\.\w)+\.", first), f"{room}: the first paragraph is one sentence on one line"
        named = [line for line in rest if line.startswith("Other rooms import ")]
        assert set(re.findall(r"`(\w+)`", "".join(named))) == used[room], room
