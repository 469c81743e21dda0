"""Requirements on every program, as checks of a class, a registered name or a file, also under pytest."""

from dp2erm_cvx.conformance.checks import CheckStatus, Subject, checks_of, edge_records, standard_records
from dp2erm_cvx.conformance.run import (
    TEMPLATES,
    CheckOutcome,
    ConformanceReport,
    callable_of,
    check_program,
    load_program,
    parametrize,
    program_template,
    programs_of_file,
)

__all__ = [
    "TEMPLATES",
    "CheckOutcome",
    "CheckStatus",
    "ConformanceReport",
    "Subject",
    "callable_of",
    "check_program",
    "checks_of",
    "edge_records",
    "load_program",
    "parametrize",
    "program_template",
    "programs_of_file",
    "standard_records",
]
