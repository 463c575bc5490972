# SPDX-License-Identifier: Apache-2.0
"""Stages that prepare texts for models and run them: tokens on CPUs, the model on workers of its own."""
