# SPDX-License-Identifier: Apache-2.0
"""Splitting of documents into segments, and joining them again."""
