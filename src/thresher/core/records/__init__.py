# SPDX-License-Identifier: Apache-2.0
"""Records, whatever they are made of: the contract between the engine and task types that hold records."""
