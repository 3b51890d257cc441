"""The main job from end to end: record a crash, replay it, name the line and the argument."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
DUMPS = "kernlib_dumps"
REPRODUCED = 10
SHOWN_LINES = 6


def on_gpu() -> bool:
    """Return whether there is a GPU that torch can use and an nvcc to rebuild kernels with."""
    import torch

    return torch.cuda.is_available() and shutil.which("nvcc") is not None


def say(text: str) -> None:
    print(f"\n=== {text}", flush=True)


def crash(device: str) -> None:
    """Run the server with recording on until it dies."""
    environment = {
        **os.environ, "KERNLIB_LOG_LEVEL": "dump", "KERNLIB_DUMP_DIR": DUMPS,
        "KERNLIB_LOG_DEST": f"{DUMPS}/calls-%p.log", "DEMO_DEVICE": device,
    }  # fmt: skip
    say(f"KERNLIB_LOG_LEVEL=dump python tools/demo_server.py    (on {device})")
    done = subprocess.run(
        [sys.executable, str(HERE / "demo_server.py")], env=environment, check=False,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    lines = done.stderr.rstrip().splitlines()
    print("\n".join(lines[:SHOWN_LINES]))
    if len(lines) > SHOWN_LINES:
        print(f"... {len(lines) - SHOWN_LINES} more lines that name no argument of any call")
    status = done.returncode
    say(f"the server died: {signal.Signals(-status).name if status < 0 else f'exit {status}'}")
    if status == 0:
        sys.exit("demo: the server was expected to crash and did not")


def replay(*options: str) -> int:
    """Run kernlib-replay and return its exit status."""
    say(" ".join(["kernlib-replay", DUMPS, *options]))
    command = [sys.executable, "-m", "kernlib.replay.cli", DUMPS, *options]
    return subprocess.run(command, check=False).returncode


def main() -> None:
    gpu = on_gpu()
    crash("cuda" if gpu else "cpu")
    replay("--list")
    runs = [(), ("--mode", "debug")] if gpu else [()]
    statuses = [replay(*options) for options in runs]
    if any(status != REPRODUCED for status in statuses):
        sys.exit(f"demo: expected exit status {REPRODUCED} from every replay, got {statuses}")
    say(f"reproduced; its line and argument are named above. The capsules are in {DUMPS}/")


if __name__ == "__main__":
    main()
