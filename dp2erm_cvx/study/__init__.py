"""A study in one public file: its records, its budget, its account and its questions.

A TOML file that declares a domain, see :func:`~dp2erm_cvx.data.domain_file.load_domain`, becomes a
study by three more tables::

    [budget]
    epsilon = 1.0

    [ledger]                      # may be left out
    file = "book.db"
    dataset = "trial"

    [[effect]]                    # one table for every question: effect, rule or two_stage
    name = "average"
    share = 0.6
    residual_scale = 4.0

    [[effect]]                    # of another outcome: what is not declared is that of the domain
    name = "stay"
    outcome_column = "days"
    outcome_center = 10.0
    outcome_bound = 10.0

The questions are composed: planned together, charged together or not at all, and answered in their
order.

Ranges that nobody declares are a question as well, which is answered first. In place of
``[ranges]``::

    [[ranges]]
    share = 0.1
    columns = { age = [18, 90], year = { within = [1900, 2100] }, income = "release" }
    outcomes = { y = { within = [0, 300] } }
"""

from dp2erm_cvx.study.about_records import (
    RecordsFile,
    declared_records,
    is_about_records,
    open_records,
    records_declared,
)
from dp2erm_cvx.study.open_ranges import OpenRanges
from dp2erm_cvx.study.questions import OUTCOME, QUESTIONS, Question, public_sample, stage_settings
from dp2erm_cvx.study.reading import parsed_change, read_study, taken_questions
from dp2erm_cvx.study.records import StudyRecords
from dp2erm_cvx.study.study import StudyFile
from dp2erm_cvx.study.writing import filled, study_with, written

__all__ = [
    "OUTCOME",
    "QUESTIONS",
    "OpenRanges",
    "Question",
    "RecordsFile",
    "StudyFile",
    "StudyRecords",
    "declared_records",
    "filled",
    "is_about_records",
    "open_records",
    "parsed_change",
    "public_sample",
    "read_study",
    "records_declared",
    "stage_settings",
    "study_with",
    "taken_questions",
    "written",
]
