"""A compiler's command line, read as far as a wrapper must: inputs, mode, output, dependency files."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field

# Options whose value is the next word.
SEPARATE = frozenset(
    [
        "-o",
        "-x",
        "-I",
        "-D",
        "-U",
        "-L",
        "-l",
        "-include",
        "-imacros",
        "-isystem",
        "-iquote",
        "-idirafter",
        "-iprefix",
        "-iwithprefix",
        "-iwithprefixbefore",
        "-isysroot",
        "--sysroot",
        "-MF",
        "-MT",
        "-MQ",
        "-Xlinker",
        "-Xassembler",
        "-Xpreprocessor",
        "-Xclang",
        "-Xanalyzer",
        "-T",
        "-u",
        "-z",
        "-e",
        "-target",
        "-arch",
        "-mllvm",
        "-working-directory",
        "-gcc-toolchain",
        "-B",
        "-V",
        "-b",
        "-framework",
        "-aux-info",
        "--param",
        "-rpath",
        "-soname",
        "-h",
        "-dumpbase",
        "-dumpdir",
        "-include-pch",
        "-cxx-isystem",
        "-F",
        "-A",
        "-ivfsoverlay",
        "-iframework",
        "-serialize-diagnostics",
        "-Tbss",
        "-Tdata",
        "-Ttext",
        "-fmodule-name",
        "-stdlib++-isystem",
        "-Xopenmp-target",
        "-dependency-file",
        "-mthread-model",
        "-fuse-ld-path",
        "--output",
        "--include",
        "--language",
        "--define-macro",
        "--undefine-macro",
        "-main-file-name",
    ]
)
LANGUAGES = {
    ".c": "c",
    ".i": "cpp-output",
    ".cc": "c++",
    ".cp": "c++",
    ".cxx": "c++",
    ".cpp": "c++",
    ".CPP": "c++",
    ".c++": "c++",
    ".C": "c++",
    ".CC": "c++",
    ".ii": "c++-cpp-output",
    ".s": "assembler",
    ".S": "assembler-with-cpp",
    ".sx": "assembler-with-cpp",
    ".asm": "assembler",
    ".ll": "ir",
    ".bc": "ir",
    ".cppm": "c++",
    ".ixx": "c++",
    ".h": "c-header",
    ".hh": "c++-header",
    ".hpp": "c++-header",
    ".hxx": "c++-header",
    ".H": "c++-header",
    ".hp": "c++-header",
    ".m": "objective-c",
    ".mm": "objective-c++",
    ".cu": "cuda",
    ".f": "f77",
    ".F": "f77",
    ".f90": "f95",
}
_AS_CXX = {"c": "c++", "cpp-output": "c++-cpp-output", "c-header": "c++-header"}  # as clang++ and g++ do
INSTRUMENTED = frozenset({"c", "c++", "cpp-output", "c++-cpp-output", "ir"})
LINK_ONLY = ("-l", "-L", "-Wl,", "-T", "-u", "-z", "-rpath", "-fuse-ld=", "--ld-path", "-Xlinker", "-e")
LINK_ONLY_EXACT = frozenset(
    [
        "-shared",
        "-static",
        "-static-pie",
        "-pie",
        "-no-pie",
        "-nopie",
        "-rdynamic",
        "-s",
        "-nostdlib",
        "-nodefaultlibs",
        "-nostartfiles",
        "-nolibc",
        "-nostdlib++",
        "-static-libgcc",
        "-shared-libgcc",
        "-static-libstdc++",
        "-r",
        "-Bstatic",
        "-Bdynamic",
        "-pthreads",
        "--shared",
        "--static",
    ]
)
# Instrumentation that clang's own passes would add; the object is emitted by another LLVM, so it is not available.
PASS_SANITIZERS = frozenset(
    [
        "address",
        "hwaddress",
        "kernel-address",
        "kernel-hwaddress",
        "thread",
        "memory",
        "kernel-memory",
        "dataflow",
        "fuzzer",
        "fuzzer-no-link",
        "kcfi",
        "cfi",
        "memtag",
        "memtag-stack",
        "memtag-heap",
        "memtag-globals",
        "safe-stack",
        "realtime",
        "type",
        "numerical",
    ]
)
_IGNORED_PREFIXES = (
    "-flto",
    "-fwhole-program-vtables",
    "-fprofile-generate",
    "-fprofile-use",
    "-fprofile-instr",
    "-fprofile-arcs",
    "-ftest-coverage",
    "-fcoverage-mapping",
    "-fcs-profile",
    "-fprofile-sample",
    "-fauto-profile",
    "-fthinlto",
    "-fsplit-lto",
    "-fsanitize-coverage",
    "-fxray",
    "-gsplit-dwarf",
    "-fembed-bitcode",
    "-ffat-lto-objects",
    "-fvirtual-function-elimination",
    "-foffload",
)
_IGNORED = frozenset(
    {"--coverage", "-coverage", "-fno-fat-lto-objects", "-fno-use-linker-plugin", "-fuse-linker-plugin"}
)


@dataclass(frozen=True, slots=True)
class Input:
    """A file to compile or link. `language` is "" for linker inputs."""

    path: str
    index: int  # in the arguments
    language: str

    @property
    def compiled(self) -> bool:
        return self.language in INSTRUMENTED

    @property
    def stem(self) -> str:
        return os.path.splitext(os.path.basename(self.path))[0]


@dataclass(slots=True)
class Arguments:
    """What a wrapper must know of a command line; `words` is the command line after response files."""

    words: list[str]
    mode: str = "link"  # "link" | "compile" | "assemble" | "other" (left to clang)
    output: str = ""
    inputs: list[Input] = field(default_factory=list)
    level: str = "0"
    debug: bool = False
    function_sections: bool = False
    data_sections: bool = False
    dependencies: bool = False
    dependency_file: str = ""
    dependency_target: bool = False
    static: bool = False
    shared: bool = False
    runtime: bool = True  # whether the recorder is linked in
    foreign: str = ""  # a target that is not x86-64 Linux
    notes: list[str] = field(default_factory=list)
    dropped: set[int] = field(default_factory=set)  # indices of words that are ignored
    outputs: set[int] = field(default_factory=set)  # indices of words that set mode and output
    links: set[int] = field(default_factory=set)  # indices of words that only a linker reads
    dependency_words: set[int] = field(default_factory=set)  # indices of words about dependency files
    languages: set[int] = field(default_factory=set)  # indices of -x and its value

    @property
    def sources(self) -> list[Input]:
        return [item for item in self.inputs if item.compiled]


_MOST_RESPONSE_FILES = 2000  # as in GCC


def expand(words: list[str], folder: str) -> list[str]:
    """Response files (`@file`, GNU quoting) replaced by their words. One that names itself or cannot be read stays."""
    result: list[str] = []
    left = _MOST_RESPONSE_FILES
    rest: list[tuple[str, tuple[str, ...]]] = [(word, ()) for word in reversed(words)]  # and the files it is from
    while rest:
        word, files = rest.pop()
        opens = left and word.startswith("@") and word not in files
        within = _response(os.path.join(folder, word[1:])) if opens else None
        if within is None:
            result.append(word)
        else:
            left -= 1
            rest += ((inner, (*files, word)) for inner in reversed(within))
    return result


def _response(path: str) -> list[str] | None:
    """The words of a response file; None if there is none, or a quotation in it never ends."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as stream:
            lexer = shlex.shlex(stream.read(), posix=True, punctuation_chars=False)
        lexer.whitespace_split = True
        lexer.commenters = ""
        return list(lexer)
    except (OSError, ValueError):
        return None


