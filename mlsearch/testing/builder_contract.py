"""What every builder must do. A builder's test module subclasses `BuilderContract` and says how to make one.

class TestLocalBuilder(BuilderContract):
    flags = (...)

    def make_builder(self, workdir: Path) -> Builder:
        return LocalBuilder(workdir, jobs=2, memory_bytes=None)
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from pathlib import Path

import pytest

from mlsearch.builder.base import Builder
from mlsearch.candidate import BuildFailed, BuildOutcome, BuildRequest, BuildTimeout, Built, NotApplied
from mlsearch.toolchain import compile_argv, run

PAYLOAD = r"""
func.func @"a \22quoted\22 $name with/slash"(%a: tensor<32x64xf32>, %b: tensor<64x48xf32>)
    -> tensor<32x48xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<32x48xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<32x48xf32>) -> tensor<32x48xf32>
  %product = linalg.matmul ins(%a, %b : tensor<32x64xf32>, tensor<64x48xf32>)
      outs(%init : tensor<32x48xf32>) -> tensor<32x48xf32>
  return %product : tensor<32x48xf32>
}
"""

MARKING_LIBRARY = r"""
module attributes {transform.with_named_sequence} {
  transform.named_sequence @match(%op: !transform.any_op {transform.readonly}) -> !transform.any_op {
    transform.match.operation_name %op ["linalg.matmul", "linalg.generic"] : !transform.any_op
    transform.yield %op : !transform.any_op
  }
  transform.named_sequence @mark(%op: !transform.any_op {transform.readonly}) {
    %name = transform.param.constant "the \22first\22 \\ entry" -> !transform.any_param
    transform.annotate %op "mlsearch.entry" = %name : !transform.any_op, !transform.any_param
    transform.yield
  }
  transform.named_sequence @__kernel_config(%variant: !transform.any_op {transform.consumed}) {
    transform.foreach_match in %variant @match -> @mark : (!transform.any_op) -> !transform.any_op
    transform.yield
  }
}
"""
ENTRY = 'the "first" \\ entry'

CRASHING_MODULE = "module attributes {a = " + "[" * 200_000 + "]" * 200_000 + "} {}\n"
"""Nested so deep that MLIR's recursive parser runs out of stack."""


