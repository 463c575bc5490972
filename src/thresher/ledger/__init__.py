# SPDX-License-Identifier: Apache-2.0
"""What is done: run folders, commits, resume, quarantine. Plain files, each one written beside and renamed."""
