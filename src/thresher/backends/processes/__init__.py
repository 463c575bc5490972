# SPDX-License-Identifier: Apache-2.0
"""Clusters whose workers exchange messages with the driver, and the one with processes on this machine."""
