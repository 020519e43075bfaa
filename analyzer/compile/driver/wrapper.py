"""crashcheck-cc and crashcheck-c++: drop-in compilers whose objects report to the recorder.

A command line is taken apart only as far as needed: each C or C++ source becomes an instrumented object, everything
else is clang's own work with clang's own arguments.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from crashcheck.analyzer.compile.driver.arguments import Input, expand, parse
from crashcheck.analyzer.compile.driver.toolchain import THREADS, Compiler, find_compiler, runtime
from crashcheck.analyzer.compile.facts import PLAIN_SECTION, UnitFacts, encode
from crashcheck.analyzer.compile.ir.text import READERS
from crashcheck.errors import CrashcheckError

SEARCHED = ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH")  # variables in which clang finds folders of headers
GNU_DIALECT = ("-fheinous-gnu-extensions",)  # gcc accepts a cast as an output of inline assembly; clang then only warns
PROGRAM = {False: "crashcheck-cc", True: "crashcheck-c++"}


def run(words: Sequence[str], cxx: bool) -> int:
    """Do what the command line asks; returns the exit code. Reads os.environ and the working directory."""
    try:
        return _Build(list(words), cxx).run()
    except CrashcheckError as error:
        print(f"{PROGRAM[cxx]}: error: {error}", file=sys.stderr)
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


class _Build:
    def __init__(self, words: list[str], cxx: bool) -> None:
        self.cxx = cxx
        self.words = words
        self.arguments = parse(expand(words, os.getcwd()), cxx)
        self.compiler: Compiler = find_compiler()

    def run(self) -> int:
        arguments = self.arguments
        if arguments.mode == "other" or not arguments.inputs:
            return self._clang(self.words)
        if any(item.language.endswith("-header") for item in arguments.inputs):
            return self._clang(self.words)
        if arguments.mode != "link" and arguments.output and len(arguments.inputs) > 1 and len(arguments.sources) > 0:
            return self._clang(self.words)  # clang's own error: one output for several inputs
        for note in arguments.notes:
            print(f"{PROGRAM[self.cxx]}: note: {note}", file=sys.stderr)
        if arguments.mode == "link":
            return self._compile_and_link() if arguments.sources else self._link(arguments.words, {})
        for item in arguments.inputs:
            if item.compiled:
                status = self._unit(item, self._object_name(item))
            elif item.language:
                status = self._clang([*self._for_one(item, keep_mode=True)])
            else:
                status = self._clang(self.words) if not arguments.sources else 0
            if status:
                return status
        return 0

    def _object_name(self, item: Input) -> str:
        if self.arguments.output:
            return self.arguments.output
        stem = item.stem if item.path != "-" else "-"
        return stem + (".s" if self.arguments.mode == "assemble" else ".o")

    def _compile_and_link(self) -> int:
        with tempfile.TemporaryDirectory(prefix="crashcheck-cc-") as folder:
            objects: dict[int, str] = {}
            for number, item in enumerate(self.arguments.inputs):
                if not item.compiled:
                    continue
                # The name shows in diagnostics of the linker.
                target = os.path.join(folder, f"{item.stem}-{number}.o")
                status = self._unit(item, target)
                if status:
                    return status
                objects[item.index] = target
            return self._link(self.arguments.words, objects)

    # -- one unit ----------------------------------------------------------------------------------------------

    def _for_one(
        self, item: Input, keep_mode: bool = False, linking: bool = False, dependencies: bool = True
    ) -> list[str]:
        """The arguments without other inputs, without mode and output, without what is ignored."""
        arguments = self.arguments
        others = {other.index for other in arguments.inputs if other.index != item.index}
        leave = others | arguments.dropped
        if not keep_mode:
            leave |= arguments.outputs
        if linking:
            leave |= arguments.links
        if not dependencies:
            leave |= arguments.dependency_words
        leave.add(item.index)
        if not keep_mode:
            leave |= arguments.languages
        words = [word for index, word in enumerate(arguments.words) if index not in leave]
        if not keep_mode and item.language != "ir":
            words = [*GNU_DIALECT, *words, "-x", item.language]
        return [*words, item.path]

    def _command(self, item: Input) -> tuple[str, ...]:
        """The command that compiles an input, for UnitFacts.command; () for standard input and for LLVM IR."""
        if item.path == "-" or item.language == "ir":
            return ()
        arguments = self.arguments
        leave = {other.index for other in arguments.inputs} | arguments.dropped | arguments.outputs | arguments.links
        leave |= arguments.languages | arguments.dependency_words
        words = [word for index, word in enumerate(arguments.words) if index not in leave]
        searched = [f"{name}={value}" for name in SEARCHED if (value := os.environ.get(name))]
        environment = ["env", *searched] if searched else []
        return (*environment, *self.compiler.command(self.cxx), *GNU_DIALECT, *words, "-x", item.language)

    def _dependencies(self, item: Input, target: str) -> list[str]:
        """Dependency files are to name the object that the user asked for, not our bitcode."""
        arguments = self.arguments
        if not arguments.dependencies:
            return []
        words = []
        final = arguments.output or (item.stem + (".s" if arguments.mode == "assemble" else ".o"))
        if not arguments.dependency_target:
            words += ["-MQ", final]
        if not arguments.dependency_file:
            base = os.path.splitext(arguments.output)[0] if arguments.output else item.stem
            words += ["-MF", base + ".d"]
        return words

    def _compile(self, item: Input, target: str, options: list[str], linking: bool) -> int:
        """Run clang on one input with `options`, which name the output, and write the dependency file of `target`."""
        words = self._for_one(item, linking=linking)
        named = self._dependencies(item, target)
        if self.compiler.zig and self.arguments.dependencies:
            # Beside a dependency file its driver writes nothing but an object.
            status = self._clang([*words[:-1], *named, "-w", "-E", "-o", os.devnull, words[-1]])
            if status:
                return status
            words, named = self._for_one(item, linking=linking, dependencies=False), []
        return self._clang([*words[:-1], *options, *named, words[-1]])

    def _unit(self, item: Input, target: str) -> int:
        arguments = self.arguments
        linking = arguments.mode == "link"
        if arguments.foreign:
            return self._plain(item, target, f"{arguments.foreign}: only x86-64 Linux is instrumented", quiet=False)
        with tempfile.TemporaryDirectory(prefix="crashcheck-cc-") as folder:
            bitcode = os.path.join(folder, "unit.bc")
            # Else C++ classes whose constructor or key function is in another unit have no members here.
            debug = ["-g2", "-fstandalone-debug"]  # not -g: zig puts that before the user's own -g0 or -g1
            extra = ["-Xclang", "-disable-llvm-passes", *debug, "-emit-llvm", "-c", "-o", bitcode]
            if arguments.level == "0":
                # Types and TBAA need -O1; programs must not notice.
                extra = ["-O1", "-U__OPTIMIZE__", "-D__NO_INLINE__=1", *extra]
            if os.path.isdir(runtime().include):
                extra += ["-idirafter", runtime().include]
            if linking:
                extra.append("-Wno-unused-command-line-argument")
            status = self._compile(item, target, extra, linking)
            if status or not os.path.exists(bitcode):
                return status
            if self._lower_coroutines(bitcode):
                return 1
            report = os.path.join(folder, "report")
            if self.compiler.major in READERS:
                text = os.path.join(folder, "unit.ll")
                if not self._instrument(item, bitcode, text, report, by_clang=True) and self._emit(item, text, target):
                    return 0
            failure = self._instrument(item, bitcode, target, report)
            if not failure:
                return 0
            # Errors in assembly show up only when code is emitted: they are the compiler's to report.
            words = self._for_one(item, linking=linking, dependencies=False)
            status = self._clang([*words[:-1], "-w", "-c", "-o", os.path.join(folder, "plain.o"), words[-1]])
            if status:
                return status
        if os.environ.get("CRASHCHECK_FALLBACK", "") not in ("", "0"):
            return self._plain(item, target, failure, quiet=False)
        print(f"{PROGRAM[self.cxx]}: error: {failure}", file=sys.stderr)
        return 1

    def _lower_coroutines(self, bitcode: str) -> int:
        """Coroutines become functions by the clang that made them: their intrinsics differ with each LLVM."""
        with open(bitcode, "rb") as stream:
            if b"llvm.coro." not in stream.read():
                return 0
        lowered = bitcode + ".lowered"
        words = ["-w", "-O0", "-x", "ir", "-emit-llvm", "-c", bitcode, "-o", lowered]
        if self.compiler.major < 16:
            words = ["-Xclang", "-fcoroutines-ts", *words]
        status = self._clang(words)
        if not status:
            os.replace(lowered, bitcode)
        return status

    def _emit(self, item: Input, text: str, target: str) -> bool:
        """Let clang optimise and emit the instrumented text; False if it cannot."""
        arguments = self.arguments
        leave = {other.index for other in arguments.inputs} | arguments.dropped | arguments.outputs | arguments.links
        leave |= arguments.languages | arguments.dependency_words
        words = [word for index, word in enumerate(arguments.words) if index not in leave]
        mode = "-S" if arguments.mode == "assemble" else "-c"
        command = [*self.compiler.command(self.cxx), *words, "-w", "-x", "ir", mode, text, "-o", target]
        done = subprocess.run(command, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, check=False)
        return done.returncode == 0

    def _instrument(self, item: Input, bitcode: str, target: str, report: str, by_clang: bool = False) -> str:
        """Bitcode to object (or to text for clang) in a child process; returns why it failed, or ""."""
        arguments = self.arguments
        models = runtime().models
        description = self.compiler.description()
        sys.stdout.flush()
        sys.stderr.flush()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                said = os.open(report + ".stderr", os.O_RDWR | os.O_CREAT, 0o600)
                os.dup2(said, 2)
                signal.signal(signal.SIGTERM, signal.SIG_DFL)  # inside LLVM no handler of Python runs
                gc.disable()  # the child ends before garbage matters
                from crashcheck.analyzer.compile.instrument import unit

                options = unit.UnitOptions(
                    source=os.path.abspath(item.path) if item.path != "-" else "<stdin>",
                    directory=os.getcwd(),
                    compiler=description,
                    level=arguments.level,
                    keep_debug=arguments.debug,
                    assembly=arguments.mode == "assemble",
                    function_sections=arguments.function_sections and not by_clang,
                    data_sections=arguments.data_sections and not by_clang,
                    models=models,
                    notes=tuple(arguments.notes),
                    command=self._command(item),
                    threads=os.environ.get(THREADS, ""),
                    operations=tuple(filter(None, os.environ.get("CRASHCHECK_OPERATIONS", "").split("\n"))),
                )
                with open(bitcode, "rb") as stream:
                    data = stream.read()
                try:
                    made = unit.prepare_unit(data, options).encode("utf-8", "surrogateescape") if by_clang else b""
                    made = made or unit.compile_unit(data, options)[0]
                    if target == "-":
                        sys.stdout.buffer.write(made)
                        sys.stdout.flush()
                    else:
                        with open(target, "wb") as output:
                            output.write(made)
                    code = 0
                except (CrashcheckError, OSError) as error:
                    with open(report, "w", encoding="utf-8", errors="replace") as output:
                        output.write(str(error))
                        if unit.is_unforeseen(error):
                            import traceback

                            output.write(f"\n{traceback.format_exc()}")
            except BaseException:
                import traceback

                with open(report, "w", encoding="utf-8", errors="replace") as output:
                    output.write(f"{item.path}: {traceback.format_exc()}")
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        printed = ""
        if os.path.exists(report + ".stderr"):
            with open(report + ".stderr", encoding="utf-8", errors="replace") as errors:
                printed = errors.read()
        if status == 0:
            sys.stderr.write(printed)
            return ""
        if os.path.exists(report):
            with open(report, encoding="utf-8") as stream:
                return stream.read()
        from crashcheck.analyzer.compile.instrument.unit import binding_version

        how = (
            signal.Signals(os.WTERMSIG(status)).name
            if os.WIFSIGNALED(status)
            else f"status {os.waitstatus_to_exitcode(status)}"
        )
        return (
            f"{item.path}: the instrumenter ended with {how}; bitcode of {description}, read by {binding_version()} "
            "[instrumenter-died]\n  set CRASHCHECK_CLANG to a clang 14 to 19, or CRASHCHECK_FALLBACK=1 to "
            "compile such units plain" + (f"\n{printed}" if printed else "")
        )

    def _plain(self, item: Input, target: str, reason: str, quiet: bool) -> int:
        """Compile without hooks, and leave the reason in the object."""
        first = reason.splitlines()[0]
        if not quiet:
            print(f"{PROGRAM[self.cxx]}: warning: not instrumented: {first}", file=sys.stderr)
        mode = ["-S"] if self.arguments.mode == "assemble" else ["-c"]
        status = self._compile(item, target, [*mode, "-o", target], self.arguments.mode == "link")
        if status or mode == ["-S"] or target == "-":
            return status
        facts = UnitFacts(
            source=os.path.abspath(item.path),
            directory=os.getcwd(),
            compiler=self.compiler.description(),
            binding="",
            not_instrumented=first,
        )
        _, blob = encode(facts)
        with tempfile.NamedTemporaryFile(prefix="crashcheck-facts-") as stream:
            stream.write(blob)
            stream.flush()
            return self._add_section(PLAIN_SECTION, stream.name, target)

    def _add_section(self, name: str, content: str, target: str) -> int:
        """Add a section to an object; the exit code. A machine without binutils has no objcopy, but zig's linker."""
        try:
            return subprocess.run(["objcopy", f"--add-section={name}={content}", target], check=False).returncode
        except FileNotFoundError:
            pass
        with tempfile.TemporaryDirectory(prefix="crashcheck-cc-") as folder:
            section, linked = os.path.join(folder, "section.s"), os.path.join(folder, "linked.o")
            with open(section, "w", encoding="utf-8") as stream:
                stream.write(f'.section {name},"",@progbits\n.incbin "{content}"\n')
            status = self._clang(["-r", "-nostdlib", "-o", linked, target, section])
            if not status:
                shutil.copyfile(linked, target)
        return status

    # -- link and plain clang ----------------------------------------------------------------------------------

    def _link(self, words: list[str], objects: dict[int, str]) -> int:
        arguments = self.arguments
        result: list[str] = []
        for index, word in enumerate(words):
            if index in arguments.dropped or (index in arguments.languages and objects):
                continue
            if index in objects:
                result.append(objects[index])
                continue
            item = next((other for other in arguments.inputs if other.index == index), None)
            if item is not None and objects and item.language:
                # -x was removed for the objects: repeat it for what clang still compiles (assembler).
                result += ["-x", item.language, word, "-x", "none"]
                continue
            result.append(word)
        if objects:
            result.append("-Wno-unused-command-line-argument")
        if arguments.runtime:
            libraries = runtime()
            if arguments.static:
                # Recording starts before main, whatever a program calls; an archive gives only what is asked for.
                result += [f"-Wl,-u,{libraries.start}", libraries.static, "-lpthread", "-ldl"]
            else:
                folder = os.path.dirname(libraries.shared)
                result += [libraries.link, f"-Wl,-rpath,{folder}"]
        status = self._clang(result)
        if not status and arguments.runtime and not os.environ.get(THREADS):
            from crashcheck.analyzer.compile.timers.linked import activate

            activate(Path(arguments.output or "a.out"))
        return status

    def _clang(self, words: list[str]) -> int:
        """Run clang with the terminal's own descriptors; its text and its exit code are the user's."""
        sys.stdout.flush()
        sys.stderr.flush()
        try:
            done = subprocess.run([*self.compiler.command(self.cxx), *words], check=False)
        except OSError as error:
            raise CrashcheckError("no-clang", f"cannot run {self.compiler.path}: {error}") from error
        return done.returncode if done.returncode >= 0 else 128 - done.returncode
