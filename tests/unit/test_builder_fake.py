from __future__ import annotations

from pathlib import Path

import pytest

from mlsearch.candidate import BuildOutcome, BuildRequest, BuildTimeout, Built
from mlsearch.testing.builders import FakeBuilder


def _request(key: str) -> BuildRequest:
    return BuildRequest(key, Path("m.mlir"), None, (), (), 1.0)


def test_fake_answers_from_a_mapping_and_remembers_the_requests() -> None:
    outcomes: dict[str, BuildOutcome] = {"a": Built(Path("a.vmfb"), "d", 0.1), "b": BuildTimeout(1.0, ())}
    builder = FakeBuilder(outcomes)
    pairs = list(builder.build([_request("b"), _request("a")]))
    assert [(request.key, outcome) for request, outcome in pairs] == [
        ("b", outcomes["b"]),
        ("a", outcomes["a"]),
    ]
    assert [request.key for request in builder.asked] == ["b", "a"]


def test_fake_answers_from_a_callable() -> None:
    builder = FakeBuilder(lambda request: Built(Path(f"{request.key}.vmfb"), request.key, 0.1))
    assert [outcome for _, outcome in builder.build([_request("a")])] == [Built(Path("a.vmfb"), "a", 0.1)]


def test_fake_starts_only_what_is_consumed() -> None:
    builder = FakeBuilder(lambda request: BuildTimeout(1.0, ()))
    next(builder.build([_request("a"), _request("b")]))
    assert [request.key for request in builder.asked] == ["a"]


def test_fake_refuses_the_keys_that_a_real_builder_refuses() -> None:
    builder = FakeBuilder({})
    with pytest.raises(ValueError, match="clash"):
        builder.build([_request("a"), _request("a")])
    with pytest.raises(ValueError, match="can't name a file"):
        builder.build([_request("a/b")])


def test_fake_knows_that_it_was_closed() -> None:
    with FakeBuilder({}) as builder:
        assert not builder.closed
    assert builder.closed
