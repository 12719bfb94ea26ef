# SPDX-License-Identifier: Apache-2.0
"""Mutation of HDF5 files that knows their structure.

A blind change of a byte is refused at a checksum, or hits a payload. What HDF5 does not survive are
files whose checksums are right. So the blocks of the metadata are found by their signatures, their
checksums where they have one, and after each change the checksum is computed anew. Format: HDF5
File Format Specification, version 3.
"""

import random
import re
import struct
from functools import lru_cache

SIGNATURES = (b"OHDR", b"OCHK", b"FRHP", b"FHDB", b"FHIB", b"BTHD", b"BTLF", b"BTIN", b"EAHD",
              b"EAIB", b"EASB", b"EADB", b"FAHD", b"FADB", b"TREE", b"SNOD", b"HEAP", b"GCOL",
              b"FSHD", b"FSSE", b"SMTB", b"SMLI", b"\x89HDF")
LONGEST = 1024   # of a block whose checksum is looked for
# Object headers of version 1 have no signature: version, messages, one reference.
OLD_HEADER = re.compile(rb"\x01\x00[\x01-\x40]\x00\x01\x00\x00\x00", re.DOTALL)
UNCHECKED = 256  # bytes behind a signature that are changed where there is no checksum


def rotated(x, k):
    return ((x << k) | (x >> (32 - k))) & 0xffffffff


def checksum(data):
    """Jenkins' lookup3, hashlittle with an initial value of 0 (specification III.B)."""
    mask = 0xffffffff
    a = b = c = (0xdeadbeef + len(data)) & mask
    at = 0
    while len(data) - at > 12:
        x, y, z = struct.unpack_from("<3I", data, at)
        a, b, c = (a + x) & mask, (b + y) & mask, (c + z) & mask
        for k in (4, 6, 8, 16, 19, 4):
            a, c = ((a - c) & mask) ^ rotated(c, k), (c + b) & mask
            a, b, c = b, c, a
        at += 12
    if at == len(data):
        return c
    x, y, z = struct.unpack("<3I", bytes(data[at:]).ljust(12, b"\0"))
    a, b, c = (a + x) & mask, (b + y) & mask, (c + z) & mask
    for k in (14, 11, 25, 16, 4, 14, 24):
        c = ((c ^ b) - rotated(b, k)) & mask
        a, b, c = b, c, a
    return b


@lru_cache(maxsize=None)
def blocks(data):
    """{kind: [(first, first byte to change, end, checked)]}; checked: its checksum is at end."""
    found = {}
    for signature in SIGNATURES:
        at = data.find(signature)
        while at >= 0:
            end = next((e for e in range(at + 8, min(at + LONGEST, len(data) - 3))
                        if struct.unpack_from("<I", data, e)[0] == checksum(data[at:e])), None)
            block = (at + 4, end, True) if end else (at + 4, min(at + UNCHECKED, len(data)), False)
            found.setdefault(signature, []).append((at, *block))
            at = data.find(signature, at + 1)
    for header in OLD_HEADER.finditer(data):
        at, size = header.start(), struct.unpack_from("<I", data, header.start() + 8)[0]
        if size % 8 == 0 and at + 16 + size <= len(data):
            found.setdefault("header", []).append((at, at, at + 16 + size, False))
    return found


def interesting(rng, width, size):
    """A number of `width` bytes that a reader may not have thought of."""
    most = 2 ** (8 * width) - 1
    return rng.choice([0, 1, 2, most, most - 1, most // 2, most // 2 + 1, size, size - 1, size + 1,
                       rng.randrange(size), rng.randrange(most + 1), 1 << rng.randrange(8 * width)]
                      ) & most


def mutated(data, seed):
    """`data` with one to four changes in its metadata; the same for the same seed."""
    rng = random.Random(seed)
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 2, 4))):
        kinds = blocks(data)
        first, begin, end, checked = rng.choice(kinds[rng.choice(sorted(kinds, key=str))])
        at = rng.randrange(begin, end)
        width = rng.choice((1, 1, 2, 4, 8))
        if at + width > end:
            width = 1
        value = interesting(rng, width, len(data))
        changed[at:at + width] = value.to_bytes(width, "little")
        if checked:
            struct.pack_into("<I", changed, end, checksum(bytes(changed[first:end])))
    return bytes(changed)
