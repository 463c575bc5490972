# SPDX-License-Identifier: Apache-2.0
"""Compile, cache and load kernels; `decorators`, `signatures` and `intrinsics` are what they are written with."""
