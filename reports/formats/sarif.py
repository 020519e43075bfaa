"""The report as SARIF 2.1.0, for code scanning and other viewers: one rule per kind, one code flow per schedule."""

from __future__ import annotations

import gzip
import json
import posixpath
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import numpy as np

from crashcheck.checker import policy
from crashcheck.checker.results import Finding, FindingKind, RunResult
from crashcheck.reports.github.annotations import Name, Placement, fix_text, place, suppressed
from crashcheck.reports.view import sentences
from crashcheck.reports.view.evidence import renderer_of
from crashcheck.reports.view.evidence.values import EvidenceView
from crashcheck.reports.view.run_view import FindingView, RunView
from crashcheck.reports.view.source_lines import Sources
from crashcheck.reports.view.text import line, shorten, valid

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
ROOT = "%SRCROOT%"  # what paths are relative to: the repository's root
RESULTS_MAX = 25_000  # GitHub refuses a run with more, and a file of more than 10 MB when compressed
GZIP_MAX = 9_500_000
FLOWS_MAX = (25_000, 1000, 100, 0)  # how many findings keep their schedule; the first that makes the file small enough
MESSAGE_CHARS = 2000
SUPPRESSED_MAX = 1000
# The line hash of GitHub's code scanning, see `line_hashes`.
_HASH_WINDOW = 100  # UTF-16 code units, blanks left out
_HASH_BASE = 37
_HASH_END = 0xFFFF

_HELP = {
    FindingKind.ORDERING: "Make the earlier update durable before the later one is made: write its line back and "
    "fence (`clwb` and `sfence`, `pmem_persist`), or `msync`, between the two.",
    FindingKind.ATOMICITY: "No flush or fence makes two updates one step. Put what belongs together into one aligned "
    "store of eight bytes, or write a log first from which recovery completes or undoes the rest.",
    FindingKind.UNPERSISTED: "Make the update durable before the work is acknowledged: write its line back and fence, "
    "or sync the file, before the operation returns or prints.",
    FindingKind.RECOVERY_FAILURE: "The image is one that a crash may leave, so the code that opens it must cope with "
    "it: check what is read before it is trusted.",
    FindingKind.REOPEN: "Write all that later operations need before the files are closed, and read it when they are "
    "opened.",
    FindingKind.ACTIONS: "Let a node take messages, time-outs and restarts in each order that the network and clocks "
    "allow.",
}


def render(result: RunResult, view: RunView, name: Name, sources: Sources | None = None) -> str:
    """The log, ending in a newline; the same run gives the same bytes. `view` is that of `result`.

    Suppressed findings are notifications, with their reasons, and no results: code scanning ignores `suppressions`,
    and would open an alert for each.
    """
    for flows in FLOWS_MAX:
        text = json.dumps(_log(result, view, name, sources or {}, flows), ensure_ascii=False, indent=1) + "\n"
        if len(text) < GZIP_MAX // 4 or len(gzip.compress(text.encode(), 6)) <= GZIP_MAX:
            break
    return text


def _log(result: RunResult, view: RunView, name: Name, sources: Sources, flows: int) -> dict[str, Any]:
    pairs = zip(result.all_findings, view.all_findings, strict=True)
    reported = [(finding, shown) for finding, shown in pairs if not finding.suppressed]
    hashes, paths = _Hashes(sources), _Paths(name, result.config_path)
    results = [
        _result(finding, shown, paths, hashes, number < flows)
        for number, (finding, shown) in enumerate(reported[:RESULTS_MAX])
    ]
    notes = [_note("warning", caveat) for caveat in (*view.caveats, *view.warnings)]
    notes += [
        _note("error", view.headline) if view.no_verdict else _note("note", view.counted),
        _note("note", view.scope),
    ]
    accepted = suppressed(view)
    if accepted:
        notes.append(_note("note", f"{sentences.plural(len(accepted), 'suppressed finding')} left out."))
        notes += [_suppression(shown, paths) for shown in accepted[:SUPPRESSED_MAX]]
    if len(reported) > RESULTS_MAX:
        notes.append(
            _note("warning", f"{len(reported) - RESULTS_MAX:,} findings left out: a file holds {RESULTS_MAX:,}.")
        )
    if len(results) > flows:
        notes.append(_note("warning", f"{len(results) - flows:,} findings are listed without their schedule."))
    driver: dict[str, Any] = {"name": "crashcheck"}
    if re.match(r"\d+\.\d+\.\d+", view.version):
        driver["version"] = view.version
    driver["rules"] = [_rule(kind) for kind in FindingKind]
    stopped = result.stop_reason.broken_off or policy.checked_nothing(result)
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": driver},
                # Code scanning keeps the alerts of different ids apart: here, one id per configuration and model.
                "automationDetails": {"id": f"crashcheck/{_category(result, name)}/"},
                "originalUriBaseIds": {ROOT: {"description": {"text": "The root of the repository."}}},
                "columnKind": "utf16CodeUnits",
                "invocations": [{"executionSuccessful": not stopped, "toolExecutionNotifications": notes}],
                "results": results,
                "properties": {fact.label: fact.value for fact in (*view.counts, *view.run) if fact.label != "time"},
            }
        ],
    }


