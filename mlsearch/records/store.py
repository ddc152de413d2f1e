"""The record store: an Optuna storage whose finished trials each hold one `Record`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import optuna
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial

from mlsearch.candidate import CacheState, Record
from mlsearch.errors import StoreError
from mlsearch.optuna_quiet import quiet_optuna
from mlsearch.records import codec
from mlsearch.records.index import Index
from mlsearch.records.journal import JournalFile, first_damage
from mlsearch.trial_attributes import ABANDONED, OWNER, Owner

DEFAULT_PATH = Path(".mlsearch/store.journal")


@dataclass(frozen=True)
class StoredRecord:
    study: str
    number: int
    """Of the trial within its study."""
    record: Record


class Store:
    """Open with `Store.open`; any number of processes may have the same store open."""

    def __init__(self, storage: BaseStorage, location: str, cut_bytes: int = 0) -> None:
        self.storage = storage
        self.location = location
        """For people: without a password."""
        self.cut_bytes = cut_bytes
        """Bytes of a torn last line that were cut off on opening: what a killed process was writing."""
        self._index = Index()
        self._watched: set[int] = set()
        for study in storage.get_all_studies():
            self._take_in(study._study_id)

    @staticmethod
    def open(location: str | Path = DEFAULT_PATH) -> Store:
        """The store at a path (a journal file, made if missing) or a database URL, e.g. `sqlite:///runs.db`.

        Raises StoreError where it can't be opened, or where a file at the path is something else; it is then
        left as it was.
        """
        if "://" in str(location):
            return Store(*_open_database(str(location)))
        path = Path(location)
        journal = JournalFile(path)
        try:
            storage = JournalStorage(journal)
        except (ValueError, KeyError, AssertionError, TypeError):
            raise StoreError(f"'{path}' is damaged: {first_damage(path)}") from None
        return Store(storage, str(path), journal.cut_bytes)

    def study(
        self, name: str, identity: Mapping[str, str] | None = None, notes: Mapping[str, str] | None = None
    ) -> optuna.Study:
        """The study called `name`, made if missing, for writing to. No sampler is set.

        `identity` (e.g. workload and target) is fixed when the study is made: raises StoreError if it holds
        other values. `notes` (e.g. versions) are overwritten. Trials that another process left running when
        it was killed become failed ones that may be asked for again.
        """
        with quiet_optuna():
            study = optuna.create_study(
                study_name=name, storage=self.storage, direction="minimize", load_if_exists=True
            )
        if study.directions != [StudyDirection.MINIMIZE]:
            raise StoreError(f"study '{name}' in {self.location} is not one of mlsearch's: choose another name")
        known = study.user_attrs
        for key, value in (identity or {}).items():
            held = known.get(f"mlsearch:{key}", value)
            if held != value:
                raise StoreError(f"study '{name}' is for {key} {held}, not {value}: choose another name")
        for key, value in {**(identity or {}), **(notes or {})}.items():
            if known.get(f"mlsearch:{key}") != value:
                study.set_user_attr(f"mlsearch:{key}", value)
        study_id = self.storage.get_study_id_from_name(name)
        self._fail_orphans(study_id)
        self._watched.add(study_id)
        self._take_in(study_id)
        return study

    def study_names(self) -> list[str]:
        return sorted(study.study_name for study in self.storage.get_all_studies())

    def records(
        self, study: str | None = None, workload: str | None = None, target: str | None = None
    ) -> Iterator[StoredRecord]:
        """All records, or those of one study, workload or target fingerprint, by study and trial number.

        Raises StoreError for a study that does not exist and for a record that can't be read.
        """
        found = sorted(self.storage.get_all_studies(), key=lambda each: each._study_id)
        if study is not None:
            found = [each for each in found if each.study_name == study]
            if not found:
                names = ", ".join(self.study_names()) or "none"
                raise StoreError(f"no study '{study}' in {self.location}; it holds: {names}")
        for each in found:
            for trial in self.storage.get_all_trials(each._study_id, deepcopy=False):
                record = _record_of(each.study_name, trial)
                if record is None:
                    continue
                if workload in (None, record.provenance.workload) and target in (
                    None,
                    record.provenance.target,
                ):
                    yield StoredRecord(each.study_name, trial.number, record)

    def add(self, study: optuna.Study, record: Record) -> None:
        """Append a finished trial without parameters, e.g. one that was measured elsewhere."""
        time_us = record.time_us
        study.add_trial(
            create_trial(
                state=TrialState.FAIL if time_us is None else TrialState.COMPLETE,
                value=time_us,
                user_attrs=codec.to_attributes(record),
            )
        )

    def find(
        self, candidate_key: str, workload: str, target: str, compiler: str, threads: int, cache: CacheState = "warm"
    ) -> Record | None:
        """The latest record of this content, whichever study holds it: one that was run with the caches in this state,
        or one that was never run because it does not compile, spills or can't be launched. Candidates that still wait
        to be measured have none."""
        self._take_in_watched()
        return self._index.candidate(candidate_key, workload, target, compiler, threads, cache)

    def find_artifact(
        self, digest: str, workload: str, target: str, threads: int, cache: CacheState = "warm"
    ) -> Record | None:
        """The latest measurement of an equal artifact, whichever study holds it."""
        self._take_in_watched()
        return self._index.artifact(digest, workload, target, threads, cache)

    def _take_in_watched(self) -> None:
        # Studies that were not opened here are as they were when the store was opened.
        for study_id in self._watched:
            self._take_in(study_id)

    def _take_in(self, study_id: int) -> None:
        self._index.update(study_id, self.storage.get_all_trials(study_id, deepcopy=False))

    def _fail_orphans(self, study_id: int) -> None:
        for trial in self.storage.get_all_trials(study_id, deepcopy=False, states=(TrialState.RUNNING,)):
            owner = Owner.of(trial.user_attrs.get(OWNER))
            if owner is not None and owner.is_gone():
                self.storage.set_trial_user_attr(trial._trial_id, ABANDONED, True)
                self.storage.set_trial_state_values(trial._trial_id, TrialState.FAIL)


def _record_of(study: str, trial: FrozenTrial) -> Record | None:
    try:
        return codec.from_attributes(trial.user_attrs)
    except StoreError as error:
        raise StoreError(f"study '{study}', trial {trial.number}: {error}") from None


def _open_database(url: str) -> tuple[BaseStorage, str]:
    # Optuna brings it; it takes a tenth of a second to import, for nothing where the store is a journal.
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import SQLAlchemyError

    try:
        shown = make_url(url).render_as_string(hide_password=True)
    except SQLAlchemyError:
        raise StoreError("--store: not a database URL; expected e.g. sqlite:///runs.db") from None
    try:
        with quiet_optuna():
            return RDBStorage(url), shown
    except ImportError as error:
        # Optuna wraps the import of the driver in an ImportError with a page of advice.
        cause = error.__cause__ or error
        raise StoreError(f"{shown} needs a database driver that is not installed: {_first_line(cause)}") from None
    except (SQLAlchemyError, RuntimeError, ValueError) as error:
        raise StoreError(f"cannot open record store {shown}: {_first_line(error)}") from None


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]
