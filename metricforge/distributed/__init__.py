"""Rows on dask: everything that imports dask.

Files: `chunks` has dask arrays in chunks of whole rows, `tasks` task graphs over chunks, `cluster` runs them,
`allocation` sets how workers allocate memory; `neighbors` and `hops` search rows on dask, `eigen` finds eigenpairs of a
matrix there, by the operations of `columns`; `storage` reads and writes lazy rows.
"""
