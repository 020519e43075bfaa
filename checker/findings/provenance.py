"""Where in the source an event of the trace comes from: its place, and which it is among equal places."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np

import crashcheck
from crashcheck.analyzer.compile.facts import STORES, ProgramFacts, Site
from crashcheck.analyzer.compile.ir.debuginfo import SourcePosition
from crashcheck.analyzer.trace.native_lines import NativeLines, NativePlace
from crashcheck.analyzer.trace.reader import CallSite, Trace
from crashcheck.checker.findings.templates import of_template
from crashcheck.checker.fixes.source.c_source import Macro, Source, known_macros, visible
from crashcheck.checker.fixes.source.c_targets import target
from crashcheck.checker.results import Frame, Location
from crashcheck.source import SourceTree, is_installed, source_line, source_lines

# Of a call into it, as `slot->store(v)`, the text names what is stored to.
_ATOMIC = re.compile(r"/(atomic|bits/atomic_base\.h|__atomic/\w+\.h)$")
# Where the installers of Python, Node, Go, Rust, Perl, PHP and Ruby put packages, and where their libraries are.
# Rust's has the paths that it was built with.
_PACKAGES = re.compile(
    r"/(site-packages|dist-packages|node_modules|pkg/mod/(?!golang\.org/toolchain)|\.cargo/registry)/"
    r"|^/usr/(local/)?s?bin/|/(\.?v?env|\.local)/bin/|/(libexec|shims)/"  # which starts what is in a package
    r"|^/usr/(local/)?share/perl5?/|/lib/perl5?/site_perl/|/perl5/lib/perl5/|/vendor/[\w.-]+/[\w.-]+/|/gems/[^/]+-\d[^/]*/"
    r"|/lib/ruby/vendor_ruby/(?![\d.]+/)|^[^/].*@v\d[^/]*/"
)
_LIBRARY = re.compile(
    r"/(lib|lib64)/python3(\.\d+)?/|^/rustc/|^/rust/deps/|/rustlib/src/|/go(-\d[.\d]*)?/src/"
    r"|^/usr/(local/)?(lib|share)(/x86_64-linux-gnu)?/perl[\d./-]|/lib/ruby/(vendor_ruby/)?[\d.]+/|^<internal:"
    r"|/pkg/mod/golang\.org/toolchain@|^_cgo_"
    # Go's library in a program that `go build -trimpath` made: no module's name may begin as a package of it does.
    r"|^(archive|bufio|bytes|cmp|compress|container|context|crypto|database|debug|embed|encoding|errors|expvar|flag|fmt"
    r"|go|hash|html|image|index|internal|io|iter|log|maps|math|mime|net|os|path|plugin|reflect|regexp|runtime|slices"
    r"|sort|strconv|strings|structs|sync|syscall|testing|text|time|unicode|unique|unsafe|vendor|weak)/.*\.(go|s)$"
    r"|^/usr/(local/)?include/|^/usr/(local/)?lib\w*/(gcc|llvm-[\d.]+|clang|x86_64-linux-gnu)/|/include/c\+\+/"
)
# Of the virtual machine of Java; and classes whose sources were not found. Those that were have absolute paths.
_OF_JAVA = re.compile(r"^(java|javax|jdk|sun|com/sun|kotlin|scala|groovy|clojure)/")
_WITHOUT_SOURCE = re.compile(r"^[^/<].*\.(java|kt|scala|groovy|clj)$")
_BESIDE = ("python", "python3", "ruby", "perl", "node")
_INTERPRETER = re.compile(r"/(python|pypy|node|nodejs|perl|php|ruby|bash)[\d.-]*$|/lib(python|perl|php|ruby)[\w.-]*$")
_SHARED = re.compile(r"\.so[\d.]*$")
_THREADS = re.compile(r"/threading\.py$")  # of Python's library, which begins each thread
_EVAL = "(eval)"  # Perl's name for a part of the function around it
OWN = 2  # of a program itself
_HOME = Path(crashcheck.__file__).parent
_CALLERS = (f"{_HOME}/testing/", f"{_HOME}/runtime/in_child.py")  # ours, which call a function of a test
_TYPED = ("<-c>", "<-e>", "<-r>")  # what an option of an interpreter gives: a package that it calls is a better place
_TESTS = re.compile(r"/(test_[^/]*|[^/]*_test|conftest)\.py$")  # pytest's: a package that a test calls is, too
_OWN_TEXT = "<stdin>"
_LONGEST = 60  # characters of an expression that names what is stored to


class Project:
    """Which files are under test: what is in the repository of `folder`, beside a source that crashcheck-cc compiled,
    or anywhere but where systems and compilers keep headers.
    """

    def __init__(self, facts: ProgramFacts, folder: Path) -> None:
        self._tree = SourceTree(folder)
        self._files: dict[str, str] = {}
        self._folders = {str(Path(self.file(unit.source)).parent) for unit in facts.units.values()}

    def file(self, path: str) -> str:
        """How reports name it: relative to `folder` where it is in its repository."""
        if path not in self._files:
            self._files[path] = self._tree.relative(path)
        return self._files[path]

    def has(self, path: str) -> bool:
        file = self.file(path)
        if not path or not file.startswith("/"):
            return bool(path)
        return not is_installed(file) or str(Path(file).parent) in self._folders


class TraceProvenance:
    """Provenance from the program facts; files relative to `folder` where they are in its repository.

    A store that an installed header made (std::atomic, a container) is placed where the project called it: at the
    innermost link of the inlining and call chain that the project has; else at the innermost of all. So is one of a
    wrapper, as `p<T>` of libpmemobj-cpp, in whichever header it is.
    """

    def __init__(self, trace: Trace, facts: ProgramFacts, folder: Path) -> None:
        self._trace = trace
        self._facts = facts
        self._project = Project(facts, folder)
        self._lines = NativeLines(lambda path: ownership(path) == OWN)
        self._known: dict[tuple[int, int], Location | None] = {}
        self._ordinals: dict[tuple[int, Location], int] = {}

    def of(self, event: int) -> Location | None:
        return self._at(self._trace.events[event])

    def of_load(self, load: int) -> Location | None:
        return self._at(self._trace.loads[load])

    def _at(self, row: np.void) -> Location | None:
        key = (int(row["site"]), int(row["stack"]))
        if key not in self._known:
            self._known[key] = self._find(*key)
        return self._known[key]

    def ordinal(self, event: int) -> int:
        here = self.of(event)
        row = self._trace.events[event]
        if here is None:
            return 0
        # The chain's first site in a unit that knows the place: the store's own, or a caller's.
        for site in (int(row["site"]), *self._trace.stack(int(row["stack"]))):
            unit = self._trace.unit_of(site)
            if unit is None:
                continue
            key = (unit.key, replace(here, stack=()))
            if key not in self._ordinals:
                self._ordinals[key] = self._ordinal(*key)
            if self._ordinals[key] >= 0:
                return self._ordinals[key]
        return 0

    def _ordinal(self, unit: int, here: Location) -> int:
        """Among the unit's places with the function, variable and text of `here`; -1 if it has no such place."""
        facts = self._facts.unit(unit)
        equal = {
            (place.line, place.column)
            for site in (facts.sites if facts is not None else ())
            for place in site.positions
            if place.function == here.function
            and (site.variable in (here.variable, "") or here.variable.startswith(f"{site.variable}."))
            and self._project.file(place.file) == here.file
            and source_line(place.file, place.line).strip() == here.text
        }
        at = (here.line, here.column)
        return sorted(equal).index(at) if at in equal else -1

    def _find(self, site_id: int, stack_id: int) -> Location | None:
        sites = (site_id, *self._trace.stack(stack_id))
        best: Location | None = None
        highest = -1
        for part in self._programs(sites):
            for find in (self._scripted, self._native):
                found, rank = find(part) if highest < OWN else (None, 0)
                if found is not None and rank > highest:
                    best, highest = found, rank
        if best is not None:
            return best
        own: Site | None = self._trace.site(site_id, self._facts)
        callers = [self._trace.site(call, self._facts) for call in sites[1:]]
        chain = [place for site in (own, *callers) if site is not None for place in site.positions]
        if not chain:
            return None
        variable, wrappers = _named_by_callers(own, callers) if own is not None else ("", 0)
        inner = sum(len(site.positions) for site in (own, *callers)[:wrappers] if site is not None)
        at = next((at for at, place in enumerate(chain) if at >= inner and self._project.has(place.file)), 0)
        place = chain[at]
        variable = variable or _destination([site for site in callers if site is not None], place)
        stack = tuple(Frame(above.function, self._project.file(above.file), above.line) for above in chain[at + 1 :])
        text = source_line(place.file, place.line).strip()
        # Of a place further out the text describes what is called there, not what that stores to.
        itself = own is not None and own.kind in STORES and all(_ATOMIC.search(inner.file) for inner in chain[:at])
        expression = "" if variable or not itself else _expression(place.file, place.line, place.column)
        file = self._project.file(place.file)
        return Location(file, place.line, place.column, place.function, variable, stack, text, expression)

    def _programs(self, sites: tuple[int, ...]) -> list[tuple[int, ...]]:
        """The parts of a stack: of the program that makes the call, of the script that runs it, and so on."""
        known = [self._trace.call_sites.get(site) for site in sites]
        scripted = [site is not None and bool(site.name) for site in known]
        ends = [at for at in range(1, len(sites)) if scripted[at - 1] and not scripted[at]]
        return [sites[start:end] for start, end in zip([0, *ends], [*ends, len(sites)], strict=True)]

    def _scripted(self, sites: tuple[int, ...]) -> tuple[Location | None, int]:
        """The innermost function of a script's own in a stack, and whose it is; None in stacks of other programs."""
        known = (self._trace.call_sites.get(site) for site in sites)
        scripted = [site for site in known if site is not None and site.name]
        chain = [site for site in scripted if not site.module.startswith(_CALLERS) and not _OF_JAVA.search(site.module)]
        if not chain or _is_of_library_thread(chain):
            return None, 0
        places: list[NativePlace] = []
        function = chain[-1].name
        for site in reversed(chain):
            function = function if site.name == _EVAL else site.name
            places.insert(0, NativePlace(function, site.module, site.line, site.column))
        here, rank = self._innermost(places, [ownership(place.file) for place in places])
        native = (site.module for site in map(self._trace.call_sites.get, reversed(sites)) if site and not site.name)
        program = next((module for module in native if module and not _SHARED.search(module)), "")
        return replace(here, function=_acting(places[: len(places) - len(here.stack)], program)), rank

    def _native(self, sites: tuple[int, ...]) -> tuple[Location | None, int]:
        """The innermost function of the program's own in a stack of machine code; None if none has lines."""
        known = [site for site in map(self._trace.call_sites.get, sites) if site is not None and site.module]
        called = [(site.module, place) for site in known for place in self._lines.chain(site.module, site.offset - 1)]
        # Code of an interpreter and its library is not the script's, unless who reads this has its sources.
        chain = [
            (place, min(ownership(place.file), ownership(module)))
            for module, place in called
            if place.file and (source_lines(place.file) or not (_INTERPRETER.search(module) or not ownership(module)))
        ]
        if not any(ownership(place.file) == OWN for place, _ in chain):
            return None, 0
        return self._innermost([place for place, _ in chain], [rank for _, rank in chain])

    def _innermost(self, chain: Sequence[NativePlace], own: Sequence[int]) -> tuple[Location, int]:
        """Of places, and whose each is."""
        at = own.index(max(own))
        here, file = chain[at], self._project.file(chain[at].file)
        stack = tuple(Frame(above.function, self._project.file(above.file), above.line) for above in chain[at + 1 :])
        text = source_line(here.file, here.line)
        return Location(file, here.line, here.column, here.function, "", stack, text), own[at]


