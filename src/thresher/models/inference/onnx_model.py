# SPDX-License-Identifier: Apache-2.0
"""Run a model with ONNX Runtime, without torch."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

from thresher.core.resources import WorkerMetadata
from thresher.errors import InputError, MissingPackageError, UsageError
from thresher.models.inference.batches import CPU_TOKENS
from thresher.models.inference.devices import onnx_providers

if TYPE_CHECKING:
    from thresher.models.inference.batches import Numbers
    from thresher.models.token_lists import Rows

_OUTPUTS = ("logits", "sentence_embedding", "last_hidden_state", "token_embeddings")
"""Names of outputs that are looked for, in this order; otherwise the first one is taken."""


def check_onnxruntime(caller: str) -> None:
    """Raise an error if ONNX Runtime is not installed."""
    if importlib.util.find_spec("onnxruntime") is None:
        raise MissingPackageError(
            f"{caller}: a model.onnx needs the package onnxruntime: pip install 'thresher[models]'"
        )


class OnnxModel:
    """An ONNX graph that takes token ids; a `TokenModel`."""

    pads_left = False

    def __init__(self, path: str, metadata: WorkerMetadata | None, *, pad_id: int, caller: str, device: str) -> None:
        check_onnxruntime(caller)
        import onnxruntime

        self.pad_id = pad_id
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = (metadata or WorkerMetadata()).threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3  # errors alone
        # Threads that wait must not take the cores of other workers.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        providers = onnx_providers(metadata, device)
        try:
            self._session: Any = onnxruntime.InferenceSession(path, options, providers=providers)
        except Exception as error:  # the package has errors of its own, which derive from Exception
            raise InputError(f"{caller}: {path} cannot be loaded by ONNX Runtime: {error}") from error
        self.most_tokens = CPU_TOKENS if len(providers) == 1 else None
        self._inputs = {one.name: one.type for one in self._session.get_inputs()}
        self.outputs = [one.name for one in self._session.get_outputs()]
        self.output = next((name for name in _OUTPUTS if name in self.outputs), self.outputs[0])
        """The output that `forward` returns."""
        unknown = self._inputs.keys() - {"input_ids", "attention_mask", "token_type_ids", "position_ids"}
        if unknown or "input_ids" not in self._inputs:
            raise UsageError(
                f"{caller}: the inputs of {path} are {', '.join(self._inputs)}; a model of texts takes input_ids, "
                "attention_mask and token_type_ids"
            )

    def forward(self, ids: Rows, mask: Rows) -> Numbers:
        """Return the output for each text."""
        import numpy as np

        given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        if "position_ids" in self._inputs:
            given["position_ids"] = np.maximum(np.cumsum(mask, axis=1) - 1, 0)
        kinds = {"tensor(int32)": np.int32}
        feed = {name: given[name].astype(kinds.get(kind, np.int64), copy=False) for name, kind in self._inputs.items()}
        (found,) = self._session.run([self.output], feed)
        return np.asarray(found)

    def free_memory(self) -> None:
        """Do nothing: ONNX Runtime reuses what it keeps."""
