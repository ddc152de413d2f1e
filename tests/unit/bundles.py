"""Small bundles of artifacts that no runtime would load, for tests of all but the running."""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path
from typing import Any

from mlsearch.bundle import BundledCandidate, BundledTask, write_bundle
from mlsearch.bundle.site import Site
from mlsearch.candidate import Built, Candidate, Signature, TensorSpec, TimingPlan
from mlsearch.target import Target, host_hardware

SIGNATURE = Signature("task", (TensorSpec((4, 8), "f32"),), (TensorSpec((4,), "f32"),), (0,), 8)
PLAN = TimingPlan(seed=7, threads=1)


def target() -> Target:
    return Target("llvm-cpu", host_hardware(), ("--flag=1",), 1)


def built(folder: Path, content: str) -> Built:
    folder.mkdir(exist_ok=True)
    path = folder / f"{content}.vmfb"
    path.write_text(content)
    return Built(path, hashlib.sha256(content.encode()).hexdigest(), 0.5)


def candidate(tile: int) -> Candidate:
    return Candidate.of("cpu/t", "digest", {"tile": tile})


def task(folder: Path, name: str = "t0", contents: tuple[str, ...] = ("a", "b", "c")) -> BundledTask:
    """Its candidates have tiles 1, 2, ...; equal contents are equal artifacts."""
    candidates = [
        BundledCandidate(candidate(tile), built(folder, f"{name}-{content}"))
        for tile, content in enumerate(contents, start=1)
    ]
    untuned = built(folder, f"{name}-untuned")
    return BundledTask(name, f"workload-{name}", f"label-{name}", SIGNATURE, untuned, tuple(candidates))


def bundle(folder: Path, *tasks: BundledTask) -> Path:
    path = folder / "bundle.zip"
    write_bundle(path, target(), tasks or (task(folder / "built"),), PLAN)
    return path


def site(**changes: Any) -> Site:
    fields = {
        "host": "h",
        "system": "Linux",
        "hardware": host_hardware(),
        "device": "local-sync",
        "device_name": "cpu",
        "method": "wall",
        "runtime": "3.13.0",
        "python": "3.10.1",
        "mlsearch": "0.1.0",
    }
    return Site(**{**fields, **changes})


def contents(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def rewrite(path: Path, files: dict[str, bytes], *extra: tuple[zipfile.ZipInfo, bytes]) -> None:
    """The same zip with other content."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
        for info, content in extra:
            archive.writestr(info, content)


def with_manifest(path: Path, **changes: Any) -> None:
    """The same bundle with other fields in its manifest."""
    files = contents(path)
    plain = {**json.loads(files["manifest.json"]), **changes}
    rewrite(path, {**files, "manifest.json": json.dumps(plain).encode()})