_OTHER_MODES = frozenset(
    [
        "-E",
        "--preprocess",
        "-M",
        "-MM",
        "-fsyntax-only",
        "--analyze",
        "-emit-llvm",
        "-emit-ast",
        "-###",
        "-cc1",
        "-cc1as",
    ]
)
_NO_RUNTIME = ("-nostdlib", "-nodefaultlibs", "-nolibc", "-r", "-Wl,-r", "-Wl,--relocatable", "-Wl,-i")
_NOT_DEBUG = ("-gcc-toolchain", "-gsplit-dwarf", "-gz", "-gno-", "-grecord", "-gcolumn")
_MODES = ("other", "assemble", "compile", "link")  # the one that stops earliest first
_DEPENDENCY_OPTIONS = ("-MD", "-MMD", "-MF", "-MT", "-MQ", "-MP", "-MG", "-MV", "-MJ", "-Wp,-M")


def parse(words: list[str], cxx: bool = False) -> Arguments:
    """Read a command line whose response files are expanded; `cxx`: a C++ compiler, which takes C sources for C++."""
    return _Parser(words, cxx).parse()


class _Parser:
    """One pass over a command line. `index` is the word that is read, `here` its index and that of its value."""

    def __init__(self, words: list[str], cxx: bool) -> None:
        self.words = words
        self.cxx = cxx
        self.result = Arguments(words)
        self.language = ""  # what the last -x asked for
        self.index = 0
        self.here: set[int] = set()

    def parse(self) -> Arguments:
        while self.index < len(self.words):
            word = self.words[self.index]
            if word == "--":
                self.rest_is_inputs()
                break
            self.here = {self.index, self.index + 1} if word in SEPARATE else {self.index}
            if word == "-" or not word.startswith("-"):
                self.input(word)
            else:
                self.option(word)
            self.classify(word)
            self.index += len(self.here)
        self.result.notes = list(dict.fromkeys(self.result.notes))
        return self.result

    @property
    def value(self) -> str:
        """The word after this one; "" at the end."""
        return self.words[self.index + 1] if self.index + 1 < len(self.words) else ""

    # -- inputs ------------------------------------------------------------------------------------------------

    def rest_is_inputs(self) -> None:
        for at in range(self.index + 1, len(self.words)):
            path = self.words[at]
            self.result.inputs.append(Input(path, at, self.language_of(path)))
        self.result.dropped.add(self.index)

    def input(self, path: str) -> None:
        kind = self.language_of(path)
        if path == "-" and not kind:
            kind = "c"
        self.result.inputs.append(Input(path, self.index, kind))

    # -- options -----------------------------------------------------------------------------------------------

    def option(self, word: str) -> None:
        """Do what the first row of the tables that fits `word` lists."""
        exact = _EXACT.get(word)
        if exact is not None:
            exact(self, word)
            return
        for prefix, handler in _PREFIXES:
            if word.startswith(prefix):
                handler(self, word)
                return

    def classify(self, word: str) -> None:
        """Sort a word into those about dependency files, those that are ignored and those for the linker."""
        result = self.result
        if word.startswith(_DEPENDENCY_OPTIONS):
            result.dependency_words |= self.here
        if word in _IGNORED or (word.startswith(_IGNORED_PREFIXES) and not word.startswith("-fno-")):
            result.dropped |= self.here
            if not word.startswith(("-flto-", "-fuse", "-fno")):
                result.notes.append(f"{word} is ignored: each unit is instrumented and emitted on its own")
        if word in LINK_ONLY_EXACT or (
            word.startswith(LINK_ONLY) and not word.startswith("-target") and word != "-emit-llvm"
        ):
            result.links |= self.here

    def set_language(self, language: str) -> None:
        self.language = language
        self.result.languages |= self.here

    def set_output(self, path: str) -> None:
        self.result.output = path
        self.result.outputs |= self.here

    def set_mode(self, mode: str) -> None:
        """The mode that stops earliest wins, whatever the order of the options."""
        self.result.mode = min(self.result.mode, mode, key=_MODES.index)

    def stop_at(self, mode: str) -> None:
        self.set_mode(mode)
        self.result.outputs |= self.here

    def set_target(self, triple: str) -> None:
        if not (triple.startswith(("x86_64", "amd64")) and "linux" in triple):
            self.result.foreign = f"target {triple}"

    def preprocessor_dependencies(self, word: str) -> None:
        self.result.dependencies = True
        self.result.dependency_file = word.split(",")[2] if word.count(",") > 1 else ""
        self.result.dependency_target = "-MT" in word or "-MQ" in word

    def sanitize(self, word: str) -> None:
        wanted = word.partition("=")[2].split(",")
        if any(name in PASS_SANITIZERS or name.startswith("cfi") for name in wanted):
            self.result.dropped.add(self.index)
            self.result.notes.append(f"{word} is ignored: hooks and sanitizers are not combined")

    def debug(self, word: str) -> None:
        if not word.startswith(_NOT_DEBUG):
            self.result.debug = word not in ("-g0", "-ggdb0")

    def language_of(self, path: str) -> str:
        """What -x asked for, else what the name ends in; "" for what only a linker reads."""
        if self.language not in ("", "none"):
            return self.language
        language = LANGUAGES.get(os.path.splitext(path)[1], "")
        return _AS_CXX.get(language, language) if self.cxx else language


