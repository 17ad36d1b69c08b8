"""``python -m campaign`` in the folder of the tests, or ``make campaign``: see the package."""

import sys

from . import main

sys.exit(main())
