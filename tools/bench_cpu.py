"""How fast is tuned code? Against untuned IREE, its own switches for speed, and NumPy, in the same run.

    tools/dev run python tools/bench_cpu.py --threads 1 --trials 64
    tools/dev run python tools/bench_cpu.py --samples matmul_512 softmax_1024 --specs tuned/ --output report.md

Tunes each sample, compiles it with plain `iree-compile`, and then measures all variants and NumPy in interleaved
rounds, each in a process of its own. NumPy runs without OPENBLAS_* of the environment, with as many threads.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

import numpy as np
from bench.measure import NUMPY, Column, Variant, measure
from bench.references import REFERENCES
from bench.report import TUNED, UNTUNED, Comparison, Setting, to_json, to_markdown

from mlsearch import __version__, delivery, toolchain
from mlsearch.candidate import Signature
from mlsearch.child import ChildDied, ChildTimeout
from mlsearch.cli.output import json_text
from mlsearch.errors import MlsearchError
from mlsearch.files import check_writable, write_atomically
from mlsearch.payload import load_payload
from mlsearch.target import Target, compiler_version, resolve, runtime_version
from mlsearch.task import cut
from mlsearch.workbench import utc_now

ROOT = Path(__file__).resolve().parents[1]
SAMPLES = (
    "matmul_731x1023x137",
    "matmul_512",
    "matmul_1024",
    "matmul_bias_gelu_128x3072x768",
    "batch_matmul_12x128x64x128",
    "vecmat_1x4096x4096",
)
SWITCHES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        UNTUNED: (),
        "IREE -O3": ("--iree-opt-level=O3",),
        "IREE data tiling": ("--iree-opt-data-tiling",),
    }
)
"""What IREE does without a spec: by default, and with its own switches for speed."""


@dataclass(frozen=True)
class Options:
    samples: tuple[str, ...]
    trials: int
    threads: int
    rounds: int
    specs: Path | None
    output: Path


def read_options(arguments: list[str]) -> Options:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", nargs="+", default=list(SAMPLES), metavar="NAME", help="files of samples/")
    parser.add_argument("--trials", type=int, default=64, metavar="N", help="per task, for samples without a spec")
    parser.add_argument("--threads", type=int, default=1, metavar="N")
    parser.add_argument("--rounds", type=int, default=31, metavar="N", help="samples of each variant")
    parser.add_argument(
        "--specs", type=Path, metavar="DIR", help="NAME.spec.mlir is taken from here, or tuned and kept here"
    )
    parser.add_argument("--output", type=Path, default=ROOT / "docs/bench_cpu.md", metavar="FILE.md")
    parsed = parser.parse_args(arguments)
    unknown = [name for name in parsed.samples if not sample_path(name).is_file()]
    if unknown:
        parser.error(f"no such sample: {', '.join(unknown)}")
    return Options(**{**vars(parsed), "samples": tuple(parsed.samples)})


def sample_path(name: str) -> Path:
    return ROOT / "samples" / f"{name}.mlir"


def spec_path(folder: Path, name: str) -> Path:
    return folder / f"{name}.spec.mlir"


def tune_argv(sample: Path, spec: Path, store: Path, trials: int, threads: int) -> list[str]:
    return [
        *(sys.executable, "-m", "mlsearch.cli.main", "tune", str(sample)),
        *("--trials", str(trials), "--threads", str(threads)),
        *("--store", str(store), "-o", str(spec), "--json", str(spec.with_suffix(".json"))),
    ]


def spec_of(name: str, options: Options, workdir: Path) -> Path:
    """The spec of a sample, tuned now if it isn't there. Raises CalledProcessError."""
    folder = options.specs or workdir
    folder.mkdir(parents=True, exist_ok=True)
    spec = spec_path(folder, name)
    if not spec.is_file():
        store = folder / "store.journal"
        argv = tune_argv(sample_path(name), spec, store, options.trials, options.threads)
        subprocess.run(argv, check=True, stdout=sys.stderr)
    return spec


def build(name: str, spec: Path, target: Target, folder: Path) -> tuple[list[Variant], list[Column]]:
    """The variants that compile, and a column with the reason for each that does not."""
    variants, failed = [], []
    for index, (label, switches) in enumerate(SWITCHES.items()):
        artifact = folder / f"{name}.{index}.vmfb"
        done = toolchain.run(toolchain.compile_argv(sample_path(name), artifact, (*target.compile_flags, *switches)))
        if done.returncode or not artifact.is_file():
            failed.append(Column(label, (), problem=done.headline))
        else:
            variants.append(Variant(label, artifact))
    artifact = folder / f"{name}.tuned.vmfb"
    # Plain iree-compile with the spec, and a proof that each of its entries is applied.
    delivery.compile_payload(sample_path(name), spec, artifact, target.backend)
    variants.append(Variant(TUNED, artifact))
    return variants, failed


def signature_of(name: str, target: Target, folder: Path) -> Signature:
    """How to call a sample's only function. Raises MlsearchError."""
    payload = load_payload(sample_path(name), target, folder)
    [function] = payload.functions
    if function.signature is None:
        raise MlsearchError(f"{name}: {function.problem}")
    tasks = cut(payload, target, folder)
    length = sum(task.workload.reduction_length for task in tasks if task.workload)
    return replace(function.signature, reduction_length=max(1, length))


def compare(name: str, options: Options, target: Target, workdir: Path) -> Comparison:
    folder = workdir / name
    spec = spec_of(name, options, workdir)
    signature = signature_of(name, target, folder)
    variants, failed = build(name, spec, target, folder)
    if name in REFERENCES:
        variants.insert(0, Variant(NUMPY, None))
    columns = measure(variants, name, signature, options.threads, options.rounds, folder)
    return Comparison(name, (*columns, *failed))


def main() -> None:
    options = read_options(sys.argv[1:])
    # For the processes that `Child` starts with `python -m bench.process`.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT / "tools"), os.environ.get("PYTHONPATH"))))
    check_writable(options.output)
    target = resolve("llvm-cpu", options.threads)
    tunes = not all(options.specs and spec_path(options.specs, name).is_file() for name in options.samples)
    comparisons: list[Comparison] = []
    with tempfile.TemporaryDirectory(prefix="bench-cpu-") as folder:
        for name in options.samples:
            print(f"{name} ...", file=sys.stderr, flush=True)
            try:
                comparisons.append(compare(name, options, target, Path(folder)))
            except (MlsearchError, RuntimeError, ChildDied, ChildTimeout, subprocess.CalledProcessError) as error:
                raise SystemExit(f"bench_cpu: {name}: {error}") from error
    setting = Setting(
        date=utc_now(),
        cpu=target.hardware.name,
        threads=options.threads,
        rounds=options.rounds,
        trials=options.trials if tunes else None,
        versions={
            "mlsearch": __version__,
            "IREE compiler": compiler_version(),
            "IREE runtime": runtime_version(),
            "NumPy": np.__version__,
        },
    )
    text = to_markdown(setting, comparisons)
    write_atomically(options.output, text)
    write_atomically(options.output.with_suffix(".json"), json_text(to_json(setting, comparisons)))
    print(text)


if __name__ == "__main__":
    main()
