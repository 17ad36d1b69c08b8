"""Saved metrics: plain arrays and text in one archive; loading runs no code of the file."""
