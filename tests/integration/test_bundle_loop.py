"""Build here, measure there, go on here: the whole loop, with a machine that has IREE's runtime and NumPy only."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import venv
from pathlib import Path

import iree.runtime
import numpy as np
import pytest
from command import MLSEARCH_ON_A_BUSY_MACHINE, printed
from payload_texts import matmul

from mlsearch.bundle import BundledCandidate, BundledTask, write_bundle
from mlsearch.bundle.archive import open_bundle
from mlsearch.bundle.intake import IntakeOptions, take_in
from mlsearch.bundle.measured import read_measured
from mlsearch.candidate import Built, Candidate, Record, Signature, TimingPlan, Unmeasured, WrongResult
from mlsearch.errors import BundleError
from mlsearch.files import write_atomically
from mlsearch.records.store import Store
from mlsearch.target import resolve
from mlsearch.testing.runner_contract import ContractArtifacts

# Primes, for which IREE's own choice is code of single elements: the first suggestion wins on any machine.
MATMUL = matmul(73, 101, 67, name="matmul")
ASKED = 6


def mlsearch(*arguments: object) -> str:
    return printed(*arguments, command=MLSEARCH_ON_A_BUSY_MACHINE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a payload, a bundle of it, and the runner."""
    folder = tmp_path_factory.mktemp("loop")
    (folder / "matmul.mlir").write_text(MATMUL)
    told = mlsearch("bundle", "export", folder / "matmul.mlir", "--trials", ASKED, "--store", folder / "store",
                    "-o", folder / "bundle")  # fmt: skip
    assert f"{ASKED} candidates of {ASKED}" in told
    mlsearch("bundle", "runner", "-o", folder / "runner.pyz")
    return folder


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter that finds IREE's runtime, what that needs, and nothing else: no mlsearch, no compiler."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, with_pip=False, symlinks=True)
    [packages] = folder.glob("lib/python*/site-packages")
    installed = Path(np.__file__).parents[1]
    for path in (path for name in ("numpy*", "ml_dtypes*", "iree_base_runtime*") for path in installed.glob(name)):
        (packages / path.name).symlink_to(path)
    (packages / "iree").mkdir()
    runtime = Path(iree.runtime.__file__).parents[1]
    for path in [*runtime.glob("_runtime*"), runtime / "runtime"]:
        (packages / "iree" / path.name).symlink_to(path)
    return folder / "bin" / "python"


def bare_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def run_bare(python: Path, runner: Path, bundle: Path, measured: Path, *more: str) -> subprocess.CompletedProcess[str]:
    # Other tests, and other work, may keep this machine busy.
    command = [str(python), str(runner), "run", str(bundle), "-o", str(measured), "--even-if-busy", *more]
    return subprocess.run(command, capture_output=True, text=True, env=bare_environment(), cwd=measured.parent)


def measured_records(store: Path) -> list[Record]:
    """In the order of their trials, without those that only wait to be measured."""
    records = [stored.record for stored in Store.open(store).records()]
    return [record for record in records if not isinstance(record.outcome, Unmeasured)]


def test_the_bare_machine_is_bare(bare_python: Path) -> None:
    for module in ("mlsearch", "iree.compiler", "optuna", "click", "rich"):
        command = [bare_python, "-c", f"import {module}"]
        done = subprocess.run(command, capture_output=True, text=True, cwd="/", env=bare_environment())
        assert "ModuleNotFoundError" in done.stderr
    subprocess.run([bare_python, "-c", "import numpy, iree.runtime"], check=True, cwd="/", env=bare_environment())


