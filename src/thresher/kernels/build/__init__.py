# SPDX-License-Identifier: Apache-2.0
"""Compile, cache and load kernels."""
