"""The file that comes back from the other machine: JSON lines, only ever appended to.

The first line holds the bundle's manifest and where it is measured, so that the file needs nothing else to be
understood; each further line is one measurement, written when it is complete. A process that is killed leaves at most
one torn line, which is cut off when it goes on.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mlsearch.bundle import manifest as manifests
from mlsearch.bundle.archive import Bundle
from mlsearch.bundle.manifest import Manifest, TaskEntry
from mlsearch.bundle.site import Conditions, Site
from mlsearch.candidate import Compared, CompareOutcome, Measured, Numerics, RunFailed, RunOutcome, WrongResult
from mlsearch.errors import BundleError, StoreError
from mlsearch.files import NO_FILE
from mlsearch.records import codec

FORMAT = 2
_READABLE = (1, FORMAT)
"""2 added `WinnerCompared` and `Site.chip`."""
_HEADER = "mlsearch_measured"
MOST_BYTES = 1024**3
_CHUNK = 1 << 20
_MOST_ROUNDS = 100_000
_SHORTEST_US, _LONGEST_US = 1e-6, 1e13
"""What a clock may tell: a picosecond, to some months."""


@dataclass(frozen=True)
class ArtifactMeasured:
    """How one artifact ended. Where it is the untuned build, it was measured against itself."""

    task: str
    artifact: str
    """SHA-256."""
    outcome: RunOutcome
    when: str
    """UTC, ISO 8601."""
    conditions: Conditions


@dataclass(frozen=True)
class ArtifactsCompared:
    """Paired rounds of a task's untuned build and its fastest candidates."""

    task: str
    artifacts: tuple[str, ...]
    """SHA-256; the first is the untuned build."""
    outcome: CompareOutcome
    when: str
    conditions: Conditions


@dataclass(frozen=True)
class WinnerCompared:
    """Paired rounds of the untuned build and the candidate that the rounds of all picked: what was picked for being
    fast in those would look too good in them."""

    task: str
    artifacts: tuple[str, ...]
    """SHA-256: the untuned build, the winner."""
    outcome: CompareOutcome
    when: str
    conditions: Conditions


Line = ArtifactMeasured | ArtifactsCompared | WinnerCompared
_KINDS: dict[str, type[ArtifactMeasured] | type[ArtifactsCompared] | type[WinnerCompared]] = {
    "ArtifactMeasured": ArtifactMeasured,
    "ArtifactsCompared": ArtifactsCompared,
    "WinnerCompared": WinnerCompared,
}


@dataclass
class Measurements:
    """All of a file."""

    bundle: str
    """Digest of the bundle."""
    manifest: Manifest
    site: Site
    runs: dict[tuple[str, str], ArtifactMeasured] = field(default_factory=dict)
    """By task and artifact."""
    comparisons: dict[str, ArtifactsCompared] = field(default_factory=dict)
    """The latest of each task."""
    winners: dict[str, WinnerCompared] = field(default_factory=dict)
    """The latest of each task."""
    wrong: set[tuple[str, str]] = field(default_factory=set)
    """(task, artifact) of those whose numbers were wrong in any run, also in one that a later one took the place of: a
    race shows now and then."""

    def add(self, line: Line) -> None:
        if isinstance(line.outcome, Compared) and not isinstance(line, ArtifactMeasured):
            checked = zip(line.artifacts, line.outcome.numerics, strict=True)
            self.wrong |= {(line.task, artifact) for artifact, own in checked if not own.agrees}
        if isinstance(line.outcome, WrongResult) and isinstance(line, ArtifactMeasured):
            self.wrong.add((line.task, line.artifact))
        if isinstance(line, ArtifactsCompared):
            self.comparisons[line.task] = line
        elif isinstance(line, WinnerCompared):
            self.winners[line.task] = line
        else:
            self.runs[line.task, line.artifact] = line


