# SPDX-License-Identifier: Apache-2.0
"""Rules over documents: their base classes, and the stages that apply them."""
