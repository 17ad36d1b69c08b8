"""Rows on dask."""
