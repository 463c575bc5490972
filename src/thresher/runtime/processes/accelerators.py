# SPDX-License-Identifier: Apache-2.0
"""Accelerators of this machine, detected through NVML or declared, their assignment to workers, and their use.

A worker gets exactly its own devices in `CUDA_VISIBLE_DEVICES`, before any stage is set up and before any user module
is imported. A worker without accelerators gets an empty list, so that a library that uses every visible device uses
none.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

from thresher.errors import UsageError
from thresher.scheduler.events import DeviceReading

DEFAULT_MEMORY_BYTES = 24 * 10**9
"""Memory of a declared accelerator without `memory_gb`."""
MEASURED_S = 2.0
"""Time between two measurements; NVML averages over about a second."""
VISIBLE = "CUDA_VISIBLE_DEVICES"
ORDER = "CUDA_DEVICE_ORDER"
_DRIVER_FILES = ("/dev/nvidiactl", "/dev/dxg")
"""Files that exist if a driver is installed: on Linux, and on Linux inside Windows."""


@dataclass(frozen=True)
class Accelerator:
    """One device that can be assigned to workers."""

    memory_bytes: int
    """Its memory."""
    visible_as: str
    """Its entry in `CUDA_VISIBLE_DEVICES`: a number, or an id such as `GPU-…` or `MIG-…`."""


# -- detection --------------------------------------------------------------------------------------------------------


def accelerators(given: Any) -> tuple[Accelerator, ...]:
    """Return the devices for the option `gpus`: `None` detects them, a count or a list declares them."""
    return found_accelerators() if given is None else declared_accelerators(given)


def declared_accelerators(given: Any) -> tuple[Accelerator, ...]:
    """Return devices declared by a count, or by a list with one entry per device, such as `[{"memory_gb": 40}]`."""
    if isinstance(given, int) and not isinstance(given, bool) and given >= 0:
        return tuple(Accelerator(DEFAULT_MEMORY_BYTES, str(number)) for number in range(given))
    if isinstance(given, list | tuple):
        return tuple(Accelerator(_declared_memory(number, entry), str(number)) for number, entry in enumerate(given))
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
    """Return the devices that NVML detects and this process may see; none without a driver or `nvidia-ml-py`."""
    if not has_driver():
        return ()
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        return ()
    return nvml_devices(nvml, (os.environ if environment is None else environment).get(VISIBLE))


def has_driver() -> bool:
    """Return True if a driver of NVIDIA is installed."""
    return any(map(os.path.exists, _DRIVER_FILES))


def nvml_handle(nvml: Any, visible_as: str) -> Any:
    """Return the handle of a device, by its number or id."""
    if visible_as.isdigit():
        return nvml.nvmlDeviceGetHandleByIndex(int(visible_as))
    return nvml.nvmlDeviceGetHandleByUUID(visible_as)


def nvml_devices(nvml: Any, visible: str | None) -> tuple[Accelerator, ...]:
    """Return the devices that NVML lists; with `visible` (as in `CUDA_VISIBLE_DEVICES`) only those, in that order."""
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return ()  # no driver, or one that does not respond
    try:
        return tuple(_devices(nvml, visible))
    finally:
        nvml.nvmlShutdown()


def _devices(nvml: Any, visible: str | None) -> Iterator[Accelerator]:
    count = nvml.nvmlDeviceGetCount()
    entries = [str(number) for number in range(count)] if visible is None else visible.split(",")
    for entry in map(str.strip, entries):
        if not (int(entry) < count if entry.isdigit() else entry.startswith(("GPU-", "MIG-"))):
            return  # like CUDA, stop at the first invalid entry
        yield Accelerator(int(nvml.nvmlDeviceGetMemoryInfo(nvml_handle(nvml, entry)).total), entry)


# -- assignment to workers --------------------------------------------------------------------------------------------


def visible_devices(known: Sequence[Accelerator], devices: Sequence[int]) -> str:
    """Return `CUDA_VISIBLE_DEVICES` for a worker with these devices; empty without any."""
    return ",".join(known[device].visible_as for device in devices)


def show_devices(visible: str, environment: MutableMapping[str, str] | None = None) -> None:
    """Make these devices, and no others, visible to this process and its children."""
    environment = os.environ if environment is None else environment
    environment[VISIBLE] = visible
    if visible:
        environment[ORDER] = "PCI_BUS_ID"  # the order of NVML; CUDA's default order begins with the fastest


# -- use --------------------------------------------------------------------------------------------------------------


class DeviceMeter:
    """Measures the memory and use of the devices of one node, through NVML.

    Without a driver, or without `nvidia-ml-py`, there is nothing to measure.
    """

    def __init__(self, node: str, devices: Sequence[Accelerator], nvml: Any = None) -> None:
        self._node = node
        self._nvml = nvml
        self._next_s = 0.0
        self._last: tuple[DeviceReading, ...] = ()
        self._handles: list[Any] | None = None if devices else []
        self._devices = devices

    def measure(self, now_s: float) -> tuple[DeviceReading, ...]:
        """Return the last measurement, after a new one if it is due; nothing if the devices cannot be measured."""
        if self._handles is None:
            self._handles = self._open()
        if self._handles and now_s >= self._next_s:
            self._next_s = now_s + MEASURED_S
            try:
                self._last = tuple(self._reading(number, handle) for number, handle in enumerate(self._handles))
            except self._nvml.NVMLError:  # a device fell off the bus, or the driver was updated
                self._last = ()
        return self._last

    def _open(self) -> list[Any]:
        if self._nvml is None:
            if not has_driver():
                return []
            try:
                self._nvml = importlib.import_module("pynvml")
            except ImportError:
                return []
        try:
            self._nvml.nvmlInit()
            return [nvml_handle(self._nvml, device.visible_as) for device in self._devices]
        except self._nvml.NVMLError:
            return []

    def _reading(self, number: int, handle: Any) -> DeviceReading:
        memory = self._nvml.nvmlDeviceGetMemoryInfo(handle)
        try:
            busy = float(self._nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
        except self._nvml.NVMLError:  # slices of a device (MIG) have no such figure
            busy = 0.0
        return DeviceReading(f"{self._node}/{number}", int(memory.used), int(memory.total), busy)
