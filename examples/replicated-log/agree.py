"""python3 agree.py STATE: each entry that was answered is in the logs of a majority, or the check fails."""

import sys
from pathlib import Path

state = Path(sys.argv[1])
logs = [path.read_text() if path.exists() else "" for path in (state / f"n{node}" / "log" for node in range(3))]
for entry in (state / "n3.output").read_text().split():
    if sum(entry in log.splitlines() for log in logs) < 2:
        sys.exit(f"{entry} was answered, and {sum(entry in log for log in logs)} of 3 logs have it: {logs}")
