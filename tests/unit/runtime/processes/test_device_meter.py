# SPDX-License-Identifier: Apache-2.0
"""Measuring accelerators. No GPU can be had here: `FakeNvml` answers as `nvidia-ml-py` does by its documentation."""

from __future__ import annotations

from types import SimpleNamespace

from thresher.runtime.processes.accelerators import MEASURED_S, Accelerator, DeviceMeter
from thresher.scheduler.events import DeviceReading

DEVICES = (Accelerator(80, "0"), Accelerator(80, "GPU-b"), Accelerator(10, "MIG-d"))


class FakeNvml:
    """A stand-in for `pynvml` that counts its measurements. A slice has no utilization."""

    class NVMLError(Exception):
        """As the real one raises."""

    def __init__(self, *, has_driver: bool = True) -> None:
        self.has_driver = has_driver
        self.measured = 0
        self.is_lost = False

    def nvmlInit(self) -> None:  # noqa: N802 - named by NVIDIA
        if not self.has_driver:
            raise self.NVMLError("Driver Not Loaded")

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:  # noqa: N802
        return f"number {index}"

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802
        return uuid

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> SimpleNamespace:  # noqa: N802
        if self.is_lost:
            raise self.NVMLError("GPU is lost")
        self.measured += 1
        return SimpleNamespace(used=30, total=80)

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> SimpleNamespace:  # noqa: N802
        if handle.startswith("MIG"):
            raise self.NVMLError("Not Supported")
        return SimpleNamespace(gpu=70, memory=5)


def test_devices_are_measured_by_number_and_id() -> None:
    assert DeviceMeter("node-a", DEVICES, FakeNvml()).measure(0.0) == (
        DeviceReading("node-a/0", 30, 80, 70.0),
        DeviceReading("node-a/1", 30, 80, 70.0),
        DeviceReading("node-a/2", 30, 80, 0.0),
    )


def test_the_last_measurement_is_good_for_a_while() -> None:
    nvml = FakeNvml()
    meter = DeviceMeter("local", DEVICES[:1], nvml)
    first = meter.measure(10.0)
    assert meter.measure(10.0 + MEASURED_S / 2) == first
    assert nvml.measured == 1
    meter.measure(10.0 + MEASURED_S)
    assert nvml.measured == 2


def test_what_cannot_be_measured_is_left_out_and_fails_nothing() -> None:
    assert DeviceMeter("local", DEVICES, FakeNvml(has_driver=False)).measure(0.0) == ()
    assert DeviceMeter("local", ()).measure(0.0) == ()
    nvml = FakeNvml()
    meter = DeviceMeter("local", DEVICES, nvml)
    meter.measure(0.0)
    nvml.is_lost = True
    assert meter.measure(100.0) == ()


def test_a_machine_without_a_driver_has_nothing_to_measure() -> None:
    """Declared accelerators, as on the machines that run these tests."""
    meter = DeviceMeter("local", DEVICES)
    assert all(reading.total_bytes for reading in meter.measure(0.0))
