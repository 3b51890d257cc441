"""Recording: levels, filters, sinks."""

from kernlib.logging._call import Call, Kind, RecordedApi
from kernlib.logging._decorator import recorded
from kernlib.logging._describe import describe, statistics
from kernlib.logging._dump_sink import CapturedBuild, DumpSink
from kernlib.logging._filter import NameFilter
from kernlib.logging._guard import Guard
from kernlib.logging._log_sink import LogSink
from kernlib.logging._process import disable, enable, process
from kernlib.logging._recorder import Recorder
from kernlib.logging._ring_sink import RingSink
from kernlib.logging._rules import CallRules
from kernlib.logging._short_way import NativeRecorder

__all__ = [
    "Call",
    "CallRules",
    "CapturedBuild",
    "DumpSink",
    "Guard",
    "Kind",
    "LogSink",
    "NameFilter",
    "NativeRecorder",
    "RecordedApi",
    "Recorder",
    "RingSink",
    "describe",
    "disable",
    "enable",
    "process",
    "recorded",
    "statistics",
]
