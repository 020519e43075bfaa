"""From a unit's bitcode to an instrumented object: parse, rewrite, verify, optimise, emit.

Runs in a child process of its own: a parser that meets IR newer than itself may abort.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import llvmlite
import llvmlite.binding as llvm

from crashcheck.analyzer.compile.dependence import reader, summaries
from crashcheck.analyzer.compile.facts import SECTION, Site, UnhookedConstruct, UnitFacts, encode
from crashcheck.analyzer.compile.instrument import hooks, operations
from crashcheck.analyzer.compile.instrument.guarding import Guarding
from crashcheck.analyzer.compile.instrument.rewriter import Rewriter
from crashcheck.analyzer.compile.ir.debuginfo import DebugInfo, metadata_without_debug
from crashcheck.analyzer.compile.ir.layouts import layouts_of
from crashcheck.analyzer.compile.ir.text import NAME, IRSyntaxError, for_clang_19, matching, read_module, type_end
from crashcheck.analyzer.compile.learned_sets import MARKED, TRAINING, LearnedSets
from crashcheck.analyzer.compile.timers import reader as timers
from crashcheck.analyzer.compile.timers.flows import pack
from crashcheck.errors import CrashcheckError

_FLAG = re.compile(r'!\{i32 \d+, !"(PIC Level|Code Model)", i32 (\d+)\}')
_CODE_MODELS = {"1": "small", "2": "kernel", "3": "medium", "4": "large"}
_CTORS = re.compile(r"^@llvm\.global_(ctors|dtors) = appending global \[\d+ x \{[^}]*\}\] \[(.*)\]$", re.MULTILINE)
_CTOR = re.compile(rf"\{{ i32 (\d+), ptr (@(?:{NAME})), ptr (null|@(?:{NAME})) \}}")
_FUNCTION = re.compile(rf"^define (?!.* section \")(?!.* comdat).*?@({NAME})\(.*\{{$", re.MULTILINE)
_VARIABLE = re.compile(
    rf"^@({NAME}) = (?!external|available_externally|appending|common)([^\n]*? )?(global|constant) ([^\n]*)$",
    re.MULTILINE,
)

_C = re.compile(r"^![0-9]+ = (?:distinct )?!DICompileUnit\(language: DW_LANG_C\d*,", re.MULTILINE)
_DBG = re.compile(r", !dbg !(\d+)")
_INLINE = re.compile(r"^define available_externally (.*!dbg (!\d+))", re.MULTILINE)
# Attributes that passes infer of functions, which calls of the guard make untrue.
_EFFECTS = re.compile(
    r"(?<= )(?:memory\([^)]*\)|readnone|readonly|writeonly|argmemonly|inaccessiblememonly|inaccessiblemem_or_argmemonly"
    r"|nosync|speculatable) (?=[^\n]*\})"
)
_SYSTEM = ("/usr/include/", "/usr/lib/", "/usr/local/include/")

# Mangled names of members of std::atomic and what it is made of, and of libpmemobj++'s p and persistent_ptr.
_FIELD_CLASS = re.compile(r"_ZN[VK]*(?:St(?:3__1)?\d+(?:__)?(?:cxx_)?atomic|4pmem3obj(?:1pI|14persistent_ptrI))")


@dataclass(frozen=True, slots=True)
class UnitOptions:
    """How to compile one unit, beyond what its bitcode holds."""

    source: str
    directory: str
    compiler: str
    level: str = "0"  # of -O: 0 1 2 3 s z
    keep_debug: bool = False
    assembly: bool = False
    function_sections: bool = False
    data_sections: bool = False
    models: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()
    command: tuple[str, ...] = ()  # as in UnitFacts
    operations: tuple[str, ...] = ()  # functions that are marked as operations
    threads: str = ""  # as CRASHCHECK_THREADS (toolchain.py): no recorder's hooks, but calls of guard.h


_ready = False


def initialise() -> None:
    """Load LLVM's target once per process."""
    global _ready
    if not _ready:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        llvm.initialize_native_asmparser()
        _ready = True


def binding_version() -> str:
    return f"llvmlite {llvmlite.__version__} (LLVM {'.'.join(map(str, llvm.llvm_version_info))})"


def warm_up() -> None:
    """Compile a line, so that what LLVM and Python load lazily is loaded before the compile server forks."""
    options = UnitOptions("warm-up.c", "/", "clang")
    context = llvm.create_context()
    text = f'target triple = "{llvm.get_default_triple()}"\n'
    text += "define void @f(ptr %p) {\n  store i32 1, ptr %p\n  ret void\n}\n"
    compile_unit(llvm.parse_assembly(text, context=context).as_bitcode(), options)


