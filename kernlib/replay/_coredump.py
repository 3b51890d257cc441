"""Asks for core dumps of a GPU and reads them."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kernlib.replay._sanitizers import Fault, Frame

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = [
    "core_dump_environment",
    "core_dumps",
    "find_cuda_gdb",
    "find_operand",
    "parse_core_dump",
    "parse_lanes",
    "read_core_dump",
]

_STEM = "gpu-core"
_USUAL = Path("/usr/local/cuda/bin/cuda-gdb")
_SECONDS = 60
#: Where the threads stood is wanted, not what they computed: megabytes instead of gigabytes. The
#: process is left to end as it would, so that it can tell what it knows.
_LIGHT = (
    "skip_nonrelocated_elf_images,skip_global_memory,skip_shared_memory,skip_local_memory,"
    "skip_constbank_memory,skip_abort"
)
_COMMANDS = ("info line *$errorpc", "x/i $errorpc", "backtrace", "info cuda kernels")
_LANES = 32

_EXCEPTION = re.compile(
    r"(?:CUDA Exception: |CUDA_EXCEPTION_\d+[,:] |^(?=Assertion failed))(?P<what>[^.\n]+)",
    re.MULTILINE,
)
_PC = re.compile(
    r"triggered at PC (?P<pc>0x[0-9a-f]+)(?:\s+(?P<function>\S.*?))?"
    r"(?:\s+\((?P<file>[^()]+):(?P<line>\d+)(?: in [^()]*)?\))?\s*$",
    re.MULTILINE,
)
_FOCUS = re.compile(r"block (\(\d+,\d+,\d+\)), thread (\(\d+,\d+,\d+\))")
_ERROR_LINE = re.compile(r'^Line (?P<line>\d+) of "(?P<file>[^"]+)"', re.MULTILINE)
_FRAME = re.compile(
    r"^#\d+\s+(?:0x[0-9a-f]+ in )?(?P<function>.+?)(?:<<<.*?>>>)? \(.*?\)"
    r"(?: at (?P<file>.+?):(?P<line>\d+)"
    r"(?: in \S+ inlined from (?P<caller>\S+):(?P<caller_line>\d+))?)?\s*$",
    re.MULTILINE,
)
_INSTRUCTION = re.compile(r"^[*=> \t]*0x[0-9a-f]+ <[^>]*>:\s*(?P<text>\S.*)$", re.MULTILINE)
#: The address in a pair of registers; one that a uniform register has a part in is not told.
_OPERAND = re.compile(r"\[R(?P<register>\d+)\.64(?:\+(?P<offset>-?0x[0-9a-f]+))?\]")
_LANE = re.compile(r"^lane \d+ ([0-9a-f]+) ([0-9a-f]+)$")
_ADDRESS = re.compile(r"[Ii]llegal access to address \(?(?:@\w+\)?)?\s*(0x[0-9a-f]+)")


def core_dump_environment(folder: Path) -> tuple[tuple[str, str], ...]:
    """Return the variables with which a process writes a light core dump of a GPU in error.

    They count only if they are set before the process makes a CUDA context.
    """
    return (
        ("CUDA_ENABLE_COREDUMP_ON_EXCEPTION", "1"),
        ("CUDA_COREDUMP_GENERATION_FLAGS", _LIGHT),
        ("CUDA_COREDUMP_FILE", str(folder / f"{_STEM}.%p")),
    )


def core_dumps(folder: Path) -> list[Path]:
    """Return the core dumps that were written to a folder."""
    return [path for path in sorted(folder.glob(f"{_STEM}.*")) if path.suffix != ".txt"]


def find_cuda_gdb() -> str | None:
    """Return cuda-gdb from PATH or a CUDA toolkit."""
    return shutil.which("cuda-gdb") or (str(_USUAL) if _USUAL.is_file() else None)


def read_core_dump(folder: Path) -> Fault | None:
    """Return the fault in the core dump of ``folder``; None if there is no dump.

    A dump that cannot be read is a fault whose note says why.
    """
    dumps = core_dumps(folder)
    if not dumps:
        return None
    program = find_cuda_gdb()
    if program is None:
        problem = f"{dumps[0].name} was written, but cuda-gdb was not found to read it"
        return _unread(problem)
    try:
        output = _ask(program, dumps[0], _COMMANDS)
        fault = parse_core_dump(output)
        if fault is not None and fault.address is None:
            operand = find_operand(output)
            lanes = _ask(program, dumps[0], _lane_commands(operand[0])) if operand else ""
            output += lanes
            found = parse_lanes(lanes, operand[1]) if operand else ()
            fault = replace(fault, candidates=found)
    except (OSError, subprocess.SubprocessError) as error:
        return _unread(f"{dumps[0].name} could not be read: {error}")
    (folder / f"{_STEM}.txt").write_text(output, encoding="utf-8")
    return fault or _unread(f"cuda-gdb names no exception in {dumps[0].name}")


def _ask(program: str, dump: Path, commands: Iterable[str]) -> str:
    """Return what the debugger answers; a command that fails does not end it."""
    command = [program, "-nx", "-batch", "-ex", f"target cudacore {dump}"]
    command += [part for text in commands for part in ("-ex", text)]
    done = subprocess.run(
        command, capture_output=True, text=True, errors="replace", check=False, timeout=_SECONDS
    )
    return done.stdout + done.stderr


def find_operand(output: str) -> tuple[int, int] | None:
    """Return the register and the offset of the address that the faulting instruction accesses."""
    instruction = _INSTRUCTION.search(output)
    match = _OPERAND.search(instruction["text"]) if instruction else None
    return (int(match["register"]), int(match["offset"] or "0", 16)) if match else None


def _lane_commands(register: int) -> list[str]:
    """Return what has each lane of the warp in focus print the two registers of an address.

    An exception is the warp's: the thread in focus need not be the one that faulted.
    """
    commands = []
    for lane in range(_LANES):
        commands.append(f"cuda lane {lane}")
        commands.append(f'printf "lane {lane} %x %x\\n", $R{register}, $R{register + 1}')
    return commands


def parse_lanes(output: str, offset: int) -> tuple[tuple[int, str], ...]:
    """Return the address that each lane accessed, and the thread it is; each thread once."""
    found: dict[str, int] = {}
    thread = ""
    for line in output.splitlines():
        if focus := _FOCUS.search(line):
            thread = f"block {focus[1]} thread {focus[2]}"
        elif (pair := _LANE.match(line)) and thread:
            found[thread] = (int(pair[2], 16) << 32 | int(pair[1], 16)) + offset
    return tuple((address, thread) for thread, address in found.items())


def _unread(problem: str) -> Fault:
    return Fault("device error", "the device was in error", "GPU core dump", note=problem)


def parse_core_dump(output: str) -> Fault | None:
    """Return the fault in what cuda-gdb prints of a core dump, or None if it names no exception."""
    exception = _EXCEPTION.search(output)
    if exception is None:
        return None
    focus, address = _FOCUS.search(output), _ADDRESS.search(output)
    kind = exception["what"].strip()
    return Fault(
        kind,
        kind,
        "GPU core dump",
        tuple(_frames(output)),
        int(address[1], 16) if address else None,
        f"block {focus[1]} thread {focus[2]}" if focus else "",
    )


def _frames(output: str) -> Iterator[Frame]:
    """Yield the stack; first of all the line of the instruction that faulted.

    The debugger's own first frame is where the thread was stopped, a little later.
    """
    backtrace = output[max(output.rfind("\n#0 "), 0) :]  # the debugger shows its first frame twice
    stack = []
    for match in _FRAME.finditer(backtrace):
        stack.append(Frame(match["function"], match["file"] or "", int(match["line"] or 0)))
        if match["caller"]:  # of a function that was inlined
            stack.append(Frame(match["function"], match["caller"], int(match["caller_line"])))
    at = _ERROR_LINE.search(output) or _PC.search(output)
    if at is not None and at["file"]:
        function = stack[0].function if stack else ""
        file = next((f.file for f in stack if Path(f.file).name == at["file"]), at["file"])
        stack = [Frame(function, file, int(at["line"])), *stack[1:]]
    yield from stack
