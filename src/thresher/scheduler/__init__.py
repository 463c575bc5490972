# SPDX-License-Identifier: Apache-2.0
"""The pure scheduler: events in, actions out; no clock, no randomness, no I/O. `step` is the entry point."""