_Handler = Callable[[_Parser, str], None]


def _set(name: str, value: str | bool) -> _Handler:
    """A handler that sets an attribute of the result."""
    return lambda parser, word: setattr(parser.result, name, value)


_EXACT: dict[str, _Handler] = {
    **dict.fromkeys(("-x", "--language"), lambda parser, word: parser.set_language(parser.value)),
    **dict.fromkeys(("-o", "--output"), lambda parser, word: parser.set_output(parser.value)),
    **dict.fromkeys(("-c", "--compile"), lambda parser, word: parser.stop_at("compile")),
    **dict.fromkeys(("-S", "--assemble"), lambda parser, word: parser.stop_at("assemble")),
    **dict.fromkeys(_OTHER_MODES, lambda parser, word: parser.set_mode("other")),
    **dict.fromkeys(("-MD", "-MMD"), _set("dependencies", True)),
    "-MF": lambda parser, word: setattr(parser.result, "dependency_file", parser.value),
    "-ffunction-sections": _set("function_sections", True),
    "-fno-function-sections": _set("function_sections", False),
    "-fdata-sections": _set("data_sections", True),
    "-fno-data-sections": _set("data_sections", False),
    **dict.fromkeys(("-static", "--static", "-static-pie"), _set("static", True)),
    **dict.fromkeys(("-shared", "--shared"), _set("shared", True)),
    **dict.fromkeys(_NO_RUNTIME, _set("runtime", False)),
    **dict.fromkeys(("-m32", "-mx32"), lambda parser, word: setattr(parser.result, "foreign", word)),
    "-target": lambda parser, word: parser.set_target(parser.value),
    "--target": lambda parser, word: parser.set_target(""),
}
_PREFIXES: tuple[tuple[str, _Handler], ...] = (
    ("-x", lambda parser, word: parser.set_language(word[2:])),
    ("-object", lambda parser, word: None),
    ("-o", lambda parser, word: parser.set_output(word[2:])),
    ("-MF", lambda parser, word: setattr(parser.result, "dependency_file", word[3:])),
    ("-MT", _set("dependency_target", True)),
    ("-MQ", _set("dependency_target", True)),
    ("-Wp,-MD", _Parser.preprocessor_dependencies),
    ("-Wp,-MMD", _Parser.preprocessor_dependencies),
    ("-O", lambda parser, word: setattr(parser.result, "level", _level(word[2:]))),
    ("-g", _Parser.debug),
    ("--target=", lambda parser, word: parser.set_target(word.partition("=")[2])),
    ("-fsanitize=", _Parser.sanitize),
)


def _level(text: str) -> str:
    if text in ("", "1", "g"):
        return "1"
    if text in ("0", "2", "3", "s", "z"):
        return text
    return "3" if text == "fast" or text.isdigit() else "2"
