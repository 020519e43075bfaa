"""Writes its own stack to a file, from many kinds of Python functions: what the recorder has to see, line by line."""

# fmt: off
import json
import os
import sys
import threading


def stack():
    """The frames above the caller's, innermost first: file, name and line."""
    frame, found = sys._getframe(1), []
    while frame is not None:
        code = frame.f_code
        found.append([code.co_filename, getattr(code, "co_qualname", code.co_name), frame.f_lineno])
        frame = frame.f_back
    return found


def write():
    os.write(FILE, json.dumps(stack()).encode())


class Saver:
    def save(self):
        write()

    @staticmethod
    def later(depth):
        if depth:
            Saver.later(depth - 1)
        else:
            (
                write
            )()

    @property
    def saved(self):
        for each in range(3):
            if each == 1:
                write()
        return True


def generator():
    yield 1
    write()
    yield 2


def long_function():
    value = 0
    while value < 2:
        value += 1

    # a comment, and some lines without code


    def inner():
        """With a docstring."""
        write()

    try:
        raise ValueError
    except ValueError:
        inner()
    finally:
        write()


def größe():
    write()


def sorted_by_key():
    sorted([1, 2], key=lambda number: write() or number)


FILE = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
write()
Saver().save()
Saver.later(5)
Saver.later(40)
assert Saver().saved
[write() for _ in range(2)]
list(generator())
long_function()
größe()
sorted_by_key()
(lambda: write())()
exec("def made():\n    pass\n    write()\nmade()")
for _ in range(20):  # codes that are freed, and others at their addresses
    source = "\n" * _ + f"def made_{_}():\n\n\n    write()\nmade_{_}()\n"
    exec(compile(source, f"made-{_}.py", "exec"))
threads = [threading.Thread(target=Saver().save) for _ in range(3)]
for each in threads:
    each.start()
    each.join()
child = os.fork()
if not child:
    write()
    os._exit(0)
os.waitpid(child, 0)
