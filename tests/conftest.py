"""Options, markers and the isolated environment of a test run."""

import os
import shutil
import signal
import tempfile
from pathlib import Path

import capabilities
import pytest

_PATCH = pytest.StashKey()
_SCRATCH = pytest.StashKey()


def pytest_addoption(parser):
    parser.addoption(
        "--require",
        action="append",
        default=[],
        metavar="NAMES",
        help="comma-separated capabilities whose absence fails a test instead of skipping it: "
        + ", ".join(capabilities.NAMES),
    )

    parser.addoption(
        "--kills",
        type=int,
        default=100,
        metavar="NUMBER",
        help="how many recording processes are killed at a random moment (default: %(default)s)",
    )

    parser.addoption(
        "--selftest",
        choices=("some", "all"),
        default="some",
        help="how many of the planted faults are recorded and replayed on the CPU "
        "(default: %(default)s)",
    )


def _required(config):
    return {part for text in config.getoption("--require") for part in text.split(",") if part}


def pytest_configure(config):
    config.addinivalue_line(
        "markers", "requires(*names): skip the test where one of these capabilities is missing"
    )
    for name in sorted(_required(config)):
        if not capabilities.known(name):
            message = f"--require={name}: unknown; known: {', '.join(capabilities.NAMES)}"
            raise pytest.UsageError(message)
    _isolate(config)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # As of a shell that runs the tests in the background: what they start would ignore it too.
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _isolate(config):
    """Give the run its own workspace and hide the developer's KERNLIB_* variables from it.

    Here and not in a fixture, because the configuration is read when a test module is imported.
    """
    patch = config.stash[_PATCH] = pytest.MonkeyPatch()
    workspace = os.environ.get("KERNLIB_TEST_WORKSPACE")
    if workspace is None:
        workspace = config.stash[_SCRATCH] = tempfile.mkdtemp(prefix="kernlib-tests-")
    for name in [name for name in os.environ if name.startswith("KERNLIB_")]:
        patch.delenv(name)
    patch.setenv("KERNLIB_WORKSPACE", str(Path(workspace).resolve()))


def pytest_unconfigure(config):
    if (patch := config.stash.get(_PATCH, None)) is not None:
        patch.undo()
    if (scratch := config.stash.get(_SCRATCH, None)) is not None:
        shutil.rmtree(scratch, ignore_errors=True)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    required = _required(item.config)
    for marker in item.iter_markers("requires"):
        for name in marker.args:
            if reason := capabilities.missing(name):
                end = pytest.fail if name in required else pytest.skip
                end(f"needs {name}: {reason}")


@pytest.fixture(scope="session")
def workspace():
    """Return the workspace that all tests of a run share, so that each kernel is built once."""
    return Path(os.environ["KERNLIB_WORKSPACE"])


@pytest.fixture(scope="session")
def kills(request):
    """Return how many recording processes to kill."""
    return request.config.getoption("--kills")


@pytest.fixture(scope="session")
def repository():
    """Return the folder of the checkout."""
    return Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Return a process that has torch loaded and runs programs in forked children."""
    from fork_server import ForkServer

    server = ForkServer(tmp_path_factory.mktemp("children"))
    yield server
    server.close()
