# SPDX-License-Identifier: Apache-2.0
"""Classifiers of texts, each a stage that tokenizes and one that runs the model."""
