# SPDX-License-Identifier: Apache-2.0
"""Accelerators are found as NVML tells them, declared as the caller says, and shown to workers one by one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from thresher.errors import UsageError
from thresher.runtime.processes import accelerators
from thresher.runtime.processes.accelerators import (
    Accelerator,
    declared_accelerators,
    nvml_devices,
    show_devices,
    visible_devices,
)


class FakeNvml:
    """A stand-in for `pynvml` with three devices, the last of them cut into a slice."""

    class NVMLError(Exception):
        """As the real one raises without a driver."""

    def __init__(self, *, has_driver: bool = True) -> None:
        self.has_driver = has_driver
        self.is_open = False
        self.memory = {"GPU-a": 24, "GPU-b": 40, "GPU-c": 80, "MIG-d": 10}

    def nvmlInit(self) -> None:  # noqa: N802 - named by NVIDIA
        if not self.has_driver:
            raise self.NVMLError("Driver Not Loaded")
        self.is_open = True

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.is_open = False

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        assert self.is_open
        return 3

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:  # noqa: N802
        return list(self.memory)[index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802
        return uuid

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> Any:  # noqa: N802
        return SimpleNamespace(total=self.memory[handle] * 10**9)


def found(visible: str | None) -> list[tuple[str, int]]:
    nvml = FakeNvml()
    devices = nvml_devices(nvml, visible)
    assert not nvml.is_open
    return [(device.visible_as, device.memory_bytes // 10**9) for device in devices]


def test_all_devices_are_found_with_their_memory() -> None:
    assert found(None) == [("0", 24), ("1", 40), ("2", 80)]


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        ("2,0", [("2", 80), ("0", 24)]),
        ("GPU-b, MIG-d", [("GPU-b", 40), ("MIG-d", 10)]),
        ("", []),
        ("1,-1,2", [("1", 40)]),
        ("7", []),
    ],
)
def test_what_the_driver_process_may_not_see_is_not_given_away(visible: str, expected: list[tuple[str, int]]) -> None:
    assert found(visible) == expected


def test_without_a_driver_there_are_none() -> None:
    assert nvml_devices(FakeNvml(has_driver=False), None) == ()


def test_without_the_package_there_are_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(accelerators, "_DRIVER_FILES", (str(tmp_path),))
    monkeypatch.setattr(accelerators.importlib, "import_module", _cannot_import)
    assert accelerators.found_accelerators() == ()


def _cannot_import(name: str) -> Any:
    raise ModuleNotFoundError(name)


def test_declared_by_number_they_have_the_default_memory() -> None:
    devices = declared_accelerators(2)
    assert [(device.visible_as, device.memory_bytes) for device in devices] == [("0", 24 * 10**9), ("1", 24 * 10**9)]


def test_declared_one_by_one_they_have_the_memory_that_was_said() -> None:
    assert [device.memory_bytes for device in declared_accelerators([{"memory_gb": 40}, {}])] == [
        40 * 10**9,
        24 * 10**9,
    ]
    assert declared_accelerators([]) == declared_accelerators(0) == ()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (-1, "gpus: -1 is neither"),
        (True, "gpus: True is neither"),
        (0.5, "gpus: 0.5 is neither"),
        ("2", "gpus: '2' is neither"),
        ([40], "gpus[0]: 40 does not describe an accelerator"),
        ([{}, {"memory": 40}], "gpus[1]: 'memory' is unknown; the one legal key is memory_gb"),
        ([{"memory_gb": 0}], "gpus[0].memory_gb: 0 is not a number above 0"),
    ],
)
def test_what_describes_no_accelerators_is_refused(given: Any, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        declared_accelerators(given)
    assert message in str(refused.value)


def test_a_worker_is_shown_its_own_devices_by_the_names_they_were_found_under() -> None:
    known = [Accelerator(1, "3"), Accelerator(1, "GPU-b"), Accelerator(1, "5")]
    assert visible_devices(known, (0, 2)) == "3,5"
    assert visible_devices(known, (1,)) == "GPU-b"
    assert visible_devices(known, ()) == ""


def test_a_worker_without_devices_sees_none() -> None:
    environment = {"CUDA_VISIBLE_DEVICES": "0,1", "CUDA_DEVICE_ORDER": "FASTEST_FIRST"}
    show_devices("", environment)
    assert environment == {"CUDA_VISIBLE_DEVICES": "", "CUDA_DEVICE_ORDER": "FASTEST_FIRST"}


def test_devices_are_counted_as_nvml_counts_them() -> None:
    environment = {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}
    show_devices("1", environment)
    assert environment == {"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
