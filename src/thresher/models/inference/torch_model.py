# SPDX-License-Identifier: Apache-2.0
"""Run a torch module: device, threads, mixed precision, and memory that ran out."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from thresher.core.resources import WorkerMetadata
from thresher.errors import MissingPackageError
from thresher.models.inference.batches import CPU_TOKENS
from thresher.models.inference.devices import limit_torch_threads, torch_placement

if TYPE_CHECKING:
    import torch

    from thresher.models.inference.batches import Numbers
    from thresher.models.token_lists import Rows

_MMAP_THRESHOLD = -3
"""The option of glibc's mallopt that says from which size on memory is mapped, and unmapped when it is freed."""
_LARGE_BYTES = 2**17


def check_torch(caller: str, *packages: str) -> None:
    """Raise an error if torch, transformers or another package that a model needs is not installed."""
    for package in ("torch", "transformers", *packages):
        if importlib.util.find_spec(package) is None:
            raise MissingPackageError(
                f"{caller}: this model needs the package {package}: pip install 'thresher[transformers]', or give a "
                "folder with a model.onnx, which needs only thresher[models]"
            )


def quiet_transformers() -> None:
    """Keep progress bars and advice of transformers off stderr, which belongs to the run."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()


class TorchModel:
    """A torch module that takes token ids; a `TokenModel`."""

    pads_left = False

    def __init__(
        self,
        module: Callable[[], Any],
        metadata: WorkerMetadata | None,
        *,
        pad_id: int,
        device: str = "auto",
        autocast: bool = True,
    ) -> None:
        """`module` makes a module whose call with ids and mask returns one row of numbers for each text.
        `autocast`: compute in half precision on an accelerator."""
        import torch

        placement = torch_placement(metadata, device)
        limit_torch_threads(placement.threads)
        self.pad_id = pad_id
        self.device = placement.device
        self.most_tokens = None if placement.is_accelerator else CPU_TOKENS
        self._autocast = autocast and placement.is_accelerator
        with torch.inference_mode():
            self._module = module().to(self.device).eval()

    def forward(self, ids: Rows, mask: Rows) -> Numbers:
        """Return the output for each text."""
        import numpy as np
        import torch

        with torch.inference_mode(), self._precision():
            found = self._module(torch.from_numpy(ids).to(self.device), torch.from_numpy(mask).to(self.device))
        return np.asarray((found.float() if found.is_floating_point() else found).cpu().numpy())

    def _precision(self) -> contextlib.AbstractContextManager[Any]:
        if not self._autocast:
            return contextlib.nullcontext()
        import torch

        precision: contextlib.AbstractContextManager[Any] = torch.autocast(
            self.device.partition(":")[0], dtype=half_type(self.device)
        )
        return precision

    def free_memory(self) -> None:
        """Return cached memory to the device."""
        import gc

        import torch

        gc.collect()
        if self.device.startswith("cuda"):
            torch.cuda.empty_cache()
        elif self.device == "mps":
            torch.mps.empty_cache()
        else:
            return_free_memory()


def return_free_memory() -> None:
    """Return freed memory to the system, where the C library is glibc, and let it keep none of large tensors from now
    on: what it keeps counts against the limit of a worker, and pieces of it fit nothing."""
    import ctypes

    library = ctypes.CDLL(None)
    if hasattr(library, "malloc_trim") and hasattr(library, "mallopt"):
        library.mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)
        library.malloc_trim(0)


def half_type(device: str) -> torch.dtype:
    """Return the type of half precision that a device computes with."""
    import torch

    has_bfloat16 = device.startswith("cuda") and torch.cuda.is_bf16_supported()
    return torch.bfloat16 if has_bfloat16 else torch.float16
