"""The ring file of recorded calls: format, writer, reader."""

from kernlib.ring._format import SMALLEST_RING, Kind
from kernlib.ring._reader import Ring, read_ring
from kernlib.ring._record import Entry, Record
from kernlib.ring._values import Described, Tensor, Value
from kernlib.ring._writer import RingWriter, create_ring, entry_fields

__all__ = [
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
]
