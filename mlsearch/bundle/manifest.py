"""What a bundle says about its artifacts: plain values, and their JSON form with a version."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from mlsearch.candidate import Candidate, Signature, TimingPlan
from mlsearch.errors import BundleError, StoreError
from mlsearch.records import codec
from mlsearch.target import Target

SCHEMA = 1
"""Version of the manifest; goes up when a field is added, renamed or removed, here or in what it consists of."""

_HEADER = "mlsearch_bundle"
_DIGEST = re.compile(r"[0-9a-f]{64}")
_TASK_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")


@dataclass(frozen=True)
class Member:
    """A file of the bundle, besides the manifest."""

    name: str
    sha256: str
    size: int
    """Bytes, uncompressed."""


@dataclass(frozen=True)
class CandidateEntry:
    candidate: Candidate
    artifact: str
    """SHA-256. Candidates with equal artifacts share one, which is measured once."""
    compile_s: float
    predicted: float | None
    """The surrogate's score when it was asked for, see `Record.predicted`."""


@dataclass(frozen=True)
class TaskEntry:
    id: str
    workload: str
    """The workload's key."""
    label: str
    signature: Signature
    untuned: str
    """SHA-256 of the untuned build: its outputs are the expected ones, its time is the baseline."""
    untuned_compile_s: float
    candidates: tuple[CandidateEntry, ...]

    @property
    def artifacts(self) -> tuple[str, ...]:
        """Each once, in the order to be measured in: the untuned build, then the candidates as they were asked for."""
        return tuple(dict.fromkeys((self.untuned, *(entry.artifact for entry in self.candidates))))


@dataclass(frozen=True)
class Manifest:
    target: Target
    host_bound: bool
    """The target's hardware is that of the machine that exported it, as the operating system told: times that another
    machine measures are those of another target."""
    compiler: str
    """Version of iree-base-compiler, which the runtime has to match."""
    mlsearch: str
    created: str
    """UTC, ISO 8601."""
    plan: TimingPlan
    """Its `seed` makes the inputs. `give_up_us` and `timeout_s` are set anew for each measurement."""
    tasks: tuple[TaskEntry, ...]
    members: tuple[Member, ...]


def artifact_name(sha256: str) -> str:
    """Of an artifact within a bundle."""
    return f"artifacts/{sha256}.vmfb"


def encode(manifest: Manifest) -> bytes:
    plain = {_HEADER: SCHEMA, **codec.plain_value(manifest)}
    return json.dumps(plain, indent=1, ensure_ascii=False, allow_nan=False).encode()


def decode(content: bytes) -> Manifest:
    """Raises BundleError for what is no manifest, is of a newer schema, or contradicts itself."""
    try:
        plain = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise BundleError(f"its manifest is not valid JSON: {error}") from None
    return from_plain(plain)


def from_plain(plain: object) -> Manifest:
    """Like `decode`, for JSON that is parsed already."""
    if not isinstance(plain, dict) or _HEADER not in plain:
        raise BundleError("it has no manifest of a bundle")
    schema = plain[_HEADER]
    if isinstance(schema, int) and schema > SCHEMA:
        raise BundleError(
            f"it was written by a newer mlsearch (schema {schema}, this one reads up to {SCHEMA}): upgrade mlsearch, "
            "or the runner file"
        )
    if schema != SCHEMA or isinstance(schema, bool):
        raise BundleError(f"its manifest has schema {schema!r}; known: {SCHEMA}")
    try:
        manifest = codec.read_value(Manifest, {name: plain[name] for name in plain if name != _HEADER}, "manifest")
    except StoreError as error:
        raise BundleError(f"its manifest can't be read: {error}") from None
    problem = next(_contradictions(manifest), None)
    if problem:
        raise BundleError(f"its manifest is wrong: {problem}")
    return manifest


def _contradictions(manifest: Manifest) -> Iterator[str]:
    plan = manifest.plan
    if plan.threads < 1 or plan.seed < 0 or not 0 <= plan.min_samples <= plan.max_samples <= 100_000:
        yield f"no measurement can follow the plan {plan}"
    members = [member.name for member in manifest.members]
    if len(set(members)) != len(members):
        yield "it lists a file twice"
    ids = [task.id for task in manifest.tasks]
    if len(set(ids)) != len(ids):
        yield "two tasks have the same id"
    for task in manifest.tasks:
        yield from _contradictions_of_task(task, set(members))


def _contradictions_of_task(task: TaskEntry, members: set[str]) -> Iterator[str]:
    if not _TASK_ID.fullmatch(task.id):
        yield f"{task.id!r} is no id of a task"
    signature = task.signature
    if not all(0 <= index < len(signature.outputs) for index in signature.out_buffers):
        yield f"task {task.id} has an out buffer without an output"
    if not 0 <= signature.batch <= 1024:
        yield f"task {task.id} has a batch of {signature.batch}"
    if any(dim < 0 for spec in (*signature.inputs, *signature.outputs) for dim in spec.shape):
        yield f"task {task.id} has a tensor with a negative dim"
    for sha256 in task.artifacts:
        if not _DIGEST.fullmatch(sha256) or artifact_name(sha256) not in members:
            yield f"task {task.id} names artifact {sha256[:64]!r}, which is not in the bundle"
    keys = [entry.candidate.key for entry in task.candidates]
    if len(set(keys)) != len(keys) or Candidate.untuned().key in keys:
        yield f"task {task.id} has a candidate twice"
