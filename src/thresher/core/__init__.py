# SPDX-License-Identifier: Apache-2.0
"""Values and contracts: tasks, stages, pipelines, plans. Nothing here reads a clock, starts a process or knows a file
format."""