class MeasuredFile:
    """The file, open for appending, while no other process has it open so."""

    def __init__(self, descriptor: int, measurements: Measurements) -> None:
        self._descriptor = descriptor
        self.measurements = measurements

    @staticmethod
    def open(path: Path, bundle: Bundle, site: Site) -> MeasuredFile:
        """Begun if missing, else gone on with. Raises BundleError for a file of another bundle or site, for one that
        another process is writing, and for one that can't be written or locked."""
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise BundleError(f"can't write {path}: {error.strerror}") from error
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise BundleError(f"can't write {path}: {NO_FILE}, and can't be gone on with")
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return MeasuredFile(descriptor, _begin_or_go_on(descriptor, path, bundle, site))
        except BaseException as error:
            os.close(descriptor)
            if isinstance(error, BlockingIOError):
                raise BundleError(f"another process is writing {path}") from None
            if isinstance(error, OSError):  # e.g. a file system of the network that knows no locks
                raise BundleError(f"can't write {path}: {error.strerror or error}") from error
            raise

    def append(self, line: Line) -> None:
        """On disk when this returns. Raises BundleError."""
        line = _without_paths(line)
        _write(self._descriptor, codec.plain_value(line))
        self.measurements.add(line)

    def close(self) -> None:
        os.close(self._descriptor)

    def __enter__(self) -> MeasuredFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_measured(path: Path) -> Measurements:
    """Raises BundleError, naming the line, unless the file is whole; a torn last line is left out."""
    return _parse(_content(path), path)


def _content(path: Path) -> bytes:
    content = bytearray()
    try:
        with path.open("rb") as stream:
            # A pipe or a device does not tell its size, and may have no end.
            while chunk := stream.read(_CHUNK):
                content += chunk
                if len(content) > MOST_BYTES:
                    raise BundleError(f"{path} is larger than {MOST_BYTES} bytes")
    except OSError as error:
        raise BundleError(f"can't read {path}: {error.strerror}") from error
    return bytes(content)


def _begin_or_go_on(descriptor: int, path: Path, bundle: Bundle, site: Site) -> Measurements:
    content = _content(path)
    whole = content[: content.rfind(b"\n") + 1]
    if not whole:
        if content and not f'{{"{_HEADER}"'.encode().startswith(content[: len(_HEADER) + 3]):
            raise BundleError(f"{path} is something else; choose another -o")
        os.ftruncate(descriptor, 0)
        header = {_HEADER: FORMAT, "bundle": bundle.digest, "manifest": json.loads(manifests.encode(bundle.manifest))}
        _write(descriptor, {**header, "site": codec.plain_value(site)})
        return Measurements(bundle.digest, bundle.manifest, site)
    known = _parse(whole, path)
    if known.bundle != bundle.digest:
        raise BundleError(f"{path} holds what was measured of another bundle; choose another -o")
    if known.site.identity != site.identity:
        raise BundleError(f"{path} was begun on {known.site.text}, this is {site.text}; choose another -o")
    os.ftruncate(descriptor, len(whole))
    return known


def _parse(content: bytes, path: Path) -> Measurements:
    lines = content[: content.rfind(b"\n") + 1].splitlines()
    if not lines:
        raise BundleError(f"{path} is no file of measurements: it is empty")
    try:
        measurements = _header(_json(lines[0]))
    except BundleError as error:
        raise BundleError(f"{path}, line 1: {error}") from None
    tasks = {task.id: task for task in measurements.manifest.tasks}
    for number, text in enumerate(lines[1:], start=2):
        try:
            line = _line(_json(text))
            problem = next(_problems(line, tasks, measurements), None)
        except BundleError as error:
            raise BundleError(f"{path}, line {number}: {error}") from None
        if problem:
            raise BundleError(f"{path}, line {number}: {problem}")
        measurements.add(line)
    return measurements


