#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The JSON statistics conform to docs/stats.schema.json, and the text begins with the five lines of memory.

  PYTHONPATH=tests schema.py LIBRARY SCHEMA

The schema uses few keywords of JSON Schema, so this implements them; any other is an error.
"""
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import tracing
from common import finish

TYPES = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}
WORDS = {"$schema", "title", "description", "type", "required", "properties", "additionalProperties", "items", "const",
         "minimum"}
LINES = ["memory", "live_bytes", "retained", "resident_bytes", "threads", "age_ms"]


def faults(value, schema, where="statistics"):
    """The errors in the value."""
    if schema is False:
        yield f"{where} is not in the schema"
        return
    yield from (f"the schema of {where} uses {word}" for word in schema.keys() - WORDS)
    kind = schema.get("type")
    if kind and (not isinstance(value, TYPES[kind]) or (kind == "integer" and isinstance(value, bool))):
        yield f"{where} is no {kind}: {value!r}"
        return
    if "const" in schema and value != schema["const"]:
        yield f"{where} is {value!r}, not {schema['const']!r}"
    if "minimum" in schema and value < schema["minimum"]:
        yield f"{where} is {value}"
    if isinstance(value, dict):
        yield from (f"{where} has no {key}" for key in schema.get("required", ()) if key not in value)
        for key, member in value.items():
            yield from faults(member, schema.get("properties", {}).get(key, schema.get("additionalProperties", {})),
                              f"{where}.{key}")
    if isinstance(value, list):
        for i, member in enumerate(value):
            yield from faults(member, schema.get("items", {}), f"{where}[{i}]")


def main():
    library, schema = sys.argv[1], json.loads(Path(sys.argv[2]).read_text())
    problems = []
    for backend in ("", *tracing.run_with_stats(library, ["true"])[0]["allocator"]["backends"].split()):
        stats, _ = tracing.run_with_stats(library, ["ls", "-R", "/proc/self/fd"],
                                          {"HAKMEM_BACKEND": backend} if backend else {})
        problems += faults(stats, schema)
        if sum(row["allocated_blocks"] for row in stats["classes"]) != stats["conservation"]["allocated_blocks"]:
            problems.append("the blocks of all classes are not those of the conservation laws")
        if not stats["bins"].get("mallocs", 1):
            problems.append("bins.mallocs is 0, which is not the number of mallocs")
    text = subprocess.run(["true"], env=tracing.settings_only({"LD_PRELOAD": library, "HAKMEM_STATS": "1"}),
                          capture_output=True, text=True).stderr
    if re.findall(r"^ *(\w+):", text, re.MULTILINE)[:len(LINES)] != LINES:
        problems.append(f"the text begins with {text[:300]!r}{os.linesep}")
    problems += re.findall(r".* =.*", text)
    finish(problems, "the statistics are as the schema says")


if __name__ == "__main__":
    main()
