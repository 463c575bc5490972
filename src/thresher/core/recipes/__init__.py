# SPDX-License-Identifier: Apache-2.0
"""Recipes: a pipeline as YAML, read and checked without running code."""
