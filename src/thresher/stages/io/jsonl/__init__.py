# SPDX-License-Identifier: Apache-2.0
"""JSON lines: units, reading and writing."""
