"""A bundle for a GPU that nobody here has: its loop, with a machine that only says what it would have measured."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command import printed
from payload_texts import matmul

from mlsearch.bundle.archive import open_bundle
from mlsearch.bundle.intake import IntakeOptions, take_in
from mlsearch.bundle.measure import Session
from mlsearch.bundle.measured import MeasuredFile
from mlsearch.bundle.site import Site
from mlsearch.candidate import CacheState, Spilled
from mlsearch.cuda.chips import find_chip
from mlsearch.errors import BundleError
from mlsearch.ir.proof import instrumented
from mlsearch.records.store import Store
from mlsearch.spec import Application
from mlsearch.target import host_hardware, resolve
from mlsearch.testing.runners import AnsweringRunner, measured

MATMUL = matmul(64, 64, 64, name="matmul")
ASKED = 4


def site(chip: str | None, device_name: str = "NVIDIA H200") -> Site:
    found = find_chip(chip) if chip else None
    return Site("h", "Linux", host_hardware(), "cuda", device_name, "slope", "3.13.0", "3.12.1", "0.1.0", found)


def measure(bundle: Path, output: Path, there: Site, fastest_us: float = 11.0) -> None:
    """Each artifact takes a time of its own, by the order in the bundle; the untuned one takes 100 us."""
    with open_bundle(bundle) as opened, MeasuredFile.open(output, opened, there) as file:
        order = [sha256 for task in opened.manifest.tasks for sha256 in task.artifacts]
        times = {sha256: 100.0 if place == 0 else fastest_us + place - 1 for place, sha256 in enumerate(order)}
        runner = AnsweringRunner(lambda request: measured(times[request.artifact.stem]))
        folder = output.parent / f"{output.name}.work"
        folder.mkdir()
        Session(opened, file, runner, opened.manifest.plan, folder, lambda line: None, lambda: 0.0).run(None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a payload, a store, and a bundle for any Hopper."""
    folder = tmp_path_factory.mktemp("cuda")
    (folder / "matmul.mlir").write_text(MATMUL)
    told = printed("bundle", "export", folder / "matmul.mlir", "--target", "cuda:sm_90", "--trials", ASKED,
                    "--store", folder / "store", "-o", folder / "bundle")  # fmt: skip
    assert f"{ASKED} candidates of {ASKED}" in told
    return folder


def test_times_go_to_the_product_that_measured_and_the_next_bundle_is_for_it(folder: Path, tmp_path: Path) -> None:
    payload, store = folder / "matmul.mlir", folder / "store"
    measure(folder / "bundle", tmp_path / "measured", site("h200"))
    spec = tmp_path / "spec.mlir"
    told = printed("bundle", "import", payload, tmp_path / "measured", "--store", store, "-o", spec)
    assert "exported for cuda:sm_90; the times are those of cuda:h200" in told
    assert f"mlsearch bundle export {payload} --store {store} --target cuda:h200 --trials 64" in told
    assert f"mlsearch verify {payload} --spec {spec} --target cuda:h200\n" in told
    records = [stored.record for stored in Store.open(store).records()]
    timed = [record for record in records if record.time_us is not None]
    assert {record.provenance.target for record in timed} == {resolve("cuda:h200", 1).fingerprint}
    assert len(timed) == ASKED + 1

    # No device is needed for the spec, nor for the proof that its entry is applied.
    text = spec.read_text()
    assert "NVIDIA h200 (sm_90, Hopper)" in text and "measured one by one on cuda (NVIDIA H200)" in text
    assert "100.0 us -> 11.0 us" in text
    told = printed("compile", payload, "--spec", spec, "--target", "cuda:sm_90", "-o", tmp_path / "out.vmfb")
    assert "applied to" in told

    told = printed("bundle", "export", payload, "--target", "cuda:h200", "--trials", 2, "--store", store,
                    "-o", tmp_path / "next")  # fmt: skip
    assert "2 candidates of 2 and 2 fastest ones measured before" in told
    with open_bundle(tmp_path / "next") as bundle:
        shipped = [each.candidate.key for each in bundle.manifest.tasks[0].candidates]
    known = {record.candidate.key for record in records}
    assert [key in known for key in shipped] == [True, True, False, False]


