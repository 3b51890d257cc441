"""A class whose calls rely on earlier ones."""

from examplelib._ops import gather
from kernlib import kernel_api


class Embedding:
    """A table of rows that is loaded once and looked up often."""

    @kernel_api  # or an object could not be made again in a replay
    def __init__(self, width):
        self.width = width
        self.table = None

    @kernel_api(setup=True)  # what later calls rely on; kept as long as the object lives
    def load(self, table):
        """Take a table, float32 ``[size, width]``."""
        if table.shape[1] != self.width:
            message = f"table.shape[1] = {table.shape[1]}, but the rows have {self.width} elements"
            raise ValueError(message)
        self.table = table

    @kernel_api
    def look_up(self, rows):
        """Return the rows of the table; the call of ``gather`` in it is recorded as its child."""
        return gather(self.table, rows)
