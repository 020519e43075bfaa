"""How a bug is shown that needs no crash: a clean reopen of the driver changes what it prints."""

from __future__ import annotations

from crashcheck.checker.evidence import CleanReopen
from crashcheck.checker.results import Finding
from crashcheck.reports.view.evidence.values import Context, EvidenceView, Renderer
from crashcheck.reports.view.places import place_view
from crashcheck.reports.view.sentences import KIND_SENTENCE
from crashcheck.reports.view.text import line


def view(finding: Finding, reopen: CleanReopen, context: Context) -> EvidenceView:
    """The operation, and the commands that show it by hand."""
    by_hand = f"By hand, with the files as they are before the workload in POOL: {line(reopen.commands, 1000)}"
    return EvidenceView(
        title="Reopen",
        occasion="crash",
        after="after a clean reopen",
        summary=line(reopen.summary, 300),
        sentence=KIND_SENTENCE[finding.kind],
        places=(place_view(finding.location, "", "the operation", context.sources),),
        story=(
            f"A crash {line(reopen.summary, 300)}.",
            "The rest of the operations then runs in a new process, which prints something else than one undisturbed "
            "process.",
        ),
        notes=(by_hand,) if finding.replay != reopen.commands else (),  # an earlier version had no token for it
        rows=(f"closed and reopened after {line(reopen.after, 200)}",),
    )


RENDERER = Renderer("reopen", CleanReopen, "operation", view)
