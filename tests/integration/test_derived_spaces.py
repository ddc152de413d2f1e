"""Whatever Linalg op IREE tiles has a space, and what a derived template makes of it computes the same numbers."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from ext_op_texts import DATA_KINDS, EXT_KINDS, WITHOUT
from op_kind_texts import OP_KINDS, depthwise_nhwc

from mlsearch.candidate import BuildRequest, Built, Candidate, Measured, Record, RunRequest, reason
from mlsearch.ir.library import library_text
from mlsearch.payload import load_payload
from mlsearch.records.exchange import export_records, import_records
from mlsearch.records.store import Store
from mlsearch.space.derived import PREFIX
from mlsearch.space.space import Space, space_of
from mlsearch.space.template import templates_for
from mlsearch.target import resolve
from mlsearch.task import Task, cut
from mlsearch.testing.records_contract import put
from mlsearch.tune.trials import build_untuned, measure_baseline
from mlsearch.workbench import Workbench, open_workbench

TARGET = resolve("llvm-cpu", 1)
DRAWN = 3
ALL_KINDS = {**OP_KINDS, **EXT_KINDS, **DATA_KINDS}
Kinds = Callable[[str], list[tuple[Task, Space]]]


@pytest.fixture(scope="module")
def bench() -> Iterator[Workbench]:
    with open_workbench(TARGET, lambda event: None, jobs=2) as bench:
        yield bench


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> Kinds:
    """The tasks of a kind of op, with their spaces; laid out once for all tests."""
    known: dict[str, list[tuple[Task, Space]]] = {}

    def laid_out(kind: str) -> list[tuple[Task, Space]]:
        if kind not in known:
            tasks = readable(cut_text(tmp_path_factory.mktemp("kind"), ALL_KINDS[kind]))
            known[kind] = [(task, the_space(task)) for task in tasks]
        return known[kind]

    return laid_out


def cut_text(folder: Path, text: str) -> list[Task]:
    path = folder / "payload.mlir"
    path.write_text(text)
    return cut(load_payload(path, TARGET, folder / "work"), TARGET, folder / "work")


def readable(tasks: list[Task]) -> list[Task]:
    assert tasks
    assert [task.not_tunable for task in tasks if not task.view] == []
    return tasks


def the_space(task: Task) -> Space:
    space = space_of(task, templates_for(TARGET, None), TARGET)
    assert isinstance(space, Space), space
    return space


def derived_candidates(space: Space) -> list[Candidate]:
    """The first prior of each derived template, and some drawn at random."""
    rng = np.random.default_rng(7)
    found: list[Candidate] = []
    for identifier, part in space.parts.items():
        if identifier.startswith(PREFIX):
            found += part.priors()[:1]
            found += [part.row(int(row)) for row in rng.choice(len(part), min(DRAWN, len(part)), replace=False)]
    return list(dict.fromkeys(found))


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_an_op_of_any_kind_is_tuned_and_what_is_derived_for_it_computes_the_same(
    kind: str, bench: Workbench, kinds: Kinds
) -> None:
    own = replace(bench, scope=f"{kind}-")
    for task, space in kinds(kind):
        assert space.size > 0
        assert space.priors()
        candidates = derived_candidates(space)
        if not candidates:
            continue
        assert task.module is not None and task.signature is not None
        untuned = build_untuned(own, task)
        requests = [
            BuildRequest(
                f"{task.id}-{candidate.key}",
                task.module,
                library_text([space.entry("e", candidate)]),
                ("e",),
                TARGET.compile_flags,
                timeout_s=120.0,
            )
            for candidate in candidates
        ]
        knobs = {f"{task.id}-{each.key}": (each.template, each.knobs) for each in candidates}
        for request, built in list(own.build(requests)):
            assert isinstance(built, Built), (knobs[request.key], built)
            plan = own.plan(min_samples=1, max_samples=1, warmup=0, timeout_s=60.0)
            outcome = own.run(RunRequest(built.artifact, untuned.artifact, task.signature, plan))
            assert isinstance(outcome, Measured), (knobs[request.key], reason(outcome))
            assert outcome.numerics.agrees


@pytest.mark.parametrize(
    ("kind", "template"),
    [
        ("depthwise_nhwc", "derived/window_taps"),
        ("grouped_nhwc", "derived/window_taps"),
        ("strange_reduction", "derived/window_taps"),
        ("conv_2d_nhwc_strided", "derived/window_tiles"),
        ("pool_nchw_max", "derived/window_tiles"),
        ("depthwise_nhwc_dilated", "derived/window_taps"),
        ("depthwise_nchw_strided", "derived/window_tiles"),
        ("pool_nhwc_max_dilated", "derived/window_taps"),
        ("packed_matmul", "derived/loop_tiles"),
        ("scan", "derived/extension_tiles"),
        ("scatter", "derived/extension_tiles"),
        ("topk", "derived/extension_tiles"),
        ("winograd_output", "derived/extension_tiles"),
        ("pad", "derived/copy_tiles"),
        ("extract_slice", "derived/copy_tiles"),
        ("insert_slice_strided", "derived/copy_tiles"),
    ],
)
def test_each_kind_of_op_gets_the_derived_template_that_suits_it(kind: str, template: str, kinds: Kinds) -> None:
    [(_, space)] = kinds(kind)
    assert [each for each in space.parts if each.startswith(PREFIX)] == [template]


@pytest.mark.parametrize("kind", WITHOUT)
def test_what_has_no_space_says_why(kind: str, tmp_path: Path) -> None:
    text, words = WITHOUT[kind]
    [task] = cut_text(tmp_path, text)
    assert task.view is None
    assert words in (task.not_tunable or "")


@pytest.mark.parametrize("kind", [kind for kind in OP_KINDS if kind.startswith(("depthwise", "pool"))])
def test_poolings_and_depthwise_convolutions_leave_the_templates_that_have_no_knob_for_their_channels(
    kind: str, kinds: Kinds
) -> None:
    windows = [space for _, space in kinds(kind) if space.view.workload.op_kind in ("pooling", "depthwise_conv")]
    assert windows
    for space in windows:
        assert all(identifier.startswith(PREFIX) for identifier in space.parts)
        assert len(space.priors()) >= 3


def test_a_derived_candidate_is_built_again_from_exported_records(tmp_path: Path) -> None:
    text = depthwise_nhwc()
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    [task] = readable(cut_text(tmp_path / "one", text))
    space = the_space(task)
    candidate = derived_candidates(space)[-1]
    with open_workbench(TARGET, lambda event: None, jobs=1) as bench:
        baseline = measure_baseline(bench, task)
        assert task.workload is not None
        provenance = bench.provenance(task.workload.key)
    written = Record(candidate, baseline.measured, 0.1, "0" * 64, provenance)
    store = Store.open(tmp_path / "from.journal")
    put(store.study("s"), written)
    stream = io.StringIO()
    export_records(store.records(), stream)
    other = Store.open(tmp_path / "to.journal")
    import_records(other, io.StringIO(stream.getvalue()))
    [stored] = other.records()
    again = the_space(readable(cut_text(tmp_path / "two", text))[0])
    assert stored.record.candidate == candidate
    assert again.parts[candidate.template].template.digest == stored.record.candidate.template_digest
    assert again.violations(stored.record.candidate) == ()
    assert library_text([again.entry("e", stored.record.candidate)]) == library_text([space.entry("e", candidate)])
