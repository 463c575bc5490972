# SPDX-License-Identifier: Apache-2.0
"""Stages that remove duplicates: whole documents, exact or similar, and repeated passages within and between them."""
