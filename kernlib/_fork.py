"""A lock that a forked child finds open."""

from __future__ import annotations

import os
import threading

__all__ = ["ForkLock"]


class ForkLock:
    """A lock between the threads of one process.

    A thread that holds it while another one forks does not exist in the child: there nobody
    would ever let go of it. So the child has a lock of its own.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._hooked = False

    def __enter__(self) -> None:
        if not self._hooked:  # twice, should two threads come here at once, does no harm
            self._hooked = True
            os.register_at_fork(after_in_child=self._renew)
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def _renew(self) -> None:
        self._lock = threading.Lock()
