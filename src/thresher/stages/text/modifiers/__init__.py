# SPDX-License-Identifier: Apache-2.0
"""Modifiers that rewrite the text of documents, one per file."""
