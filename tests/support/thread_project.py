"""A project whose program hands a value from one thread to another, for the tests of what threads may do next."""

from __future__ import annotations

from pathlib import Path

_PROGRAM = """
#include <pthread.h>
{headers}#include <string.h>
static int ready, seen;
static void set(int value) {{ ready = value; }}
static int get(void) {{ return ready; }}
static void *reader(void *unused) {{
    seen += get();
    return unused;
}}
int main(int argc, char **argv) {{
    pthread_t thread;
    int late = argc > 1 && strcmp(argv[1], "late") == 0;
    if (!late)
        set(1);
    pthread_create(&thread, NULL, reader, NULL);
    pthread_join(thread, NULL);
    if (late)
        set(1);
{end}}}
"""


def handover(end: str, headers: str = "") -> str:
    """The program; with the word "late" it sets the value after the other thread has read it. `end`: of its main."""
    return _PROGRAM.format(end=end, headers=headers)


class ThreadProject:
    """`program.c` and its configuration. `flags`: of the compiler; `settings`: more lines of [workload]."""

    def __init__(
        self, folder: Path, environment: dict[str, str], program: str, *, flags: str = "", settings: str = ""
    ) -> None:
        self.folder, self.environment = folder, environment
        self._flags, self._settings = flags, settings
        self.source(program)
        self.workload("./program")

    def source(self, text: str) -> None:
        (self.folder / "program.c").write_text(text, encoding="utf-8")

    def workload(self, command: str) -> None:
        (self.folder / "crashcheck.toml").write_text(
            f'[build]\ncommand = "crashcheck-cc {self._flags} -O0 -g -pthread -o program program.c"\n'
            f'[workload]\ncommand = "{command}"\n{self._settings}'
            '[pool]\nfiles = ["*"]\n[check]\ncommand = "true"\n',
            encoding="utf-8",
        )
