"""A replicated log: python3 log.py NUMBER PEERS. Node 0 leads, nodes 1 and 2 follow, node 3 is the client.

The leader appends what the client sends and passes it on; once a follower has stored it as well, a majority has it,
and the leader answers. A node that starts again continues with the log that it finds.
"""

import os
import socket
import sys

PORT = 7000
LEADER, FOLLOWERS, CLIENT = 0, (1, 2), 3
ENTRIES = ("x=1",)


class Log:
    """Entries, one line each, in the file `log` of the node's folder."""

    def __init__(self) -> None:
        self.file = os.open("log", os.O_RDWR | os.O_CREAT | os.O_APPEND)
        self.entries = os.pread(self.file, 1 << 20, 0).decode().splitlines()

    def append(self, entry: str) -> None:
        os.write(self.file, f"{entry}\n".encode())
        self.entries.append(entry)


class Server:
    """The leader, or a follower."""

    def __init__(self, number: int, peers: list[str]) -> None:
        self.number = number
        self.peers = peers
        self.log = Log()
        self.stored: dict[int, set[int]] = {}  # by place in the log: who has the entry
        self.answered = 0
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind((peers[number], PORT))

    def send(self, node: int, *words: object) -> None:
        self.socket.sendto(" ".join(map(str, words)).encode(), (self.peers[node], PORT))

    def run(self) -> None:
        while True:
            data, (address, _) = self.socket.recvfrom(1024)
            kind, *words = data.decode().split()
            getattr(self, kind)(self.peers.index(address), *words)

    # what a leader receives

    def put(self, client: int, entry: str) -> None:
        self.log.append(entry)
        for follower in FOLLOWERS:
            self.send(follower, "append", len(self.log.entries) - 1, entry)

    def has(self, follower: int, place: str) -> None:
        self.stored.setdefault(int(place), set()).add(follower)
        while self.stored.get(self.answered):
            self.send(CLIENT, "answer", self.log.entries[self.answered])
            self.answered += 1

    # what a follower receives

    def append(self, leader: int, place: str, entry: str) -> None:
        if int(place) > len(self.log.entries):
            return  # an earlier entry is still under way
        if int(place) == len(self.log.entries):
            self.log.append(entry)
        self.send(leader, "has", place)


def client(peers: list[str]) -> None:
    """Write one entry after the other, and print each that was answered."""
    end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    end.bind((peers[CLIENT], PORT))
    for entry in ENTRIES:
        end.sendto(f"put {entry}".encode(), (peers[LEADER], PORT))
        print(end.recv(1024).decode().split()[1], flush=True)


if __name__ == "__main__":
    own, addresses = int(sys.argv[1]), sys.argv[2].split(",")
    if own == CLIENT:
        client(addresses)
    else:
        Server(own, addresses).run()
