"""The layout of a ring file.

A file is a page that describes it, then a ring of records. Integers are little-endian.

The page holds ``PAGE`` (magic, version, bytes of the facts, capacity of the ring, checksum of all
that and of the facts), at ``HEAD_AT`` the position and the ordinal of the next record, and at
``FACTS_AT`` the facts of the process as JSON.

A record is ``RECORD``, then the names (the api's and its values', joined by NUL), then the values,
padded to 8 bytes. Its position counts the bytes ever written, so ``position % capacity`` is its
place and a record of an older lap gives itself away; its ordinal counts records, so that a gap
shows. The checksum covers all of it but itself: what was overwritten, torn or damaged is never
taken for a record. No record crosses the end of the ring, and its magic is written last.
"""

from __future__ import annotations

import enum
import struct

__all__ = [
    "ALIGNMENT", "CAPTURING", "CHECKSUM", "FACTS_AT", "HAS_STREAM", "HEAD", "HEAD_AT",
    "LARGEST_RECORD", "LATE", "PAGE", "PAGE_BYTES", "PAGE_MAGIC", "RECORD", "RECORD_MAGIC",
    "SMALLEST_RING", "TENSOR", "VERSION", "Kind", "Tag",
]  # fmt: skip

VERSION = 1
PAGE_MAGIC = b"KERNRING"
PAGE_BYTES = 4096
#: magic, version, bytes of the facts, capacity, checksum
PAGE = struct.Struct("<8sIIQI")
#: position and ordinal of the next record
HEAD = struct.Struct("<QQ")
HEAD_AT = 64
FACTS_AT = 128

RECORD_MAGIC = b"\xc5KR\x01"
#: magic, length, position, ordinal, time (ns since 1970), call, parent call, duration (ns),
#: stream, thread, kind, flags, bytes of the names, bytes of the values, checksum
RECORD = struct.Struct("<4sIQQQQQQQIBBHII")
CHECKSUM = struct.Struct("<I")
ALIGNMENT = 8
LARGEST_RECORD = 1 << 16
SMALLEST_RING = 1 << 17

HAS_STREAM = 1
CAPTURING = 2

#: pointer, number of dimensions, bytes of the dtype's name, bytes of the device's
TENSOR = struct.Struct("<QBBB")


class Kind(enum.IntEnum):
    """What a record tells; the last two bring statistics that a device wrote later."""

    CALL = 1
    RETURN = 2
    RAISE = 3
    SUSPEND = 4
    RESUME = 5
    ARG_STATS = 6
    OUTPUT_STATS = 7


#: Kinds that say nothing of whether a call runs.
LATE = (Kind.ARG_STATS, Kind.OUTPUT_STATS)


class Tag(enum.IntEnum):
    """What follows in a value.

    ``INT`` and ``FLOAT`` eight bytes; ``TEXT`` and ``JSON`` a length of four bytes and UTF-8;
    ``LIST`` a count of four bytes and values; ``TENSOR`` the fields of that name, the names of
    dtype and device, sizes and strides of eight bytes each; ``STATISTICS`` a tensor, then a
    ``JSON`` value.
    """

    NONE = 0
    FALSE = 1
    TRUE = 2
    INT = 3
    FLOAT = 4
    TEXT = 5
    JSON = 6
    LIST = 7
    TENSOR = 8
    STATISTICS = 9
