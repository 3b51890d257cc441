"""A small library of kernels that fault when they are asked to.

It stands for any package that puts ``@kernel_api`` on its public functions. Put the folder that
holds it on ``sys.path``; it is not installed.
"""

from faultlib._apis import look_back, put, sum_rows, take_rows, take_twice
from faultlib._plain import add_up, pause, row_means
from faultlib._streams import put_later, put_one_by_one, rows_later
from faultlib._table import Table

__all__ = [
    "Table",
    "add_up",
    "look_back",
    "pause",
    "put",
    "put_later",
    "put_one_by_one",
    "row_means",
    "rows_later",
    "sum_rows",
    "take_rows",
    "take_twice",
]
