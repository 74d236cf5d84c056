#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The example of a document compiles, and prints what the document says.

  example.py DOCUMENT LIBRARY INCLUDE COMPILER...
"""
import re
import subprocess
import sys
import tempfile
from pathlib import Path


def main():
    text, library, include = Path(sys.argv[1]).read_text(), Path(sys.argv[2]), sys.argv[3]
    code = re.search(r"^```c\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)[1]
    told = re.search(r"^It prints\n\n```\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)[1]
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "example"
        subprocess.run([*sys.argv[4:], "-x", "c", "-Wall", "-Wextra", "-Werror", "-O1", "-I", include, "-o", program,
                        "-", "-x", "none", library, f"-Wl,-rpath,{library.parent}"],
                       input=code, text=True, check=True)
        printed = subprocess.run([program], stdout=subprocess.PIPE, text=True, check=True).stdout
    print(printed)
    if printed != told:
        sys.exit(f"{sys.argv[1]} says\n{told}")


if __name__ == "__main__":
    main()