def canonical_text(bitcode: bytes, options: UnitOptions) -> str:
    """The module as text, functions that must always be inlined (intrinsic headers, mostly) inlined.

    So are members of small class templates that a data structure has as fields, as std::atomic: what they store to is
    then known as a field of that data structure.

    Raises CrashcheckError `ir-unreadable`.
    """
    initialise()
    context = llvm.create_context()
    try:
        module = llvm.parse_bitcode(bitcode, context=context)
    except RuntimeError as error:
        raise CrashcheckError(
            "ir-unreadable",
            f"{options.source}: {binding_version()} cannot read the bitcode of {options.compiler}: {error}",
            "set CRASHCHECK_CLANG to an older clang (14 to 19 are known to work)",
        ) from error
    for function in module.functions:
        if _FIELD_CLASS.match(function.name) and not function.is_declaration:
            function.add_function_attribute("alwaysinline")
    machine = llvm.Target.from_triple(module.triple).create_target_machine()
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=0))
    passes = llvm.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.run(module, builder)
    if options.threads and options.level != "0":
        # What is learned and guarded are the accesses that the program makes, not those that its source has.
        _optimise(module, str(module), options)
        # A group without any attribute cannot be read.
        return _EFFECTS.sub("", str(module)).replace(" = { }", ' = { "effects-unknown" }')
    return keep_inline_definitions(str(module))


def _optimise(module: llvm.ModuleRef, text: str, options: UnitOptions) -> llvm.TargetMachine:
    """Run the passes of -O on a module, whose text is `text`; the machine to emit code for."""
    flags = dict(_FLAG.findall(text, max(text.rfind("\n}\n"), 0)))
    speed = {"0": 0, "1": 1, "2": 2, "3": 3, "s": 2, "z": 2}[options.level]
    machine = llvm.Target.from_triple(module.triple).create_target_machine(
        opt=speed,
        reloc="pic" if "PIC Level" in flags else "static",
        codemodel=_CODE_MODELS.get(flags.get("Code Model", ""), "default"),
    )
    tuning = llvm.create_pipeline_tuning_options(speed_level=speed)
    tuning.loop_vectorization = tuning.slp_vectorization = speed >= 2
    builder = llvm.create_pass_builder(machine, tuning)
    builder.getModulePassManager().run(module, builder)
    return machine


def keep_inline_definitions(text: str) -> str:
    """Define the program's own C99 `inline` functions in this unit, too, where they are called.

    Their external definition may be missing: such a program links only because the compiler inlines all calls, which
    hooks would prevent. Headers of libraries are left alone, their external definition is in the library.
    """
    if not _INLINE.search(text) or not _C.search(text):
        return text
    files = dict(re.findall(r'^(!\d+) = !DIFile\(filename: "([^"]*)"', text, re.MULTILINE))
    subprograms = dict(re.findall(r"^(!\d+) = distinct !DISubprogram\(.*?\bfile: (!\d+)", text, re.MULTILINE))

    def defined(match: re.Match[str]) -> str:
        file = files.get(subprograms.get(match[2], ""), "/usr/lib/")
        return match[0] if file.startswith(_SYSTEM) else f"define linkonce_odr {match[1]}"

    return _INLINE.sub(defined, text)


def instrument_text(text: str, options: UnitOptions) -> tuple[str, UnitFacts]:
    """The unit's IR with hooks, descriptor and facts. Raises CrashcheckError `ir-construct`, and those of learned sets.

    No clang writes what this cannot read, but a damaged compile would. Whatever that leads to is the error's cause.
    """
    try:
        return _instrumented(text, options)
    except IRSyntaxError as error:
        raise _refused(str(error).strip()[:400] or "an empty line", options) from error
    except CrashcheckError:  # of the learned sets
        raise
    except Exception as error:
        raise _refused("the unit as a whole", options) from error


def _refused(what: str, options: UnitOptions) -> CrashcheckError:
    return CrashcheckError(
        "ir-construct",
        f"{options.source}: cannot instrument this construct: {what} ({options.compiler}, {binding_version()})",
        "CRASHCHECK_FALLBACK=1 compiles such units without hooks and reports it",
    )


def is_unforeseen(error: Exception) -> bool:
    """Whether this is an `ir-construct` that no reader foresaw: the unit is damaged, or crashcheck has a defect."""
    first: BaseException = error
    while first.__cause__ is not None:
        first = first.__cause__
    return isinstance(error, CrashcheckError) and error.slug == "ir-construct" and not isinstance(first, IRSyntaxError)


