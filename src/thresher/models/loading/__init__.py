# SPDX-License-Identifier: Apache-2.0
"""Find, fetch and check the files of a model."""
