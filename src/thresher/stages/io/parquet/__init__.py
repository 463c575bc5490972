# SPDX-License-Identifier: Apache-2.0
"""Parquet: units, reading, salvage of damaged files, schemas and writing."""
