# SPDX-License-Identifier: Apache-2.0
"""Rules about characters and patterns."""
