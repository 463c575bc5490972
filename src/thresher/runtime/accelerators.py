# SPDX-License-Identifier: Apache-2.0
"""Accelerators of this machine: found through NVML, or declared, and what a worker is shown of them.

A worker gets exactly its own devices in `CUDA_VISIBLE_DEVICES`, before any stage is set up and before a module of the
user is imported afresh. A worker without accelerators gets an empty list, so that a library that takes whatever it
finds finds nothing.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

from thresher.errors import UsageError

DEFAULT_MEMORY_BYTES = 24 * 10**9
"""Memory of a declared accelerator whose memory nobody said."""
VISIBLE = "CUDA_VISIBLE_DEVICES"
ORDER = "CUDA_DEVICE_ORDER"
_DRIVER_FILES = ("/dev/nvidiactl", "/dev/dxg")
"""One of these is there where a driver is: on Linux, and on Linux inside Windows."""


@dataclass(frozen=True)
class Accelerator:
    """One device that workers may be given."""

    memory_bytes: int
    """Its memory."""
    visible_as: str
    """Its entry in `CUDA_VISIBLE_DEVICES`: a number, or an id such as `GPU-…` or `MIG-…`."""
    declared: bool = False
    """The caller said that it is there; nobody looked."""


# -- which there are --------------------------------------------------------------------------------------------------


def accelerators(given: Any) -> tuple[Accelerator, ...]:
    """The devices of the option `gpus`: `None` looks for them, a count or a list declares them."""
    return found_accelerators() if given is None else declared_accelerators(given)


def declared_accelerators(given: Any) -> tuple[Accelerator, ...]:
    """From a count, or from a list with one entry per device, such as `[{"memory_gb": 40}]`."""
    if isinstance(given, int) and not isinstance(given, bool) and given >= 0:
        return tuple(Accelerator(DEFAULT_MEMORY_BYTES, str(number), declared=True) for number in range(given))
    if isinstance(given, list | tuple):
        return tuple(
            Accelerator(_declared_memory(number, entry), str(number), declared=True)
            for number, entry in enumerate(given)
        )
    raise UsageError(
        f"gpus: {given!r} is neither a whole number of 0 or more nor a list with one entry per accelerator, "
        'such as [{"memory_gb": 40}, {"memory_gb": 40}]'
    )


def _declared_memory(number: int, entry: Any) -> int:
    where = f"gpus[{number}]"
    if not isinstance(entry, dict):
        raise UsageError(f'{where}: {entry!r} does not describe an accelerator; write {{"memory_gb": 40}}, or {{}}')
    unknown = [key for key in entry if key != "memory_gb"]
    if unknown:
        raise UsageError(f"{where}: {unknown[0]!r} is unknown; the one legal key is memory_gb")
    memory_gb = entry.get("memory_gb", DEFAULT_MEMORY_BYTES / 10**9)
    if isinstance(memory_gb, bool) or not isinstance(memory_gb, int | float) or memory_gb <= 0:
        raise UsageError(f"{where}.memory_gb: {memory_gb!r} is not a number above 0")
    return int(memory_gb * 10**9)


def found_accelerators(environment: MutableMapping[str, str] | None = None) -> tuple[Accelerator, ...]:
    """What NVML finds, as far as this process may see it; none without a driver or without `nvidia-ml-py`."""
    if not any(map(os.path.exists, _DRIVER_FILES)):
        return ()
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        return ()
    return ask_nvml(nvml, (os.environ if environment is None else environment).get(VISIBLE))


def ask_nvml(nvml: Any, visible: str | None) -> tuple[Accelerator, ...]:
    """The devices that NVML knows; with `visible` (as in `CUDA_VISIBLE_DEVICES`) only those, in that order."""
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return ()  # no driver, or one that does not answer
    try:
        return tuple(_devices(nvml, visible))
    finally:
        nvml.nvmlShutdown()


def _devices(nvml: Any, visible: str | None) -> Iterator[Accelerator]:
    count = nvml.nvmlDeviceGetCount()
    entries = [str(number) for number in range(count)] if visible is None else visible.split(",")
    for entry in map(str.strip, entries):
        if entry.isdigit() and int(entry) < count:
            handle = nvml.nvmlDeviceGetHandleByIndex(int(entry))
        elif entry.startswith(("GPU-", "MIG-")):
            handle = nvml.nvmlDeviceGetHandleByUUID(entry)
        else:
            return  # CUDA, too, takes what stands before the first entry that means nothing
        yield Accelerator(int(nvml.nvmlDeviceGetMemoryInfo(handle).total), entry)


# -- what a worker is shown -------------------------------------------------------------------------------------------


def visible_devices(known: Sequence[Accelerator], devices: Sequence[int]) -> str:
    """`CUDA_VISIBLE_DEVICES` of a worker that was given these devices; empty without any."""
    return ",".join(known[device].visible_as for device in devices)


def show_devices(visible: str, environment: MutableMapping[str, str] | None = None) -> None:
    """Let this process, and what it starts, see these devices and no other."""
    environment = os.environ if environment is None else environment
    environment[VISIBLE] = visible
    if visible:
        environment[ORDER] = "PCI_BUS_ID"  # NVML counts so; CUDA's own order begins with the fastest
