"""A bundle is data: what is not as promised is refused before anything is used."""

from __future__ import annotations

import json
import stat
import zipfile
from dataclasses import replace
from pathlib import Path

import bundles
import pytest

from mlsearch.bundle import archive
from mlsearch.bundle.archive import open_bundle, write_bundle
from mlsearch.errors import BundleError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return bundles.bundle(tmp_path)


def test_what_was_written_is_what_is_read(path: Path, tmp_path: Path) -> None:
    written = bundles.task(tmp_path / "built")
    with open_bundle(path) as bundle:
        manifest = bundle.manifest
        [task] = manifest.tasks
        assert (manifest.target, manifest.plan) == (bundles.target(), bundles.PLAN)
        assert (task.id, task.workload, task.label, task.signature) == (
            written.id,
            written.workload,
            written.label,
            written.signature,
        )
        assert [entry.candidate for entry in task.candidates] == [each.candidate for each in written.candidates]
        assert bundle.extract(task.untuned, tmp_path).read_text() == "t0-untuned"


def test_equal_content_gives_an_equal_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlsearch.bundle.site.utc_now", lambda: "2026-01-01T00:00:00Z")
    first = bundles.bundle(tmp_path)
    content = first.read_bytes()
    assert bundles.bundle(tmp_path).read_bytes() == content


def test_candidates_with_equal_artifacts_share_one(tmp_path: Path) -> None:
    path = bundles.bundle(tmp_path, bundles.task(tmp_path / "built", contents=("a", "a", "untuned")))
    with open_bundle(path) as bundle:
        [task] = bundle.manifest.tasks
        assert len(task.candidates) == 3
        assert len(task.artifacts) == 2
    assert sum(name.endswith(".vmfb") for name in bundles.contents(path)) == 2


def test_the_runners_source_travels_along_as_text(path: Path) -> None:
    assert b"def measure_bundle" in bundles.contents(path)["runner/mlsearch/bundle/measure.py"]


def test_an_artifact_that_changed_since_it_was_built_is_not_bundled(tmp_path: Path) -> None:
    task = bundles.task(tmp_path / "built")
    task.untuned.artifact.write_text("other")
    with pytest.raises(BundleError, match="has changed since it was built"):
        write_bundle(tmp_path / "b", bundles.target(), [task], bundles.PLAN)
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize(
    "name",
    [
        "../evil.vmfb",
        "/etc/evil",
        "artifacts/../../evil.vmfb",
        "runner/../evil.py",
        "artifacts/short.vmfb",
        "__main__.py",
    ],
)
def test_a_name_that_leads_elsewhere_is_refused(path: Path, name: str) -> None:
    bundles.rewrite(path, {**bundles.contents(path), name: b"evil"})
    with pytest.raises(BundleError, match="is no name of a file in a bundle"):
        open_bundle(path)


def test_a_name_that_zipfile_cuts_short_is_refused(path: Path) -> None:
    content = path.read_bytes()
    name = b"runner/mlsearch/child.py"
    path.write_bytes(content.replace(name, b"runner/x.py".ljust(len(name), b"\0")))
    with pytest.raises(BundleError, match="is no name of a file in a bundle"):
        open_bundle(path)


def test_a_link_is_refused(path: Path) -> None:
    files = bundles.contents(path)
    name = next(name for name in files if name.endswith(".vmfb"))
    info = zipfile.ZipInfo(name)
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    content = files.pop(name)
    bundles.rewrite(path, files, (info, content))
    with pytest.raises(BundleError, match="is a link"):
        open_bundle(path)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_file_that_is_there_twice_is_refused(path: Path) -> None:
    bundles.rewrite(path, bundles.contents(path), (zipfile.ZipInfo("manifest.json"), b"{}"))
    with pytest.raises(BundleError, match=r"'manifest\.json' is in it twice"):
        open_bundle(path)


def test_another_artifact_under_the_same_name_is_refused(path: Path) -> None:
    files = bundles.contents(path)
    name = next(name for name in files if name.endswith(".vmfb"))
    files[name] = bytes(len(files[name]))
    bundles.rewrite(path, files)
    with pytest.raises(BundleError, match="is not what the manifest says"):
        open_bundle(path)


@pytest.mark.parametrize("change", ["added", "missing"])
def test_files_that_the_manifest_does_not_list_and_missing_ones_are_refused(path: Path, change: str) -> None:
    files = bundles.contents(path)
    if change == "added":
        files["runner/evil.py"] = b""
    else:
        del files["runner/mlsearch/child.py"]
    bundles.rewrite(path, files)
    with pytest.raises(BundleError, match="manifest and files differ"):
        open_bundle(path)


