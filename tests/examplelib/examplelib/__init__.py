"""A library of its own that can be recorded and replayed: copy what you need.

``_ops.py`` has the public functions: ``gather`` runs a kernel that ``_kernels.py`` describes and
``csrc/gather.cc`` holds; ``softmax`` is torch alone. ``_embedding.py`` has a class with state.
``pyproject.toml`` declares the entry point that the replay finds all of them by. Then::

    KERNLIB_LOG_LEVEL=dump python app.py     # it crashes
    kernlib-replay kernlib_dumps             # which call, which argument, which line of gather.cc

While recording is off, ``gather`` is the very function written here, and costs nothing more.
"""

from examplelib._embedding import Embedding
from examplelib._ops import gather, softmax

__all__ = ["Embedding", "gather", "softmax"]
