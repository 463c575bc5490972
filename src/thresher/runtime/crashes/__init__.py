# SPDX-License-Identifier: Apache-2.0
"""Crashes and hangs: notes that survive a worker, the watchdog, the diagnosis, and isolation of the record."""
