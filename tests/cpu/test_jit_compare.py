"""Libraries for the CPU: line tables change no machine code, other modes do."""

import os
import shutil
import subprocess
import sys

import pytest
from jit_samples import FILES, chosen, twice_spec, write_root

from kernlib import jit
from kernlib._commands import main
from kernlib.config import Config, Mode, using
from kernlib.jit._machine_code import HOST_CODE, compare_code, machine_code

pytestmark = pytest.mark.requires("gxx")


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return Config(workspace=tmp_path_factory.mktemp("workspace"))


@pytest.fixture(scope="module")
def built(tmp_path_factory, config):
    root = write_root(tmp_path_factory.mktemp("root"))
    return {
        mode: jit.prepare(chosen(twice_spec(root)), config, mode)
        for mode in (Mode.RELEASE, Mode.LINEINFO, Mode.DEBUG)
    }


def compared(config, first, second):
    return compare_code(machine_code(first.library, config), machine_code(second.library, config))


def test_release_and_lineinfo_are_the_same_machine_code(config, built):
    assert built[Mode.RELEASE].sha256 != built[Mode.LINEINFO].sha256
    assert compared(config, built[Mode.RELEASE], built[Mode.LINEINFO]).same == (HOST_CODE,)


def test_debug_is_other_machine_code(config, built):
    assert compared(config, built[Mode.RELEASE], built[Mode.DEBUG]).different == (HOST_CODE,)


def test_one_changed_operation_is_seen(tmp_path, config, built):
    label = "csrc/twice/twice_cpu.cc"
    changed = {label: FILES[label].replace("kFactor * x[i]", "kFactor - x[i]")}
    other = jit.prepare(chosen(twice_spec(write_root(tmp_path, **changed))), config)
    assert compared(config, built[Mode.RELEASE], other).unlike == 1


def test_the_command_takes_keys_their_beginnings_and_paths(tmp_path, config, built, capsys):
    release, lineinfo, debug = (built[mode] for mode in built)
    elsewhere = shutil.copy(lineinfo.library, tmp_path / "elsewhere.so")
    with using(config):
        assert main(["jit", "compare", release.key, str(elsewhere)]) == 0
        out = capsys.readouterr().out
        assert "A  twice-cpu for cpu, release, key" in out
        assert "the same machine code: 1 of 1" in out
        assert main(["jit", "compare", release.key[:12], debug.key[:12]]) == 1
        assert "different machine code: 1 of 1" in capsys.readouterr().out


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_has_enough_hears_no_complaint(config, built, unbuffered):
    words = [sys.executable, "-m", "kernlib._commands", "jit", "compare"]
    keys = [built[Mode.RELEASE].key, built[Mode.DEBUG].key]
    environment = {**os.environ, **config.to_env(), "PYTHONUNBUFFERED": unbuffered}
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*words, *keys], stdout=writer, stderr=subprocess.PIPE, text=True, check=False,
        env=environment,
    )  # fmt: skip
    os.close(writer)
    assert (done.returncode, done.stderr) == (2, "")
