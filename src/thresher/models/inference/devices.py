# SPDX-License-Identifier: Apache-2.0
"""The device and the threads that a model runs with in this worker."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from thresher.core.resources import WorkerMetadata


@dataclass(frozen=True)
class Placement:
    """Where a model runs."""

    device: str = "cpu"
    """`cpu`, `mps`, or `cuda:N` as this process counts its devices."""
    threads: int = 1
    """Threads for its computations on the CPU."""

    @property
    def is_accelerator(self) -> bool:
        """Return True if it does not run on the CPU."""
        return self.device != "cpu"


def torch_placement(metadata: WorkerMetadata | None, given: str = "auto") -> Placement:
    """Return the placement of a torch model: on the accelerator of the worker if it has one, else on `mps` where torch
    has it, else on the CPU."""
    import torch

    found = metadata or WorkerMetadata()
    if given != "auto":
        return Placement(given, found.threads)
    if found.devices and torch.cuda.is_available():
        return Placement(f"cuda:{visible_index(found, torch.cuda.device_count())}", found.threads)
    mps = getattr(torch.backends, "mps", None)
    return Placement("mps" if mps is not None and mps.is_available() else "cpu", found.threads)


def visible_index(metadata: WorkerMetadata, visible: int) -> int:
    """Return the number of the worker's first device among those that this process sees: all of the machine in a serial
    run, elsewhere only its own."""
    return metadata.devices[0] if visible > len(metadata.devices) and metadata.devices[0] < visible else 0


def limit_torch_threads(threads: int) -> None:
    """Let torch run so many threads in this process; by itself it takes all cores."""
    import torch

    torch.set_num_threads(threads)


def onnx_providers(metadata: WorkerMetadata | None, given: str = "auto") -> list[Any]:
    """Return the execution providers of ONNX Runtime, the preferred one first."""
    import onnxruntime

    found = metadata or WorkerMetadata()
    has_cuda = "CUDAExecutionProvider" in onnxruntime.get_available_providers()
    wanted = given.startswith("cuda") or (given == "auto" and bool(found.devices))
    if wanted and has_cuda:
        given_index = given.partition(":")[2]
        index = int(given_index) if given_index else 0 if "CUDA_VISIBLE_DEVICES" in os.environ else found.devices[0]
        return [("CUDAExecutionProvider", {"device_id": index}), "CPUExecutionProvider"]
    return ["CPUExecutionProvider"]
