"""Stacks of Perl: file, function and line of each frame are those that `caller` shows."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from crashcheck.runtime.trace_format import Kind
from support.script_stacks import of_kind, traced

PERL = shutil.which("perl") or ""
LIBRARY = """\
package Library;
sub show {
    my ($at, $text, @frame) = (0, '');
    while (@frame = caller($at++)) {
        my $name = (caller($at))[3] // 'main';
        $name =~ s/.*:://;
        $text .= "$frame[1]|$name|$frame[2]\\n";
    }
    return $text;
}
1;
"""
# What writes is the caller of `show`, in the same line: it writes what `show` shows.
PROGRAM = """\
use strict; use warnings;
require './Library.pm';
open(our $file, '>>', $ARGV[0]) or die $!;
sub write_stack { syswrite($file, Library::show()); }
sub deep {
    my ($left) = @_;
    return deep($left - 1) if $left;
    write_stack();
}

write_stack();
deep(30);
my $closure = sub {
    write_stack();
};
$closure->();
my @sorted = sort { write_stack(); $a <=> $b } (2, 1);
eval { write_stack(); die "x\\n" };
eval 'write_stack();';
local $SIG{USR1} = sub { write_stack() };
kill 'USR1', $$;
{ package Other; sub DESTROY { main::write_stack() } my $object = bless []; }
if (my $process = fork) { waitpid $process, 0 } else { write_stack(); exit }
printf "%s\\n", join ',', map { "$_=$ENV{$_}" } grep { /PERL/ } sort keys %ENV;
"""

pytestmark = pytest.mark.skipif(not PERL, reason="there is no Perl here")


def test_a_write_has_the_stack_that_the_program_sees_itself(tmp_path: Path) -> None:
    (tmp_path / "Library.pm").write_text(LIBRARY)
    (tmp_path / "program.pl").write_text(PROGRAM)
    command = f"cd {tmp_path} && exec {PERL} program.pl {{pool}}/f"
    writes = list(of_kind(traced(tmp_path, "/bin/sh", "-c", command), Kind.WRITE))
    for frames, data in writes:
        lines = [line.split("|") for line in data.decode().splitlines()]
        expected = [
            ("<string>" if file.startswith("(eval") else str(tmp_path / file), name, int(line))
            for file, name, line in lines
        ]
        assert frames == expected
    assert len(writes) == 9


def test_what_is_read_ahead_for_one_line_is_not_taken_for_another(tmp_path: Path) -> None:
    program = tmp_path / "program.pl"
    program.write_text(
        "open(my $f, '>', $ARGV[0]);\nsub save { syswrite($f, (caller(0))[2]) }\n"
        "for (1 .. 50) {\n  save();\n  save() if $_ % 3;\n  sub { save() }->() if $_ % 7 == 0;\n}\n"
    )
    writes = list(of_kind(traced(tmp_path, PERL, str(program), "{pool}/f"), Kind.WRITE))
    assert [frames[1][2] for frames, _ in writes] == [int(data) for _, data in writes]
    assert {len(frames) for frames, _ in writes} == {2, 3}
    assert len(writes) == 50 + 34 + 7


def test_a_program_on_the_command_line_has_its_line_and_a_copy_under_another_name_none(tmp_path: Path) -> None:
    renamed = shutil.copy(PERL, tmp_path / "pearl")
    program = "open(my $f, '>', $ARGV[0]);\nsub save { syswrite($f, 'x') }\nsave()"
    expected = [("<-e>", "save", 2), ("<-e>", "main", 3)]
    for number, (perl, frames) in enumerate(((PERL, expected), (str(renamed), []))):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert list(of_kind(traced(folder, perl, "-e", program, "{pool}/f"), Kind.WRITE)) == [(frames, b"x")]
