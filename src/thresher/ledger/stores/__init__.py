# SPDX-License-Identifier: Apache-2.0
"""Stores: folders that files are put into as a whole, local or behind a URL."""
