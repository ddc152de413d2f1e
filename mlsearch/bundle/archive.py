"""A bundle as a file: a zip of a manifest, artifacts, and the runner's source for people to read.

Nothing in it is trusted when it is opened: names, kinds, sizes and digests are checked before anything is used, files
leave it only under names that are made from their digests, and the source in it is never run by mlsearch.
"""

from __future__ import annotations

import hashlib
import re
import stat
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from mlsearch.bundle import manifest as manifests
from mlsearch.bundle.manifest import CandidateEntry, Manifest, Member, TaskEntry, artifact_name
from mlsearch.candidate import Built, Candidate, Signature, TimingPlan
from mlsearch.errors import BundleError
from mlsearch.files import draft_of
from mlsearch.target import Target

MANIFEST = "manifest.json"
MOST_MEMBERS = 20_000
MOST_BYTES = 2 * 1024**3
"""Of all files together, uncompressed."""
MOST_MANIFEST_BYTES = 64 * 1024**2

_NAME = re.compile(r"artifacts/[0-9a-f]{64}\.vmfb|runner/(?:[A-Za-z0-9_]+/)*[A-Za-z0-9_]+\.py|manifest\.json")
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""Time stamp of every file, so that equal content gives an equal bundle."""
_CHUNK = 1 << 20


@dataclass(frozen=True)
class BundledCandidate:
    candidate: Candidate
    built: Built
    predicted: float | None = None
    """The surrogate's score when it was asked for."""


@dataclass(frozen=True)
class BundledTask:
    """A task with what was built for it."""

    id: str
    workload: str
    """The workload's key."""
    label: str
    signature: Signature
    untuned: Built
    candidates: tuple[BundledCandidate, ...]
    """In the order to be measured in, since time may run out."""


def write_bundle(path: Path, target: Target, tasks: Sequence[BundledTask], plan: TimingPlan) -> Manifest:
    """Write a bundle; `path` is the old file or all of the new one. Raises BundleError."""
    # Here, and not above: only the machine that exports needs what these bring along.
    from mlsearch import __version__
    from mlsearch.bundle.runner_source import runner_source
    from mlsearch.bundle.site import utc_now
    from mlsearch.target import compiler_version, host_hardware

    source = {f"runner/{name}": text for name, text in runner_source().items()}
    artifacts = _artifacts(tasks)
    manifest = Manifest(
        target=target,
        host_bound=target.hardware == host_hardware(),
        compiler=compiler_version(),
        mlsearch=__version__,
        created=utc_now(),
        plan=plan,
        tasks=tuple(_entry(task) for task in tasks),
        members=(*_file_members(artifacts), *(_member(name, text) for name, text in source.items())),
    )
    content = manifests.encode(manifest)
    manifests.decode(content)  # what can't be opened again must not be written
    try:
        with draft_of(path) as draft, zipfile.ZipFile(draft, "x", zipfile.ZIP_DEFLATED) as archive:
            _add(archive, MANIFEST, content)
            for sha256, artifact in artifacts.items():
                _add(archive, artifact_name(sha256), artifact.read_bytes())
            for name, text in source.items():
                _add(archive, name, text)
    except OSError as error:
        raise BundleError(f"can't write {path}: {error.strerror or error}") from error
    return manifest


def open_bundle(path: Path) -> Bundle:
    """Check all of a bundle. Raises BundleError for a file that is none, or whose content is not what it promises."""
    try:
        archive = zipfile.ZipFile(path)
    except OSError as error:
        raise BundleError(f"can't read bundle {path}: {error.strerror or error}") from error
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise BundleError(f"{path} is no bundle: {error}") from None
    try:
        return Bundle(path, archive, *_checked(archive))
    except BundleError as error:
        archive.close()
        raise BundleError(f"bundle {path} is refused: {error}") from None


class Bundle:
    """An open bundle. Its artifacts come out one by one, as they are needed."""

    def __init__(self, path: Path, archive: zipfile.ZipFile, manifest: Manifest, digest: str) -> None:
        self.path = path
        self.manifest = manifest
        self.digest = digest
        """SHA-256 of the manifest, which holds those of all files."""
        self._archive = archive

    def extract(self, sha256: str, folder: Path) -> Path:
        """The artifact as `<folder>/<sha256>.vmfb`. Raises BundleError, also if the file has changed since, or if
        there is no room for it."""
        content = _read(self._archive, artifact_name(sha256), MOST_BYTES)
        if hashlib.sha256(content).hexdigest() != sha256:
            raise BundleError(f"{self.path} has changed while it was in use")
        place = folder / f"{sha256}.vmfb"
        try:
            place.write_bytes(content)
        except OSError as error:
            raise BundleError(f"can't unpack an artifact to {folder}: {error.strerror or error}") from error
        return place

    def close(self) -> None:
        self._archive.close()

    def __enter__(self) -> Bundle:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


