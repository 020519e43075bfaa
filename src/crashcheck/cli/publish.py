"""`crashcheck publish`: show the findings of a run on a GitHub pull request, from its JSON report."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crashcheck.errors import EXIT_CLEAN, EXIT_FINDINGS, CrashcheckError

if TYPE_CHECKING:
    from crashcheck.checker.results import RunResult
    from crashcheck.reports.formats.failure import Failure
    from crashcheck.reports.formats.markdown import Link
    from crashcheck.reports.github.annotations import Name, Remark
    from crashcheck.reports.github.client import Client, Done, Shown
    from crashcheck.reports.github.comment import Job
    from crashcheck.reports.github.event import Event
    from crashcheck.reports.view.run_view import RunView
FAIL_ON = ("none", "note", "warning", "error")
EXITS = (EXIT_CLEAN, EXIT_FINDINGS)


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "publish",
        help="show the findings of a run on a GitHub pull request",
        description="Writes the job's summary and annotations, which need no permission; then, with GITHUB_TOKEN, "
        "what the options ask for. Where the token may not write, as on a pull request from a fork, it prints that "
        "and continues. Exit codes: 0 written as far as GitHub allows, 2 failed, with the reason.",
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--report", type=Path, metavar="PATH", help="the report that `crashcheck run --format json` wrote"
    )
    source.add_argument(
        "--failure", type=Path, metavar="PATH", help="what `crashcheck run --failure` wrote, where there is no report"
    )
    parser.add_argument("--comment", action="store_true", help="keep one comment on the pull request up to date")
    parser.add_argument(
        "--check-run",
        choices=("auto", "always", "never"),
        default="never",
        help="a check run with every annotation; auto: where there are more than ten findings (default: never)",
    )
    parser.add_argument("--review", action="store_true", help="suggest verified fixes in a review that only comments")
    verdict = parser.add_mutually_exclusive_group()
    verdict.add_argument(
        "--fail-on", choices=FAIL_ON, default="warning", help="as `crashcheck run --fail-on` (default: warning)"
    )
    verdict.add_argument(
        "--exit-code",
        type=int,
        metavar="N",
        help="the run's exit code, which decides the conclusion instead of --fail-on",
    )
    parser.add_argument(
        "--folder",
        metavar="FOLDER",
        help="the configuration's folder, from the repository's root (default: as the report names it)",
    )
    parser.add_argument("--diff", metavar="BASE", help="annotate lines that differ from BASE, without asking GitHub")
    parser.add_argument("--link", default="", metavar="URL", help="where the HTML report is")


def main(args: argparse.Namespace) -> int:
    return publish(args, os.environ)


def publish(
    args: argparse.Namespace,
    environment: Mapping[str, str],
    pause: Callable[[float], None] = time.sleep,
    between_writes_s: float | None = None,
) -> int:
    """Publish the report, the parts that need no permission first. Raises CrashcheckError for a bad option or file."""
    from crashcheck.checker import policy
    from crashcheck.masking import Mask
    from crashcheck.reports.formats import failure, json_report
    from crashcheck.reports.github.client import API_URL, BETWEEN_WRITES_S, Client
    from crashcheck.reports.github.event import read_event

    mask = Mask(environment)  # the report may be of another machine, whose secrets are not known here: keys are
    failed = mask.value(failure.load(_read(args.failure))) if args.failure is not None else None
    result = mask.value(json_report.load(_read(args.report))) if failed is None else None
    if result is not None and args.exit_code is None:
        result = replace(result, fail_on=args.fail_on)
        args.exit_code = policy.exit_code(result)
    token = environment.get("GITHUB_TOKEN", "")
    event = client = None
    if token or environment.get("GITHUB_REPOSITORY"):
        event = read_event(environment)
    if event and event.followed and not args.link and event.run[0]:
        args.link = f"{_run_url(environment, event)}#artifacts"
    if token and event:
        client = Client(
            token,
            event.repository,
            environment.get("GITHUB_API_URL") or API_URL,
            pause,
            BETWEEN_WRITES_S if between_writes_s is None else between_writes_s,
        )
    if result is None:
        assert failed is not None
        _publish_failure(args, environment, failed, event, client)
        return EXIT_CLEAN
    publication = _prepare(args, environment, result, event, client)
    _summary(publication, environment)
    sys.stdout.write(publication.commands())
    sys.stdout.flush()
    _outputs(publication, environment)
    asked = args.comment or args.review or args.check_run != "never"
    if client and event:
        publication.to_github(client, event)
    elif asked:
        publication.log("No token (GITHUB_TOKEN), so nothing but the summary and the annotations was written.")
    return EXIT_CLEAN


def _run_url(environment: Mapping[str, str], event: Event) -> str:
    """The page of the workflow's run, which leads to its logs."""
    server = environment.get("GITHUB_SERVER_URL") or "https://github.com"
    return f"{server}/{event.repository}/actions/runs/{event.run[0]}" if event.run[0] else ""


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise CrashcheckError(
            "report-unreadable",
            f"{path} cannot be read: {error.strerror}.",
            "`crashcheck run --format json=PATH` writes one.",
        ) from error


