"""Records as JSON and as attributes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import get_args

import pytest

from mlsearch.candidate import OUTCOMES, Candidate, Measured, TrialOutcome
from mlsearch.errors import StoreError
from mlsearch.records import codec
from mlsearch.testing.records_contract import EVERY_OUTCOME, NUMERICS, record_of


@pytest.mark.parametrize("outcome", EVERY_OUTCOME, ids=lambda outcome: type(outcome).__name__)
def test_a_record_comes_back_equal(outcome: TrialOutcome) -> None:
    record = record_of(outcome, predicted=0.1)
    assert codec.from_json(codec.to_json(record)) == record
    assert codec.from_attributes(codec.to_attributes(record)) == record


def test_every_outcome_type_is_among_those_tested() -> None:
    tested = {type(outcome) for outcome in EVERY_OUTCOME}
    assert tested == set(get_args(TrialOutcome))
    assert {kind.__name__ for kind in tested} == set(OUTCOMES)


def test_the_untuned_candidate_and_missing_values_come_back_equal() -> None:
    record = record_of(candidate=Candidate.untuned(), artifact_digest=None)
    assert codec.from_json(codec.to_json(record)) == record


def test_errors_that_are_no_numbers_come_back_as_such_from_strict_json() -> None:
    numerics = replace(NUMERICS, max_abs_error=float("nan"), max_rel_error=float("-inf"))
    text = codec.to_json(record_of(Measured((1.0,), (), numerics, cut_short=False)))
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    outcome = codec.from_json(text).outcome
    assert isinstance(outcome, Measured)
    assert str(outcome.numerics.max_abs_error) == "nan"
    assert outcome.numerics.max_rel_error == float("-inf")


def test_a_knob_that_reads_like_a_number_stays_the_text_it_was() -> None:
    candidate = Candidate.of("t", "d", {"a": "inf", "b": "8", "c": 8})
    assert codec.from_json(codec.to_json(record_of(candidate=candidate))).candidate == candidate


def test_attributes_are_scalars_that_a_person_can_read() -> None:
    attributes = codec.to_attributes(record_of(predicted=1.5))
    shown = {name.removeprefix("mlsearch:"): value for name, value in attributes.items()}
    assert all(isinstance(value, int | float | str) for value in shown.values())
    assert (shown["outcome"], shown["time_us"], shown["compile_s"], shown["predicted"]) == (
        "Measured",
        3.0,
        0.75,
        1.5,
    )
    assert (shown["compiler"], shown["runtime"], shown["version"]) == ("3.13.0", "3.13.0", "0.1.0")
    assert (shown["seed"], shown["threads"], shown["template"]) == (7, 1, "cpu/contraction")
    assert list(attributes)[-1] == codec.RECORD


def test_a_failure_shows_the_first_line_of_its_message() -> None:
    attributes = codec.to_attributes(record_of(EVERY_OUTCOME[2]))
    assert attributes["mlsearch:message"] == "error: µ"
    assert "mlsearch:time_us" not in attributes


def test_a_trial_without_a_record_has_none() -> None:
    assert codec.from_attributes({"mlsearch:outcome": "Measured"}) is None


def _changed(**changes: object) -> str:
    return json.dumps({**json.loads(codec.to_json(record_of())), **changes})


PROVENANCE = json.loads(codec.to_json(record_of()))["provenance"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not valid JSON"),
        ("[]", "not a JSON object"),
        (None, "not a JSON object"),
        (_changed(schema=codec.SCHEMA + 1), "newer mlsearch .*upgrade"),
        (_changed(schema=0), "has schema 0"),
        (_changed(compile_s="0.5"), "record.compile_s is '0.5', not float"),
        (_changed(compile_s=True), "record.compile_s is True, not float"),
        (_changed(provenance=PROVENANCE | {"seed": True}), "record.provenance.seed is True, not int"),
        (_changed(artifact_digest=5), "record.artifact_digest is 5, not str"),
        (_changed(extra=1), r"unknown field\(s\) extra"),
        (_changed(outcome={"type": "Path"}), "record.outcome is of unknown type 'Path'"),
        (_changed(outcome={"type": "RunTimeout"}), "record.outcome has no 'timeout_s'"),
        (_changed(candidate=None), "record.candidate is not a Candidate"),
        (
            _changed(candidate={"type": "Candidate", "template": "t", "template_digest": "", "assignment": [["m"]]}),
            r"assignment\[0\] has 1 items, not 2",
        ),
    ],
)
def test_what_is_no_record_is_refused_with_the_reason(text: str | None, message: str) -> None:
    with pytest.raises(StoreError, match=message) as raised:
        codec.from_json(text)
    assert "\n" not in str(raised.value)


def test_a_record_of_the_first_schema_reads_as_measured_where_it_was_searched() -> None:
    record = record_of()
    plain = json.loads(codec.to_json(record))
    plain["schema"] = 1
    del plain["provenance"]["measured_on"]
    assert codec.from_plain(plain) == record
    assert record.provenance.measured_on is None


def test_where_a_record_was_measured_comes_back() -> None:
    record = record_of()
    record = replace(record, provenance=replace(record.provenance, measured_on="cuda (H200) of there"))
    attributes = codec.to_attributes(record)
    assert attributes["mlsearch:measured_on"] == "cuda (H200) of there"
    assert codec.from_attributes(attributes) == record


def test_a_number_beyond_all_floats_is_refused() -> None:
    text = codec.to_json(record_of(Measured((1.0,), (), NUMERICS, cut_short=False)))
    with pytest.raises(StoreError, match=r"samples_us\[0\] is too large a number"):
        codec.from_json(text.replace('"samples_us":[1.0]', f'"samples_us":[1{"0" * 400}]'))
