# SPDX-License-Identifier: Apache-2.0
"""Kernels that find what texts have in common: hashes, signatures, shared passages."""
