"""Runs the ``kernlib`` command from a source tree."""

import sys

from kernlib._commands import main

sys.exit(main())
