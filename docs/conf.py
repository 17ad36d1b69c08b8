"""Settings of Sphinx; ``make docs`` builds the pages into docs/_build/html, warnings being errors."""

from __future__ import annotations

import sys
from pathlib import Path

import metricforge

sys.path.insert(0, str(Path(__file__).parent))  # mathml.py

project = "metricforge"
author = "the metricforge developers"
version = release = metricforge.__version__

extensions = [
    "mathml",
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_gallery.gen_gallery",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_build", "_templates", "examples/*", "gallery/*"]
suppress_warnings = ["config.cache"]

myst_enable_extensions = ["colon_fence", "dollarmath"]
html_math_renderer = "mathml"
myst_heading_anchors = 3

autosummary_generate = True
templates_path = ["_templates"]
autodoc_typehints = "none"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "auto_gallery",
    "filename_pattern": r"/plot_",
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
}

html_theme = "pydata_sphinx_theme"
html_title = "metricforge"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_show_sourcelink = False
html_sidebars = {page: [] for page in ("index", "start", "choosing", "metric-learn")}
html_theme_options = {
    "navbar_end": ["theme-switcher"],
    "secondary_sidebar_items": ["page-toc"],
    "header_links_before_dropdown": 5,
    "show_prev_next": False,
    "footer_start": ["copyright"],
    "footer_end": [],
}
html_context = {"default_mode": "auto"}
copyright = "the metricforge developers, BSD-3-Clause"