def _json(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BundleError(f"not valid JSON: {error}") from None


def _header(plain: Any) -> Measurements:
    version = plain.get(_HEADER) if isinstance(plain, dict) else None
    if isinstance(version, int) and version > FORMAT:
        raise BundleError(f"written by a newer mlsearch (format {version}): upgrade mlsearch")
    if version not in _READABLE or isinstance(version, bool):
        raise BundleError("not a file of measurements from a bundle")
    manifest = manifests.from_plain(plain.get("manifest"))
    try:
        site = codec.read_value(Site, plain.get("site"), "site")
    except StoreError as error:
        raise BundleError(str(error)) from None
    return Measurements(str(plain.get("bundle")), manifest, site)


def _line(plain: Any) -> Line:
    kind = _KINDS.get(plain.get("type", "")) if isinstance(plain, dict) else None
    if kind is None:
        raise BundleError("not a measurement")
    try:
        return codec.read_value(kind, plain, "the measurement")
    except StoreError as error:
        raise BundleError(str(error)) from None


def _problems(line: Line, tasks: dict[str, TaskEntry], known: Measurements) -> Iterator[str]:
    task = tasks.get(line.task)
    artifacts = (line.artifact,) if isinstance(line, ArtifactMeasured) else line.artifacts
    if task is None:
        yield f"task {line.task!r} is not in the bundle"
        return
    strangers = [sha256 for sha256 in artifacts if sha256 not in task.artifacts]
    if strangers:
        yield f"no candidate of task {task.id} has the artifact {strangers[0][:64]!r}"
    if isinstance(line, ArtifactMeasured) and (line.task, line.artifact) in known.runs:
        yield f"artifact {line.artifact} of task {task.id} was measured already"
    if not isinstance(line, ArtifactMeasured) and artifacts[:1] != (task.untuned,):
        yield "a comparison does not begin with the untuned build"
    if len(set(artifacts)) != len(artifacts):
        yield "a comparison lists an artifact twice"
    if isinstance(line, WinnerCompared) and len(artifacts) != 2:
        yield "a comparison of a winner is one of two"
    yield from _absurdities(line)


def _absurdities(line: Line) -> Iterator[str]:
    """What a runner never says."""
    outcome = line.outcome
    times: tuple[float, ...] = ()
    numerics: tuple[Numerics, ...] = ()
    if isinstance(outcome, Measured):
        times, numerics = (*outcome.samples_us, *outcome.baseline_us), (outcome.numerics,)
        if not outcome.samples_us or not outcome.numerics.agrees:
            yield "a measured time without samples, or with wrong numbers"
    if isinstance(outcome, Compared):
        times = tuple(time for samples in outcome.samples_us for time in samples)
        assert not isinstance(line, ArtifactMeasured)
        rounds = {len(samples) for samples in outcome.samples_us}
        counts = {len(outcome.samples_us), len(outcome.numerics)}
        if counts != {len(line.artifacts)} or len(rounds) != 1 or not 1 <= max(rounds) <= _MOST_ROUNDS:
            yield "the rounds of a comparison are not complete"
    if not all(math.isfinite(time) and time > 0 for time in times):
        yield "a time is not positive and finite"
    elif not all(_SHORTEST_US <= time <= _LONGEST_US for time in times):
        yield "a time is one that no clock tells"
    if any(each.elements < 0 or each.unwritten < 0 for each in numerics):
        yield "a number of elements is negative"


def _without_paths(line: Line) -> Line:
    """Where this machine keeps its log says nothing to another."""
    if isinstance(line.outcome, RunFailed):
        return replace(line, outcome=RunFailed(line.outcome.message, None))
    return line


def _write(descriptor: int, plain: Any) -> None:
    data = json.dumps(plain, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode() + b"\n"
    size = os.fstat(descriptor).st_size
    try:
        written = 0
        while written < len(data):
            written += os.write(descriptor, data[written:])
        os.fsync(descriptor)
    except OSError as error:
        os.ftruncate(descriptor, size)
        raise BundleError(f"can't write what was measured: {error.strerror}; run again when there is space") from error
