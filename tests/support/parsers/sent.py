"""Parsers of what Git and GitHub send: diffs, patches, events."""

from __future__ import annotations

import json
from pathlib import Path

from crashcheck.change import diff
from crashcheck.reports.github.client import _new_side
from crashcheck.reports.github.event import read_event
from support.parsers.parser import Parser, of_bytes, of_text

DIFF = b"""diff --git a/one.c b/two.c
similarity index 90%
rename from one.c
rename to two.c
--- a/one.c
+++ b/two.c
@@ -1,3 +1,4 @@
 int a;
-int b;
+int c;
+int d;
 int e;
\\ No newline at end of file
diff --git "a/\\303\\244" "b/\\303\\244"
new file mode 100644
--- /dev/null
+++ "b/\\303\\244"
@@ -0,0 +1 @@
+x
"""
PATCH = b"@@ -1,3 +1,4 @@ int f(void)\n int a;\n-int b;\n+int c;\n\\ No newline at end of file\n@@ -9 +10 @@\n+x\n"
EVENT = {
    "pull_request": {"number": 7, "head": {"sha": "a" * 40, "repo": {"full_name": "o/r"}}},
    "workflow_run": {
        "id": 5,
        "run_attempt": 1,
        "head_sha": "b" * 40,
        "head_branch": "x",
        "head_repository": {"full_name": "o/r", "owner": {"login": "o"}},
        "pull_requests": [{"number": 3}],
    },
}


def _event(data: bytes, folder: Path) -> None:
    path = folder / "event.json"
    path.write_bytes(data)
    environment = {
        "GITHUB_REPOSITORY": "o/r",
        "GITHUB_SHA": "c" * 40,
        "GITHUB_EVENT_PATH": str(path),
        "GITHUB_RUN_ID": "5",
        "GITHUB_RUN_ATTEMPT": "1",
    }
    read_event(environment)


_EVENTS = (json.dumps(EVENT).encode(), json.dumps({"workflow_run": EVENT["workflow_run"]}).encode())

PARSERS = {
    "diff": of_bytes(diff.parse, DIFF),
    "patch": of_text(lambda text: list(_new_side(text)), PATCH),
    "event": Parser(_event, lambda _: _EVENTS),
}
