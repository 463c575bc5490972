# SPDX-License-Identifier: Apache-2.0
"""Rules that score documents and decide which to keep, one rule or family of rules per file."""
