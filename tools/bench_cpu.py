"""How fast is tuned code? Against untuned IREE, its own switches for speed, and other libraries, in the same rounds.

    tools/dev run python tools/bench_cpu.py                               # all rows, one thread
    tools/dev run python tools/bench_cpu.py --only matmul_512 softmax_1024 --budget quick --output report.md
    tools/dev run python tools/bench_cpu.py --compare-budgets             # what --budget quick brings of another budget

Tunes each payload, compiles it with plain `iree-compile`, then measures all rivals in interleaved rounds, each in
a process of its own, without OPENBLAS_* and the like of the environment. NumPy is always measured; PyTorch and ONNX
Runtime are where they are installed: `pip install .[bench]`.

Specs and finished rows are kept in the work folder: a run that was killed goes on, and only rows whose setting
(sources, versions, budget, rounds) is the same count as finished. To measure anew, remove the folder.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from bench import budgets, peak, report, tuned
from bench.measure import SEED, Column, Rival, Rounds, Work, measure
from bench.references import REFERENCES
from bench.report import NUMPY, ONNX_RUNTIME, SWITCHES, TORCH, TORCH_PREPACKED, TUNED, UNTUNED, Setting
from bench.rows import Comparison, Ledger, RowFailed
from bench.suite import ROOT, SUITE, Row
from bench.tuned import Budget, TuningFailed
from bench.weights import write_with_constant

from mlsearch import __version__, toolchain
from mlsearch.candidate import Signature, digest
from mlsearch.child import ChildDied, ChildTimeout
from mlsearch.cli.output import json_text
from mlsearch.durations import parse_duration
from mlsearch.errors import MlsearchError
from mlsearch.files import check_writable, write_atomically
from mlsearch.payload import load_payload
from mlsearch.runner.exclusive import exclusive
from mlsearch.runner.inputs import make_inputs
from mlsearch.target import Target, compiler_version, resolve, runtime_version
from mlsearch.task import cut
from mlsearch.tune.options import BUDGETS
from mlsearch.workbench import utc_now

INTERRUPTED = 130
_FAILURES = (MlsearchError, TuningFailed, ChildDied, ChildTimeout, RuntimeError, ValueError, OSError)


@dataclass(frozen=True)
class Options:
    rows: tuple[Row, ...]
    budget: Budget
    threads: int
    rounds: int
    compare_budgets: bool
    work: Path
    output: Path


def read_options(arguments: list[str]) -> Options:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="rows; all where not given")
    parser.add_argument("--budget", choices=sorted(BUDGETS), default="default", help="as of `mlsearch tune`")
    parser.add_argument("--trials", type=_positive, metavar="N", help="per task, in place of --budget")
    parser.add_argument("--max-time", type=_duration, metavar="TIME", help="search time per payload, e.g. 5m")
    parser.add_argument("--threads", type=_positive, default=1, metavar="N", help="of every program; 1")
    parser.add_argument("--rounds", type=_positive, default=31, metavar="N", help="samples of each rival, at most")
    parser.add_argument(
        "--compare-budgets",
        action="store_true",
        help="measure --budget quick against the budget given here, not against libraries",
    )
    parser.add_argument(
        "--work", type=Path, default=ROOT / ".mlsearch/bench", metavar="DIR", help="keeps specs and finished rows"
    )
    parser.add_argument("--output", type=Path, metavar="FILE.md", help="and FILE.json beside it; docs/bench_cpu.md")
    parsed = parser.parse_args(arguments)
    unknown = [name for name in parsed.only or () if name not in SUITE]
    if unknown:
        parser.error(f"no such row: {', '.join(unknown)}; there are {', '.join(SUITE)}")
    budget = Budget(parsed.budget, parsed.trials, parsed.max_time)
    if parsed.compare_budgets and budget == Budget(budgets.SMALL):
        parser.error("--compare-budgets: the quick budget would be compared with itself; give another one")
    return Options(
        rows=tuple(row for row in SUITE.values() if parsed.only is None or row.name in parsed.only),
        budget=budget,
        threads=parsed.threads,
        rounds=parsed.rounds,
        compare_budgets=parsed.compare_budgets,
        work=parsed.work,
        output=parsed.output or default_output(parsed.threads, parsed.compare_budgets),
    )


def default_output(threads: int, compare_budgets: bool) -> Path:
    """A file for each kind of report, so that none overwrites another."""
    parts = ["bench_cpu", *(["budgets"] if compare_budgets else []), *([f"{threads}threads"] if threads > 1 else [])]
    return ROOT / "docs" / f"{'.'.join(parts)}.md"


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1")
    return int(text)


def _duration(text: str) -> str:
    if not parse_duration(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a length of time such as 90s, 10m or 1h30m")
    return text


def extras() -> list[Rival]:
    """Other libraries, where they are installed; without them the report is shorter, not wrong."""
    torch = [Rival(TORCH, "torch"), Rival(TORCH_PREPACKED, "torch-prepacked")]
    onnx = [Rival(ONNX_RUNTIME, "onnx")]
    return [*(torch if _version("torch") else []), *(onnx if _version("onnxruntime") and _version("onnx") else [])]


def rivals(row: Row, extra: Iterable[Rival]) -> list[Rival]:
    """Of the extras those that have this computation."""
    lacks = {"matmul_bf16": {TORCH, ONNX_RUNTIME}}.get(row.computation, set())
    prepacks = row.computation == "matmul" and row.constant is not None
    return [each for each in extra if each.name not in lacks and (prepacks or each.name != TORCH_PREPACKED)]


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def versions() -> dict[str, str]:
    """All that a number may depend on."""
    found = {name: _version(name.lower().replace(" ", "")) for name in ("NumPy", "torch", "ONNX Runtime", "Optuna")}
    return {
        "mlsearch": f"{__version__} (sources {source_digest(ROOT)})",
        "IREE compiler": compiler_version(),
        "IREE runtime": runtime_version(),
        **{name: each for name, each in found.items() if each},
    }


def source_digest(root: Path) -> str:
    """Of everything that tunes and measures: a row that other code has measured is not finished."""
    files = sorted(
        path
        for folder in ("mlsearch", "transforms", "tools/bench")
        for path in (root / folder).rglob("*")
        if path.suffix in (".py", ".mlir") and path.name != "report.py"
    )
    whole = hashlib.sha256()
    for path in files:
        whole.update(f"{path.relative_to(root)}\0{path.read_text()}\0".encode())
    return whole.hexdigest()[:12]


class Bench:
    """Does rows one at a time."""

    def __init__(self, options: Options, target: Target, setting: Setting, folder: Path) -> None:
        """`folder` is for what is not kept."""
        self._options, self._target, self._setting, self._folder = options, target, setting, folder
        self._ledger = Ledger(options.work / "rows")
        self._extras = [] if options.compare_budgets else extras()

    def row(self, row: Row) -> Comparison | RowFailed:
        """From the ledger if it is finished there, else measured and put there."""
        if not row.sample.is_file():
            return RowFailed(row.name, f"there is no {row.sample.relative_to(ROOT)}")
        names = [each.name for each in rivals(row, self._extras)]
        rounds, comparing = self._options.rounds, self._options.compare_budgets
        budget = ("against quick",) * comparing + self._options.budget.arguments
        settled = [self._setting.versions, rounds, names, {name: list(flags) for name, flags in SWITCHES.items()}]
        key = digest([self._key(row), budget, *settled])
        finished = self._ledger.get(row.name, key)
        if finished is not None:
            _say(f"{row.name}: measured {finished.measured_at}")
            return finished
        _say(f"{row.name} ...")
        try:
            comparison = self._compare_budgets(row) if comparing else self._compare(row)
        except _FAILURES as error:
            reason = str(error).strip().splitlines()
            _say(f"{row.name}: {reason[0] if reason else type(error).__name__}")
            return RowFailed(row.name, reason[0][:300] if reason else type(error).__name__)
        self._ledger.put(comparison, key)
        return comparison

    def _key(self, row: Row) -> str:
        """Of what a spec depends on, but for the budget."""
        return digest([self._target.fingerprint, source_digest(ROOT), row.sample.read_text(), row.constant])

    def _compare(self, row: Row) -> Comparison:
        folder = self._folder / row.name
        work, payload = self._prepare(row, folder)
        spec = self._spec(row, payload, self._options.budget)
        programs, failed = [Rival(NUMPY, "numpy")], []
        for index, (name, switches) in enumerate(SWITCHES.items()):
            artifact = folder / f"{index}.vmfb"
            problem = self._compile(payload, artifact, switches)
            if problem:
                failed.append(Column(name, (), problem=problem))
            else:
                programs.append(Rival(name, "iree", artifact))
        artifact = folder / "tuned.vmfb"
        tuned.build_tuned(payload, spec, artifact)
        programs += [Rival(TUNED, "iree", artifact), *rivals(row, self._extras)]
        assert row.computation in REFERENCES
        measured = self._measure(programs, work, folder, self._peak_artifact())
        return replace(
            self._comparison(row, measured),
            columns=(*measured.columns, *failed),
            tuning=tuned.tuning_facts(spec.parent),
        )

    def _compare_budgets(self, row: Row) -> Comparison:
        folder = self._folder / row.name
        work, payload = self._prepare(row, folder)
        artifact = folder / "untuned.vmfb"
        problem = self._compile(payload, artifact, ())
        if problem:
            raise RuntimeError(problem)
        programs = [Rival(UNTUNED, "iree", artifact)]
        facts: dict[str, str] = {}
        for name, budget in {budgets.SMALL: Budget(budgets.SMALL), budgets.LARGE: self._options.budget}.items():
            spec = self._spec(row, payload, budget)
            artifact = folder / f"{name}.vmfb"
            tuned.build_tuned(payload, spec, artifact)
            programs.append(Rival(budgets.column_of(name), "iree", artifact))
            facts |= {f"{name}_{fact}": value for fact, value in tuned.tuning_facts(spec.parent).items()}
        measured = self._measure(programs, work, folder, None)
        broken = [column.problem for column in measured.columns if column.problem]
        if broken:
            raise RuntimeError(broken[0])
        return replace(self._comparison(row, measured), tuning=facts)

    def _prepare(self, row: Row, folder: Path) -> tuple[Work, Path]:
        """The computation, and the payload to compile. Raises MlsearchError."""
        signature = signature_of(row.sample, self._target, folder)
        if row.constant is None:
            return Work(row.computation, signature), row.sample
        payload = folder / f"{row.name}.mlir"
        values = make_inputs(signature.inputs, SEED)[row.constant]
        write_with_constant(row.sample, row.constant, values, payload)
        return Work(row.computation, signature, row.constant), payload

    def _spec(self, row: Row, payload: Path, budget: Budget) -> Path:
        """From the work folder, or tuned now and kept there. Each budget has a store of its own."""
        key = digest([self._key(row), budget.arguments])
        return tuned.tune(payload, self._options.work / "specs" / f"{row.name}-{key}", budget, self._options.threads)

    def _compile(self, payload: Path, artifact: Path, switches: tuple[str, ...]) -> str | None:
        """Why it does not compile, or None."""
        flags = (*self._target.compile_flags, *switches)
        done = toolchain.run(toolchain.compile_argv(payload, artifact, flags))
        if done.returncode == 0 and artifact.is_file():
            return None
        # Without the op, which can be long, and the folder, which is gone by then.
        return done.headline.replace(f"{payload.parent}/", "").partition(": %")[0][:200]

    def _peak_artifact(self) -> Path:
        payload, artifact = self._folder / "peak.mlir", self._folder / "peak.vmfb"
        if not artifact.is_file():
            payload.write_text(peak.payload_text())
            problem = self._compile(payload, artifact, ())
            if problem:
                raise RuntimeError(f"the kernel for the peak does not compile: {problem}")
        return artifact

    def _measure(self, programs: list[Rival], work: Work, folder: Path, peak_artifact: Path | None) -> Rounds:
        # Not while a search somewhere on this machine is timing its candidates.
        with exclusive(self._target.device_uri, _say):
            return measure(programs, work, self._options.threads, self._options.rounds, folder, peak_artifact)

    def _comparison(self, row: Row, measured: Rounds) -> Comparison:
        return Comparison(row.name, measured.columns, utc_now(), row.flops, measured.peak_us)


def signature_of(sample: Path, target: Target, folder: Path) -> Signature:
    """How to call a sample's only function. Raises MlsearchError."""
    payload = load_payload(sample, target, folder)
    [function] = payload.functions
    if function.signature is None:
        raise MlsearchError(f"{sample.name}: {function.problem}")
    tasks = cut(payload, target, folder)
    length = sum(task.workload.reduction_length for task in tasks if task.workload)
    return replace(function.signature, reduction_length=max(1, length))


