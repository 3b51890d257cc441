"""Everything that is claimed of a GPU, in one run: environment, tests, demo, benchmarks."""

import argparse
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
PYTHON = sys.executable
STEPS: dict[str, list[str]] = {
    "environment": [PYTHON, "-m", "kernlib._commands", "env"],
    "tests": [PYTHON, "-m", "pytest", str(HERE.parent / "tests" / "gpu"), "-q",
              "--require=cuda,nvcc", "-p", "no:cacheprovider"],
    "demo": [PYTHON, str(HERE / "demo.py")],
    "recording": [PYTHON, str(HERE / "bench_recording.py"), "--device", "cuda"],
    "jit": [PYTHON, str(HERE / "bench_jit.py")],
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("steps", nargs="*", metavar="STEP", help=f"of {', '.join(STEPS)}")
    chosen = parser.parse_args().steps or list(STEPS)
    summary = []
    for name in chosen:
        print(f"\n######## {name}", flush=True)
        begin = time.monotonic()
        status = subprocess.run(STEPS[name], check=False).returncode
        summary.append((name, status, time.monotonic() - begin))
    print("\n######## summary")
    for name, status, seconds in summary:
        print(f"{name:<12} {'ok' if status == 0 else f'FAILED ({status})':<12} {seconds:6.1f} s")
    sys.exit(any(status for _, status, _ in summary))


if __name__ == "__main__":
    main()
