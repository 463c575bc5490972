# SPDX-License-Identifier: Apache-2.0
"""Observability of a run: event log, metrics (a pure fold over events), live view, report."""
