# SPDX-License-Identifier: Apache-2.0
"""Kernels that find passages in texts and rewrite them."""
