"""Sources above an executor: verdicts that another search has, those that it will have, and a file for the next one.

Divided   leaves what belongs to another shard to that one, as if it passed
Known     takes runs that shards, or the search that is resumed, have noted
Noted     writes down how the runs of the executor below it ended
"""

from __future__ import annotations

from collections.abc import Set
from pathlib import Path

from crashcheck.checker.execution.tasks import Run
from crashcheck.checker.kept.keys import image_key
from crashcheck.checker.kept.runs_file import RunsFile, Share
from crashcheck.checker.kept.shards import Exchange, KnownRuns, is_in
from crashcheck.checker.results import Outcome, Verdict
from crashcheck.checker.verdicts.executor import Executor
from crashcheck.checker.verdicts.verdict_source import Asked, Awaited, VerdictSource
from crashcheck.runtime.exploration import Explored

_ELSEWHERE = Verdict(Outcome.PASS, 0, None, "", False, 0.0)


def stacked(executor: Executor, exchange: Exchange) -> VerdictSource:
    """The executor, under the sources that an exchange with other searches needs."""
    source: VerdictSource = executor
    if exchange.noted is not None:
        source = Noted(executor, exchange.noted)
    if len(exchange.known):
        source = KnownVerdicts(source, exchange.known)
    if exchange.share is not None:
        source = Divided(source, exchange.share)
    return source


class Above(VerdictSource):
    """Passes everything on to the source below it."""

    def __init__(self, below: VerdictSource) -> None:
        self.below = below
        self.keeps, self.since, self.leaves_failures = below.keeps, below.since, below.leaves_failures

    @property
    def executor(self) -> Executor:
        return self.below.executor

    @property
    def ahead(self) -> int:
        return self.below.ahead

    def ask(self, asked: Asked) -> Awaited[Verdict]:
        return self.below.ask(asked)

    @property
    def notes(self) -> tuple[str, ...]:
        return self.below.notes

    @property
    def reused(self) -> Set[bytes]:
        return self.below.reused

    def is_last(self, asked: Asked) -> bool:
        return self.below.is_last(asked)

    def is_elsewhere(self, part: bytes) -> bool:
        return self.below.is_elsewhere(part)

    def product(self, key: bytes) -> tuple[Explored, Path] | None:
        return self.below.product(key)

    def explored(self, key: bytes, result: Explored, folder: Path) -> None:
        self.below.explored(key, result, folder)

    def end(self, *, complete: bool) -> None:
        self.below.end(complete=complete)

    def _image(self, asked: Asked) -> bytes:
        return image_key(asked.fingerprint, self.executor.oracle.context(asked.state.point))


class Noted(Above):
    """Verdicts of the executor, each of whose runs is written to a file."""

    def __init__(self, below: Executor, file: RunsFile) -> None:
        super().__init__(below)
        self._file = file
        self.keeps = True

    @property
    def notes(self) -> tuple[str, ...]:
        why = self._file.why
        return (*super().notes, *((f"--resume cannot continue this run: {why}",) if why else ()))

    def ask(self, asked: Asked) -> Awaited[Verdict]:
        ticket, image = self.executor.submit(asked.state), self._image(asked)

        def noted(left_s: float | None) -> Verdict | None:
            judged = self.executor.judged(ticket, left_s)
            if judged is None:
                return None
            self._file.add(image, judged.run)
            return judged.verdict

        return noted

    def explored(self, key: bytes, result: Explored, folder: Path) -> None:
        self._file.add_explored(key, result, folder)
        super().explored(key, result, folder)

    def end(self, *, complete: bool) -> None:
        self._file.close(complete)
        super().end(complete=complete)


class KnownVerdicts(Above):
    """Verdicts on the runs of other searches; what none of them has run, the source below is asked for."""

    def __init__(self, below: VerdictSource, known: KnownRuns) -> None:
        super().__init__(below)
        self._known = known
        self._reused: set[bytes] = set()
        self.keeps, self.since = True, known.since

    @property
    def reused(self) -> Set[bytes]:
        return self._reused

    def ask(self, asked: Asked) -> Awaited[Verdict]:
        run = self._known.run(self._image(asked), asked.state.point)
        return self._taken(asked, run) if run is not None else super().ask(asked)

    def _taken(self, asked: Asked, run: Run) -> Awaited[Verdict]:
        ticket = self.executor.workers.submit_ended(run)

        def taken(left_s: float | None) -> Verdict | None:
            verdict = self.executor.result(ticket, left_s)
            if self.since and verdict is not None and verdict.passed:
                self._reused.add(asked.fingerprint)
            return verdict

        return taken

    def is_last(self, asked: Asked) -> bool:
        """What no shard has executed in its time may take long."""
        late = not self._known.complete and not self.since and not self._known.has(self._image(asked))
        return late or super().is_last(asked)

    def product(self, key: bytes) -> tuple[Explored, Path] | None:
        return self._known.explored(key) or super().product(key)


class Divided(Above):
    """Verdicts on the states of one shard; those of others count as passed until they are merged."""

    def __init__(self, below: VerdictSource, share: Share) -> None:
        super().__init__(below)
        self._share = share
        self.leaves_failures = True

    @property
    def ahead(self) -> int:
        return super().ahead * self._share.of

    def ask(self, asked: Asked) -> Awaited[Verdict]:
        return (lambda left_s: _ELSEWHERE) if self.is_elsewhere(asked.part) else super().ask(asked)

    def is_elsewhere(self, part: bytes) -> bool:
        return not is_in(self._share, part)
