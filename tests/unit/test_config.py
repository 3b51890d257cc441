"""The configuration survives the environment, and refuses what it cannot mean."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernlib.config import Config, Level, Mode, get_config, using, variables
from kernlib.errors import ConfigError

#: A value that is not the default, as code would set it and as the environment gives it back.
OTHER = {
    "log_level": Level.STATS,
    "log_dest": "/logs/%h-%r-%p.log",
    "log_format": "json",
    "ring_bytes": 1 << 20,
    "include": ("rms_norm", "PagedDecode.*"),
    "exclude": ("*.plan",),
    "from_call": 5000,
    "every": 16,
    "first_per_shape": 2,
    "dump_include": ("*norm*", "silu_and_mul"),
    "dump_exclude": ("append_[ab]*",),
    "dump_dir": Path("/dumps with space/%r"),
    "dump_max_calls": 7,
    "dump_max_bytes": 123_457,
    "dump_max_per_shape": 0,
    "dump_keep": "first",
    "sync": True,
    "check": True,
    "control": Path("/run/kernlib.control"),
    "workspace": Path("/ws"),
    "cuda_arch_list": ("8.0", "9.0a"),
    "jit_mode": Mode.SANITIZE,
    "jit_disable": True,
    "jit_cache": False,
    "jit_verbose": True,
    "max_jobs": 3,
    "nvcc_threads": 2,
    "cxx": "/opt/gcc 13/bin/g++",
    "nvcc": "/usr/local/cuda/bin/nvcc",
    "compiler_launcher": ("ccache", "--config", "a b"),
    "extra_cflags": ("-DNAME='x y'", "-O1"),
    "extra_cudaflags": ("-Xptxas", "-v"),
    "extra_ldflags": ('-Wl,-rpath,"$ORIGIN"',),
    "jit_sources": Path("/capsule/sources"),
    "aot_dir": Path("/aot"),
    "allow_version_mismatch": True,
    "loader_log_level": "debug",
}

BAD = {
    "log_level": ("loud", "2", "-1", "1.5"),
    "log_format": ("xml", "JSON"),
    "ring_bytes": ("1KB", "100", "-1MB", "all"),
    "dump_max_calls": ("0", "-3", "many", "1.5"),
    "dump_max_bytes": ("0", "-1GB", "20 parrots", "GB", "inf", "nan", "1e999"),
    "from_call": ("0", "-1", "now"),
    "every": ("0", "2nd"),
    "first_per_shape": ("-1", "all"),
    "dump_max_per_shape": ("-1", "1.5"),
    "dump_keep": ("newest",),
    "sync": ("yes", "2", "true"),
    "check": ("yes", "2", "true"),
    "jit_mode": ("Release", "fast"),
    "jit_disable": ("on",),
    "jit_cache": ("off",),
    "jit_verbose": ("-",),
    "max_jobs": ("-1", "all"),
    "nvcc_threads": ("0", "x"),
    "compiler_launcher": ("'open",),
    "extra_cflags": ('-D"open',),
    "extra_cudaflags": ("'",),
    "extra_ldflags": ('"',),
    "allow_version_mismatch": ("yes",),
    "loader_log_level": ("trace",),
}
ROWS = {row.field: row for row in variables()}
FIELDS = [field.name for field in dataclasses.fields(Config)]


def test_every_field_has_a_sample_and_a_variable_of_its_own():
    assert FIELDS == list(OTHER) == list(ROWS)
    assert len({row.name for row in ROWS.values()}) == len(FIELDS)
    assert all(row.name.startswith("KERNLIB_") for row in ROWS.values())


@pytest.mark.parametrize("field", FIELDS)
def test_a_field_survives_the_environment(field):
    config = Config(**{field: OTHER[field]})
    environment = config.to_env()
    assert list(environment) == [ROWS[field].name]
    assert config != Config()
    assert Config.from_env(environment) == config


def test_all_fields_survive_the_environment_together():
    config = Config(**OTHER)
    assert Config.from_env(config.to_env()) == config


def test_defaults_need_no_environment():
    assert Config().to_env() == {}
    assert Config.from_env({}) == Config()


@pytest.mark.parametrize("field", FIELDS)
def test_an_empty_variable_is_an_unset_one(field):
    assert Config.from_env({ROWS[field].name: "  "}) == Config()


@pytest.mark.parametrize("field", FIELDS)
def test_the_default_can_be_written_out(field):
    """What the README's table shows as the default is what the field has."""
    row = ROWS[field]
    assert getattr(Config.from_env({row.name: row.default_text}), field) == row.default


