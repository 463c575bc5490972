# SPDX-License-Identifier: Apache-2.0
"""Workers and nodes: capacity, placement, pools, turnover and autoscaling."""
