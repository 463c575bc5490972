# SPDX-License-Identifier: Apache-2.0
"""Encoded tasks: the encoding, the shared memory that holds them, and the leases that decide when it is free."""
