"""Who a process is: what the store goes by when it meets a trial that nobody finished."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace

import pytest

from mlsearch.trial_attributes import Owner, _start_of

US = Owner.this_process()


def test_this_process_is_not_gone() -> None:
    assert US.pid == os.getpid()
    assert not US.is_gone()


def test_a_process_that_only_waits_to_be_reaped_is_gone() -> None:
    process = subprocess.Popen(["sleep", "60"])
    owner = replace(US, pid=process.pid, started=_start_of(process.pid) or "")
    assert not owner.is_gone()
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert owner.is_gone()
    process.wait()


@pytest.mark.skipif(not US.started, reason="the system does not say when a process started")
def test_another_process_that_got_the_same_pid_is_not_taken_for_the_owner() -> None:
    assert replace(US, started=str(int(US.started) + 1)).is_gone()


@pytest.mark.skipif(not US.boot, reason="the system has no boot id")
def test_a_reboot_ends_every_process() -> None:
    assert replace(US, boot="earlier").is_gone()


def test_a_process_that_cannot_be_seen_from_here_counts_as_living() -> None:
    assert not replace(US, host="elsewhere", pid=2**22 + 1).is_gone()
    assert not replace(US, namespace="pid:[1]", pid=2**22 + 1).is_gone()


def test_an_owner_is_read_back_and_anything_else_is_none() -> None:
    assert Owner.of(US.to_attribute()) == US
    for other in (None, "vm:12", {"pid": 1}, {**US.to_attribute(), "more": 1}):
        assert Owner.of(other) is None