@dataclass(slots=True)
class _Publication:
    """One publication: what is published, and where."""

    args: argparse.Namespace
    environment: Mapping[str, str]
    result: RunResult
    view: RunView
    remarks: Sequence[Remark]
    link: Link
    job: Job
    shown: Shown | None
    number: int | None
    name: Name
    ranked: tuple[int, str]  # how the comment ranks it, and its first line

    def log(self, text: str) -> None:
        """A line of the log."""
        from crashcheck.reports.view.text import line

        print(f"crashcheck: {line(text, 1000)}", flush=True)

    def commands(self) -> str:
        from crashcheck.checker import policy
        from crashcheck.reports.formats import workflow_commands

        # by what it found: a run that was broken off is another matter
        undecided = self.args.exit_code not in EXITS and policy.undecided(self.result)
        why = [workflow_commands.command("error", self.view.headline, title="crashcheck")] if undecided else []
        return "".join(row + "\n" for row in why) + workflow_commands.render(self.remarks)  # without suppressed ones

    def to_github(self, client: Client, event: Event) -> None:
        """The parts that need a token, each on its own: one that fails costs a line."""
        from crashcheck.reports.formats import workflow_commands
        from crashcheck.reports.github import comment
        from crashcheck.reports.github.client import Refused

        parts: list[tuple[str, Callable[[], Done]]] = []
        if self.args.comment and self.number is not None:
            parts.append(("comment", lambda: self._comment(client, event)))
        wanted = self.args.check_run
        if wanted == "always" or (wanted == "auto" and comment.needs_check_run(self.remarks)):
            parts.append(("check run", lambda: self._check_run(client, event)))
        if self.args.review and self.number is not None:
            parts.append(("review", lambda: self._review(client, event)))
        if self.number is None and (self.args.comment or self.args.review):
            self.log("This event belongs to no open pull request: nothing was commented on.")
        forbidden: dict[str, str] = {}
        for name, part in parts:
            try:
                done = part()
            except Refused as refusal:
                if refusal.why == "forbidden":
                    forbidden[name] = str(refusal)
                    continue
                print(workflow_commands.command("warning", f"The {name} was left out: {refusal}", title="crashcheck"))
            else:
                self.log(f"{name}: {done}")
        if forbidden:
            fork = ", as on a pull request from a fork" if event.fork else "; see the permissions in docs/github.md"
            self.log(
                f"The token may not write the {' and the '.join(forbidden)}{fork}: {next(iter(forbidden.values()))}. "
                "The summary and the annotations show every finding."
            )

    def _comment(self, client: Client, event: Event) -> Done:
        from crashcheck.reports.github import comment, sections
        from crashcheck.reports.view import earlier

        assert self.number is not None
        clean = self.ranked[0] == sections.PASSES
        details = comment.details(self.view, self.link, self.where(), clean)
        section = comment.section(self.job, event, self.ranked, details, self.result.findings)
        return client.comment(self.number, section, not clean or bool(earlier.fixed(self.result)))

    def _check_run(self, client: Client, event: Event) -> Done:
        from crashcheck.reports.github import comment

        ended = self.args.exit_code
        concluded = comment.conclusion(self.result, ended == EXIT_FINDINGS, ended not in EXITS)
        text = comment.check_text(self.view, self.ranked[1], self.link, concluded, self.args.link)
        return client.check_run(
            event.sha,
            comment.check_name(self.job),
            _external_id(self.job, event),
            text,
            comment.check_annotations(self.remarks),
        )

    def _review(self, client: Client, event: Event) -> Done:
        from crashcheck.reports.github import comment

        assert self.number is not None
        marked = comment.marker(self.job)
        shown = self.shown or client.shown(self.number)
        wanted = comment.suggestions(self.result, marked, self.name, shown.texts)
        return client.review(self.number, event.sha, marked, comment.review_body(self.view, len(wanted)), wanted)

    def where(self) -> str:
        if not self.args.link:
            return ""
        images = self.args.report is not None and any((self.args.report.parent / "images").glob("*.crash.tar.gz"))
        again = " holds the crash images, too: `crashcheck replay --image ID.crash.tar.gz` runs the check on one."
        return f"\n[The whole report]({self.args.link}){again if images else ''}\n"