def _instrumented(text: str, options: UnitOptions) -> tuple[str, UnitFacts]:
    if options.threads:
        return _bracketed(text, options)
    text, wrappers = operations.wrap(text, options.operations)
    module = read_module(text)
    debug = DebugInfo(module.metadata)
    read = timers.read_flows(module.body, partial(_place, debug))
    rewriter = Rewriter(module, debug, options.models, options.keep_debug, read.lines)
    result = rewriter.run()
    kinds = [site.kind for site in result.sites]
    functions = reader.read_functions(module.body, kinds, result.sites_of, result.reads_of)
    facts = replace(
        _facts(options, result.sites, result.functions, result.not_understood),
        dependences=summaries.pack(functions),
        layouts=layouts_of(debug, result.sites),
        timers=pack(read.flows),
    )
    key, blob = encode(facts)
    descriptor = rewriter.hooks.text(rewriter.group, key, len(result.sites), blob, SECTION)
    compared = [(one.how, one.place) for one in read.flows.comparisons]
    table = hooks.timers_text(compared, key) if compared else ""
    return _completed(result.text, options, module.metadata, [wrappers, descriptor, table], [hooks.UNIT]), facts


def _place(debug: DebugInfo, line: str, function: str) -> str:
    """Where a line of a function is, as reports write it."""
    found = _DBG.search(line)
    positions = debug.positions(int(found.group(1))) if found else ()
    return f"{positions[0].function} ({positions[0].file}:{positions[0].line})" if positions else function


def _bracketed(text: str, options: UnitOptions) -> tuple[str, UnitFacts]:
    """The unit of a program that learns or is guarded."""
    marked = options.threads.startswith(MARKED)
    path = "" if options.threads in TRAINING else options.threads.removeprefix(MARKED)
    none_yet = not path or (marked and not os.path.exists(path))
    learned = LearnedSets.untrained(options.threads) if none_yet else LearnedSets.load(Path(path))
    module = read_module(text)
    debug = DebugInfo(module.metadata)
    describe = partial(_facts, options)
    guarding = Guarding(
        module,
        debug,
        options.models,
        options.keep_debug,
        describe,
        learned,
        folder=os.path.dirname(path),
        training=marked or not path,
        marked=marked,
    )
    result = guarding.run()
    assert guarding.facts is not None
    key, blob = encode(guarding.facts)
    descriptor = guarding.descriptor(key, blob, SECTION)
    return _completed(result.text, options, module.metadata, [descriptor], []), guarding.facts


def _facts(
    options: UnitOptions,
    sites: tuple[Site, ...],
    functions: Mapping[str, str],
    not_understood: tuple[UnhookedConstruct, ...],
) -> UnitFacts:
    return UnitFacts(
        source=options.source,
        directory=options.directory,
        compiler=options.compiler,
        binding=binding_version(),
        sites=sites,
        functions=functions,
        not_understood=not_understood,
        notes=options.notes,
        command=options.command,
    )


def _completed(body: str, options: UnitOptions, metadata: str, added: list[str], kept: list[str]) -> str:
    """The module of instrumented functions `body`. `added`: more of its text; `kept`: what only assembly names."""
    if options.function_sections:
        body = _FUNCTION.sub(_function_section, body)
    if options.data_sections:
        body = _VARIABLE.sub(_data_section, body)
    body = _keep(_constructors(body), "used", [f"ptr {hooks.FACTS}"])
    body = _keep(body, "compiler.used", [f"ptr {name}" for name in kept])
    if not options.keep_debug:
        metadata = metadata_without_debug(body, DebugInfo(metadata))
    return "\n".join([body, *added, metadata])


def _function_section(found: re.Match[str]) -> str:
    """A section precedes comdat, align, gc, prefix, prologue, personality and metadata."""
    line = found.group()
    name = found.group(1).strip('"')
    place = re.compile(r" (?:partition|comdat|align|gc|prefix|prologue|personality|!\w+|\{$)").search(
        line, _parameters_end(line)
    )
    at = place.start() if place else len(line)
    return f'{line[:at]} section ".text.{name}"{line[at:]}'


def _parameters_end(line: str) -> int:
    found = re.search(rf"@(?:{NAME})\(", line)
    assert found is not None
    return matching(line, found.end() - 1)


