"""One node: it reads our clock, our random bytes and our numbers, and a repeated run is the same byte for byte."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from crashcheck.runtime.nodes.actions import Action, ActionKind, NodeError
from crashcheck.runtime.nodes.machines import NodeCommand
from crashcheck.runtime.nodes.world import NodeWorld
from support.node_runs import Worlds, by_default, output

Program = Callable[[str], str]


def test_all_that_differs_between_runs_is_the_same_in_ten(worlds: Worlds, node_program: Program) -> None:
    def run() -> bytes:
        world = worlds((node_program("sources"),))
        results = by_default(world)
        assert [result.ended for result in results] == [0]
        assert world.uncontrolled == {}
        return output(results, 0)

    first = run()
    assert {run() for _ in range(9)} == {first}
    assert re.search(rb"^pid 2 parent 1$", first, re.M)
    assert re.search(rb"^clock 0 1577836800.000000000$", first, re.M)
    assert re.search(rb"^clock 1 1000.000000000$", first, re.M)
    assert re.findall(rb"^([abc]) 1 \d+ 1577836800$", first, re.M) == [b"a", b"b", b"c"]
    assert re.search(rb"^n0 processors 1 at 0, up 1000, ", first, re.M)


def test_two_nodes_have_other_random_bytes(worlds: Worlds, node_program: Program) -> None:
    results = by_default(worlds((node_program("sources"),), (node_program("sources"),)))
    lines = [re.findall(rb"^random .*$", output(results, node), re.M) for node in (0, 1)]
    assert len({*lines[0], *lines[1]}) == 4


def test_what_sleeps_takes_no_time(worlds: Worlds) -> None:
    began = time.monotonic()
    world = worlds(("sleep", "86400"))
    results = by_default(world)
    assert [(result.action.kind, result.action.due_ns) for result in results[1:]] == [(ActionKind.TIMER, 86400 * 10**9)]
    assert results[-1].ended == 0
    assert time.monotonic() - began < 3600


def test_threads_run_one_at_a_time_and_the_same_way(worlds: Worlds, node_program: Program) -> None:
    runs = [by_default(worlds((node_program("threads"),))) for _ in range(3)]
    assert output(runs[0], 0) == b"0123" * 6 + b" late joined\n"
    assert runs[0] == runs[1] == runs[2]


def test_a_python_program_runs_its_event_loop(worlds: Worlds) -> None:
    code = "import asyncio, random; asyncio.run(asyncio.sleep(2)); print(random.random())"
    runs = [by_default(worlds((sys.executable, "-c", code))) for _ in range(3)]
    assert runs[0] == runs[1] == runs[2]
    assert runs[0][-1].ended == 0
    assert 0 < float(output(runs[0], 0)) < 1


LOCKS = """
import fcntl, os, sys, time
take = getattr(fcntl, sys.argv[1])
held = open("lock", "w")
take(held, fcntl.LOCK_EX)
for child in range(3):
    if os.fork() == 0:
        mine = open("lock", "w")
        try:
            take(mine, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            print("busy", flush=True)
        take(mine, fcntl.LOCK_EX)
        print(child, flush=True)
        time.sleep(1)
        os._exit(0)
time.sleep(2)
print("free", flush=True)
take(held, fcntl.LOCK_UN)
for child in range(3):
    os.wait()
"""


@pytest.mark.parametrize("call", ["flock", "lockf"])
def test_processes_that_wait_for_one_lock_rest_and_get_it_one_after_another(call: str, worlds: Worlds) -> None:
    runs = [by_default(worlds((sys.executable, "-c", LOCKS, call))) for _ in range(3)]
    assert output(runs[0], 0).split() == [b"busy"] * 3 + [b"free", b"0", b"1", b"2"]
    assert runs[0][-1].ended == 0
    assert runs[0] == runs[1] == runs[2]


def test_a_command_that_is_missing_is_an_error_for_the_user(worlds: Worlds) -> None:
    world = worlds(("/nonexistent/program",))
    with pytest.raises(NodeError, match="/nonexistent/program: No such file or directory") as caught:
        world.take(Action(ActionKind.START, 0))
    assert caught.value.slug == "node-failed"


def test_a_node_that_is_killed_by_a_signal_ends_with_it(worlds: Worlds) -> None:
    assert by_default(worlds(("sh", "-c", "kill -ABRT $$")))[-1].ended == 6


def test_children_are_waited_for(worlds: Worlds) -> None:
    results = by_default(worlds(("sh", "-c", "sleep 2 & (echo child; exit 3); echo $?; wait; echo done | cat")))
    assert output(results, 0) == b"child\n3\ndone\n"
    assert results[-1].ended == 0


def test_a_node_s_folder_has_the_same_path_in_each_run(worlds: Worlds, tmp_path: Path) -> None:
    for name in ("one", "another"):
        words = ("sh", "-c", 'pwd; echo "$0" $WHERE; echo x > "$0/file"', str(tmp_path / name / "n0"))
        command = NodeCommand(words, variables={"WHERE": str(tmp_path / name / "n0") + ":", "PATH": "/usr/bin:/bin"})
        world = NodeWorld([command], tmp_path / name)
        try:
            assert output(by_default(world), 0) == b"/media\n/media /media:\n"
            assert (tmp_path / name / "n0" / "file").read_bytes() == b"x\n"
        finally:
            world.close()


def test_processes_that_wait_for_each_other_s_pipes_rest(worlds: Worlds) -> None:
    code = "import multiprocessing as m\nwith m.Pool(2) as pool: print(pool.map(abs, [-1, -2, 3]))"
    results = by_default(worlds((sys.executable, "-c", code)))
    assert output(results, 0) == b"[1, 2, 3]\n"
    assert results[-1].ended == 0


@pytest.mark.slow
def test_a_node_that_computes_for_ever_is_an_error_for_the_user(worlds: Worlds) -> None:
    world = worlds(("sh", "-c", "while :; do :; done"))
    with pytest.raises(NodeError, match="node 0 did not come to rest within 10 s") as caught:
        world.take(Action(ActionKind.START, 0))
    assert caught.value.slug == "node-unrest"


def test_a_loop_that_waits_by_reading_the_clock_ends(worlds: Worlds) -> None:
    code = "import time; until = time.monotonic() + 60\nwhile time.monotonic() < until: pass\nprint('over')"
    assert [output(by_default(worlds((sys.executable, "-c", code))), 0) for _ in range(2)] == [b"over\n"] * 2


def test_timers_by_a_processors_time_never_fire_and_all_is_under_control(worlds: Worlds) -> None:
    code = """
import ctypes, signal, time
signal.setitimer(signal.ITIMER_PROF, 0.001)
libc, timer, setting = ctypes.CDLL(None), ctypes.c_void_p(), (ctypes.c_long * 4)(0, 0, 0, 1)
assert libc.timer_create(time.CLOCK_THREAD_CPUTIME_ID, None, ctypes.byref(timer)) == 0
assert libc.timer_settime(timer, 0, setting, None) == 0
time.sleep(1)
print("over")
"""
    world = worlds((sys.executable, "-c", code))
    assert (output(by_default(world), 0), dict(world.uncontrolled)) == (b"over\n", {})


def test_a_program_that_reads_the_clock_at_many_depths_of_its_stack_does_not_wait(worlds: Worlds) -> None:
    code = """
import time
def read(depth):
    [time.monotonic() for _ in range(40)]
    return [*map(read, [depth - 1])] if depth else None  # through C, as nested calls of Python share a frame of it
begin = time.monotonic()
read(50)
print(time.monotonic() - begin)
"""
    assert output(by_default(worlds((sys.executable, "-c", code))), 0) == b"0.0\n"


def test_a_node_that_other_programs_keep_from_computing_gets_more_time(worlds: Worlds, tmp_path: Path) -> None:
    begun = tmp_path / "world0" / "n0" / "begun"
    code = "open('begun', 'w').close()\nfor _ in range(3_000_000): pass\nprint('done')"
    world = worlds((sys.executable, "-c", code))

    def alarm() -> None:
        while not begun.exists():
            pass
        os.kill(world.controller_pid, signal.SIGALRM)  # its time is over

    with ThreadPoolExecutor(1) as pool:
        pool.submit(alarm)
        result = world.take(Action(ActionKind.START, 0))
    assert (result.wrote, result.ended) == (b"done\n", 0)


def test_nodes_that_are_stopped_end_whatever_they_do(worlds: Worlds, tmp_path: Path) -> None:
    begun = tmp_path / "world0" / "n0" / "begun"
    code = "import os\nopen('begun', 'w').close()\nwhile True: os.getppid()"
    world = worlds((sys.executable, "-c", code))
    below = Path(f"/proc/{world.controller_pid}/task/{world.controller_pid}/children")
    children: list[str] = []

    def stop() -> None:
        while not begun.exists():
            pass
        children.extend(below.read_text(encoding="ascii").split())
        world.stop()

    with ThreadPoolExecutor(1) as pool:
        stopped = pool.submit(stop)
        with pytest.raises(NodeError, match="controller-ended"):
            world.take(Action(ActionKind.START, 0))
        stopped.result()
    assert children
    while any(Path(f"/proc/{child}").exists() for child in children):  # they end with it
        pass


def test_the_network_devices_of_the_machine_are_not_shown(worlds: Worlds) -> None:
    world = worlds((sys.executable, "-c", "print(open('/proc/net/if_inet6').read())"))
    assert output(by_default(world), 0) == b"00000000000000000000000000000001 01 80 10 80       lo\n\n"
    assert world.uncontrolled == {}


def test_mounts_and_random_files_are_the_same_in_each_run(worlds: Worlds) -> None:
    code = """
import os
names = ["self/mountinfo", "self/mounts", "self/cgroup", "mounts", "sys/kernel/random/boot_id"]
print([open("/proc/" + name).read() for name in names], open("/etc/mtab").read(), os.stat(".").st_dev)
print(*{open("/proc/sys/kernel/random/uuid").read().strip() for _ in range(2)})
try: open("/sys/fs/cgroup/cpu.stat")
except FileNotFoundError: print("no control groups")
"""
    first, second = (worlds((sys.executable, "-c", code)) for _ in range(2))
    shown = output(by_default(first), 0)
    assert shown == output(by_default(second), 0)
    assert re.fullmatch(r"(?s).* 1\n\S{36} \S{36}\nno control groups\n", shown.decode())
    assert first.uncontrolled == {}


def test_processes_are_shown_without_what_the_machine_gives_them(worlds: Worlds) -> None:
    code = """
import ctypes, os
def status(of):
    try: return dict(line.split(":\\t", 1) for line in open(f"/proc/{of}/status").read().split("\\n") if line)
    except FileNotFoundError: return {}
child = os.fork()
if not child: os.read(os.pipe()[0], 1)
shown = status("self")
print([shown[name] for name in ("Pid", "TracerPid", "VmRSS", "Uid", "Cpus_allowed_list")])
print(status(child)["Pid"] == str(child), status(99), os.path.exists("/proc/99/stat"))
try: open("/proc/99/stat")
except FileNotFoundError: print("none", ctypes.CDLL(None).syscall(298, 0, 0, -1, -1, 0))
os.kill(child, 9)
"""
    world = worlds((sys.executable, "-c", code))
    shown = output(by_default(world), 0).decode()
    first, *others = shown.splitlines()
    assert others == ["True {} False", "none -1"]
    user = "\\t".join([str(os.getuid())] * 4)
    assert first == f"['2', '0', '4096 kB', '{user}', '0']"
    assert world.uncontrolled == {}


def test_files_and_folders_are_synced_and_what_has_no_disk_fails_as_the_kernel_has_it(worlds: Worlds) -> None:
    code = """
import errno, os
def tried(call, *what):
    try: call(*what)
    except OSError as error: return errno.errorcode[error.errno]
    return "done"
file, folder, (pipe, _) = os.open("f", os.O_RDWR | os.O_CREAT), os.open(".", os.O_RDONLY), os.pipe()
print(*(tried(os.fsync, fd) for fd in (file, folder, pipe, 99)), tried(os.fdatasync, file), tried(os.sync))
"""
    world = worlds((sys.executable, "-c", code))
    assert world.take(Action(ActionKind.START, 0)).wrote == b"done done EINVAL EBADF done done\n"


SEGMENT = """
import ctypes, time
c = ctypes.CDLL(None, use_errno=True)
c.shmat.restype = ctypes.c_void_p
number = c.shmget(65, 4096, 0o3600)  # IPC_CREAT | IPC_EXCL
ctypes.memmove(c.shmat(number, None, 0), b"own", 3)
state = (ctypes.c_uint64 * 14)()
c.shmctl(number, 2, ctypes.byref(state))
print(number, ctypes.string_at(c.shmat(number, None, 0)), state[7] == state[9] == int(time.time()), state[8])
"""


def test_segments_of_shared_memory_are_the_node_s_own_and_end_with_it(worlds: Worlds) -> None:
    before = Path("/proc/sysvipc/shm").read_text()
    program = (sys.executable, "-c", SEGMENT)
    world = worlds(program, program)
    results = by_default(world)
    assert [output(results, node) for node in (0, 1)] == [b"0 b'own' True 0\n"] * 2
    assert world.uncontrolled == {}
    world.close()
    assert Path("/proc/sysvipc/shm").read_text() == before