def _external_id(job: Job, event: Event) -> str:
    from crashcheck.reports.github import comment

    return f"crashcheck {comment.job_key(job)} {event.run[0]}-{event.run[1]}"


def _publish_failure(
    args: argparse.Namespace,
    environment: Mapping[str, str],
    failure: Failure,
    event: Event | None,
    client: Client | None,
) -> None:
    """Report that a run failed: what an earlier commit's report shows must not be taken for this one's."""
    from crashcheck.config import MODELS
    from crashcheck.reports.formats import markup
    from crashcheck.reports.formats.workflow_commands import command
    from crashcheck.reports.github import comment, sections, verdict
    from crashcheck.reports.github.client import Refused
    from crashcheck.reports.view.text import line

    sha = event.sha if event else environment.get("GITHUB_SHA", "")
    log = _run_url(environment, event) if event else ""
    text = comment.failed_text(failure, f"\n[The log]({log})\n" if log else "")
    title = verdict.failed(failure, sha)
    if environment.get("GITHUB_STEP_SUMMARY"):
        _append(environment["GITHUB_STEP_SUMMARY"], f"### crashcheck: {markup.inline(title)}\n\n{text}\n")
    message = f"{title}: {line(failure.message.partition(chr(10))[0])}"
    print(command("error", message, title="crashcheck"), flush=True)
    if environment.get("GITHUB_OUTPUT"):
        _append(environment["GITHUB_OUTPUT"], "conclusion=error\n")
    if client is None or event is None:
        return
    root = Path(os.path.realpath(environment.get("GITHUB_WORKSPACE") or "."))
    _, config = _places(root, args.folder, failure.config_path)
    jobs = [comment.Job(config, model, failure.name) for model in ((failure.model,) if failure.model else MODELS)]
    try:
        number = event.number
        if number is None and event.head:
            number = client.number_of(event.head, event.sha, event.head_repository)
        if args.comment and number is not None:
            job = comment.Job(config, failure.model, failure.name)
            mine = comment.section(job, event, (sections.NO_REPORT, title), text)
            print(f"crashcheck: comment: {client.comment(number, mine, False, not failure.model)}", flush=True)
        for job in jobs:
            name = comment.check_name(job)
            always = args.check_run == "always" and failure.model
            if always or (args.check_run != "never" and client.has_check_run(event.sha, name)):
                head = comment.CheckText(title, text, "failure", log)
                done = client.check_run(event.sha, name, _external_id(job, event), head, ())
                print(f"crashcheck: check run: {done}", flush=True)
    except Refused as refusal:
        print(f"crashcheck: {line(str(refusal), 1000)}", flush=True)


