"""Every table and figure of the five papers, computed anew and shown beside what was printed.

``metricforge reproduce`` lists them, ``metricforge reproduce krca table4`` runs one.  `entries` is the list, one module
a paper has the experiments, ``papers/*.json`` the printed values; `result` holds what comes out, `pages` writes it.
"""
