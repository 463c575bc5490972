# SPDX-License-Identifier: Apache-2.0
"""Modifiers that rewrite a document's text: one file each."""