def _prepare(
    args: argparse.Namespace,
    environment: Mapping[str, str],
    result: RunResult,
    event: Event | None,
    client: Client | None,
) -> _Publication:
    """What to publish, and the change that it is about: as GitHub shows it, or else as git does."""
    from crashcheck.change.diff import git_diff
    from crashcheck.reports.formats.markdown import github_links
    from crashcheck.reports.github import verdict
    from crashcheck.reports.github.annotations import remarks
    from crashcheck.reports.github.client import Refused
    from crashcheck.reports.github.comment import Job
    from crashcheck.reports.github.located import in_commit, lines_at, located
    from crashcheck.reports.view.run_view import build_view
    from crashcheck.reports.view.text import line
    from crashcheck.source import Repository

    root = Path(os.path.realpath(environment.get("GITHUB_WORKSPACE") or "."))
    folder, config = _places(root, args.folder, result.config_path)
    result = located(result, Repository(root, folder).name, lines_at(root, event.sha if event else ""), root)
    if result.base is not None and event and event.base:
        result = replace(result, base=replace(result.base, ref=event.base))  # not as a shallow checkout names it
    repository = Repository(root, "")
    # Without sources: a report of a stranger could name any file of this machine.
    view = build_view(result, config=config)
    number = event.number if event else None
    shown = None
    try:
        if client and event and number is None and event.head:
            number = client.number_of(event.head, event.sha, event.head_repository)
        if client and number is not None and args.diff is None:
            shown = client.shown(number)
    except Refused as refusal:
        print(f"crashcheck: {line(str(refusal), 1000)}; findings are annotated at their stores.")
    diff = git_diff(root, args.diff) if args.diff is not None else shown.diff if shown else None
    server = environment.get("GITHUB_SERVER_URL") or "https://github.com"
    link: Link = _no_link
    if event:
        there = in_commit(root, event.sha, repository.name)
        link = github_links(f"{server}/{event.repository}", event.sha, there)
    placed = remarks(result, view, repository.name, diff)
    job = Job(config, result.model, result.name)
    sha = event.sha if event else environment.get("GITHUB_SHA", "")
    ranked = verdict.verdict(result, view, sha, args.exit_code == EXIT_FINDINGS, args.exit_code not in EXITS)
    return _Publication(args, environment, result, view, placed, link, job, shown, number, repository.name, ranked)


def _no_link(file: str, number: int) -> str:
    return ""


def _places(root: Path, folder: str | None, config: str) -> tuple[str, str]:
    """The project's folder and the configuration, both from the repository's root, with "/".

    The report may come from another machine: its paths are compared as text, and nothing outside `root` is taken.
    """
    name = os.path.basename(config)
    if folder is None:
        inside = os.path.relpath(os.path.dirname(os.path.abspath(config)), root)
        folder = "" if inside == "." or inside.startswith("..") else inside
    else:
        folder = os.path.normpath(folder)
        if os.path.isabs(folder) or folder.startswith(".."):
            raise CrashcheckError(
                "publish-folder",
                f"--folder {folder} is outside the repository.",
                "Give the path from the repository's root.",
            )
        folder = "" if folder == "." else folder
    return folder, f"{folder}/{name}" if folder else name


def _summary(publication: _Publication, environment: Mapping[str, str]) -> None:
    """The job's summary; another step may have written one before."""
    from crashcheck.reports.formats import markdown, markup

    path = environment.get("GITHUB_STEP_SUMMARY")
    if path:
        more = "the HTML report in the workflow's artifact"
        _append(
            path,
            f"### crashcheck: {markup.prose(publication.ranked[1])}\n\n"
            + markdown.render(publication.view, markdown.SUMMARY, publication.link, more, cause=True)
            + publication.where()
            + "\n",
        )


def _outputs(publication: _Publication, environment: Mapping[str, str]) -> None:
    """The outputs of the step: numbers, and words of our own; nothing that came from the program."""
    from crashcheck.checker import policy
    from crashcheck.reports.github import comment

    path = environment.get("GITHUB_OUTPUT")
    if path:
        result = publication.result
        new = sum(map(policy.counts, result.findings))
        ended = publication.args.exit_code
        concluded: str = comment.conclusion(result, ended == EXIT_FINDINGS, undecided=False)
        if ended not in EXITS:
            concluded = "undecided" if policy.undecided(result) else "error"
        _append(path, f"findings={len(result.findings)}\nnew-findings={new}\nconclusion={concluded}\n")


def _append(path: str, text: str) -> None:
    try:
        with open(path, "a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise CrashcheckError("report-unwritable", f"{path} cannot be written: {error.strerror}.") from error
