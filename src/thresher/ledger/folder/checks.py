# SPDX-License-Identifier: Apache-2.0
"""Checks before a run may write: output folder, pipeline, input and existing files are those of this run."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from thresher.core.files.filesystem import is_hidden, is_url, local_path
from thresher.core.unit import Unit, stream_id
from thresher.credentials import without_credentials
from thresher.errors import OutputRefusedError, PlanError
from thresher.ledger.folder.request import RUN_FOLDER, RunState
from thresher.ledger.quarantine import split_retry
from thresher.ledger.records import CommitRecord, OutputFile
from thresher.ledger.stores.commit_target import CommitTarget
from thresher.ledger.stores.store import Store

_DATA_FILE = re.compile(r".+\.(jsonl|ndjson|json|parquet|pq)(\.(gz|gzip|zst|zstd|bz2|xz))?")
_SHOWN = 3


class InputChangedError(OutputRefusedError):
    """The input changed since the run began; `what` describes the change."""

    def __init__(self, what: str, message: str) -> None:
        super().__init__(message)
        self.what = what


def foreign_names(output: Store, ours: Iterable[str] = ()) -> list[str]:
    """Return the names in an output folder that are not ours; names that begin with `.` or `_` are ignored."""
    known = set(ours)
    return [name for name in output.names() if not is_hidden(name) and name not in known]


def data_files(names: Iterable[str]) -> list[str]:
    """Return the names of data files, which `mode="overwrite"` may delete. Folders and other files are kept."""
    return [name for name in names if _DATA_FILE.fullmatch(name)]


def refuse_foreign(path: str, names: Sequence[str]) -> None:
    """Raise if an output folder is not empty."""
    if names:
        raise OutputRefusedError(
            f'{path} holds files that are not from this run: {first_few(names)}. Choose another path, mode="append" to '
            'add beside them, or mode="overwrite" to delete the data files among them at the first commit'
        )


def first_few(names: Sequence[str]) -> str:
    """Return the first few names and the number of the others."""
    shown = ", ".join(names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"


# -- the pipeline -----------------------------------------------------------------------------------------------------


def changed_parts(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """Describe the differences between two fingerprints (see `core.planning.fingerprint`)."""
    before, after = _stages(old), _stages(new)
    changes = [f"stage {name} is gone" for name in before if name not in after]
    changes += [f"stage {name} is new" for name in after if name not in before]
    for key in dict.fromkeys((*old, *new)):
        if old.get(key) != new.get(key) and not (key == "stages" and changes):
            change = _change(key, old, new, before.keys() & after.keys())
            changes += [change] if change else []
    return changes


def _stages(parts: Mapping[str, str]) -> dict[str, None]:
    return {key.removesuffix(".parameters"): None for key in parts if key.endswith(".parameters")}


def _change(key: str, old: Mapping[str, str], new: Mapping[str, str], kept: set[str]) -> str | None:
    """Describe one difference; `None` for a part of a stage that is new or gone, which is described already."""
    if key == "version":
        return f"the Thresher version ({old.get(key, 'unknown')} before, {new.get(key, 'unknown')} now)"
    if key == "stages":
        return "the order or the classes of the stages"
    stage, _, kind = key.rpartition(".")
    what = {"parameters": "the parameters of stage", "code": "the source code of stage"}.get(kind)
    if what is None:
        return key
    return f"{what} {stage}" if stage in kept else None


def refuse_changed(run_dir: str, changes: Sequence[str]) -> None:
    """Refuse to resume with a changed pipeline."""
    listed = "; ".join(dict.fromkeys(changes))
    raise OutputRefusedError(
        f"{run_dir} belongs to a run of a different pipeline. Changed: {listed}. Use --accept-changes "
        "(accept_changes=True) to keep what is done and go on, --fresh (fresh=True) to start over, or another "
        "output path"
    )


def changed_options(before: RunState, dropped_to: str | None, keep_scores: bool) -> list[str]:
    """Describe the options that differ from those of the committed units. An option left out matters only while units
    are left."""
    finished = any(attempt.exit_code == 0 for attempt in before.attempts)
    changes = []
    if dropped_to is not None and before.dropped_to is None:
        changes.append("--dropped-to (dropped_to=…) was not given when this run began")
    elif dropped_to is not None and dropped_to != before.dropped_to:
        changes.append(f"this run began with --dropped-to {before.dropped_to}, not {dropped_to}")
    elif dropped_to is None and before.dropped_to is not None and not finished:
        changes.append(f"this run began with --dropped-to {before.dropped_to}, which is not given now")
    if keep_scores and not before.keep_scores:
        changes.append("--keep-scores (keep_scores=True) was not given when this run began")
    elif before.keep_scores and not keep_scores and not finished:
        changes.append("this run began with --keep-scores (keep_scores=True), which is not given now")
    return changes


def refuse_changed_options(run_dir: str, changes: Sequence[str]) -> None:
    """Refuse options that would apply to a part of the input only."""
    raise OutputRefusedError(
        f"{run_dir}: {'; '.join(changes)}. Options have no effect on what is done. Give those with which the run "
        "began, use --fresh (fresh=True) to start over with the new ones, or --accept-changes (accept_changes=True) to "
        "apply them to the rest of the input alone"
    )


# -- the input --------------------------------------------------------------------------------------------------------


def changed_inputs(previous: Iterable[Unit], units: Iterable[Unit]) -> str | None:
    """Describe the differences between the input files of two complete lists of units; `None` if there are none."""
    before, after = _files(previous), _files(units)
    changed = [name for name, facts in before.items() if name in after and after[name] != facts]
    gone = [name for name in before if name not in after]
    new = [name for name in after if name not in before]
    facts = [
        f"{what}: {first_few(names)}" for what, names in (("changed", changed), ("gone", gone), ("new", new)) if names
    ]
    return "; ".join(facts) or None


def refuse_changed_inputs(run_dir: str, change: str) -> None:
    """Refuse to resume with a changed input."""
    raise InputChangedError(
        f"the input ({change})",
        f"{run_dir}: the input is not what it was when this run began ({change}). Use --accept-changes "
        "(accept_changes=True) to keep what is done and process what is new, --fresh (fresh=True) to start over, "
        "or another output path",
    )


def _files(units: Iterable[Unit]) -> dict[str, tuple[int, str]]:
    return {piece.relative: (piece.size, piece.version) for unit in units for piece in unit.pieces}


# -- folders inside each other ----------------------------------------------------------------------------------------


def check_nesting(input_roots: Iterable[str], output: str, name: str = "output") -> None:
    """Refuse an output that the reader would read, or that contains the input. Roots are folders or single files.

    `name` is the word for the folder in messages.
    """
    target = _absolute(output)
    for root in input_roots:
        source = _absolute(root)
        if source == target:
            raise PlanError(f"the {name} {output} is the input itself; choose another path")
        if _below(target, source):
            raise PlanError(
                f"the {name} {output} lies inside the input {root}, so its files would be read as input; "
                "choose a path outside it"
            )
        if _below(source, target):
            raise PlanError(
                f"the input {root} lies inside the {name} {output}; choose a path that does not hold the input"
            )


def check_can_be_written(name: str, path: str) -> None:
    """Refuse URLs of web servers, which can only be read."""
    scheme = path.partition("://")[0].lower()
    if scheme in ("http", "https"):
        raise PlanError(
            f"the {name} {path} is on a web server, and {scheme}:// URLs can only be read; choose a local folder, or "
            "a URL of an object store such as s3://BUCKET/FOLDER"
        )


def check_own_folders(output: str | None, dropped_to: str | None, run_dir: str | None) -> None:
    """Refuse nested folders of one run, where one would be taken for data of the other.

    The exception is a run folder inside the output, under a name that readers skip.
    """
    given = (("output", output), ("folder for dropped records", dropped_to), ("run folder", run_dir))
    folders = [(name, _absolute(path), path) for name, path in given if path is not None]
    for name, folder, shown in folders:
        for other, outer, _ in folders:
            if name == other or not (folder == outer or _below(folder, outer)):
                continue
            if (name, other) == ("run folder", "output") and is_hidden(folder.removeprefix(outer).lstrip("/")):
                continue
            where = "is" if folder == outer else "lies inside"
            raise PlanError(f"the {name} {shown} {where} the {other}; choose a path outside it")


def refuse_own_output(output: str, run_dir: str, path: str) -> None:
    """Refuse to write to the run whose scores are used, because `--fresh` would remove them. `path` is that of its
    writer."""
    taken = (run_dir, run_dir.removesuffix(f"/{RUN_FOLDER}"), without_credentials(path))
    if _absolute(without_credentials(output)) in map(_absolute, taken):
        raise OutputRefusedError(
            f"--output {without_credentials(output)} belongs to the run whose scores are used; choose another path"
        )


def _absolute(path: str) -> str:
    return path.rstrip("/") if is_url(path) else os.path.realpath(os.path.expanduser(local_path(path)))


def _below(path: str, folder: str) -> bool:
    return path.startswith(folder.rstrip("/") + "/")


# -- missing files ----------------------------------------------------------------------------------------------------


def units_to_redo(records: Mapping[str, CommitRecord], target: CommitTarget) -> tuple[set[str], list[str]]:
    """Return the committed units whose files are missing, and the names of these files.

    Raise if the size of a file differs from the ledger: writing it again would destroy foreign data.
    """
    redo: set[str] = set()
    missing: list[str] = []
    changed: list[str] = []
    for record, file, size in _expected_files(records.values(), target):
        if size is None:
            missing.append(file.path)
            redo |= {record.unit, *record.joined}
        elif size != file.bytes:
            changed.append(f"{file.path} ({size:,} bytes, the ledger says {file.bytes:,})")
    if changed:
        raise OutputRefusedError(
            f"{target.output}: files are not what this run wrote: {first_few(changed)}. Remove them to have them made "
            "again, use --fresh (fresh=True) to start over, or another output path"
        )
    retried = [unit for unit in redo if split_retry(unit)[1]]
    if retried:
        raise OutputRefusedError(
            f"{target.output}: files with retried records are missing ({first_few(missing)}), and a run cannot make "
            "them again. Put them back, or use --fresh (fresh=True) to start over"
        )
    redo |= {stream_id(unit) for unit in redo} & records.keys()
    return redo, missing


def _expected_files(
    records: Iterable[CommitRecord], target: CommitTarget
) -> Iterator[tuple[CommitRecord, OutputFile, int | None]]:
    """Yield every expected file with its actual size; `None` if it is missing."""
    records = list(records)
    joined = {unit for record in records for unit in record.joined}
    sizes = {
        folder: target.store(folder).sizes()
        for folder in (target.output, target.parts, target.dropped_to)
        if folder is not None
    }
    for record in records:
        folder = target.parts if record.part else target.output
        if record.unit not in joined and folder is not None:  # the parts of a joined file are removed
            for file in record.outputs:
                yield record, file, sizes[folder].get(file.path)
        if target.dropped_to is not None:
            for file in record.dropped_outputs:
                yield record, file, sizes[target.dropped_to].get(file.path)
