"""Debian's replicated servers as nodes, as they are: they synchronise or elect, and a run is repeated byte for byte."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from crashcheck.runtime.nodes.actions import ActionResult
from crashcheck.runtime.nodes.machines import NodeCommand
from crashcheck.runtime.nodes.network import address_of
from crashcheck.runtime.nodes.world import NodeWorld
from support.node_runs import output, usual

sys.path.insert(0, str(Path(__file__).parent))
import real_programs

pytestmark = pytest.mark.slow

ACTIONS_MOST = 2000


def installed(*programs: str) -> None:
    if missing := [program for program in programs if shutil.which(program) is None]:
        pytest.skip(f"Debian's {', '.join(missing)} is not installed")


def until_the_client_ends(commands: Sequence[NodeCommand], folder: Path) -> list[ActionResult]:
    """The default order of actions, until the last of some nodes has ended; nothing may be out of control."""
    world = NodeWorld(commands, folder)
    results: list[ActionResult] = []
    try:
        while len(results) < ACTIONS_MOST and not any(
            one.ended is not None and one.action.node == len(commands) - 1 for one in results[-1:]
        ):
            results.append(world.take(usual(world)[0]))
        assert world.uncontrolled == {}
    finally:
        world.close()
        shutil.rmtree(folder)
    return results


def shell(command: str) -> NodeCommand:
    return NodeCommand(("sh", "-c", command))


def test_redis_and_a_replica_synchronise_and_the_run_is_repeated(tmp_path: Path) -> None:
    installed("redis-server", "redis-cli")
    first, second = address_of(0), address_of(1)
    common = ("redis-server", "--port", "6379", "--dir", ".", "--protected-mode", "no")
    commands = [
        NodeCommand((*common, "--appendonly", "yes")),
        NodeCommand((*common, "--replicaof", first, "6379")),
        shell(f"sleep 3; redis-cli -h {first} set a 1 && redis-cli -h {first} wait 1 0; redis-cli -h {second} get a"),
    ]
    runs = [until_the_client_ends(commands, tmp_path / "world") for _ in range(2)]
    assert output(runs[0], 2) == b"OK\n1\n1\n"
    assert runs[0] == runs[1]


def test_three_nodes_of_etcd_elect_a_leader_and_the_run_is_repeated(tmp_path: Path) -> None:
    installed("etcd", "etcdctl")
    cluster = ",".join(f"n{node}=http://{address_of(node)}:2380" for node in range(3))
    commands = [
        NodeCommand(
            (
                *("etcd", "--name", f"n{node}", "--data-dir", "data", "--initial-cluster", cluster),
                *(
                    word
                    for option, port in (
                        ("listen-client-urls", 2379),
                        ("advertise-client-urls", 2379),
                        ("listen-peer-urls", 2380),
                        ("initial-advertise-peer-urls", 2380),
                    )
                    for word in (f"--{option}", f"http://{address_of(node)}:{port}")
                ),
            )
        )
        for node in range(3)
    ]
    put = f"etcdctl --endpoints={address_of(0)}:2379 put a 1"
    get = f"etcdctl --endpoints={address_of(1)}:2379 get a"
    commands.append(shell(f"export ETCDCTL_API=3; sleep 5; {put} && {get}"))
    runs = [until_the_client_ends(commands, tmp_path / "world") for _ in range(2)]
    assert output(runs[0], 3) == b"OK\na\n1\n"
    assert runs[0] == runs[1]


def test_a_consumer_of_openldap_gets_what_its_provider_has_and_the_run_is_repeated(tmp_path: Path) -> None:
    installed("slapd", "ldapadd", "ldapsearch")
    urls = [f"ldap://{address_of(node)}" for node in range(2)]
    provides = "overlay syncprov"
    consumes = f"syncrepl rid=1 provider={urls[0]} type=refreshAndPersist retry=1,+ searchbase=dc=x"
    consumes = consumes.replace("1,+", '"1 +"') + " bindmethod=simple binddn=cn=a,dc=x credentials=s"
    commands = []
    for node, own in enumerate((provides, consumes)):
        seed = tmp_path / f"seed{node}"
        (seed / "db").mkdir(parents=True)
        (seed / "slapd.conf").write_text(
            "include /etc/ldap/schema/core.schema\nmodulepath /usr/lib/ldap\nmoduleload back_mdb\nmoduleload syncprov\n"
            f"serverID {node + 1}\nthreads 2\ndatabase mdb\nmaxsize 1048576\ndirectory db\nsuffix dc=x\n"
            f"rootdn cn=a,dc=x\nrootpw s\n{own}\n"
        )
        slapd = ("slapd", "-f", "slapd.conf", "-h", f"{urls[node]}/", "-d", "0")
        commands.append(NodeCommand(slapd, seed=seed))
    entry = "dn: dc=x\\nobjectClass: dcObject\\nobjectClass: organization\\no: x\\ndc: x\\n"
    own = "-x -D cn=a,dc=x -w s"
    add, ask = f"ldapadd {own} -H {urls[0]}", f"ldapsearch {own} -LLL -H {urls[1]} -b dc=x dn"
    commands.append(shell(f"sleep 2; printf '{entry}' | {add}; sleep 3; {ask}"))
    runs = [until_the_client_ends(commands, tmp_path / "world") for _ in range(2)]
    assert output(runs[0], 2) == b'adding new entry "dc=x"\n\ndn: dc=x\n\n'
    assert runs[0] == runs[1]


def test_nsd_finds_its_interfaces_and_answers_over_udp_and_tcp(tmp_path: Path) -> None:
    installed("nsd", "kdig")
    seed = tmp_path / "seed"
    seed.mkdir()
    (seed / "zone").write_text("@ 60 SOA n0 root 1 60 60 60 60\n@ 60 NS n0\nn0 60 A 10.0.0.1\na 60 A 1.2.3.4\n")
    (seed / "nsd.conf").write_text(
        'server:\n zonesdir: "."\n username: ""\n database: ""\n pidfile: "pid"\n xfrdfile: "xfrd"\n'
        ' xfrdir: "."\n zonelistfile: "list"\nremote-control:\n control-enable: no\n'
        'zone:\n name: "x.test"\n zonefile: "zone"\n'
    )
    ask = f"kdig @{address_of(0)} a.x.test +short"
    commands = [NodeCommand(("nsd", "-d", "-c", "nsd.conf"), seed=seed), shell(f"sleep 2; {ask}; {ask} +tcp")]
    runs = [until_the_client_ends(commands, tmp_path / "world") for _ in range(2)]
    assert output(runs[0], 1) == b"1.2.3.4\n1.2.3.4\n"
    assert runs[0] == runs[1]


def test_a_client_of_berkeley_db_shows_what_the_master_wrote_and_ten_runs_are_equal(tmp_path: Path) -> None:
    """ex_rep_mgr, the example that MODIST's authors tested, with Debian's library."""
    if not Path("/usr/include/db.h").exists():
        pytest.skip("Debian's libdb5.3-dev is not installed")
    try:
        example = real_programs.source("db5.3") / "examples" / "c" / "ex_rep"
    except real_programs.Unavailable as error:
        pytest.skip(str(error))
    program = str(tmp_path / "ex_rep_mgr")
    sources = [str(example / "mgr" / "rep_mgr.c"), str(example / "common" / "rep_common.c")]
    subprocess.run(["cc", "-g", "-w", *sources, "-o", program, "-ldb-5.3", "-lpthread"], check=True)
    own = [f"{program} -h . -{flag} {address_of(node)}:6000" for node, flag in enumerate("Ll")]
    commands = [
        shell(f"(sleep 5; echo IBM 100; sleep 60) | {own[0]} -M"),
        shell(f"(sleep 20; echo; sleep 2; echo quit) | {own[1]} -C -r {address_of(0)}:6000"),
    ]
    first, *others = (until_the_client_ends(commands, tmp_path / "world") for _ in range(10))
    assert b"\n\tIBM\t100\n" in output(first, 1)
    assert all(other == first for other in others)
