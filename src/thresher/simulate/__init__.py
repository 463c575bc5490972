# SPDX-License-Identifier: Apache-2.0
"""The scheduler in virtual time, without processes: simulated clusters for tests, rehearsals of runs, and replay."""
