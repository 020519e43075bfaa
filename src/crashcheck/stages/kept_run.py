"""Keeps the result of a whole run; a later run takes it over if nothing that decides the result has changed.

Only results of searches that came to their end are kept, and only if no check timed out or was flaky. What decides a
result is the recording, the configuration, the change under review, the check and everything that its runs used, the
sources that reports quote, and crashcheck itself. docs/reused-verdicts.md has the whole list.

`search_key` is what the shards of one search share.
"""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from crashcheck.analyzer.trace.content import content_digest
from crashcheck.analyzer.trace.reader import Trace
from crashcheck.change.diff import Diff
from crashcheck.checker.execution.check_command import CheckCommand
from crashcheck.checker.kept.base import base_of, content_of_file, content_of_folder, digest_of, sources
from crashcheck.checker.kept.dependencies import Dependencies, Unkept
from crashcheck.checker.kept.shards import SearchKey
from crashcheck.checker.kept.store import KeptImages, Unusable
from crashcheck.checker.kept.verdicts import database, moment
from crashcheck.checker.oracles import prepare
from crashcheck.checker.oracles.executor import Executor
from crashcheck.checker.results import RunResult, StopReason
from crashcheck.config import Config
from crashcheck.runtime.record import Recording
from crashcheck.runtime.validate import read_notes
from crashcheck.source import repository_of
from crashcheck.stages.executor_setup import check_setup_of, limits_of
from crashcheck.stages.recording import modules

_WORDS = re.compile(r"[\s;&|<>()\"'`=]+")  # of a shell command, roughly
_NOT_KEPT = "the run as a whole is not kept for the next one: "


class Kept(msgspec.Struct):
    """What one run passes on to the next. `remarks`: what it printed while it ran; `sources`: files in which
    suppressions may be, as findings name them."""

    result: RunResult
    remarks: tuple[str, ...]
    sources: tuple[str, ...]


@dataclass(eq=False)
class KeptRun:
    """One run: `find` before anything is searched, else `keep` after it."""

    key: bytes
    dependencies: Dependencies
    # what the search used, besides what the key holds
    read: set[str] = field(default_factory=set)  # absolute paths of sources
    remarks: tuple[str, ...] = ()
    timed_out: bool = False
    followed: set[bytes | None] = field(default_factory=set)  # by the runs of the check

    def find(self) -> Kept | None:
        """The result of an earlier run of which everything is the same."""
        try:
            store = KeptImages(database())
            try:
                for number, listing, state in store.listings(self.key):
                    if self.dependencies.state(listing) == state and (found := store.run(number)) is not None:
                        store.used(self.key)
                        return _reused(_decoded(found[1]), found[0])
            finally:
                store.close()
        except (Unusable, ValueError, OverflowError, zlib.error, RecursionError):  # as if it had not been kept
            pass
        return None

    def searched(self, executor: Executor, remarks: tuple[str, ...]) -> None:
        """Take note of what the check has used, and of what was printed."""
        self.remarks = remarks
        self.timed_out = executor.timed_out
        self.followed |= executor.workers.followed

    def keep(self, kept: Kept, places: Iterable[str]) -> str:
        """Keep a result; returns why not, if that is worth a warning. `places`: the paths of its sources."""
        result, states = kept.result, kept.result.states
        if result.stop_reason is not StopReason.EXHAUSTED or states.flaky or self.timed_out:
            return ""
        listing = {f"o{path}" for path in (*places, *self.read)}
        for records in self.followed:
            known = Unkept("") if records is None else self.dependencies.listing(records)
            if isinstance(known, Unkept):
                return known.why and _NOT_KEPT + known.why
            listing.update(known)
        used = tuple(sorted(listing))
        state = self.dependencies.state(used)
        if state is None or not self.dependencies.unchanged():
            return ""
        try:
            store = KeptImages(database())
            try:
                store.add_run(self.key, used, state, _encoded(Kept(result, self.remarks, kept.sources)))
            finally:
                store.close()
        except Unusable as error:
            return _NOT_KEPT + str(error)
        return ""


def kept_run(config: Config, recording: Recording, trace: Trace, change: Diff | None, depth: int) -> KeptRun | None:
    """The key of a run; None if such runs are not kept: not configured, or crashes of the recovery are searched."""
    if not config.check.reuse or depth > 1:
        return None
    setup = check_setup_of(config, recording, recording.folder)
    operations = recording.folder / prepare.OPERATIONS
    notes = [(reason, path.replace(str(recording.folder), "{run}")) for reason, path in read_notes(recording.trace)]
    used = {*modules(trace, config.workload.command, config.folder)}
    used |= {site.module for site in trace.call_sites.values() if site.module}
    parts = (
        base_of(setup, limits_of(config), trace, "", operations.read_bytes() if operations.is_file() else b""),
        content_digest(trace),
        repr(config),
        repr(change),
        repr(repository_of(config.folder).root),
        repr(notes),
        repr([(path, content_of_file(Path(path))) for path in sorted(used)]),
        repr(list(content_of_folder(recording.pool))),
        content_of_file(recording.stdout),
    )
    key = hashlib.blake2b(digest_size=16, key=b"run")
    for part in parts:
        data = part.encode("utf-8", "surrogateescape") if isinstance(part, str) else part
        key.update(len(data).to_bytes(8, "little") + data)
    return KeptRun(key.digest(), Dependencies((recording.addresses,)))


def search_key(config: Config, recording: Recording, trace: Trace, change: Diff | None) -> SearchKey:
    """What the shards of a search share, on whatever machines they run."""
    command = config.check.command
    program = CheckCommand.find(command, config.folder).program
    named = sorted(filter(Path.is_file, (config.folder / word for word in command.words or _WORDS.split(command.text))))
    recorded = (content_digest(trace).hex(), *content_of_folder(recording.first), content_of_file(recording.stdout))
    check = repr((replace(config.check, reuse=False), config.pool))
    checked = (sources(), check, content_of_file(Path(program)), *map(content_of_file, named))
    searched = (repr(config.model), repr(config.strategy), repr(change))
    return SearchKey(digest_of(recorded), digest_of(checked), digest_of(searched))


def _reused(kept: Kept, made: int) -> Kept:
    """With the counts of a run that has executed nothing itself."""
    states = kept.result.states
    counts = replace(
        states,
        executed=0,
        explored=0,
        explored_runs=0,
        reused=states.executed + states.explored + states.reused,
        reused_from=states.reused_from or moment(made),
    )
    kept.result = replace(kept.result, states=counts)
    return kept


def _encoded(kept: Kept) -> bytes:
    """Exact, whatever texts and numbers are in it."""
    return zlib.compress(json.dumps(msgspec.to_builtins(kept)).encode(), 1)


def _decoded(data: bytes) -> Kept:
    """Raises ValueError (of which msgspec.ValidationError is one) or zlib.error for what is damaged."""
    return msgspec.convert(json.loads(zlib.decompress(data)), Kept)
