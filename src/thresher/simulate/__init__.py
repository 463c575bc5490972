# SPDX-License-Identifier: Apache-2.0
"""A cluster in virtual time, and the replay of a recorded run: the scheduler without processes."""
