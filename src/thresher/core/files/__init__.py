# SPDX-License-Identifier: Apache-2.0
"""File access by path, local or by URL, with actionable error messages."""