def measure_all(
    options: Options, row: Callable[[Row], Comparison | RowFailed]
) -> tuple[list[Comparison], list[RowFailed]]:
    """Each row; one that fails does not stop the others."""
    done = [row(each) for each in options.rows]
    return (
        [each for each in done if isinstance(each, Comparison)],
        [each for each in done if isinstance(each, RowFailed)],
    )


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    options = read_options(sys.argv[1:])
    # For the processes that `Child` starts with `python -m bench.process`, and for `python -m mlsearch.cli.main`.
    paths = (str(ROOT), str(ROOT / "tools"), os.environ.get("PYTHONPATH"))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    try:
        check_writable(options.output)
        target = resolve("llvm-cpu", options.threads)
        setting = Setting(
            date=utc_now(),
            cpu=target.hardware.name,
            threads=options.threads,
            rounds=options.rounds,
            budget=" ".join(options.budget.arguments),
            versions=versions(),
        )
        with tempfile.TemporaryDirectory(prefix="bench-cpu-") as folder:
            bench = Bench(options, target, setting, Path(folder))
            comparisons, failed = measure_all(options, bench.row)
    except MlsearchError as error:
        raise SystemExit(f"bench_cpu: {error}") from error
    except KeyboardInterrupt:
        _say("bench_cpu: interrupted; the same command goes on")
        raise SystemExit(INTERRUPTED) from None
    story = budgets if options.compare_budgets else report
    text = story.to_markdown(setting, comparisons, failed)
    write_atomically(options.output, text)
    write_atomically(options.output.with_suffix(".json"), json_text(story.to_json(setting, comparisons, failed)))
    print(text)
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