def test_the_loop(folder: Path, bare_python: Path) -> None:
    payload, store, measured = folder / "matmul.mlir", folder / "store", folder / "measured"
    done = run_bare(bare_python, folder / "runner.pyz", folder / "bundle", measured)
    assert done.returncode == 0, done.stderr
    assert "artifacts are measured" in done.stderr
    read = read_measured(measured)
    assert {type(run.outcome).__name__ for run in read.runs.values()} == {"Measured"}
    assert len(read.comparisons) == len(read.winners) == 1

    spec = folder / "imported.spec.mlir"
    told = mlsearch("bundle", "import", payload, measured, "--store", store, "-o", spec)
    assert "measured on local-sync" in told
    assert "is not this target" not in told
    assert f"mlsearch bundle export {payload} --store {store} --trials 64 -o NEXT.bundle" in told
    records = measured_records(store)
    assert len(records) == ASKED + 1
    assert records[0].candidate.is_untuned
    assert all((record.provenance.measured_on or "").startswith("local-sync") for record in records)
    text = spec.read_text()
    assert "Whole payload: not timed: its tasks were measured one by one on local-sync" in text
    assert text.count("x faster") == 1
    mlsearch("verify", payload, "--spec", spec)

    again = mlsearch("bundle", "import", payload, measured, "--store", store)
    assert "Measured" not in again
    assert len(measured_records(store)) == ASKED + 1

    # What is known is not shipped again, but for the fastest two, which come first.
    told = mlsearch("bundle", "export", payload, "--trials", 3, "--store", store, "-o", folder / "second")
    assert "3 candidates of 3 and 2 fastest ones measured before" in told
    known = {record.candidate.key: record.time_us or 0.0 for record in records if not record.candidate.is_untuned}
    with open_bundle(folder / "second") as second:
        shipped = [each.candidate.key for each in second.manifest.tasks[0].candidates]
    assert [key in known for key in shipped] == [True, True, False, False, False]
    assert known[shipped[0]] == min(known.values())

    summary = folder / "summary.json"
    mlsearch(
        "tune",
        payload,
        "--variants",
        "default",
        "--trials",
        ASKED + 3,
        "--store",
        store,
        "-o",
        folder / "spec",
        "--json",
        summary,
    )
    [task] = json.loads(summary.read_text())["tasks"]
    assert task["trials"] == ASKED + 3
    stored = measured_records(store)
    assert [record.provenance.measured_on is None for record in stored] == [False] * (ASKED + 1) + [True] * 2


def test_a_killed_run_goes_on(folder: Path, bare_python: Path, tmp_path: Path) -> None:
    measured = tmp_path / "measured"
    command = [bare_python, folder / "runner.pyz", "run", folder / "bundle", "-o", measured, "--even-if-busy"]
    kept = b""
    for _ in range(10):  # on a machine with other work the run may be over before it is looked at
        measured.unlink(missing_ok=True)
        with subprocess.Popen(command, stderr=subprocess.DEVNULL, cwd=tmp_path, env=bare_environment()) as process:
            while process.poll() is None and (not measured.exists() or measured.read_bytes().count(b"\n") < 3):
                time.sleep(0.005)
            process.send_signal(signal.SIGKILL)
        kept = measured.read_bytes()
        if kept.count(b"\n") < ASKED + 2:
            break
    assert 3 <= kept.count(b"\n") < ASKED + 2
    with measured.open("ab") as file:
        file.write(b'{"type":"Artifact')  # as if it had been writing
    done = run_bare(bare_python, folder / "runner.pyz", folder / "bundle", measured)
    assert done.returncode == 0, done.stderr
    assert measured.read_bytes().startswith(kept)
    read = read_measured(measured)
    assert len(read.runs) == len(read.manifest.tasks[0].artifacts)


def test_the_time_limit_ends_a_run(folder: Path, bare_python: Path, tmp_path: Path) -> None:
    done = run_bare(bare_python, folder / "runner.pyz", folder / "bundle", tmp_path / "measured", "--max-time", "0.01s")
    assert done.returncode == 0, done.stderr
    assert "the same command goes on" in done.stderr


def test_a_bundle_of_another_payload_is_refused(folder: Path, bare_python: Path, tmp_path: Path) -> None:
    measured = tmp_path / "measured"
    run_bare(bare_python, folder / "runner.pyz", folder / "bundle", measured, "--max-time", "0.01s")
    other = tmp_path / "other.mlir"
    write_atomically(other, MATMUL.replace("101", "103"))
    store = tmp_path / "store"
    options = IntakeOptions(other, measured, "llvm-cpu", None, str(store), None, None)
    with pytest.raises(BundleError, match=r"does not fit .*no task like t0 \(matmul_73x101x67_f32"):
        take_in(options, lambda event: None)
    assert not store.exists()


