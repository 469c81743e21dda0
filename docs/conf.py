"""Sphinx: MyST pages, the furo theme, and formulas that render without a network."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # docstrings.py, reference.py

project = "dp2erm-cvx"
author = "dp2erm-cvx developers"
copyright = "2026, dp2erm-cvx developers"

extensions = [
    "docstrings",
    "reference",
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
autodoc_default_options = {"exclude-members": "model_config"}  # pydantic's own
# how names in signatures are shown: what they stand for fills lines
autodoc_type_aliases = {
    "Array": "dp2erm_cvx.arrays.Array",
    "ArrayLike": "ArrayLike",
    "Data": "tuple[ArrayLike, ArrayLike, ArrayLike]"
    " | dp2erm_cvx.data.dataset.Dataset | dp2erm_cvx.data.records.Records",
    "Raw": "tuple[ArrayLike, ArrayLike, ArrayLike]",
    "Generator": "collections.abc.Callable[[numpy.random.Generator], Any]",
    # imported for the type checker alone
    "BoundCurves": "dict[str, tuple[dp2erm_cvx.arrays.Array, dp2erm_cvx.arrays.Array]]",
    "Figure": "Figure",
    "Registered": "type[dp2erm_cvx.program.Program] | dp2erm_cvx.program.scheme.Scheme",
}
python_use_unqualified_type_names = True
napoleon_google_docstring = False
# A lower-case word in the place of a type names a returned value; several classes have a field of
# that name, which it does not refer to.
suppress_warnings = ["ref.python"]
napoleon_attr_annotations = False

nitpicky = True
nitpick_ignore_regex = [
    # foreign types: their inventories are on the network, and the pages are built without it
    (
        "py:.*",
        r"(annotated_types|collections|cvxpy|dataclasses|fractions|importlib|numpy|pathlib|random|sklearn|types)"
        r"\..*",
    ),
    ("py:class", r"ArrayLike|Axes|Figure|Measurement|NDArray|Path|arb|(np|pd)\..*"),
    # type variables; literals whose values the text gives; the bound of a field
    (
        "py:(class|obj)",
        r"(dp2erm_cvx\..*\.)?(D|Declared|M|Member|P_co|Pair|R|S|Stage|T|Value|_A|_T)",
    ),
    (
        "py:class",
        r"ArmMass|Block|CausalSettings|Index|Released|ReleasedScale|ScalarLoss|ScalarWeight|Statistic|"
        r"dp2erm_cvx.(audit.search.Deadline|diagnostics.columns.RecordCounts|model.quadratics.Quadratic|"
        r"program.penalties.PublicPenalty|data.tables.Table|plan.settings.CausalSettings|"
        r"inference.nuisances.(Residuals|EffectFacts)|release.reading.P|steps.weighted_residuals.ResidualSquares|design.samples.Asked)|"
        r"dp2erm_cvx.diagnostics.look.(rules.View|records.(Sample|Fingerprints))|"
        r"dp2erm_cvx.program.separable.BalancedProgram|dp2erm_cvx.data.(blocks.KeptColumn|opening.FileMark)|"
        r"TypeAliasForwardRef",
    ),
    ("py:class", r"0\.5"),
    # names and sentences in lists of what is returned, which are no types
    ("py:class", r"[a-z_]+|.* .*"),
]

html_theme = "furo"
html_title = "dp2erm-cvx"
html_static_path = ["_static"]
html_css_files = ["custom.css"]
html_js_files = ["wide_formulas.js"]
html_copy_source = False
