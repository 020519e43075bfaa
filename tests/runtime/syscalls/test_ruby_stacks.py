"""Stacks of Ruby: file, method and line of each frame are those that `caller_locations` shows."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from crashcheck.runtime.trace_format import Kind
from support.script_stacks import of_kind, traced

RUBY = shutil.which("ruby") or ""
LIBRARY = """\
IN_C = %w[each map instance_eval times call eval sort_by define_method require_relative kill fork]
def show
  frames = caller_locations(1).reject { |frame| IN_C.include?(frame.label) || frame.path.start_with?('<internal:') }
  frames.map { |frame| "#{frame.absolute_path || '<string>'}|#{frame.base_label}|#{frame.lineno}\\n" }.join
end
"""
# What writes is the caller of `show`, in the same line: it writes what `show` shows.
PROGRAM = """\
require_relative 'library'
$file = File.open(ARGV[0], 'a')
def write_stack = $file.syswrite(show)
def deep(left)
  return deep(left - 1) if left > 0
  write_stack
end

write_stack
deep(0)
deep(100)
[2, 1].each { |each| write_stack }
lambda do
  write_stack
end.call
class Store
  def self.save = write_stack
  define_method(:put) { write_stack }
  write_stack
  def missing
    raise 'x'
  rescue RuntimeError
    write_stack
  ensure
    write_stack
  end
end
Store.save
Store.new.put
Store.new.missing
eval 'write_stack'
Fiber.new { write_stack }.resume
Signal.trap('USR1') { write_stack }
Process.kill('USR1', $$)
Thread.new { deep(3) }.join
2.times.map { |at| Thread.new { deep(at) } }.each(&:join)
Process.wait(fork { write_stack; $file.close })
def long(x)
LONG
  write_stack
end
long(0)
""".replace("LONG", "\n".join(f"  x = x * {at} + 1\n" for at in range(200)))

pytestmark = pytest.mark.skipif(not RUBY, reason="there is no Ruby here")


def test_a_write_has_the_stack_that_the_program_sees_itself(tmp_path: Path) -> None:
    (tmp_path / "library.rb").write_text(LIBRARY)
    program = tmp_path / "program.rb"
    program.write_text(PROGRAM)
    writes = [each for each in of_kind(traced(tmp_path, RUBY, str(program), "{pool}/f"), Kind.WRITE) if each[1]]
    for frames, data in writes:
        lines = [line.split("|") for line in data.decode().splitlines()]
        expected = [(file, "main" if name == "<main>" else name, int(line)) for file, name, line in lines]
        assert frames == expected
    assert len(writes) == 19


def test_code_that_eval_compiles_has_the_file_that_it_names(tmp_path: Path) -> None:
    program = tmp_path / "program.rb"
    program.write_text(
        "class Store\n  class_eval <<-END, __FILE__, __LINE__\n    def save = File.write(ARGV[0], 'x')\n"
    )
    with program.open("a") as file:
        file.write("  END\nend\nStore.new.save\n")
    expected = [(str(program), "save", 2), (str(program), "main", 6)]
    assert list(of_kind(traced(tmp_path, RUBY, str(program), "{pool}/f"), Kind.WRITE)) == [(expected, b"x")]


def test_code_that_is_in_no_file_has_its_line(tmp_path: Path) -> None:
    program = "def save(name)\n  File.write(name, 'x') end\neval('save(ARGV[0])')"
    expected = [("<-e>", "save", 2), ("<string>", "main", 1), ("<-e>", "main", 3)]
    assert list(of_kind(traced(tmp_path, RUBY, "-e", program, "{pool}/f"), Kind.WRITE)) == [(expected, b"x")]
