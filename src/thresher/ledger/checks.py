# SPDX-License-Identifier: Apache-2.0
"""What must be true before a run may write: the output is ours, the pipeline and the input are what they were."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence

from thresher.core.filesystem import is_hidden, is_url, local_path
from thresher.core.unit import Unit
from thresher.errors import OutputRefusedError
from thresher.ledger.store import Store

_DATA_FILE = re.compile(r".+\.(jsonl|ndjson|json|parquet|pq)(\.(gz|gzip|zst|zstd|bz2|xz))?")
_SHOWN = 3


def foreign_names(output: Store, ours: Iterable[str] = ()) -> list[str]:
    """What lies in an output folder and is not ours; names that begin with `.` or `_` do not count."""
    known = set(ours)
    return [name for name in output.names() if not is_hidden(name) and name not in known]


def data_files(names: Iterable[str]) -> list[str]:
    """Those names that look like records: what `mode="overwrite"` may delete. Folders and all else stay."""
    return [name for name in names if _DATA_FILE.fullmatch(name)]


def refuse_foreign(path: str, names: Sequence[str]) -> None:
    """Refuse an output folder that holds something."""
    if names:
        raise OutputRefusedError(
            f'{path} holds files that are not from this run: {_some(names)}. Choose another path, mode="append" to add '
            'beside them, or mode="overwrite" to delete the data files among them at the first commit'
        )


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"


# -- the pipeline -----------------------------------------------------------------------------------------------------


def changed_parts(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """What differs between two fingerprints (see `core.fingerprint`), said for people."""
    before, after = _stages(old), _stages(new)
    changes = [f"stage {name} is gone" for name in before if name not in after]
    changes += [f"stage {name} is new" for name in after if name not in before]
    for key in dict.fromkeys((*old, *new)):
        if old.get(key) != new.get(key) and not (key == "stages" and changes):
            said = _change(key, old, new, before.keys() & after.keys())
            changes += [said] if said else []
    return changes


def _stages(parts: Mapping[str, str]) -> dict[str, None]:
    return {key.removesuffix(".parameters"): None for key in parts if key.endswith(".parameters")}


def _change(key: str, old: Mapping[str, str], new: Mapping[str, str], kept: set[str]) -> str | None:
    """`None` for a part of a stage that is new or gone: that is said already."""
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
    """Refuse to go on with a pipeline that is not the one that began."""
    listed = "; ".join(dict.fromkeys(changes))
    raise OutputRefusedError(
        f"{run_dir} belongs to a run of a different pipeline. Changed: {listed}. Use --accept-changes "
        "(accept_changes=True) to keep what is done and go on, --fresh (fresh=True) to start over, or another "
        "output path"
    )


# -- the input --------------------------------------------------------------------------------------------------------


def changed_inputs(previous: Iterable[Unit], units: Iterable[Unit]) -> str | None:
    """What is different about the input files, or `None`. Both are whole lists of units."""
    before, after = _files(previous), _files(units)
    changed = [name for name, facts in before.items() if name in after and after[name] != facts]
    gone = [name for name in before if name not in after]
    new = [name for name in after if name not in before]
    facts = [f"{what}: {_some(names)}" for what, names in (("changed", changed), ("gone", gone), ("new", new)) if names]
    return "; ".join(facts) or None


def refuse_changed_inputs(run_dir: str, change: str) -> None:
    """Refuse to go on with an input that is not the one that began."""
    raise OutputRefusedError(
        f"{run_dir}: the input is not what it was when this run began ({change}). Use --accept-changes "
        "(accept_changes=True) to keep what is done and process what is new, --fresh (fresh=True) to start over, "
        "or another output path"
    )


def _files(units: Iterable[Unit]) -> dict[str, tuple[int, str]]:
    return {piece.relative: (piece.size, piece.version) for unit in units for piece in unit.pieces}


# -- folders inside each other ----------------------------------------------------------------------------------------


def check_nesting(input_roots: Iterable[str], output: str) -> None:
    """Refuse an output that the reader would read, or that holds the input. Roots are folders or single files."""
    target = _absolute(output)
    for root in input_roots:
        source = _absolute(root)
        if source == target:
            raise OutputRefusedError(f"the output {output} is the input itself; choose another output path")
        if _below(target, source):
            raise OutputRefusedError(
                f"the output {output} lies inside the input {root}, so its files would be read as input; "
                "choose an output path outside it"
            )
        if _below(source, target):
            raise OutputRefusedError(
                f"the input {root} lies inside the output {output}; choose an output path that does not hold the input"
            )


def _absolute(path: str) -> str:
    return path.rstrip("/") if is_url(path) else os.path.realpath(os.path.expanduser(local_path(path)))


def _below(path: str, folder: str) -> bool:
    return path.startswith(folder.rstrip("/") + "/")