@pytest.mark.parametrize(("field", "text"), [(name, bad) for name in BAD for bad in BAD[name]])
def test_a_bad_value_names_variable_value_and_what_is_allowed(field, text):
    row = ROWS[field]
    with pytest.raises(ConfigError) as raised:
        Config.from_env({row.name: text})
    error = raised.value
    assert (error.variable, error.value, error.expected) == (row.name, text, row.expected)
    assert str(error) == f"{row.name}={text!r}: expected {row.expected}"


@pytest.mark.parametrize(("field", "row"), ROWS.items())
def test_closed_choices_are_listed_in_full(field, row):
    words = {word.strip(",") for word in row.expected.split()}
    choices = {"log_level": [level.name.lower() for level in Level],
               "jit_mode": [mode.value for mode in Mode]}.get(field, [])  # fmt: skip
    assert words.issuperset(choices)


@pytest.mark.parametrize(
    ("text", "number"),
    [("20GB", 20 * 10**9), ("512MiB", 512 * 2**20), ("1.5 kib", 1536), ("7", 7), ("3B", 3)],
)
def test_sizes_are_read_in_both_unit_systems(text, number):
    assert Config.from_env({"KERNLIB_DUMP_MAX_BYTES": text}).dump_max_bytes == number


@pytest.mark.parametrize("level", list(Level))
@pytest.mark.parametrize("style", [str.upper, str.lower])
def test_levels_are_read_as_name_and_number(level, style):
    for text in (style(level.name), str(level.value)):
        assert Config.from_env({"KERNLIB_LOG_LEVEL": text}).log_level is level


def test_architectures_are_read_with_any_separator():
    read = Config.from_env({"KERNLIB_CUDA_ARCH_LIST": "8.0;9.0a, 10.0a"})
    assert read.cuda_arch_list == ("8.0", "9.0a", "10.0a")


def test_a_configuration_cannot_be_changed_but_copied():
    config = Config()
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.sync = True
    assert config.replace(sync=True) == Config(sync=True)


def test_using_holds_for_the_block_and_ends_with_it():
    before, other = get_config(), Config(sync=True)
    with using(other):
        assert get_config() is other
    assert get_config() is before


def test_using_ends_also_with_an_error():
    before = get_config()
    with pytest.raises(ZeroDivisionError), using(Config(sync=True)):
        1 / 0  # noqa: B018 - any error
    assert get_config() is before


def test_the_environment_is_read_once_and_not_at_import():
    """A bad value is no obstacle to an import; what changes after the first use is not seen."""
    code = (
        "import os, kernlib, kernlib.config as c\n"
        "os.environ['KERNLIB_SYNC'] = '1'\n"
        "first = c.get_config()\n"
        "os.environ['KERNLIB_SYNC'] = '0'\n"
        "assert c.get_config() is first and first.sync\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "KERNLIB_SYNC": "maybe"},
        cwd=Path(__file__).resolve().parents[2], capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_max_jobs_of_other_tools_counts_where_ours_is_not_set():
    assert Config.from_env({"MAX_JOBS": "3"}).max_jobs == 3
    assert Config.from_env({"MAX_JOBS": "3", "KERNLIB_MAX_JOBS": "2"}).max_jobs == 2
    with pytest.raises(ConfigError, match="MAX_JOBS='many'"):
        Config.from_env({"MAX_JOBS": "many"})
