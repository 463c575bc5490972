# SPDX-License-Identifier: Apache-2.0
"""Tasks and units: dispatch, backpressure, lineage order, retries and commits."""
