# SPDX-License-Identifier: Apache-2.0
"""Names of models, and the local folders that they stand for.

A model is named by a string:

- `path/to/folder`: a local folder, used where it is;
- `s3://bucket/folder`: a URL that fsspec knows, copied to the cache once per machine;
- `owner/name`, `hf:owner/name` or `owner/name@revision`: a repository on the Hugging Face Hub, downloaded once by the
  package huggingface_hub. With HF_HUB_OFFLINE=1 only what its cache holds is used.
"""

from __future__ import annotations

import fnmatch
import importlib.util
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from thresher.core.files.filesystem import is_url, local_path
from thresher.credentials import split_urls
from thresher.errors import InputError, MissingPackageError, UsageError, refusals
from thresher.models.loading.cache import RemoteFolder, fetch_url, folder_problems, verified

_HUB_NAME = re.compile(r"(?:hf:)?([A-Za-z0-9][\w.-]*/[\w.-]+)(?:@([\w./-]+))?")
_NOT_NEEDED = ("*.msgpack", "*.h5", "rust_model.*", "*.tflite", "*.gguf", "*.onnx_data_*", "openvino/*", "coreml/*")
"""Files of other frameworks, which are not downloaded."""
_OTHER_GRAPHS = ("onnx/model_*", "onnx/*quantized*", "model_*.onnx")
_TRUE = ("1", "on", "true", "yes")
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")


@dataclass(frozen=True)
class ModelReference:
    """Where a model comes from, and what must hold for its files."""

    name: str
    """A folder, a URL or a name on the hub."""
    caller: str
    """Stage and parameter, for error messages."""
    sha256: Mapping[str, str] = field(default_factory=dict)
    """Checksums that files of the folder must have, by relative path."""
    allow_pickle: bool = False
    """Also load weights that are pickles, which can run code."""
    cache_dir: str | None = None
    """Folder for downloads; None: the user's cache folder."""
    storage_options: dict[str, Any] | None = field(default=None, repr=False)
    """Options of fsspec for a URL."""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise UsageError(
                f"{self.caller}: {self.name!r} is not a model; give a folder, a URL, or owner/name of the Hugging "
                "Face Hub"
            )
        # From here on the URL carries no credentials; these are passed in the storage options.
        public, options = split_urls(self.caller, [self.name], self.storage_options, UsageError)
        object.__setattr__(self, "name", public[0])
        object.__setattr__(self, "storage_options", options)
        for path, digest in self.sha256.items():
            if not re.fullmatch("[0-9a-fA-F]{64}", str(digest)):
                raise UsageError(f"{self.caller}: the sha256 of {path!r}, {digest!r}, is not 64 hexadecimal digits")

    @property
    def kind(self) -> Literal["folder", "url", "hub"]:
        """Return where the model comes from; a name that is an existing folder is that folder."""
        if is_url(self.name) and not self.name.startswith("hf:"):
            return "url"
        is_hub_name = _HUB_NAME.fullmatch(self.name) is not None and not os.path.exists(self.name)
        return "hub" if is_hub_name else "folder"

    def problems(self) -> list[str]:
        """Return what is certain to fail, without a download."""
        if self.kind == "folder":
            return folder_problems(self.caller, local_path(self.name))
        if self.kind == "hub" and importlib.util.find_spec("huggingface_hub") is None:
            return [str(_no_hub(self))]
        if self.kind == "hub" and os.environ.get("HF_HUB_OFFLINE", "").lower() in _TRUE:
            return refusals(self.fetch)  # looks into the cache alone
        return []

    def known_folder(self) -> str | None:
        """Return the folder if it is a local one, which can be looked into before the run."""
        path = local_path(self.name)
        return path if self.kind == "folder" and os.path.isdir(path) else None

    def fetch(self) -> str:
        """Return the local folder with the files of the model; download them if they are not there yet."""
        if self.kind == "folder":
            path = local_path(self.name)
            for problem in folder_problems(self.caller, path):
                raise InputError(problem)
            return verified(self.caller, path, self.sha256)
        if self.kind == "url":
            files = RemoteFolder(self.caller, self.name, self.storage_options, self._is_wanted)
            return fetch_url(files, self.sha256, self.cache_dir)
        return verified(self.caller, _download(self), self.sha256)

    def _is_wanted(self, relative: str) -> bool:
        return not any(fnmatch.fnmatch(relative, pattern) for pattern in self._left_out())

    def _left_out(self) -> tuple[str, ...]:
        return (*_NOT_NEEDED, *_OTHER_GRAPHS, *(() if self.allow_pickle else _PICKLES))


def _no_hub(reference: ModelReference) -> MissingPackageError:
    return MissingPackageError(
        f"{reference.caller}: there is no folder {reference.name!r}; as a name on the Hugging Face Hub it needs the "
        "package huggingface_hub: pip install 'thresher[models]'"
    )


def _download(reference: ModelReference) -> str:
    """Return the folder of a snapshot of the hub; the package locks and renames, so that several processes may ask."""
    try:
        import huggingface_hub
        from huggingface_hub import constants
    except ModuleNotFoundError as error:
        raise _no_hub(reference) from error
    found = _HUB_NAME.fullmatch(reference.name)
    assert found is not None, "its kind is `hub`"
    options: dict[str, Any] = {"revision": found[2], "cache_dir": reference.cache_dir}
    try:
        return str(huggingface_hub.snapshot_download(found[1], ignore_patterns=list(reference._left_out()), **options))
    except Exception as error:  # the package and its HTTP client raise whatever they like
        offline = constants.HF_HUB_OFFLINE
        advice = "HF_HUB_OFFLINE is set, and it is not in the cache" if offline else "check the name, network and token"
        raise InputError(
            f"{reference.caller}: {reference.name!r} is no local folder and cannot be fetched from the Hugging Face "
            f"Hub ({type(error).__name__}); {advice}, or give the path of a folder that holds the model"
        ) from error
