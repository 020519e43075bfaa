"""Prints a clang of this machine that crashcheck can use; exit code 1 if there is none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

NAMES = ("clang", *(f"clang-{version}" for version in range(19, 13, -1)))

# In a process of its own: a parser that meets bitcode newer than itself may end the process.
PARSE = "import sys, llvmlite.binding as b; b.parse_bitcode(open(sys.argv[1], 'rb').read())"


def usable(clang: str) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        source, bitcode = Path(folder, "a.c"), Path(folder, "a.bc")
        source.write_text("int add(int a, int b) { return a + b; }\n")
        compiled = subprocess.run([clang, "-g", "-c", "-emit-llvm", "-o", bitcode, source], capture_output=True)
        if compiled.returncode:
            return False
        return not subprocess.run([sys.executable, "-c", PARSE, bitcode], capture_output=True).returncode


for name in (os.environ.get("CRASHCHECK_CLANG", ""), *NAMES):
    found = shutil.which(name) if name else None
    if found and usable(found):
        print(found)
        sys.exit(0)
sys.exit(1)
