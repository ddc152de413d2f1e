"""Requests and outcomes as JSON objects, for the pipe between a runner and its worker process."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from mlsearch.candidate import (
    Compared,
    CompareRequest,
    Measured,
    Numerics,
    RunFailed,
    RunRequest,
    Signature,
    TensorSpec,
    TimingPlan,
    WrongResult,
)


def encode_signature(signature: Signature) -> dict[str, Any]:
    return asdict(signature)


def decode_signature(message: dict[str, Any]) -> Signature:
    return Signature(
        function=message["function"],
        inputs=_tensors(message["inputs"]),
        outputs=_tensors(message["outputs"]),
        out_buffers=tuple(message["out_buffers"]),
        reduction_length=message["reduction_length"],
        batch=message["batch"],
        indices=message["indices"],
    )


def encode_run(request: RunRequest) -> dict[str, Any]:
    return {
        "artifact": str(request.artifact),
        "baseline": str(request.baseline),
        "signature": encode_signature(request.signature),
        "plan": asdict(request.plan),
    }


def decode_run(message: dict[str, Any]) -> RunRequest:
    return RunRequest(
        artifact=Path(message["artifact"]),
        baseline=Path(message["baseline"]),
        signature=decode_signature(message["signature"]),
        plan=TimingPlan(**message["plan"]),
    )


def encode_compare(request: CompareRequest) -> dict[str, Any]:
    return {
        "artifacts": [str(path) for path in request.artifacts],
        "signature": encode_signature(request.signature),
        "plan": asdict(request.plan),
        "rounds": request.rounds,
    }


def decode_compare(message: dict[str, Any]) -> CompareRequest:
    return CompareRequest(
        artifacts=tuple(Path(path) for path in message["artifacts"]),
        signature=decode_signature(message["signature"]),
        plan=TimingPlan(**message["plan"]),
        rounds=message["rounds"],
    )


WorkerOutcome = Measured | WrongResult | Compared | RunFailed
"""What a worker can say itself. A timeout is its parent's to tell."""


def encode_outcome(outcome: WorkerOutcome) -> dict[str, Any]:
    if isinstance(outcome, RunFailed):
        return {"outcome": "RunFailed", "message": outcome.message}
    return {"outcome": type(outcome).__name__, **asdict(outcome)}


def decode_outcome(message: dict[str, Any], log: Path) -> WorkerOutcome:
    """`log` goes into a RunFailed. Raises ValueError for an unknown outcome."""
    match message["outcome"]:
        case "Measured":
            return Measured(
                samples_us=tuple(message["samples_us"]),
                baseline_us=tuple(message["baseline_us"]),
                numerics=Numerics(**message["numerics"]),
                cut_short=message["cut_short"],
            )
        case "WrongResult":
            return WrongResult(Numerics(**message["numerics"]))
        case "Compared":
            return Compared(
                samples_us=tuple(tuple(samples) for samples in message["samples_us"]),
                numerics=tuple(Numerics(**numerics) for numerics in message["numerics"]),
            )
        case "RunFailed":
            return RunFailed(message["message"], log)
        case unknown:
            raise ValueError(f"unknown outcome '{unknown}'")


def _tensors(messages: list[dict[str, Any]]) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(tuple(message["shape"]), message["element_type"]) for message in messages)
