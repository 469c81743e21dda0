"""Sphinx: MyST pages, the furo theme, and formulas that render without a network."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # docstrings.py

project = "dp2erm-cvx"
author = "dp2erm-cvx developers"
copyright = "2026, dp2erm-cvx developers"

extensions = [
    "docstrings",
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
    "sphinx-mathjax-offline",  # ships MathJax and its fonts with the pages
]
exclude_patterns = ["_build"]

myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
python_use_unqualified_type_names = True
napoleon_google_docstring = False

html_theme = "furo"
html_title = "dp2erm-cvx"
html_static_path = ["_static"]
html_css_files = ["custom.css"]
html_copy_source = False
