"""A search that is killed at any moment loses what was in flight, and nothing that was told."""

from __future__ import annotations

import itertools
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

from optuna.trial import TrialState

from mlsearch.records.store import Store
from mlsearch.search.make import make_proposer
from mlsearch.testing.spaces import FakeSpace
from mlsearch.trial_attributes import ABANDONED, CANDIDATE

# Prints a number once its trial is told, as a person would see it on the terminal.
_SEARCH = """
import sys
from mlsearch.records import codec
from mlsearch.records.store import Store
from mlsearch.search.make import make_proposer
from mlsearch.testing.records_contract import record_of
from mlsearch.testing.spaces import FakeSpace

study = Store.open(sys.argv[1]).study("s")
space = FakeSpace(["a", "b"], footprint=1 << 20, tiles=tuple(range(1, 40)))
proposer = make_proposer("tpe", space, study, seed=0)
while True:
    for asked in proposer.ask(3):
        record = record_of(candidate=asked.candidate)
        proposer.tell(asked, FakeSpace.time_us(asked.candidate), codec.to_attributes(record))
        print(asked.number, flush=True)
        if "waiting" in sys.argv:
            sys.stdin.read()
"""


def start(path: Path, *how: str) -> subprocess.Popen[str]:
    """`how`: "waiting" after the first trial, with two more in flight."""
    command, pipe = [sys.executable, "-c", _SEARCH, str(path), *how], subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def told(search: subprocess.Popen[str]) -> list[int]:
    assert search.stdin is not None and search.stdout is not None and search.stderr is not None
    with search.stdin, search.stdout, search.stderr:
        return [int(line) for line in search.stdout]


def test_kill_9_loses_no_trial_that_was_told_and_the_next_run_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "store.journal"
    acknowledged: set[int] = set()
    for number, extra_s in enumerate((0.0, 0.013, 0.031, 0.047)):
        search = start(path, *(["waiting"] if number == 0 else []))
        assert search.stdout is not None
        first = int(search.stdout.readline())
        time.sleep(extra_s)
        search.kill()
        acknowledged |= {first, *told(search)}
        assert search.wait() == -signal.SIGKILL

        store = Store.open(path)
        study = store.study("s")
        held = {stored.number for stored in store.records()}
        assert acknowledged <= held
        in_flight = [trial for trial in study.trials if trial.state == TrialState.RUNNING]
        assert in_flight == []

    evaluated = [trial for trial in study.trials if not trial.user_attrs.get(ABANDONED)]
    keys = [trial.user_attrs[CANDIDATE] for trial in evaluated]
    assert len(set(keys)) == len(keys), "a resumed search repeated itself"
    abandoned = len(study.trials) - len(evaluated)
    assert 2 <= abandoned <= 4 * 3


def test_a_process_killed_in_the_middle_of_a_search_does_not_lock_others_out(tmp_path: Path) -> None:
    path = tmp_path / "store.journal"
    one, other = start(path), start(path)
    for search in (one, other):
        assert search.stdout is not None
        search.stdout.readline()
    one.kill()
    told(one)
    assert other.stdout is not None
    went_on = [int(line) for line in itertools.islice(other.stdout, 5)]
    other.kill()
    told(other)
    one.wait(), other.wait()
    assert len(set(went_on)) == 5


def test_a_file_that_may_not_grow_is_told_in_one_line_and_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "store.journal"
    limit = 60_000
    search = subprocess.run(
        [sys.executable, "-c", _SEARCH, str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    last_line = search.stderr.strip().splitlines()[-1]
    assert last_line == f"mlsearch.errors.StoreError: cannot write record store '{path}': File too large"
    store = Store.open(path)
    assert store.cut_bytes == 0
    assert {stored.number for stored in store.records()} >= {int(line) for line in search.stdout.split()}
    proposer = make_proposer("random", FakeSpace(), store.study("another"), seed=0)
    proposer.tell(proposer.ask(1)[0], 1.0, {})
