"""Requirements on every program, as checks of a class, a name or a file.

They run under pytest too.
"""

from dp2erm_cvx.conformance.checks import (
    CheckStatus,
    Subject,
    checks_of,
    edge_records,
    standard_records,
)
from dp2erm_cvx.conformance.run import (
    TEMPLATES,
    CheckOutcome,
    ConformanceReport,
    check_program,
    load_program,
    parametrize,
    program_template,
)

__all__ = [
    "TEMPLATES",
    "CheckOutcome",
    "CheckStatus",
    "ConformanceReport",
    "Subject",
    "check_program",
    "checks_of",
    "edge_records",
    "load_program",
    "parametrize",
    "program_template",
    "standard_records",
]
