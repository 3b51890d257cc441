"""Plants known faults on this machine and has them found."""

from kernlib.selftest._apis import (
    selftest_assertion,
    selftest_hang,
    selftest_int32_overflow,
    selftest_misalignment,
    selftest_not_a_number,
    selftest_off_by_one,
    selftest_other_device,
    selftest_race,
    selftest_read_out_of_bounds,
    selftest_stale_workspace,
    selftest_write_out_of_bounds,
    selftest_wrong_device,
)

__all__ = [
    "selftest_assertion",
    "selftest_hang",
    "selftest_int32_overflow",
    "selftest_misalignment",
    "selftest_not_a_number",
    "selftest_off_by_one",
    "selftest_other_device",
    "selftest_race",
    "selftest_read_out_of_bounds",
    "selftest_stale_workspace",
    "selftest_write_out_of_bounds",
    "selftest_wrong_device",
]
