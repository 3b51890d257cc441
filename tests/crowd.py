"""Many forked processes that do one thing at once; imports no torch."""

import os

__all__ = ["crowd", "report"]


def report(work):
    """Return what ``work`` returns, or the exception it ends with, as one line."""
    try:
        return str(work())
    except Exception as error:  # noqa: BLE001 - whatever it is, the test wants to read it
        return f"{type(error).__name__}: {error}".replace("\n", " | ")


def crowd(count, work, uid=None):
    """Fork ``count`` processes, let them begin together, return what each reports.

    With ``uid`` each becomes that user first.
    """
    gate, begin = os.pipe()
    results, result = os.pipe()
    children = []
    for _ in range(count):
        child = os.fork()
        if child == 0:
            os.close(begin)
            os.close(results)
            if uid is not None:
                os.setgroups([])
                os.setgid(uid)
                os.setuid(uid)
            os.read(gate, 1)
            os.write(result, (report(work) + "\n").encode()[:4096])
            os._exit(0)
        children.append(child)
    os.close(result)
    os.close(gate)
    os.close(begin)
    with os.fdopen(results) as lines:
        found = lines.read().splitlines()
    for child in children:
        os.waitpid(child, 0)
    return found
