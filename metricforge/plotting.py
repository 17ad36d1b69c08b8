"""Import path of `metricforge.pages.plotting` (pictures), kept for existing scripts."""

from __future__ import annotations

import sys

from .pages import plotting

sys.modules[__name__] = plotting
