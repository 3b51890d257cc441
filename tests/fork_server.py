"""Runs programs in forked children of one warm process: importing torch once, not once each.

kernlib itself is imported by the child, under the child's environment.
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

__all__ = ["QUIET", "Child", "ForkServer"]

#: No threads that a fork could lose, and no warning that there might be some.
QUIET = {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore::DeprecationWarning"}


@dataclass
class Child:
    """How a program ended: its exit status (negative: a signal) and what it wrote."""

    pid: int
    status: int
    stdout: str
    stderr: str

    @property
    def warnings(self):
        """The lines that the recorder said."""
        return [line for line in self.stderr.splitlines() if "could not record" in line]


class ForkServer:
    """A process that has torch loaded and runs programs in forked children, one at a time."""

    def __init__(self, folder):
        self._folder = Path(folder)
        self._count = 0
        self._server = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | QUIET,
        )

    def run(self, program, **variables):
        """Run a program's text to its end under additional environment variables."""
        self._count += 1
        base = self._folder / f"child-{self._count}"
        texts = {key: str(value) for key, value in variables.items()}
        request = {"program": program, "variables": texts, "base": str(base)}
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        answer = json.loads(self._server.stdout.readline())
        texts = [base.with_suffix(end).read_text() for end in (".out", ".err")]
        return Child(answer["pid"], answer["status"], *texts)

    def close(self):
        """End the server."""
        self._server.stdin.close()
        self._server.wait(timeout=30)
        self._server.stdout.close()


def _become(request):
    """Run the program in this forked child, as ``python -c`` would."""
    for number, end in ((1, ".out"), (2, ".err")):
        handle = os.open(request["base"] + end, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(handle, number)
    os.environ.update(request["variables"])
    code = compile(request["program"], "<program>", "exec")
    exec(code, {"__name__": "__main__"})  # noqa: S102 - a program of the test itself


def _serve():
    import structlog  # noqa: F401 - loaded once, for all children
    import torch
    import tvm_ffi  # noqa: F401

    torch.set_num_threads(1)
    for line in sys.stdin:
        request = json.loads(line)
        pid = os.fork()
        if pid == 0:
            # The child ends as an interpreter does: an uncaught exception is status 1.
            _become(request)
            return
        _, status = os.waitpid(pid, 0)
        answer = {"pid": pid, "status": os.waitstatus_to_exitcode(status)}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _serve()
