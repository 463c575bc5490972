# SPDX-License-Identifier: Apache-2.0
"""Metrics for Prometheus: families, their text, the endpoint; and the rules and dashboard that are built on them."""