def _named_by_callers(own: Site, callers: Sequence[Site | None]) -> tuple[str, int]:
    """The name of what a site stores to; where that is all of an object of a class template, which its caller names,
    with that name: `Queue.tail.v` for the `p.v` of `pm::p<unsigned long>::operator=`. And in how many such wrappers it
    is."""
    name, inner = own.variable, own
    for wrappers, caller in enumerate(callers):
        template = of_template(inner.function).rpartition("::")[0].rpartition("::")[2]
        if not template or f"{template}<" not in inner.function or caller is None or not _is_all_of(inner, caller):
            return name, wrappers
        if not re.match(rf"{re.escape(template)}(?=[.\[])", name):
            return name, wrappers
        name, inner = caller.variable + name[len(template) :], caller
    return name, len(callers)


def _is_all_of(member: Site, called_on: Site) -> bool:
    """Whether a member of an object is as large as the object that the caller names, and so the only one."""
    if len(member.steps) != 1 or not called_on.steps:
        return False
    return member.steps[0].offset == 0 and member.steps[0].size == called_on.steps[0].size


def _destination(callers: Sequence[Site], place: SourcePosition) -> str:
    """What an algorithm of the library, as std::copy, writes to by its call at a place; "" for other calls."""
    calls = (site.variable for site in callers if place in site.positions and site.callee.startswith("_ZSt"))
    return next(calls, "")