def _category(result: RunResult, name: Name) -> str:
    config = name(valid(result.config_path)) or posixpath.basename(result.config_path)
    return "/".join(quote(line(part, 200), safe="/", errors="replace") for part in (config, result.model) if part)


def _note(level: str, text: str) -> dict[str, Any]:
    return {"level": level, "message": {"text": _escaped(text)}}


def _suppression(shown: FindingView, paths: _Paths) -> dict[str, Any]:
    where = paths.physical(shown.place.file, shown.place.line)
    return {
        **_note("note", f"Suppressed ({shown.suppressed}): {shown.message} ({shown.id})."),
        "associatedRule": {"id": rule_id(FindingKind(shown.kind))},
        **({"locations": [{"physicalLocation": where}]} if where else {}),
    }


def rule_id(kind: FindingKind) -> str:
    """ "crash-ordering"; part of an alert's identity, so it never changes."""
    return f"crash-{kind.value}"


def _rule(kind: FindingKind) -> dict[str, Any]:
    title, sentence = sentences.KIND_TITLE[kind], sentences.KIND_SENTENCE[kind]
    return {
        "id": rule_id(kind),
        "name": "".join(part.capitalize() for part in kind.value.split("-")),
        "shortDescription": {"text": f"{title}: a crash can leave files that the check does not accept."},
        "fullDescription": {"text": sentence},
        "help": {
            "text": f"{sentence} {_HELP[kind].replace('`', '')}",
            "markdown": f"{sentence}\n\n**What to do.** {_HELP[kind]}\n\nThe paths of an alert are its crash schedule: "
            "what was stored, flushed and fenced before the crash, and which updates survived it. The command in the "
            "message reproduces it.",
        },
        "defaultConfiguration": {"level": "error"},
        "properties": {
            "tags": ["correctness", "crash-consistency", "reliability"],
            # Each finding is an execution of the user's own check on an image that the model allows.
            "precision": "very-high",
            "problem.severity": "error",
        },
    }


class _Paths:
    """Artifact locations: relative to the repository for files inside it."""

    def __init__(self, name: Name, config_path: str) -> None:
        self.name = name
        self.config = name(valid(config_path)) or posixpath.basename(config_path) or "crashcheck.toml"

    def physical(self, file: str, number: int, column: int = 0) -> dict[str, Any] | None:
        """None if no file is known."""
        known = self.name(file)
        if known:
            artifact = {"uri": _encoded(known), "uriBaseId": ROOT}
        elif file.startswith("/"):
            artifact = {"uri": "file://" + _encoded(file)}
        else:
            return None
        return self._at(artifact, number, column)

    def placed(self, where: Placement, column: int) -> dict[str, Any]:
        """The line to annotate; the configuration where none is known, for an alert must have a place."""
        if where.file:
            return self._at({"uri": _encoded(where.file), "uriBaseId": ROOT}, where.line, column)
        return self._at({"uri": _encoded(self.config), "uriBaseId": ROOT}, 1, 0)

    def _at(self, artifact: dict[str, str], number: int, column: int) -> dict[str, Any]:
        region = {"startLine": max(number, 1)} | ({"startColumn": column} if column and number else {})
        return {"artifactLocation": artifact, "region": region}


def _encoded(path: str) -> str:
    return quote(path, safe="/", errors="replace")


def line_hashes(text: str) -> tuple[str, ...]:
    """GitHub's `primaryLocationLineHash` of every line of a file: "a7f2ff13bc495cf2:1".

    The upload action computes it as well and warns of any other value, so it is computed in the same way: a polynomial
    of the 100 characters from the line's start on, modulo 2**64, without spaces and tabs, past the end of the line,
    with a mark and then zeros after the end of the file; after the colon, the ordinal among equal ones. Described by
    https://github.com/github/codeql-action (src/fingerprints.ts).
    """
    kept = re.sub("[ \t]", "", re.sub("\r\n?", "\n", text))
    units = np.frombuffer(kept.encode("utf-16-le", "surrogatepass"), dtype="<u2").astype(np.uint64)
    stream = np.concatenate([units, np.array([_HASH_END], np.uint64), np.zeros(_HASH_WINDOW, np.uint64)])
    starts = np.concatenate([[0], np.flatnonzero(units == ord("\n")) + 1])
    hashes = np.zeros(len(starts), np.uint64)
    for offset in range(_HASH_WINDOW):
        hashes = hashes * np.uint64(_HASH_BASE) + stream[starts + offset]
    seen: dict[int, int] = {}
    named: list[str] = []
    for value in hashes.tolist():
        seen[value] = seen.get(value, 0) + 1
        named.append(f"{value:x}:{seen[value]}")
    return tuple(named)


