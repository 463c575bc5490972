# SPDX-License-Identifier: Apache-2.0
"""Rules that use a model."""
