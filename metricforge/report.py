"""Import path of `metricforge.pages.report` (the report page), kept for existing scripts."""

from __future__ import annotations

import sys

from .pages import report

sys.modules[__name__] = report
