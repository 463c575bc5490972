# SPDX-License-Identifier: Apache-2.0
"""Compressed files: content detection, and unpacking piece by piece."""
