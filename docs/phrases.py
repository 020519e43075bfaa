"""Count phrases that this project avoids: python docs/phrases.py prints a table of phrases and folders.

Each phrase has a plainer one beside it. Documents and report templates must hold none, or the exit status is 1.
In code, comments, docstrings and texts of several words are counted; `tests/test_documents.py` keeps the number down.
Only phrases that have a better word nearly everywhere are listed: ordinary English words are left to a reader.
"""

from __future__ import annotations

import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent


class Phrase(NamedTuple):
    """A phrase to avoid."""

    name: str
    pattern: str
    instead: str


PHRASES = (
    Phrase("told", r"\btold\b", "reported, shown, listed"),
    Phrase("tell", r"\btell(?:s|ing)?\b", "report, show, distinguish"),
    Phrase("say (of a program or page)", r"\bsa(?:y|ys|id|ying)\b", "report, print, describe, mean"),
    Phrase("mend", r"\bmend(?:s|ed|ing)?\b", "fix"),
    Phrase("grave", r"\bgrave(?:r|st)?\b", "severe"),
    Phrase("in vain", r"\bin vain\b", "redundant"),
    Phrase("a look", r"\b(?:a|the|whose|its|each|every|same|new|this|that) looks?\b(?! like)", "site signature"),
    Phrase("at hand", r"\bat hand\b", "available, queued"),
    Phrase("alike", r"\balike\b", "equal, similar, the same"),
    Phrase("its like", r"\b(?:its|their|the) likes?\b", "similar ones"),
    Phrase("over again", r"\bover again\b", "again"),
    Phrase("anew", r"\banew\b", "again, new"),
    Phrase("of many", r"\bof (?:many|another)\b(?! \w)", "name the thing"),
    Phrase(
        "a line each",
        r"\ba (?:block|case|class|core|file|folder|format|kind|lane|line|model|part|place|process|row|rule|run|strategy"
        r"|subcommand|test|thread) (?:each\b|a \w+)",
        "one line per kind",
    ),
    Phrase("stands (of text)", r"\bst(?:ands?|ood)\b(?!-)", "is, represents"),
    Phrase("comes once", r"\bcom(?:es?|ing) (?:again|of|once|late|first|last|to light)\b", "appears, results from"),
    Phrase("comes before", r"\bc[ao]m(?:es?|ing) (?:before|after|in between)\b", "precedes, follows"),
    Phrase("goes on", r"\b(?:go|goes|going|went) on\b", "continues"),
    Phrase("lies (of text)", r"\bl(?:ie|ies|ay|ying)\b(?! out\b)", "is"),
    Phrase("looks at", r"\blook(?:s|ed|ing)? at\b", "tests, reads, examines"),
    Phrase("partner", r"\bpartners?\b", "the other store"),
    Phrase("medium", r"\bmedium\b", "persistent memory, disk"),
    Phrase("explained (of bytes)", r"\b(?:un)?explained\b|\btrace explains\b", "accounted for by the trace"),
    Phrase("untried", r"\buntried\b|\bwhat (?:was|is) not seen\b", "not covered"),
    Phrase("do its job", r"\bd(?:o|oes|id) (?:its|their) job\b", "failed, and the reason"),
    Phrase("the former, the latter", r"\bthe (?:former|latter)\b", "name the thing"),
    Phrase("behind its back", r"\bbehind \S+ backs?\b", "not recorded"),
    Phrase("suffices", r"\bsuffic(?:e|es|ed)\b", "is enough"),
    Phrase("dearest", r"\bdear(?:er|est)?\b", "expensive"),
    Phrase("likeliest", r"\blikel(?:ier|iest)\b", "more likely, most likely"),
    Phrase("some tens", r"\bsome tens\b", "a few dozen"),
    Phrase("put off", r"\bputs? off\b|\bputting off\b", "postponed"),
    Phrase("hands on", r"\bhand(?:s|ed)? on\b", "passes on, returns"),
    Phrase("wholly", r"\bwholly\b", "entirely"),
    Phrase("speaks", r"\bspeaks?\b|\bspoken\b", "describes, is about"),
    Phrase("be had", r"\bbe had\b", "get, obtain"),
    Phrase("is to be", r"\b(?:is|are|was|were) to be\b", "must be, should be"),
    Phrase("what became of", r"\bwhat (?:became|becomes) of\b", "the state of"),
    Phrase("takes along", r"\btak(?:es?|ing) (?:\w+ ){0,6}along\b", "persists, includes"),
    Phrase("soonest", r"\bsoone(?:r|st)\b", "earlier, earliest"),
    Phrase("oftener", r"\boftene(?:r|st)\b", "more often"),
    Phrase("save for", r"\bbut for\b|\bsave for\b", "except"),
)
PATTERNS = {phrase: re.compile(phrase.pattern.replace(" ", r"\s+"), re.IGNORECASE) for phrase in PHRASES}
# Most files and passages have none of them, which one search finds.
ANY = re.compile("|".join(pattern.pattern for pattern in PATTERNS.values()), re.IGNORECASE)

# Where a phrase is the right word: (phrase, what the path begins with, text around it).
ALLOWED = (
    ("tell", "", r"tell(?:s|ing)?\b[^.]{0,40}\bapart"),
    ("told", "", r"told\b[^.]{0,20}\bapart"),
    ("explained (of bytes)", "checker/search/", r"explained"),  # a failure, by counterfactual runs
    ("explained (of bytes)", "src/crashcheck/change/removed_persists.py", r"explained by it"),  # a failure
    ("say (of a program or page)", "tests/analyzer/compile/driver/test_wrapper.py", r"\bsay\b"),  # a C++ class
)

