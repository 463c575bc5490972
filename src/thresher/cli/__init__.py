# SPDX-License-Identifier: Apache-2.0
"""The command line: parsing and printing only. One file per command, loaded when it is used."""
