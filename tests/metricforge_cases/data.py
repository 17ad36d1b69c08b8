"""The papers' data sets, which not every machine has."""

from __future__ import annotations

import os

import pytest

DATA = os.environ.get("METRICFORGE_DATA")
MISSING = "METRICFORGE_DATA is not set: the papers' data sets are not on this machine"
needs_data = pytest.mark.skipif(not DATA, reason=MISSING)
