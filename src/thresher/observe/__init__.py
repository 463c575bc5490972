# SPDX-License-Identifier: Apache-2.0
"""What a run shows of itself: event log, metrics (a pure fold over events), live view, report."""
