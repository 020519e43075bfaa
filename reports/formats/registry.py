"""The formats of a report by their names on the command line."""

from __future__ import annotations

from dataclasses import dataclass

from crashcheck.checker.results import RunResult
from crashcheck.diff import Diff
from crashcheck.reports.formats import html, json_report, junit, markdown, sarif, terminal, workflow_commands
from crashcheck.reports.github.annotations import Name, remarks, suppressed
from crashcheck.reports.view.excerpts import Sources
from crashcheck.reports.view.run_view import RunView


@dataclass(frozen=True, slots=True)
class Rendering:
    """One run, ready to be rendered: `view` is that of `result` with `sources`; `name` is a `Repository.name`."""

    result: RunResult
    view: RunView
    name: Name
    sources: Sources
    diff: Diff | None = None
    html_path: str = ""  # of the HTML report, where one is written as well

    def text(self, format_name: str) -> str:
        """The report in a format that `crashcheck run --format` knows; ValueError for any other."""
        match format_name:
            case "terminal":
                return terminal.render(self.view, html_path=self.html_path)
            case "json":
                return json_report.render(self.result)
            case "html":
                return html.render(self.view)
            case "markdown":
                return markdown.render(self.view)
            case "sarif":
                return sarif.render(self.result, self.view, self.name, self.sources)
            case "junit":
                return junit.render(self.view)
            case "github":
                placed = remarks(self.result, self.view, self.name, self.diff)
                return workflow_commands.render(placed, suppressed(self.view))
        raise ValueError(format_name)
