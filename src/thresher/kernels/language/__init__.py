# SPDX-License-Identifier: Apache-2.0
"""Identification of languages by sequences of bytes."""
