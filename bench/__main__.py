"""`python -m bench [PART...]`: measures, prints a table, and writes build/bench/speed.json.

`python -m bench guard` takes an hour, is no part of that, and writes build/bench/guard.json. `python -m bench nodes`
alone writes build/bench/nodes.json.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench.measure import CannotMeasure

# Each is a module with measure(repetitions) -> figures; its docstring is its heading.
PARTS = (
    "instrumentation",
    "recording",
    "calls",
    "scale",
    "states",
    "ready",
    "search",
    "decided",
    "many_bugs",
    "pmdk",
    "memory",
    "ranking",
    "build",
    "nodes",
)
APART = "guard"  # its measure has one parameter more
ALONE = (APART, "nodes")  # have a file of their own
OUTPUT = Path(__file__).resolve().parent.parent / "build" / "bench" / "speed.json"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}, or {APART}; all but that")
    parser.add_argument("--repetitions", type=int, default=5, help="of each measurement (default: 5)")
    parser.add_argument(
        "--series", type=int, default=1000, help=f"of {APART}: runs of each racy program (default: 1000)"
    )
    parser.add_argument("--output", type=Path, help=f"default: {OUTPUT}, of {' or '.join(ALONE)} alone PART.json")
    args = parser.parse_args()
    unknown = [part for part in args.parts if part not in (*PARTS, APART)]
    alone = len(args.parts) == 1 and args.parts[0] in ALONE
    output = args.output or OUTPUT.with_stem(args.parts[0] if alone else OUTPUT.stem)
    if unknown or args.repetitions < 1:
        parser.error(f"no part {unknown[0]!r}: {', '.join(PARTS)}" if unknown else "at least one repetition")

    figures: dict[str, object] = {}
    missing: dict[str, str] = {}
    for part in args.parts or PARTS:
        module = importlib.import_module(f"bench.{part}")
        print(f"\n{part}: {(module.__doc__ or '').strip()}", flush=True)
        start = time.perf_counter()
        try:
            figures[part] = module.measure(args.repetitions, *([args.series] if part == APART else []))
        except CannotMeasure as error:
            missing[part] = str(error)
            print(f"  not measured: {error}")
        else:
            for line in _lines(figures[part], "  "):
                print(line)
        print(f"  [{time.perf_counter() - start:.0f} s]", flush=True)
        # After each part: one that is cut short must not take the others' figures with it.
        _write(output, args.repetitions, figures, missing)
    print(f"\nMedian (least–most) of {args.repetitions}. Written to {output}.")
    return 1 if missing else 0


def _write(output: Path, repetitions: int, figures: dict[str, object], missing: dict[str, str]) -> None:
    report = {
        "schema": 1,
        "machine": {"system": platform.platform(), "processor": _processor(), "cores": os.cpu_count()},
        "repetitions": repetitions,
        "figures": figures,
        "not_measured": missing,
    }
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


def _lines(value: object, indent: str) -> Iterator[str]:
    assert isinstance(value, dict)
    for key, item in value.items():
        name = str(key).replace("_", " ")
        if isinstance(item, dict) and item.keys() == {"median", "least", "most"}:
            yield f"{indent}{name:34} {item['median']:10.4g} ({item['least']:.4g}–{item['most']:.4g})"
        elif isinstance(item, dict):
            yield f"{indent}{name}"
            yield from _lines(item, indent + "  ")
        elif isinstance(item, list):
            yield from (f"{indent}{name}: {one}" for one in item)
        else:
            yield f"{indent}{name:34} {item:>10}"


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


if __name__ == "__main__":
    sys.exit(main())
