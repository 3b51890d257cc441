"""The ring file of recorded calls: format, writer, reader."""

from kernlib.ring._format import ALIGNMENT, SMALLEST_RING, Kind
from kernlib.ring._reader import Ring, read_ring
from kernlib.ring._record import Entry, Record
from kernlib.ring._values import Described, Tensor, Value, with_statistics
from kernlib.ring._writer import RingWriter, create_ring, entry_fields

__all__ = [
    "ALIGNMENT",
    "SMALLEST_RING",
    "Described",
    "Entry",
    "Kind",
    "Record",
    "Ring",
    "RingWriter",
    "Tensor",
    "Value",
    "create_ring",
    "entry_fields",
    "read_ring",
    "with_statistics",
]
