# SPDX-License-Identifier: Apache-2.0
"""Find, read and replace values in JSON lines as bytes, without Python objects."""