@pytest.mark.parametrize(
    ("fastest_us", "reason"),
    [(99.0, r"not proven faster \(95 % interval 1.01 to 1.01\)"), (120.0, "not proven faster")],
)
def test_what_is_not_proven_faster_is_not_in_the_spec(
    folder: Path, tmp_path: Path, fastest_us: float, reason: str
) -> None:
    measure(folder / "bundle", tmp_path / "measured", site("h200"), fastest_us)
    options = replace(intake(folder, tmp_path), output=tmp_path / "spec.mlir")
    spec = take_in(options, lambda event: None).spec
    assert spec is not None and spec.entries == ()
    [(task, why)] = spec.left_out
    assert task == "t0" and re.match(reason, why)
    assert "so this spec changes nothing" in (tmp_path / "spec.mlir").read_text()


def test_without_the_pair_of_the_winner_there_is_no_entry(folder: Path, tmp_path: Path) -> None:
    measure(folder / "bundle", tmp_path / "measured", site("h200"))
    lines = (tmp_path / "measured").read_text().splitlines(keepends=True)
    (tmp_path / "measured").write_text("".join(line for line in lines if '"type":"WinnerCompared"' not in line))
    spec = take_in(replace(intake(folder, tmp_path), output=tmp_path / "spec.mlir"), lambda event: None).spec
    assert spec is not None and spec.entries == ()
    assert "run the bundle again to go on" in spec.left_out[0][1]


def test_what_computed_wrong_numbers_in_any_run_is_not_in_the_spec(folder: Path, tmp_path: Path) -> None:
    measure(folder / "bundle", tmp_path / "measured", site("h200"))
    lines = [json.loads(line) for line in (tmp_path / "measured").read_text().splitlines()]
    winner = next(line for line in lines if line.get("type") == "WinnerCompared")["artifacts"][1]
    alone = next(line for line in lines if line.get("artifact") == winner)
    alone["outcome"] = {"type": "WrongResult", "numerics": {**alone["outcome"]["numerics"], "agrees": False}}
    (tmp_path / "measured").write_text("".join(json.dumps(line) + "\n" for line in lines))
    spec = take_in(replace(intake(folder, tmp_path), output=tmp_path / "spec.mlir"), lambda event: None).spec
    assert spec is not None and spec.entries == ()
    assert spec.left_out == (("t0", "the winner's numbers were wrong in one of its runs"),)


def test_a_file_without_a_measurement_is_refused(folder: Path, tmp_path: Path) -> None:
    measure(folder / "bundle", tmp_path / "measured", site("h200"))
    header = (tmp_path / "measured").read_text().splitlines(keepends=True)[0]
    (tmp_path / "measured").write_text(header)
    with pytest.raises(BundleError, match=r"nothing in .* is measured yet"):
        take_in(intake(folder, tmp_path), lambda event: None)
    assert not (tmp_path / "store").exists()


