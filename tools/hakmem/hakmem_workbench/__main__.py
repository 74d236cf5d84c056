# SPDX-License-Identifier: MIT
"""`python3 -m hakmem_workbench` is the same as the command `hakmem`."""

import sys

from .cli import main

sys.exit(main())
