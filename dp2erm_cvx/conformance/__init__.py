"""What every program must do, as checks that run on a class, a registered name or a file."""

from dp2erm_cvx.conformance.loading import load_program, programs_of_file
from dp2erm_cvx.conformance.outcome import Outcome, Report, Status
from dp2erm_cvx.conformance.run import check_program
from dp2erm_cvx.conformance.samples import edge_records, standard_records
from dp2erm_cvx.conformance.template import TEMPLATES, new_program

__all__ = [
    "TEMPLATES",
    "Outcome",
    "Report",
    "Status",
    "check_program",
    "edge_records",
    "load_program",
    "new_program",
    "programs_of_file",
    "standard_records",
]
