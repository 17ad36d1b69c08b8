"""A dozen everyday calls for asv, which compares two commits: ``make bench BASE=COMMIT``."""
