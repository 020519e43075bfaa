"""A compiler's command line, read as far as a wrapper must: inputs, mode, output, dependency files."""

from __future__ import annotations

import os
import shlex
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
# Instrumentation that clang's own passes would add; the object is emitted by another LLVM, so it cannot be had.
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
    mode: str = "link"  # "link" | "compile" | "assemble" | "other" (nothing for us to do)
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
    runtime: bool = True  # whether a link takes the runtime in
    foreign: str = ""  # a target that is not x86-64 Linux
    notes: list[str] = field(default_factory=list)
    dropped: set[int] = field(default_factory=set)  # indices of words that are ignored
    outputs: set[int] = field(default_factory=set)  # indices of words that say mode and output
    links: set[int] = field(default_factory=set)  # indices of words that only a linker reads
    dependency_words: set[int] = field(default_factory=set)  # indices of words about dependency files
    languages: set[int] = field(default_factory=set)  # indices of -x and its value

    @property
    def sources(self) -> list[Input]:
        return [item for item in self.inputs if item.compiled]


def expand(words: list[str], folder: str, depth: int = 0) -> list[str]:
    """Response files (`@file`, GNU quoting) replaced by their words; one that cannot be read stays."""
    if not any(word.startswith("@") for word in words) or depth > 16:
        return words
    result: list[str] = []
    for word in words:
        if word.startswith("@"):
            try:
                with open(os.path.join(folder, word[1:]), encoding="utf-8", errors="surrogateescape") as stream:
                    lexer = shlex.shlex(stream.read(), posix=True, punctuation_chars=False)
            except OSError:
                result.append(word)
                continue
            lexer.whitespace_split = True
            lexer.commenters = ""
            result.extend(expand(list(lexer), folder, depth + 1))
        else:
            result.append(word)
    return result


def parse(words: list[str]) -> Arguments:
    """Read a command line whose response files are expanded."""
    result = Arguments(words)
    language = ""
    index = 0
    sanitizers: list[str] = []
    while index < len(words):
        word = words[index]
        value = words[index + 1] if index + 1 < len(words) else ""
        here = {index}
        separate = word in SEPARATE
        if separate:
            here.add(index + 1)
        if word == "--":
            result.inputs += [
                Input(path, at, language or LANGUAGES.get(os.path.splitext(path)[1], ""))
                for at, path in enumerate(words)
                if at > index
            ]
            result.dropped.add(index)
            break
        if word == "-" or not word.startswith("-"):
            kind = language if language and language != "none" else LANGUAGES.get(os.path.splitext(word)[1], "")
            if word == "-" and not kind:
                kind = "c"
            result.inputs.append(Input(word, index, kind))
        elif word == "-x" or word == "--language":
            language = value
            result.languages |= here
        elif word.startswith("-x") and len(word) > 2:
            language = word[2:]
            result.languages |= here
        elif word == "-o" or word == "--output":
            result.output = value
            result.outputs |= here
        elif word.startswith("-o") and len(word) > 2 and not word.startswith("-object"):
            result.output = word[2:]
            result.outputs |= here
        elif word in ("-c", "--compile"):
            result.mode = "other" if result.mode == "other" else "assemble" if result.mode == "assemble" else "compile"
            result.outputs |= here
        elif word in ("-S", "--assemble"):
            result.mode = "other" if result.mode == "other" else "assemble"
            result.outputs |= here
        elif word in (
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
        ):
            result.mode = "other"
        elif word in ("-MD", "-MMD"):
            result.dependencies = True
        elif word == "-MF":
            result.dependency_file = value
        elif word.startswith("-MF") and len(word) > 3:
            result.dependency_file = word[3:]
        elif word.startswith(("-MT", "-MQ")):
            result.dependency_target = True
        elif word.startswith(("-Wp,-MD", "-Wp,-MMD")):
            result.dependencies = True
            result.dependency_file = word.split(",")[2] if word.count(",") > 1 else ""
            result.dependency_target = "-MT" in word or "-MQ" in word
        elif word.startswith("-O"):
            result.level = _level(word[2:])
        elif word.startswith("-g") and not word.startswith(
            ("-gcc-toolchain", "-gsplit-dwarf", "-gz", "-gno-", "-grecord", "-gcolumn")
        ):
            result.debug = word not in ("-g0", "-ggdb0")
        elif word in ("-ffunction-sections", "-fno-function-sections"):
            result.function_sections = word == "-ffunction-sections"
        elif word in ("-fdata-sections", "-fno-data-sections"):
            result.data_sections = word == "-fdata-sections"
        elif word in ("-static", "--static", "-static-pie"):
            result.static = True
        elif word in ("-shared", "--shared"):
            result.shared = True
        elif word in ("-nostdlib", "-nodefaultlibs", "-nolibc", "-r", "-Wl,-r", "-Wl,--relocatable", "-Wl,-i"):
            result.runtime = False
        elif word == "-m32" or word == "-mx32":
            result.foreign = word
        elif word in ("-target", "--target") or word.startswith("--target="):
            triple = value if separate else word.partition("=")[2]
            if not (triple.startswith(("x86_64", "amd64")) and "linux" in triple):
                result.foreign = f"target {triple}"
        elif word.startswith("-fsanitize="):
            sanitizers.append(word)
            wanted = word.partition("=")[2].split(",")
            if any(name in PASS_SANITIZERS or name.startswith("cfi") for name in wanted):
                result.dropped.add(index)
                result.notes.append(f"{word} is ignored: hooks and sanitizers are not combined")
        if word.startswith(("-MD", "-MMD", "-MF", "-MT", "-MQ", "-MP", "-MG", "-MV", "-MJ", "-Wp,-M")):
            result.dependency_words |= here
        if word in _IGNORED or (word.startswith(_IGNORED_PREFIXES) and not word.startswith("-fno-")):
            result.dropped |= here
            if not word.startswith(("-flto-", "-fuse", "-fno")):
                result.notes.append(f"{word} is ignored: each unit is instrumented and emitted on its own")
        if word in LINK_ONLY_EXACT or (
            word.startswith(LINK_ONLY) and not word.startswith("-target") and word != "-emit-llvm"
        ):
            result.links |= here
        index += len(here)
    result.notes = list(dict.fromkeys(result.notes))
    return result


def _level(text: str) -> str:
    if text in ("", "1", "g"):
        return "1"
    if text in ("0", "2", "3", "s", "z"):
        return text
    return "3" if text == "fast" or text.isdigit() else "2"
