# SPDX-License-Identifier: Apache-2.0
"""Stages that ask a language model behind an endpoint: generate, judge, rewrite, translate, extract."""
