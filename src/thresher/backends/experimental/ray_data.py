# SPDX-License-Identifier: Apache-2.0
"""Alias of `thresher.backends.ray_data`."""

from thresher.backends.ray_data import RayDataExecutor

__all__ = ["RayDataExecutor"]
