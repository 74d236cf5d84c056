# SPDX-License-Identifier: MIT
"""One module for each command: its options, and the order of what it does.

No logic lives here that another command could want; that is in the layers below.
"""