def test_an_entry_that_does_not_fire_in_the_payload_is_left_out(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing_fires(text: str, *_: object) -> Application:
        return Application(instrumented(text, "the spec", "mark.")[1], {})

    monkeypatch.setattr("mlsearch.spec.application", nothing_fires)
    measure(folder / "bundle", tmp_path / "measured", site("h200"))
    spec = take_in(replace(intake(folder, tmp_path), output=tmp_path / "spec.mlir"), lambda event: None).spec
    assert spec is not None and spec.entries == ()
    assert "not when the payload is compiled from its beginning" in spec.left_out[0][1]


def test_what_spilled_for_an_architecture_is_known_for_its_products(folder: Path, tmp_path: Path) -> None:
    measure(folder / "bundle", tmp_path / "measured", site("h200"))
    header, *lines = (tmp_path / "measured").read_text().splitlines(keepends=True)
    plain = json.loads(header)
    del plain["manifest"]["tasks"][0]["candidates"][0]
    kept = [line for line in lines if is_about(plain, line)]
    (tmp_path / "measured").write_text("".join([json.dumps(plain) + "\n", *kept]))
    with open_bundle(folder / "bundle") as bundle:
        left_out = bundle.manifest.tasks[0].candidates[0].candidate
    waiting = next(each for each in Store.open(folder / "store").records() if each.record.candidate == left_out)
    store = Store.open(tmp_path / "store")
    store.add(store.study(waiting.study), replace(waiting.record, outcome=Spilled(8, 255, 1.0)))

    options = intake(folder, tmp_path)
    [task] = take_in(options, lambda event: None).tasks
    assert task.carried_over == 1
    found = Store.open(tmp_path / "store").records(target=resolve("cuda:h200", 1).fingerprint)
    spilled = [each.record.candidate for each in found if isinstance(each.record.outcome, Spilled)]
    assert spilled == [left_out]
    [again] = take_in(options, lambda event: None).tasks
    assert (again.added, again.carried_over) == (0, 0)


def intake(folder: Path, tmp_path: Path, target: str | None = None) -> IntakeOptions:
    return IntakeOptions(
        folder / "matmul.mlir", tmp_path / "measured", target, None, str(tmp_path / "store"), None, None
    )


def is_about(plain: dict[str, Any], line: str) -> bool:
    """Whether all artifacts of a line belong to a task of the manifest."""
    held = json.dumps(plain["manifest"]["tasks"])
    entry = json.loads(line)
    return all(sha256 in held for sha256 in entry.get("artifacts", [entry.get("artifact")]))


def test_a_runner_that_tells_no_chip_is_believed_by_the_name_of_its_device(folder: Path, tmp_path: Path) -> None:
    measure(folder / "bundle", tmp_path / "measured", site(None, "NVIDIA H100 80GB HBM3"))
    options = intake(folder, tmp_path)
    assert take_in(options, lambda event: None).target == "cuda:h100"


@pytest.mark.parametrize(
    ("target", "chip", "message"),
    [
        (None, "rtx4090", r"taken in: where it was measured, the GPU is rtx4090 \(sm_89\), not sm_90"),
        ("cuda:sm_80", "h200", "exported for cuda:sm_90, and built with other flags than those of cuda:sm_80 here"),
    ],
)
def test_what_was_not_built_for_the_target_is_refused(
    folder: Path, tmp_path: Path, target: str | None, chip: str, message: str
) -> None:
    measure(folder / "bundle", tmp_path / "measured", site(chip))
    options = intake(folder, tmp_path, target)
    with pytest.raises(BundleError, match=message):
        take_in(options, lambda event: None)
    assert not (tmp_path / "store").exists()


def test_compile_flags_are_never_taken_out_of_a_file(folder: Path, tmp_path: Path) -> None:
    measure(folder / "bundle", tmp_path / "measured", site("h200"))
    header, *lines = (tmp_path / "measured").read_text().splitlines(keepends=True)
    plain = json.loads(header)
    plain["manifest"]["target"]["compile_flags"].append("--mlir-print-ir-tree-dir=/somewhere")
    (tmp_path / "measured").write_text("".join([json.dumps(plain) + "\n", *lines]))
    options = intake(folder, tmp_path)
    with pytest.raises(BundleError, match="built with other flags"):
        take_in(options, lambda event: None)


@pytest.mark.parametrize("cache", ["warm", "cold"])
def test_times_keep_the_state_of_the_caches_that_the_bundle_asked_for(
    folder: Path, tmp_path: Path, cache: CacheState
) -> None:
    measure(folder / "bundle", tmp_path / "measured", site("h200"))
    header, *lines = (tmp_path / "measured").read_text().splitlines(keepends=True)
    plain = json.loads(header)
    plain["manifest"]["plan"]["cache"] = cache
    (tmp_path / "measured").write_text("".join([json.dumps(plain) + "\n", *lines]))
    options = intake(folder, tmp_path)
    assert take_in(options, lambda event: None).cache == cache
    records = [stored.record for stored in Store.open(tmp_path / "store").records()]
    assert {record.provenance.cache for record in records} == {cache}
