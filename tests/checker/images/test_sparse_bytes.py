"""The bytes of a file without its holes, against the same bytes written out."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np

from crashcheck.checker.images.piecewise import FilePatch
from crashcheck.checker.images.sparse_bytes import SparseBytes

TERABYTE = 1 << 40


def patches(choose: random.Random) -> tuple[list[FilePatch], bytes]:
    made, plain = [], bytearray()
    for _ in range(choose.randint(1, 4)):
        size = choose.choice([0, 5, 4096, 4097, 9000, 20_000])
        del plain[size:]
        plain.extend(bytes(size - len(plain)))
        low = choose.randint(0, size)
        data = bytes(choose.choice([0, 0, 1, 2]) for _ in range(min(size - low, choose.choice([1, 10, 5000]))))
        plain[low : low + len(data)] = data
        made.append(FilePatch("f", True, size, ((low, data),)))
    return made, bytes(plain)


def lacks(held: bytes, wanted: bytes) -> bool:
    return any(byte and held[at : at + 1] != bytes([byte]) for at, byte in enumerate(wanted))


def test_counts_digests_and_what_is_lacking_are_those_of_the_bytes_written_out() -> None:
    choose = random.Random(1)
    made = [patches(choose) for _ in range(120)]
    sparse = [(SparseBytes(some), plain) for some, plain in made]
    for one, plain in sparse:
        assert one.counts().tolist() == np.bincount(np.frombuffer(plain, np.uint8), minlength=256).tolist()
    for (one, plain), (other, wanted) in pairwise(sparse):
        assert one.lacks(other) is lacks(plain, wanted)
    for one, plain in sparse:
        assert {other.digest() == one.digest() for other, same in sparse if same == plain} == {True}
    assert len({one.digest() for one, _ in sparse}) == len({plain for _, plain in sparse})


def test_a_terabyte_with_three_bytes_is_three_bytes() -> None:
    one = SparseBytes([FilePatch("f", True, TERABYTE, ((TERABYTE - 3, b"abc"),))])
    assert one.counts()[[0, 97, 98, 99]].tolist() == [TERABYTE - 3, 1, 1, 1]
    assert one.lacks(SparseBytes()) is False
    assert SparseBytes().lacks(one) is True
