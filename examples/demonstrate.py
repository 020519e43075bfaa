"""Run the bundled example and print its bug; exit code 0 if exactly that bug was found."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "level-hash"
REPORTS = ROOT / "build" / "report"


def main() -> int:
    REPORTS.mkdir(parents=True, exist_ok=True)
    html, results = REPORTS / "level-hash.html", REPORTS / "level-hash.json"
    results.unlink(missing_ok=True)
    command = ["crashcheck", "run", "-c", str(EXAMPLE / "buggy.toml"), "--format", "terminal"]
    command += ["--format", f"html={html}", "--format", f"json={results}"]
    print(
        "A hash table in persistent memory (examples/level-hash/buggy.c) is built, recorded and crashed.\n", flush=True
    )
    done = subprocess.run(command, cwd=ROOT)
    if done.returncode not in (0, 1) or not results.exists():
        print("\ncrashcheck failed: see above.", file=sys.stderr)
        return 2
    findings = json.loads(results.read_text(encoding="utf-8"))["findings"]
    expected = json.loads((EXAMPLE / "expected.json").read_text(encoding="utf-8"))["buggy"]["findings"]
    if [place(finding) for finding in findings] != [place(finding) for finding in expected]:
        print(f"\nExpected {[place(finding) for finding in expected]},", file=sys.stderr)
        print(f"but found {[place(finding) for finding in findings]}.", file=sys.stderr)
        return 1
    file, line = expected[0]["location"]["file"], expected[0]["location"]["line"]
    print(f"\nFound: {findings[0]['message']}")
    print(f"  at examples/level-hash/{file}:{line}")
    print(f"  report: {html}")
    print(f"  see it again: .venv/bin/crashcheck replay -c examples/level-hash/buggy.toml {findings[0]['replay']}")
    print("This bug is there on purpose, and finding it was the point: crashcheck works on this machine.")
    print("Without the bug: examples/level-hash/fixed.c. Your own program: README.md.")
    return 0


def place(finding: dict[str, Any]) -> tuple[str, str, int]:
    return finding["kind"], finding["location"]["file"], finding["location"]["line"]


if __name__ == "__main__":
    sys.exit(main())