# ---------------------------------------------------------------------------------------- checking


def _checked(archive: zipfile.ZipFile) -> tuple[Manifest, str]:
    found = _check_directory(archive.infolist())
    if MANIFEST not in found:
        raise BundleError("it has no manifest")
    content = _read(archive, MANIFEST, MOST_MANIFEST_BYTES)
    manifest = manifests.decode(content)
    promised = {member.name: member for member in manifest.members}
    strays = sorted(set(found) ^ {MANIFEST, *promised})
    if strays:
        raise BundleError(f"manifest and files differ in {strays[0]!r}")
    for member in manifest.members:
        if found[member.name] != member.size or _digest(archive, member.name) != member.sha256:
            raise BundleError(f"{member.name} is not what the manifest says: size or digest differs")
        if member.name.startswith("artifacts/") and member.name != artifact_name(member.sha256):
            raise BundleError(f"{member.name} is not named after its digest")
    return manifest, hashlib.sha256(content).hexdigest()


def _check_directory(infos: Sequence[zipfile.ZipInfo]) -> dict[str, int]:
    """Sizes by name, of what may be in a bundle at all."""
    if len(infos) > MOST_MEMBERS:
        raise BundleError(f"it holds {len(infos)} files, more than {MOST_MEMBERS}")
    if sum(info.file_size for info in infos) > MOST_BYTES:
        raise BundleError(f"its files are larger than {MOST_BYTES} bytes together")
    sizes: dict[str, int] = {}
    for info in infos:
        # The whole name, as it stands in the file: zipfile itself cuts it at a NUL.
        if not _NAME.fullmatch(info.orig_filename):
            raise BundleError(f"{info.orig_filename!r} is no name of a file in a bundle")
        if info.filename in sizes:
            raise BundleError(f"{info.filename!r} is in it twice")
        kind = stat.S_IFMT(info.external_attr >> 16)
        if kind not in (0, stat.S_IFREG):
            raise BundleError(f"{info.filename!r} is a link or another special file")
        if info.flag_bits & 1 or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise BundleError(f"{info.filename!r} is encrypted or compressed in a way that bundles don't use")
        sizes[info.filename] = info.file_size
    return sizes


def _digest(archive: zipfile.ZipFile, name: str) -> str:
    sha256 = hashlib.sha256()
    for chunk in _chunks(archive, name):
        sha256.update(chunk)
    return sha256.hexdigest()


def _read(archive: zipfile.ZipFile, name: str, limit: int) -> bytes:
    if archive.getinfo(name).file_size > limit:
        raise BundleError(f"{name} is larger than {limit} bytes")
    return b"".join(_chunks(archive, name))


def _chunks(archive: zipfile.ZipFile, name: str) -> Iterable[bytes]:
    """Never more than the directory says: zipfile stops there, whatever the data would inflate to."""
    try:
        with archive.open(name) as stream:
            while chunk := stream.read(_CHUNK):
                yield chunk
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError) as error:
        raise BundleError(f"{name} is damaged: {error}") from None


# ----------------------------------------------------------------------------------------- writing


def _entry(task: BundledTask) -> TaskEntry:
    return TaskEntry(
        id=task.id,
        workload=task.workload,
        label=task.label,
        signature=task.signature,
        untuned=task.untuned.artifact_digest,
        untuned_compile_s=task.untuned.compile_s,
        candidates=tuple(
            CandidateEntry(each.candidate, each.built.artifact_digest, each.built.compile_s, each.predicted)
            for each in task.candidates
        ),
    )


def _artifacts(tasks: Sequence[BundledTask]) -> dict[str, Path]:
    """Equal ones once."""
    built = [built for task in tasks for built in (task.untuned, *(each.built for each in task.candidates))]
    return {each.artifact_digest: each.artifact for each in built}


def _file_members(artifacts: Mapping[str, Path]) -> list[Member]:
    members = []
    for sha256, path in artifacts.items():
        try:
            member = _member(artifact_name(sha256), path.read_bytes())
        except OSError as error:
            raise BundleError(f"can't read artifact {path}: {error.strerror or error}") from error
        if member.sha256 != sha256:
            raise BundleError(f"artifact {path} has changed since it was built")
        members.append(member)
    return members


def _member(name: str, content: bytes) -> Member:
    return Member(name, hashlib.sha256(content).hexdigest(), len(content))


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    info = zipfile.ZipInfo(name, _EPOCH)
    info.compress_type = zipfile.ZIP_DEFLATED
    info.external_attr = (stat.S_IFREG | 0o644) << 16
    archive.writestr(info, content)
