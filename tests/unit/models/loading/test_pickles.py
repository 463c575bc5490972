# SPDX-License-Identifier: Apache-2.0
"""Weights that are pickles: refused by default, read where they are allowed, and never run."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.unit.models.tiny_models import needs_torch, save_custom_head, save_labels
from thresher.errors import InputError
from thresher.models.inference.text_model import ClassifierModel
from thresher.models.loading.reference import ModelReference

needs_torch()


class Payload:
    """Makes a folder when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> Any:
        return os.mkdir, (self.path,)


def logits(folder: Path, **options: Any) -> Any:
    model = ClassifierModel(ModelReference(str(folder), "x", **options)).load(None)
    ids = np.array([[1, 5, 7, 2]])
    return model.forward(ids, np.ones_like(ids))


@pytest.mark.parametrize("save", [save_custom_head, save_labels])
def test_allowed_pickles_give_the_same_numbers_as_safetensors(tmp_path: Path, save: Any) -> None:
    import torch
    from safetensors.torch import load_file

    save(tmp_path, ["a", "b"])
    expected = logits(tmp_path)
    torch.save(load_file(tmp_path / "model.safetensors"), tmp_path / "pytorch_model.bin")
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(InputError, match="is a pickle"):
        logits(tmp_path)
    np.testing.assert_allclose(logits(tmp_path, allow_pickle=True), expected, atol=1e-4)


@pytest.mark.parametrize("save", [save_custom_head, save_labels])
def test_an_allowed_pickle_runs_no_code(tmp_path: Path, save: Any) -> None:
    save(tmp_path / "model", ["a", "b"])
    (tmp_path / "model" / "model.safetensors").unlink()
    (tmp_path / "model" / "pytorch_model.bin").write_bytes(pickle.dumps({"w": Payload(tmp_path / "ran")}))
    with pytest.raises(Exception, match=r"pytorch_model.bin|[Ww]eights"):
        logits(tmp_path / "model", allow_pickle=True)
    assert not (tmp_path / "ran").exists()