def _data_section(found: re.Match[str]) -> str:
    line = found.group()
    if ' section "' in line or ", comdat" in line or found.group(1).startswith("llvm."):
        return line
    name = found.group(1).strip('"')
    before, kind = found.group(2) or "", found.group(3)
    body = found.group(4)
    value = body[type_end(body, 0) + 1 :]
    zero = re.match(r"(?:zeroinitializer|0|null|0\.0+e\+00|false)(?:,|$)", value) is not None
    if "thread_local" in before:
        prefix = ".tbss" if zero else ".tdata"
    elif kind == "constant":
        if re.match(r"(?:private|internal)? ?(?:local_)?unnamed_addr $", before) and ' c"' in line:
            return line  # mergeable strings keep the section that merges them
        prefix = ".data.rel.ro" if "@" in found.group(4) else ".rodata"
    else:
        prefix = ".bss" if zero else ".data"
    at = re.search(r", (?:align|comdat|partition|!\w+|no_sanitize|sanitize|code_model)", line)
    place = at.start() if at else len(line)
    return f'{line[:place]}, section "{prefix}.{name}"{line[place:]}'


def _constructors(body: str) -> str:
    """`.init_array` entries by hand: the binding emits the old `.ctors`, which not every linker runs."""
    made: list[str] = []
    names: list[str] = []

    def replace(found: re.Match[str]) -> str:
        kind = "init" if found.group(1) == "ctors" else "fini"
        for priority, function, associated in _CTOR.findall(found.group(2)):
            name = f'@"cc.{kind}.{len(made)}"'
            section = f".{kind}_array" + ("" if priority == "65535" else f".{int(priority):05d}")
            comdat = ""
            if associated != "null":
                group = re.search(rf"^{re.escape(associated)} = [^\n]*?, comdat(?:\((\$[^)]*)\))?", body, re.MULTILINE)
                if group is not None:
                    comdat = f", comdat({group.group(1) or '$' + associated[1:]})"
            made.append(f'{name} = internal global ptr {function}, section "{section}"{comdat}, align 8')
            names.append(f"ptr {name}")
        return ""

    return _keep("\n".join([_CTORS.sub(replace, body), *made]) + "\n", "compiler.used", names)


def _keep(body: str, kind: str, names: list[str]) -> str:
    """Add to llvm.used (kept by the linker too) or llvm.compiler.used (kept by the optimiser)."""
    if not names:
        return body
    pattern = rf'^@llvm\.{re.escape(kind)} = appending global \[(\d+) x ptr\] \[(.*)\], section "llvm\.metadata"$'
    known = re.search(pattern, body, re.MULTILINE)
    count = len(names)
    if known is not None:
        count += int(known.group(1))
        names = [known.group(2), *names]
        body = body[: known.start()] + body[known.end() :]
    listed = ", ".join(names)
    return f'{body}\n@llvm.{kind} = appending global [{count} x ptr] [{listed}], section "llvm.metadata"\n'


def verified(text: str, options: UnitOptions) -> llvm.ModuleRef:
    """The parsed and verified module. Raises CrashcheckError `ir-invalid`."""
    initialise()
    try:
        module = llvm.parse_assembly(text, context=llvm.create_context())
        module.verify()
    except RuntimeError as error:
        dump = os.environ.get("CRASHCHECK_DUMP_IR")
        if dump:
            with open(dump, "w", encoding="utf-8", errors="surrogateescape") as stream:
                stream.write(text)
        raise CrashcheckError(
            "ir-invalid",
            f"{options.source}: the instrumented IR is not valid ({options.compiler}, {binding_version()}): {error}",
            "this is a defect of crashcheck; CRASHCHECK_FALLBACK=1 compiles such units without hooks",
        ) from error
    return module


def emit(text: str, options: UnitOptions) -> bytes:
    """Verify, optimise and emit an object (or assembly). Raises CrashcheckError `ir-invalid`."""
    module = verified(text, options)
    machine = _optimise(module, text, options)
    machine.set_asm_verbosity(False)
    if options.assembly:
        return str(machine.emit_assembly(module)).encode()
    return bytes(machine.emit_object(module))


def prepare_unit(bitcode: bytes, options: UnitOptions) -> str:
    """The verified text of an instrumented unit in the dialect of clang 19, which is to emit it."""
    text, _ = instrument_text(canonical_text(bitcode, options), options)
    verified(text, options)
    return for_clang_19(text)


def compile_unit(bitcode: bytes, options: UnitOptions) -> tuple[bytes, UnitFacts]:
    """Object (or assembly) of an instrumented unit, and its facts."""
    text, facts = instrument_text(canonical_text(bitcode, options), options)
    return emit(text, options), facts
