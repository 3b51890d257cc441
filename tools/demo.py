"""The main job from end to end: record a crash, replay it, name the line and the argument."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPRODUCED = 10


def on_gpu() -> bool:
    """Return whether there is a GPU that torch can use and an nvcc to rebuild kernels with."""
    import torch

    return torch.cuda.is_available() and shutil.which("nvcc") is not None


def say(text: str) -> None:
    print(f"\n=== {text}", flush=True)


def crash(dumps: Path, device: str) -> None:
    """Run the server with recording on until it dies."""
    environment = {
        **os.environ, "KERNLIB_LOG_LEVEL": "dump", "KERNLIB_DUMP_DIR": str(dumps),
        "KERNLIB_LOG_DEST": str(dumps / "calls-%p.log"), "DEMO_DEVICE": device,
    }  # fmt: skip
    say(f"KERNLIB_LOG_LEVEL=dump python tools/demo_server.py    (on {device})")
    status = subprocess.run(
        [sys.executable, str(HERE / "demo_server.py")], env=environment, check=False
    ).returncode
    how = signal.Signals(-status).name if status < 0 else f"exit status {status}"
    say(f"the server died: {how}")
    if status == 0:
        sys.exit("demo: the server was expected to crash and did not")


def replay(dumps: Path, *options: str) -> int:
    """Run kernlib-replay and return its exit status."""
    say(f"kernlib-replay {' '.join([str(dumps), *options])}")
    command = [sys.executable, "-m", "kernlib.replay.cli", str(dumps), *options]
    return subprocess.run(command, check=False).returncode


def main() -> None:
    gpu = on_gpu()
    with tempfile.TemporaryDirectory(prefix="kernlib-demo-") as folder:
        dumps = Path(folder) / "kernlib_dumps"
        dumps.mkdir()
        crash(dumps, "cuda" if gpu else "cpu")
        runs = [("--mode", "lineinfo"), ("--mode", "debug")] if gpu else [()]
        statuses = [replay(dumps, *options) for options in runs]
        say(f"kernlib-replay {dumps} --list")
        subprocess.run(
            [sys.executable, "-m", "kernlib.replay.cli", str(dumps), "--list"], check=False
        )
    if any(status != REPRODUCED for status in statuses):
        sys.exit(f"demo: expected exit status {REPRODUCED} from every replay, got {statuses}")
    say("the crash was reproduced, and its line and argument are named above")


if __name__ == "__main__":
    main()
