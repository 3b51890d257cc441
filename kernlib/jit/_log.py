"""The JIT's own logger, apart from the log of calls."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernlib.config import Config

__all__ = ["loader_logger"]

_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


def loader_logger(config: Config) -> logging.Logger:
    """Return the logger ``kernlib.jit`` at the level of ``KERNLIB_LOADER_LOG_LEVEL``.

    An application that set up no logging would see warnings only, whatever level was asked for:
    then, and only for a level below, it gets a handler to stderr.
    """
    logger = logging.getLogger("kernlib.jit")
    level = _LEVELS[config.loader_log_level]
    if logger.level != level:
        logger.setLevel(level)
    if level < logging.WARNING and not logger.hasHandlers():
        logger.addHandler(logging.StreamHandler())
    return logger
