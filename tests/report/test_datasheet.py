"""The record for a registry: its fields, what it takes from a release, and YAML that reads back."""

from dataclasses import replace
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.privacy import Neighboring
from dp2erm_cvx.release import Standing
from dp2erm_cvx.report.datasheet import ASKED, BLANK, datasheet, datasheet_text
from tests.report.conftest import HOSTILE

#: The names that the registry's schema has at 057e5d8, those of tier 3 included, but for sources.
FIELDS = {
    "basic": {
        *("name", "data_curators", "description", "intended_use", "data_product_type", "data_product_region"),
        *("data_product_sector", "publication_date"),
    },
    "dp_variant": {"variant_name", "data_domain", "unprotected_quantities"},
    "privacy_loss": {
        *("privacy_unit", "privacy_unit_details", "number_of_privacy_units", "privacy_parameters"),
        "privacy_parameters_details",
    },
    "deployment_model": {
        *("model_name", "model_name_details", "trust_assumptions", "actors", "release_type"),
        *("release_type_details", "data_source_type", "data_source_type_details", "access_type"),
        "access_type_details",
    },
    "implementation": {
        *("preprocessing_and_hyperparameter_tuning", "mechanisms", "composition", "post_processing"),
        *("justification", "utility", "additional_information"),
    },
    "administrative": {"evidence_sources", "status", "registry_authors", "tier"},
}
#: What it takes where it takes few answers.
ANSWERS = {
    "data_product_type": {"Summary statistics", "Machine learning model"},
    "variant_name": {"Pure DP", "Approximate DP"},
    "model_name": {"Central"},
    "release_type": {"One release"},
    "access_type": {"Non-interactive"},
    "status": {"Draft"},
}
GIVEN = {
    **{name: f"my {name}" for name in ASKED},
    "url_slug": "weight-gain_2026",
    "data_curator_type": "Nonprofit",
    "data_product_sector": "Healthcare",
    "publication_date": "2026-11-22",
    "data_source_type": "Static",
}
PRIVATE = ("effect", "att", "risks", "ranges", "rule", "means", "itr", "many effect", "many rule", "many itr")


def texts(record: Any) -> list[str]:
    if isinstance(record, dict):
        return [text for one in record.values() for text in texts(one)]
    if isinstance(record, list):
        return [text for one in record for text in texts(one)]
    return [record] if isinstance(record, str) else []


@pytest.mark.parametrize("kind", PRIVATE)
def test_a_record_has_the_fields_of_the_registry(releases, kind) -> None:
    release = releases[kind]
    written = datasheet_text(datasheet(release, GIVEN))
    record = yaml.safe_load(written)
    assert BLANK.strip() not in written.partition("url_slug")[2]
    # what is not given is marked, and nothing else is
    assert sum(text.count(BLANK) for text in texts(datasheet(release))) == len(ASKED)
    assert list(record) == ["url_slug", "deployment"]
    assert list(record["deployment"]) == list(FIELDS)
    optional = {"model_name_details", "data_source_type_details", "access_type_details", "evidence_sources"}
    for name, section in record["deployment"].items():
        assert FIELDS[name] - optional <= set(section) <= FIELDS[name]
        for field, answer in section.items():
            assert answer in ANSWERS.get(field, {answer} if isinstance(answer, str | int) else [answer])
    deployment = record["deployment"]
    assert deployment["basic"]["data_curators"] == [
        {"data_curator_name": "my data_curator_name", "data_curator_type": "Nonprofit"}
    ]
    assert deployment["basic"]["publication_date"] == "2026-11-22"
    parameters = deployment["privacy_loss"]["privacy_parameters"]
    assert parameters["epsilon"] == release.guarantee.epsilon
    assert (deployment["dp_variant"]["variant_name"] == "Pure DP") == ("delta" not in parameters)
    assert deployment["privacy_loss"]["number_of_privacy_units"] == release.n_samples
    assert deployment["administrative"]["tier"] == 3
    assert deployment["implementation"]["mechanisms"].count("epsilon") >= len(release.steps)
    assert all(
        isinstance(text, str) and text.isprintable() for line in texts(record) for text in line.split("\n")
    )


def test_names_from_a_file_are_not_markup(releases) -> None:
    for kind in ("many rule", "many effect"):
        record = datasheet(releases[kind], GIVEN)
        for text in texts(record):
            assert "<" not in "".join(text.replace(f"`{HOSTILE}`", "").split("`")[::2])
    ticks = replace(releases["rule"], columns=("a`<b>`\n- x: y", "v"))
    assert "`a'<b>' - x: y`" in datasheet(ticks, GIVEN)["deployment"]["basic"]["description"]


def test_no_release_without_a_guarantee_is_registered(releases) -> None:
    rule = releases["rule"]
    for standing in (Standing.NOT_PRIVATE, Standing.UNPROVEN):
        gone = replace(rule, guarantee=replace(rule.guarantee, standing=standing))
        with pytest.raises(DeclarationError, match="not private"):
            datasheet(gone, GIVEN)
    known = replace(rule.guarantee, standing=Standing.CONDITIONAL, delta=1e-5)
    known = replace(known, relation=Neighboring.REPLACE_ONE_KEEP_TREATMENT)
    loss = yaml.safe_load(datasheet_text(datasheet(replace(rule, guarantee=known), GIVEN)))["deployment"]
    assert loss["privacy_loss"]["privacy_parameters"] == {"epsilon": 2.0, "delta": 1e-5}
    assert "CONDITIONAL" in loss["privacy_loss"]["privacy_parameters_details"]
    assert "which is not protected" in loss["privacy_loss"]["privacy_unit_details"]
    assert loss["dp_variant"]["variant_name"] == "Approximate DP"


def test_answers_that_the_registry_refuses_are_refused(releases) -> None:
    for name, answer in (
        *(("title", "x"), ("publication_date", "22.11.2026"), ("publication_date", "20261122")),
        *(
            ("data_curator_type", "University"),
            ("url_slug", "two words"),
            ("name", ""),
            ("name", "two\nlines"),
        ),
    ):
        with pytest.raises(DeclarationError, match=name):
            datasheet(releases["rule"], {**GIVEN, name: answer})


TEXTS = st.text(max_size=30) | st.text(st.sampled_from("ab \n\t:#-'\"\\|>&*!%@`{}[],?"), max_size=20)


INNER = st.dictionaries(st.sampled_from(["p", "q"]), TEXTS, min_size=1)
LISTS = st.lists(TEXTS, min_size=1) | st.lists(INNER, min_size=1)


@settings(max_examples=60)
@given(
    st.dictionaries(
        st.sampled_from(["a", "long_name", "c2"]),
        *[TEXTS | st.floats(allow_nan=False, allow_infinity=False) | st.integers() | LISTS | INNER],
        min_size=1,
    )
)
@example({"a": "1e-05", "c2": 1e-05})
@example({"a": " first\n second\n"})
@example({"a": "line\n\n- item: x\n"})
@example({"a": "2026-11-22", "c2": "\ufeff\u2028\x85\U0001f600\n"})
def test_yaml_reads_back_as_it_was(value) -> None:
    assert yaml.safe_load(datasheet_text(value)) == value
