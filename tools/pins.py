"""Prints the constraints for one environment: constraints.txt, with what is kept pinned as it is.

python tools/pins.py torch    keep torch, if this environment has one
python tools/pins.py --all    keep every package this environment has
"""

import re
import sys
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

#: What pip accepts in a constraint; a system's own packages have other versions too.
VERSION = re.compile(r"\d+(\.\d+)*((a|b|rc)\d+)?(\.post\d+)?(\.dev\d+)?(\+[a-z0-9.]+)?")
TESTED = Path(__file__).resolve().parents[1] / "constraints.txt"


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def name_of(line: str) -> str | None:
    found = re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*", line)
    return normal(found.group()) if found else None


def pins(tested: str, installed: dict[str, str], kept: Iterable[str]) -> str:
    """Return the tested lines, except that kept packages stand at their installed version."""
    kept = {name for name in kept if name in installed}
    lines = [line for line in tested.splitlines() if name_of(line) not in kept]
    return "\n".join([*lines, *(f"{name}=={installed[name]}" for name in sorted(kept)), ""])


def main(argv: list[str]) -> None:
    installed = {
        normal(found.name): found.version
        for found in metadata.distributions()
        if VERSION.fullmatch(found.version)
    }
    installed.pop("kernlib", None)
    kept = installed.keys() if argv == ["--all"] else [normal(name) for name in argv]
    print(pins(TESTED.read_text(encoding="utf-8"), installed, kept), end="")


if __name__ == "__main__":
    main(sys.argv[1:])