class _Hashes:
    """Line hashes of the source files that are available, each file's made once."""

    def __init__(self, sources: Sources) -> None:
        self.sources = sources
        self.made: dict[str, tuple[str, ...]] = {}
        self.given: set[tuple[str, str, str]] = set()

    def fingerprints(self, finding: Finding, at_store: bool) -> Mapping[str, str]:
        """`primaryLocationLineHash` as code scanning makes it, if the file is here and no finding of the kind has it.

        Otherwise it is made of the finding's identity: two findings of one kind at one store are two alerts.
        """
        where = finding.location
        own = f"{finding.kind.value}/{line(finding.id, 80)}"
        found = ""
        if at_store and where.file in self.sources:
            if where.file not in self.made:
                self.made[where.file] = line_hashes("\n".join(self.sources[where.file]))
            lines = self.made[where.file]
            found = lines[where.line - 1] if 0 < where.line <= len(lines) else ""
        key = (finding.kind.value, where.file, found)
        if not found or key in self.given:
            found = own
        self.given.add(key)
        return {"primaryLocationLineHash": found, "crashcheckFinding/v1": own}


def _result(finding: Finding, shown: FindingView, paths: _Paths, hashes: _Hashes, flow: bool) -> dict[str, Any]:
    placed = place(finding, paths.name)
    at_store = bool(placed.file) and not placed.because
    related = _related(finding, shown, paths, at_store)
    made: dict[str, Any] = {
        "ruleId": rule_id(finding.kind),
        "ruleIndex": list(FindingKind).index(finding.kind),
        "level": shown.level,
        "message": {"text": _message(shown, placed, related)},
        "locations": [
            {
                "physicalLocation": paths.placed(placed, shown.place.column if at_store else 0),
                **_function(shown.place.function),
            }
        ],
        "partialFingerprints": hashes.fingerprints(finding, at_store),
    }
    if related:
        made["relatedLocations"] = related
    threads = _thread_flows(shown.evidence, paths) if flow else []
    if threads:
        made["codeFlows"] = [{"message": {"text": f"The {shown.evidence.title.lower()}"}, "threadFlows": threads}]
    if not finding.new or finding.compared == "existing":
        made["baselineState"] = "unchanged"
    made["properties"] = {"id": shown.id, "model": shown.model, "states": shown.states, "replay": shown.replay}
    return made


def _function(name: str) -> dict[str, Any]:
    return {"logicalLocations": [{"fullyQualifiedName": name, "kind": "function"}]} if name else {}


def _escaped(text: str) -> str:
    """Text of the program in a message, where brackets make a link (SARIF 3.11.6)."""
    return re.sub(r"[\\\[\]]", lambda match: "\\" + match.group(), text)


def _message(shown: FindingView, placed: Placement, related: list[dict[str, Any]]) -> str:
    rows = [f"{_escaped(shown.message)}."]
    if related:
        links = ", ".join(f"[{_escaped(item['message']['text'])}]({item['id']})" for item in related)
        rows.append(f"See {links}.")
    if placed.spot == "store" and placed.because:
        rows.append(_escaped(placed.because))
    if shown.uncertain:
        rows.append(f"Not proved: {_escaped(shown.uncertain)}.")
    rows.append(_escaped(shown.ending))
    rows += [_escaped(note) for note in shown.notes]
    if shown.fix is not None:
        rows.append(f"Suggested fix: {_escaped(fix_text(shown.fix))}")
    rows.append(f"Reproduce: {_escaped(shorten(shown.replay, 600))}")
    return " ".join(rows)


def _related(finding: Finding, shown: FindingView, paths: _Paths, at_store: bool) -> list[dict[str, Any]]:
    evidence, noun = shown.evidence, renderer_of(finding.evidence).noun
    places = [] if at_store else [(f"the {noun}", shown.place)]
    places += [(f"the other {noun}, {spot.role}", spot) for spot in evidence.places[1:]]
    if evidence.spot is not None:
        places.append((f"the {evidence.occasion} is before this", evidence.spot))
    made: list[dict[str, Any]] = []
    for what, spot in places:
        where = paths.physical(spot.file, spot.line, spot.column)
        if where is not None:
            text = f"{what}: {shorten(spot.variable or spot.where, 120)}"
            made.append({"id": len(made) + 1, "physicalLocation": where, "message": {"text": text}})
    return made


def _thread_flows(shown: EvidenceView, paths: _Paths) -> list[dict[str, Any]]:
    """The steps of the failure: one flow for each lane."""
    flows: dict[str, list[dict[str, Any]]] = {}
    pending = ""  # a step without a place of its own, as a mark or an output, is listed with the next
    last: dict[str, Any] | None = None
    for step in shown.flow:
        where = paths.physical(step.file, step.line, step.column) or (last if step.at_last else None)
        if where is None:
            pending += f"{step.text}; "
            continue
        made = {
            "location": {"physicalLocation": where, "message": {"text": _escaped(pending + step.text)}},
            "executionOrder": step.number,
            **({} if step.nesting is None else {"nestingLevel": step.nesting}),
            "importance": step.importance,
        }
        flows.setdefault(step.lane, []).append(made)
        pending, last = "", where
    return [{"id": lane, "locations": steps} for lane, steps in flows.items()]
