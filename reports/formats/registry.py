"""The formats of a report by their names on the command line."""

from __future__ import annotations

from dataclasses import dataclass

from crashcheck.change.diff import Diff
from crashcheck.checker.results import RunResult
from crashcheck.reports.github.annotations import Name, remarks, suppressed
from crashcheck.reports.view.run_view import RunView
from crashcheck.reports.view.source_lines import Sources


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
        """The report in a format that `crashcheck run --format` knows; ValueError for any other.

        A run needs two or three of the formats: only these are imported.
        """
        match format_name:
            case "terminal":
                from crashcheck.reports.formats import terminal

                return terminal.render(self.view, html_path=self.html_path)
            case "json":
                from crashcheck.reports.formats import json_report

                return json_report.render(self.result)
            case "html":
                from crashcheck.reports.formats import html

                return html.render(self.view)
            case "markdown":
                from crashcheck.reports.formats import markdown

                return markdown.render(self.view)
            case "sarif":
                from crashcheck.reports.formats import sarif

                return sarif.render(self.result, self.view, self.name, self.sources)
            case "junit":
                from crashcheck.reports.formats import junit

                return junit.render(self.view)
            case "github":
                from crashcheck.reports.formats import workflow_commands

                placed = remarks(self.result, self.view, self.name, self.diff)
                return workflow_commands.render(placed, suppressed(self.view))
        raise ValueError(format_name)
