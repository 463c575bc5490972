# SPDX-License-Identifier: Apache-2.0
"""Worker processes of one machine: the zygote that forks them, the driver's pool, and the messages between them."""
