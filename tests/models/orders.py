#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Weakens each memory order of the library that a model meets, one at a time; a model must then fail.

orders.py CHECKER SOURCE OBJECT... [--long]

An order that can be weakened with no model failing is either not needed, or no model shows why it is.  Those are listed
in KEPT below with what they are for, and every other one is a failure; so is a row of KEPT that a model catches.
At the end stand the orders in SOURCE that no model meets.  With --long it is skipped unless STRESS_LONG=1.
"""

import collections
import os
import re
import subprocess
import sys

SKIPPED = 77
PATIENCE = 300
WEAKER = {"acquire": ["relaxed"], "release": ["relaxed"], "acq_rel": ["acquire", "release"]}

# (function, operation, from, to): what it is for, where no model shows it.
KEPT = {}

Site = collections.namedtuple("Site", "file line function kind order failure")


def check(checker, model, **settings):
    """The exit status, and what was said; a mutant that never ends is caught, too."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("MODEL_")} | settings
    try:
        done = subprocess.run([checker, model], env=env, capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return 1, "it does not end"
    return done.returncode, done.stdout


def places(model, offsets):
    """Function, file and line of each offset; a site is the return address of a call."""
    wanted = "".join(f"{offset - 1:#x}\n" for offset in offsets)
    said = subprocess.run(["addr2line", "-f", "-e", model], input=wanted, capture_output=True, text=True, check=True)
    lines = said.stdout.splitlines()
    for function, where in zip(lines[::2], lines[1::2]):
        file, line = where.split(" ")[0].rsplit(":", 1)
        yield function, os.path.realpath(os.path.join(os.path.dirname(model), file)), int(line)


def sites_of(checker, model):
    """Offsets of each site of the library in an object."""
    status, said = check(checker, model, MODEL_SITES="1")
    if status:
        sys.exit(f"{model}: not right as it is:\n{said}")
    rows = [line.split()[1:] for line in said.splitlines() if line.startswith("site ")]
    found = collections.defaultdict(list)
    for row, (function, file, line) in zip(rows, places(model, [int(row[0], 16) for row in rows])):
        found[Site(file, line, function, *row[1:])].append(row[0])
    return found


def mutants(site):
    for weaker in WEAKER.get(site.order, []):
        yield site.order, weaker, f"{weaker}:{site.failure}"
    if site.kind == "cas":
        for weaker in WEAKER.get(site.failure, []):
            yield f"{site.failure} (failure)", weaker, f"{site.order}:{weaker}"


def catcher(checker, by_model, site, change):
    """The first model that fails, as "object: model"."""
    for model, found in by_model.items():
        if site not in found:
            continue
        settings = ",".join(f"{offset}:{change}" for offset in found[site])
        status, said = check(checker, model, MODEL_WEAKEN=settings)
        if status == 2:
            sys.exit(f"{model} with {settings}: {said}")
        if status:
            return re.sub(r"^lib|\.so$", "", os.path.basename(model)) + ": " + re.sub(r"0x[0-9a-f]+", "..", said.splitlines()[-1] if
                   len(said.splitlines()) == 1 else next(l for l in said.splitlines() if ", run " in l))
    return None


def unmet(source, sites):
    """Orders in the source that stand at no site; a call may take several lines."""
    met = {(site.file, line) for site in sites for line in range(site.line, site.line + 3)}
    for folder, _, names in sorted(os.walk(source)):
        for name in sorted(names):
            path = os.path.realpath(os.path.join(folder, name))
            if not name.endswith((".c", ".h")):
                continue
            for number, text in enumerate(open(path), 1):
                if re.search(r"memory_order_(acquire|release|acq_rel)|__ATOMIC_(ACQUIRE|RELEASE)", text):
                    if (path, number) not in met:
                        yield f"{os.path.relpath(path, source)}:{number}: {text.strip()}"


def main(arguments):
    if "--long" in arguments and os.environ.get("STRESS_LONG") != "1":
        print("skipped: set STRESS_LONG=1 to run it")
        return SKIPPED
    checker, source, *models = [a for a in arguments if a != "--long"]
    by_model = {model: {s: at for s, at in sites_of(checker, model).items() if s.file.startswith(os.path.realpath(source))}
                for model in models}
    sites = sorted(set().union(*by_model.values()))
    caught = missed = wrong = 0
    for site in sites:
        for order, weaker, change in mutants(site):
            by = catcher(checker, by_model, site, change)
            key = (site.function, site.kind, order, weaker)
            caught += by is not None
            missed += by is None
            wrong += (by is None) != (key in KEPT)
            print(f"{os.path.relpath(site.file, source)}:{site.line} {site.function}: {site.kind} {order} -> {weaker}: "
                  f"{by or 'NOT CAUGHT' + (': ' + KEPT[key] if key in KEPT else '')}", flush=True)
    for line in unmet(source, sites):
        print("no model meets", line)
    print(f"{caught} caught, {missed} not, {wrong} unexpected")
    return wrong != 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