def test_a_bundle_of_a_newer_schema_says_what_to_do(path: Path) -> None:
    bundles.with_manifest(path, mlsearch_bundle=99)
    with pytest.raises(BundleError, match=r"newer mlsearch \(schema 99.*upgrade"):
        open_bundle(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mlsearch_bundle": 0}, "has schema 0"),
        ({"mlsearch_bundle": True}, "has schema True"),
        ({"compiler": 3}, "manifest.compiler is 3"),
        ({"extra": 1}, "unknown field"),
        ({"tasks": "x"}, "manifest.tasks is not a list"),
    ],
)
def test_a_manifest_of_other_fields_is_refused(path: Path, changes: dict[str, object], message: str) -> None:
    bundles.with_manifest(path, **changes)
    with pytest.raises(BundleError, match=message):
        open_bundle(path)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda plain: plain["tasks"].append(plain["tasks"][0]), "two tasks have the same id"),
        (lambda plain: plain["tasks"][0].update(id="../x"), "no id of a task"),
        (lambda plain: plain["tasks"][0].update(untuned="0" * 64), "not in the bundle"),
        (lambda plain: plain["tasks"][0]["candidates"].append(plain["tasks"][0]["candidates"][0]), "candidate twice"),
        (lambda plain: plain["tasks"][0]["signature"].update(out_buffers=[1]), "out buffer without an output"),
        (lambda plain: plain["tasks"][0]["signature"]["inputs"][0].update(shape=[-1]), "negative dim"),
        (lambda plain: plain["tasks"][0]["signature"].update(batch=-1), "has a batch of -1"),
        (lambda plain: plain["plan"].update(threads=0), "no measurement can follow"),
        (lambda plain: plain["plan"].update(method="guess"), "'guess', not one of 'wall', 'slope'"),
        (lambda plain: plain["members"].append(plain["members"][0]), "lists a file twice"),
    ],
)
def test_a_manifest_that_contradicts_itself_is_refused(path: Path, damage: object, message: str) -> None:
    plain = json.loads(bundles.contents(path)["manifest.json"])
    damage(plain)  # type: ignore[operator]
    bundles.with_manifest(path, **plain)
    with pytest.raises(BundleError, match=message):
        open_bundle(path)


@pytest.mark.parametrize(
    ("limit", "value", "message"),
    [
        ("MOST_MEMBERS", 3, "more than 3"),
        ("MOST_BYTES", 100, "larger than 100 bytes together"),
        ("MOST_MANIFEST_BYTES", 10, "manifest.json is larger than 10 bytes"),
    ],
)
def test_more_than_the_limits_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int, message: str
) -> None:
    monkeypatch.setattr(archive, limit, value)
    with pytest.raises(BundleError, match=message):
        open_bundle(path)


def test_what_is_no_zip_and_what_is_cut_short_is_refused(path: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    with pytest.raises(BundleError, match="is no bundle"):
        open_bundle(tmp_path / "text")
    with pytest.raises(BundleError, match="can't read bundle"):
        open_bundle(tmp_path / "missing")
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(BundleError, match="is no bundle"):
        open_bundle(path)


def test_a_damaged_byte_is_found(path: Path) -> None:
    content = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as zipped:
        info = next(info for info in zipped.infolist() if info.filename.endswith(".vmfb"))
    content[info.header_offset + 30 + len(info.filename) + 2] ^= 0xFF
    path.write_bytes(bytes(content))
    with pytest.raises(BundleError, match=r"vmfb is damaged|is not what the manifest says"):
        open_bundle(path)


def test_a_target_of_other_hardware_is_not_bound_to_this_machine(tmp_path: Path) -> None:
    here = bundles.target()
    chip = replace(here, backend="chip", hardware=replace(here.hardware, name="chip"))
    for target, is_bound in ((here, True), (chip, False)):
        manifest = write_bundle(tmp_path / "b", target, [bundles.task(tmp_path / "built")], bundles.PLAN)
        assert manifest.host_bound is is_bound


def test_no_room_for_an_artifact_is_an_error_of_one_line(path: Path, tmp_path: Path) -> None:
    with open_bundle(path) as bundle, pytest.raises(BundleError, match=r"can't unpack .*No such file or directory"):
        bundle.extract(bundle.manifest.tasks[0].untuned, tmp_path / "missing")
