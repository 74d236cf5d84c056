#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A C++ program compiles with each C++ compiler that is installed, and runs.

  cxx.py SOURCE LIBRARY INCLUDE
"""
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

FLAGS = ["-std=c++17", "-Wall", "-Wextra", "-pedantic", "-Werror", "-pthread"]


def main():
    source, library, include = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    compilers = [name for name in ("g++", "clang++") if shutil.which(name)]
    for compiler in compilers:
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder) / "program"
            subprocess.run([compiler, *FLAGS, "-I", include, source, "-o", program, library,
                            f"-Wl,-rpath,{library.parent}"], check=True)
            subprocess.run([program], check=True)
    print("compilers:", *compilers)
    sys.exit(0 if compilers else 77)


if __name__ == "__main__":
    main()