def test_a_candidate_that_the_templates_do_not_have_is_refused(folder: Path, bare_python: Path, tmp_path: Path) -> None:
    measured = tmp_path / "measured"
    run_bare(bare_python, folder / "runner.pyz", folder / "bundle", measured, "--max-time", "0.01s")
    header, *lines = measured.read_text().splitlines(keepends=True)
    plain = json.loads(header)
    plain["manifest"]["tasks"][0]["candidates"][2]["candidate"]["template_digest"] = "another"
    measured.write_text("".join([json.dumps(plain) + "\n", *lines]))
    options = IntakeOptions(folder / "matmul.mlir", measured, "llvm-cpu", None, str(tmp_path / "store"), None, None)
    with pytest.raises(BundleError, match="the template may have changed since"):
        take_in(options, lambda event: None)


def test_times_of_another_machine_are_kept_apart(folder: Path, bare_python: Path, tmp_path: Path) -> None:
    measured = tmp_path / "measured"
    run_bare(bare_python, folder / "runner.pyz", folder / "bundle", measured, "--max-time", "5m")
    header, *lines = measured.read_text().splitlines(keepends=True)
    plain = json.loads(header)
    plain["site"]["hardware"]["name"] = "another CPU"
    measured.write_text("".join([json.dumps(plain) + "\n", *lines]))
    options = IntakeOptions(folder / "matmul.mlir", measured, "llvm-cpu", None, str(tmp_path / "store"), None, None)
    taken = take_in(options, lambda event: None)
    assert taken.target is None
    records = measured_records(tmp_path / "store")
    assert len(records) == ASKED + 1
    assert {record.provenance.target for record in records} != {resolve("llvm-cpu", 1).fingerprint}


def test_what_crashes_hangs_or_computes_wrong_numbers_is_an_outcome(
    matmul_artifacts: ContractArtifacts, matmul_signature: Signature, folder: Path, bare_python: Path, tmp_path: Path
) -> None:
    import hashlib

    def built(path: Path) -> Built:
        return Built(path, hashlib.sha256(path.read_bytes()).hexdigest(), 0.1)

    artifacts = matmul_artifacts
    order = [artifacts.crashing, artifacts.half_written, artifacts.reassociated, artifacts.short_reduction]
    candidates = tuple(
        BundledCandidate(Candidate.of("cpu/t", "d", {"number": number}), built(path))
        for number, path in enumerate(order)
    )
    task = BundledTask("t0", "w", "matmul", matmul_signature, built(artifacts.baseline), candidates)
    plan = TimingPlan(seed=0, threads=1, max_seconds=0.1)
    bundle = tmp_path / "bundle"
    write_bundle(bundle, resolve("llvm-cpu", 1), [task], plan)
    measured = tmp_path / "measured"
    done = run_bare(bare_python, folder / "runner.pyz", bundle, measured)
    assert done.returncode == 0, done.stderr
    with open_bundle(bundle) as opened:
        [entry] = opened.manifest.tasks
    runs = read_measured(measured).runs
    outcomes = [runs["t0", artifact].outcome for artifact in entry.artifacts]
    names = [type(outcome).__name__ for outcome in outcomes]
    assert names == ["Measured", "RunFailed", "WrongResult", "Measured", "WrongResult"]
    assert isinstance(outcomes[2], WrongResult) and outcomes[2].numerics.unwritten > 0


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.10", "3.12", "3.13"])
def test_the_runner_works_with_packages_from_the_index(folder: Path, tmp_path: Path, version: str) -> None:
    python = f"python{version}"
    try:
        subprocess.run([python, "-m", "venv", tmp_path / "venv"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip(f"no {python} here")
    bare = tmp_path / "venv" / "bin" / "python"
    subprocess.run([bare, "-m", "pip", "install", "-q", "iree-base-runtime==3.13.0", "numpy"], check=True)
    done = run_bare(bare, folder / "runner.pyz", folder / "bundle", tmp_path / "measured")
    assert done.returncode == 0, done.stderr
    assert len(read_measured(tmp_path / "measured").runs) == ASKED + 1
