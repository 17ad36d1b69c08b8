"""``python -m metricforge`` is the command ``metricforge``."""

from __future__ import annotations

import sys

from .cli.program import main

if __name__ == "__main__":
    sys.exit(main())
