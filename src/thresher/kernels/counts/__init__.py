# SPDX-License-Identifier: Apache-2.0
"""Counts over the texts of a batch, one module per group of counts."""
