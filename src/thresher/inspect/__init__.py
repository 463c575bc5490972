# SPDX-License-Identifier: Apache-2.0
"""Inspect a finished run: the history of a record, the audit of the counts, and the retry of quarantined records."""
