# SPDX-License-Identifier: Apache-2.0
"""Identification of the language of a text."""
