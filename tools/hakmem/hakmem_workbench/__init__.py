# SPDX-License-Identifier: MIT
"""The hakmem workbench: run, verify, compare and explain allocator policies.

`cli` is the entry point; each command is one module in `commands`.
Layers, lowest first; a module imports only from its own layer or lower ones:

    errors, text, glossary, screen    words and numbers for people
    children, elf, observe, ldtrace,  what the system says
    machine, process, timing, sidecar
    statsfile, library, inspection,   what the library says
    settings, explain, running
    heapprofile, symbols, pprof,      what a heap profile shows
    flame
    resolve, checks, preload,         is it in effect, which policy is meant,
    variants, mesonbuild              and where it comes from
    blocks, inference, factorial      judging
    results, experiment, live, trace, measuring
    advice
    report, plots, page, matrix       telling
    commands, cli                     the command line

The exact order is in tests/test_cli.py. What `run`, `verify`, `options`, `get`, `set`, `causes`, `profile` and `record`
import is the standard library only.
"""

__version__ = "0.1.0"
