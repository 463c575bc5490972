# SPDX-License-Identifier: Apache-2.0
"""Values and contracts: what a task, a stage, a pipeline and a plan are. Knows no clock, no process, no file format."""