def _is_of_library_thread(chain: Sequence[CallSite]) -> bool:
    """Whether a thread of Python has no function but those of the library, as one that serves an executor."""
    begun = _THREADS.search(chain[-1].module) is not None and chain[-1].name.rpartition(".")[2] == "_bootstrap"
    return begun and not any(ownership(site.module) for site in chain)


def _acting(places: Sequence[NativePlace], program: str) -> str:
    """The function of the last of some places; if that is none, the program which a line of a script runs there: it is
    the one that makes the call, or the script which begins where that line is next.
    """
    *inner, here = places
    if not _begins(here):
        return here.function
    runs = program if not inner else inner[-1].file if _begins(inner[-1]) else ""
    return runs.rpartition("/")[2] if runs and not runs.startswith("<") else here.function


def _begins(place: NativePlace) -> bool:
    """Whether a place is at the top level of a script."""
    return place.function in ("main", "<module>")


@lru_cache(maxsize=4096)
def ownership(path: str) -> int:
    """Of a source: OWN if it is the program's, 1 if it is of a package that was installed for it, else 0."""
    if (
        path in _TYPED
        or _TESTS.search(path)
        or _PACKAGES.search(path)
        or _WITHOUT_SOURCE.search(path)
        or _starts_package(path)
    ):
        return 1
    library = _LIBRARY.search(path) or (path.startswith("<") and path != _OWN_TEXT)
    return 0 if library else OWN


def _starts_package(path: str) -> bool:
    """Whether a script is beside the interpreter that runs it, as in a virtual environment of any name."""
    folder, _, name = os.path.realpath(path).rpartition("/")  # pipx links to what it installs
    return folder.endswith("/bin") and any(name != each and os.path.exists(f"{folder}/{each}") for each in _BESIDE)


def _expression(file: str, line: int, column: int) -> str:
    found = target(_source(file), line, column, _macros(file))
    return found if len(found) <= _LONGEST else ""


@lru_cache(maxsize=64)
def _source(file: str) -> Source:
    return Source("\n".join(source_lines(file)))


@lru_cache(maxsize=64)
def _macros(file: str) -> dict[str, Macro]:
    return known_macros(visible(Path(file), lambda path: _source(str(path))))