PROSE = ("README.md", "CHANGELOG.md", "docs/*.md", "examples/**/README.md", "tests/**/README.md")
TEMPLATES = ("reports/templates/*",)
CODE = ("src/crashcheck", "runtime", "analyzer", "checker", "reports", "bench", "examples", "docs", "tests", ".ci")
C_LIKE = (".c", ".h", ".cpp", ".hpp", ".def", ".js", ".css")
SEVERAL_WORDS = re.compile(r"\S\s+\S")


class Found(NamedTuple):
    """One use of a phrase."""

    phrase: str
    path: Path
    line: int
    text: str


def prose_files() -> list[Path]:
    """Documents and templates, in which no phrase may be."""
    return sorted(path for pattern in (*PROSE, *TEMPLATES) for path in ROOT.glob(pattern) if path.is_file())


def code_files() -> list[Path]:
    """Python and C files of the project; links are not followed, so that each comes once."""
    suffixes = (".py", *C_LIKE)
    found = [path for folder in CODE for suffix in suffixes for path in (ROOT / folder).rglob(f"*{suffix}")]
    linked = [link for link in (ROOT / "src" / "crashcheck").iterdir() if link.is_symlink()]
    return sorted(
        path
        for path in found
        if path != Path(__file__).resolve()
        and "templates" not in path.parts
        and "golden" not in path.parts
        and "build" not in path.relative_to(ROOT).parts
        and not any(path.is_relative_to(link) for link in linked)
    )


def words_of(path: Path) -> list[tuple[int, str]]:
    """The passages of a file that are language, with the line on which each begins."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return [(1, blanked(text, r"^```.*?^```|`[^`\n]*`|\]\([^)]*\)", re.MULTILINE | re.DOTALL))]
    if path.suffix == ".j2":
        return [(1, blanked(text, r"\{\{.*?\}\}|\{%.*?%\}|</?\w+|\b(?:class|id)=\"[^\"]*\"|`[^`\n]*`", re.DOTALL))]
    if path.suffix == ".py":
        return list(python_words(text))
    return list(c_words(text))


def blanked(text: str, pattern: str, flags: int) -> str:
    """`text` with matches of `pattern` replaced by a mark that is no word; line numbers stay."""
    return re.sub(pattern, lambda found: "¤" + "\n" * found.group().count("\n"), text, flags=flags)


def python_words(text: str) -> Iterator[tuple[int, str]]:
    kinds = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in kinds and SEVERAL_WORDS.search(token.string):
            code = r"|\{[^{}\n]*\}" if re.match(r"\w*f", token.string, re.IGNORECASE) else ""
            yield token.start[0], blanked(token.string, rf"`[^`\n]*`{code}", 0)


def c_words(text: str) -> Iterator[tuple[int, str]]:
    for found in re.finditer(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"", text, re.DOTALL):
        if SEVERAL_WORDS.search(found.group()):
            yield 1 + text.count("\n", 0, found.start()), blanked(found.group(), r"`[^`\n]*`", 0)


def uses(files: list[Path]) -> list[Found]:
    """Every use of a phrase in these files that is not allowed, in their order."""
    found = []
    for path in files:
        name = path.relative_to(ROOT).as_posix()
        if not ANY.search(path.read_text(encoding="utf-8")):
            continue
        for first, passage in words_of(path):
            if not ANY.search(passage):
                continue
            for phrase, pattern in PATTERNS.items():
                for match in pattern.finditer(passage):
                    around = " ".join(passage[max(match.start() - 50, 0) : match.end() + 50].split())
                    if not any(
                        phrase.name == allowed and name.startswith(where) and re.search(text, around)
                        for allowed, where, text in ALLOWED
                    ):
                        line = first + passage.count("\n", 0, match.start())
                        found.append(Found(phrase.name, path, line, around))
    return found


def folder_of(path: Path) -> str:
    """The column of the table: the folder at the top; prose has one of its own."""
    parts = path.relative_to(ROOT).parts
    if path.suffix == ".md":
        return "prose"
    return "templates" if "templates" in parts else parts[0]


def main() -> int:
    """Print the table; with --list, each use. The exit status is 1 if a document or template has one."""
    prose, code = uses(prose_files()), uses(code_files())
    if "--list" in sys.argv[1:]:
        for one in (*prose, *code):
            print(f"{one.path.relative_to(ROOT)}:{one.line}: {one.phrase}: … {one.text} …")
        print()
    counts = Counter((one.phrase, folder_of(one.path)) for one in (*prose, *code))
    columns = sorted({folder for _, folder in counts}, key=lambda name: (name not in ("prose", "templates"), name))
    print(f"{'phrase':<27}", *(f"{column:>9}" for column in columns), f"{'all':>6}", " instead")
    for phrase in PHRASES:
        row = [counts[phrase.name, column] for column in columns]
        if any(row):
            print(f"{phrase.name:<27}", *(f"{n or '':>9}" for n in row), f"{sum(row):>6}", f" {phrase.instead}")
    row = [sum(n for (_, folder), n in counts.items() if folder == column) for column in columns]
    print(f"{'all':<27}", *(f"{n:>9}" for n in row), f"{sum(row):>6}")
    print(f"code {len(code)}")
    for one in prose:
        print(f"{one.path.relative_to(ROOT)}:{one.line}: {one.phrase}: … {one.text} …", file=sys.stderr)
    return 1 if prose else 0


if __name__ == "__main__":
    sys.exit(main())