class BuilderContract(ABC):
    flags: tuple[str, ...]
    """`iree-compile` flags of a target that the builder can build for."""

    @abstractmethod
    def make_builder(self, workdir: Path) -> Builder:
        """A builder that puts artifacts in `workdir`. The suite closes it."""

    @pytest.fixture(scope="class")
    @classmethod
    def module(cls, tmp_path_factory: pytest.TempPathFactory) -> Path:
        """`PAYLOAD` at the flow phase."""
        folder = tmp_path_factory.mktemp("module")
        payload, module = folder / "payload.mlir", folder / "flow.mlir"
        payload.write_text(PAYLOAD)
        done = run(compile_argv(payload, module, cls.flags, compile_to="flow"))
        assert done.returncode == 0, done.headline
        return module

    @pytest.fixture
    def request_for(self, module: Path, tmp_path: Path) -> RequestMaker:
        return RequestMaker(module, self.flags, tmp_path)

    def build(self, workdir: Path, *requests: BuildRequest) -> list[BuildOutcome]:
        """Outcomes in the order of `requests`."""
        with self.make_builder(workdir) as builder:
            outcomes = dict(builder.build(requests))
        return [outcomes[request] for request in requests]

    def test_a_good_request_gives_an_artifact(self, request_for: RequestMaker, tmp_path: Path) -> None:
        [outcome] = self.build(tmp_path, request_for("good"))
        assert isinstance(outcome, Built), outcome
        assert outcome.compile_s > 0
        content = outcome.artifact.read_bytes()
        assert outcome.artifact_digest == hashlib.sha256(content).hexdigest()

    def test_an_entry_that_is_applied_is_found_under_its_exact_name(
        self, request_for: RequestMaker, tmp_path: Path
    ) -> None:
        request = request_for("marked", library=MARKING_LIBRARY, entries=(ENTRY,))
        [outcome] = self.build(tmp_path, request)
        assert isinstance(outcome, Built), outcome

    def test_an_entry_that_is_not_applied_is_reported(self, request_for: RequestMaker, tmp_path: Path) -> None:
        marked = request_for("marked", library=MARKING_LIBRARY, entries=(ENTRY, "absent"))
        untuned = request_for("untuned", entries=(ENTRY,))
        outcomes = self.build(tmp_path, marked, untuned)
        assert all(isinstance(outcome, NotApplied) for outcome in outcomes), outcomes
        assert [outcome.missing for outcome in outcomes if isinstance(outcome, NotApplied)] == [
            ("absent",),
            (ENTRY,),
        ]

    def test_equal_requests_give_equal_digests(self, request_for: RequestMaker, tmp_path: Path) -> None:
        requests = [request_for(f"twin{n}", library=MARKING_LIBRARY, entries=(ENTRY,)) for n in range(4)]
        outcomes = self.build(tmp_path, *requests)
        assert all(isinstance(outcome, Built) for outcome in outcomes), outcomes
        assert len({outcome.artifact_digest for outcome in outcomes if isinstance(outcome, Built)}) == 1

    def test_a_broken_module_fails_with_the_compilers_words(self, request_for: RequestMaker, tmp_path: Path) -> None:
        [outcome] = self.build(tmp_path, request_for("broken", module_text="module { func.func @"))
        assert isinstance(outcome, BuildFailed), outcome
        assert outcome.stage == "parse"
        assert "error:" in outcome.message
        assert outcome.log is not None
        assert outcome.message.splitlines()[0] in outcome.log.read_text()

    def test_a_missing_module_fails(self, request_for: RequestMaker, tmp_path: Path) -> None:
        request = request_for("missing", module_text="")
        request.module.unlink()
        [outcome] = self.build(tmp_path, request)
        assert isinstance(outcome, BuildFailed), outcome
        assert str(request.module) in outcome.message

    def test_a_flag_that_the_compiler_does_not_know_fails(self, request_for: RequestMaker, tmp_path: Path) -> None:
        [outcome] = self.build(tmp_path, request_for("flag", flags=(*self.flags, "--no-such-flag=1")))
        assert isinstance(outcome, BuildFailed), outcome
        assert "no-such-flag" in outcome.message

    def test_a_library_that_does_not_load_fails_although_iree_goes_on_without_it(
        self, request_for: RequestMaker, tmp_path: Path
    ) -> None:
        [outcome] = self.build(tmp_path, request_for("library", library="module { nonsense"))
        assert isinstance(outcome, BuildFailed), outcome
        assert outcome.stage == "library"
        assert "library" in outcome.message

    def test_the_command_of_a_failure_shows_it_again(self, request_for: RequestMaker, tmp_path: Path) -> None:
        library = MARKING_LIBRARY.replace('"linalg.matmul"', "nonsense")
        [outcome] = self.build(tmp_path, request_for("library", library=library))
        assert isinstance(outcome, BuildFailed), outcome
        again = run(outcome.argv)
        said = [line.split("error:")[1] for line in again.stderr.splitlines() if "error:" in line]
        assert outcome.message.splitlines()[0].split("error:")[1] == said[0]

    def test_a_timeout_ends_one_request_only(self, request_for: RequestMaker, tmp_path: Path) -> None:
        with self.make_builder(tmp_path) as builder:
            [_] = builder.build([request_for("warm")])
            [(_, outcome)] = builder.build([request_for("slow", timeout_s=0.01)])
            [(_, next_outcome)] = builder.build([request_for("next")])
        assert isinstance(outcome, BuildTimeout), outcome
        assert outcome.timeout_s == 0.01
        assert isinstance(next_outcome, Built), next_outcome

    def test_a_crash_is_an_outcome_and_the_next_request_works(self, request_for: RequestMaker, tmp_path: Path) -> None:
        with self.make_builder(tmp_path) as builder:
            [(_, crashed)] = builder.build([request_for("crash", module_text=CRASHING_MODULE)])
            [(_, after)] = builder.build([request_for("after")])
        assert isinstance(crashed, BuildFailed), crashed
        assert crashed.stage == "crash"
        assert "SIGSEGV" in crashed.message
        assert isinstance(after, Built), after

    def test_each_request_gets_one_outcome_whatever_happens_to_the_others(
        self, request_for: RequestMaker, tmp_path: Path
    ) -> None:
        requests = [
            request_for("good1"),
            request_for("crash", module_text=CRASHING_MODULE),
            request_for("broken", module_text="module {"),
            request_for("slow", timeout_s=0.01),
            request_for("absent", entries=("absent",)),
            request_for("good2"),
        ]
        with self.make_builder(tmp_path) as builder:
            pairs = list(builder.build(requests))
        kinds = {request.key: type(outcome) for request, outcome in pairs}
        assert sorted(request.key for request, _ in pairs) == sorted(request.key for request in requests)
        assert kinds == {
            "good1": Built,
            "crash": BuildFailed,
            "broken": BuildFailed,
            "slow": BuildTimeout,
            "absent": NotApplied,
            "good2": Built,
        }

    def test_an_iteration_that_is_left_does_not_leak_into_the_next(
        self, request_for: RequestMaker, tmp_path: Path
    ) -> None:
        with self.make_builder(tmp_path) as builder:
            left = builder.build([request_for(f"old{n}") for n in range(4)])
            next(left)
            keys = [request.key for request, _ in builder.build([request_for("new")])]
            assert keys == ["new"]
            assert list(left) == []

    def test_no_requests_give_no_outcomes(self, tmp_path: Path) -> None:
        with self.make_builder(tmp_path) as builder:
            assert list(builder.build([])) == []

    @pytest.mark.parametrize("key", ["", "a/b", "../a", "a b", ".hidden"])
    def test_a_key_that_is_no_file_name_is_refused_at_once(
        self, key: str, request_for: RequestMaker, tmp_path: Path
    ) -> None:
        with self.make_builder(tmp_path) as builder, pytest.raises(ValueError, match="can't name a file"):
            builder.build([request_for(key)])

    def test_two_requests_with_one_key_are_refused_at_once(self, request_for: RequestMaker, tmp_path: Path) -> None:
        with self.make_builder(tmp_path) as builder, pytest.raises(ValueError, match="clash"):
            builder.build([request_for("twin"), request_for("twin")])

    def test_closing_twice_is_harmless_and_keeps_artifacts(self, request_for: RequestMaker, tmp_path: Path) -> None:
        builder = self.make_builder(tmp_path)
        [(_, outcome)] = builder.build([request_for("good")])
        builder.close()
        builder.close()
        assert isinstance(outcome, Built), outcome
        assert outcome.artifact.exists()


class RequestMaker:
    """Makes requests for one module that differ in what a test is about."""

    def __init__(self, module: Path, flags: tuple[str, ...], folder: Path) -> None:
        self.module = module
        self._flags = flags
        self._folder = folder

    def __call__(
        self,
        key: str,
        *,
        library: str | None = None,
        entries: tuple[str, ...] = (),
        module_text: str | None = None,
        flags: tuple[str, ...] | None = None,
        timeout_s: float = 60.0,
    ) -> BuildRequest:
        module = self.module
        if module_text is not None:
            module = self._folder / f"{key} 'module'.mlir"
            module.write_text(module_text)
        return BuildRequest(key, module, library, entries, flags or self._flags, timeout_s)
