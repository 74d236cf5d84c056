# SPDX-License-Identifier: MIT
"""One module for each command: its options, and the sequence of its steps. Logic that another command could use is in
the layers below.
"""
