"""Requirements on every program, as checks of a class, a registered name or a file, also under pytest."""

from dp2erm_cvx.conformance.checks import checks_of
from dp2erm_cvx.conformance.files import (
    TEMPLATES,
    callable_of,
    load_program,
    program_template,
    programs_of_file,
)
from dp2erm_cvx.conformance.run import CheckOutcome, ConformanceReport, check_program, parametrize
from dp2erm_cvx.conformance.subject import CheckStatus, Subject, edge_records, standard_records

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
