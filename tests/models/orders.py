#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Weakens each memory order of the library that a model covers, one at a time; then a model must fail.

orders.py CHECKER SOURCE OBJECT... [--long]

An order whose weakening no model detects must be in KEPT below, with the reason, and one in SOURCE that no model covers
in UNMET; any other is a failure, and so is a row of KEPT that a model detects, or a row about an order that no longer
exists. With --long it is skipped unless STRESS_LONG=1.
"""

import collections
import os
import re
import subprocess
import sys

SKIPPED = 77
PATIENCE = 300
WEAKER = {"acquire": ["relaxed"], "release": ["relaxed"], "acq_rel": ["acquire", "release"]}

# (function, operation, from, to): the reason why no model fails.
KEPT = {
    ("hak_slab_reclaim", "load", "acquire", "relaxed"): "its swap acquires as well",
    ("swap_word", "cas", "acquire (failure)", "relaxed"): "a swap that failed reads only the word",
    ("hak_slab_state", "load", "acquire", "relaxed"): "the caller got the slab from a block, a list or under a lock",
    ("hak_slab_format", "store", "release", "relaxed"): "a thread finds the slab through a block or a list",
    ("hak_slab_empty", "store", "release", "relaxed"): "the list that the slab goes to orders it",
    ("hak_slab_visit", "load", "acquire", "relaxed"): "its swap acquires as well",
    ("hak_slab_adopt", "load", "acquire", "relaxed"): "its swap acquires as well",
    ("hak_slab_collect", "load", "acquire", "relaxed"): "its swap acquires as well",
    ("hak_slab_stack_pop", "cas", "acquire", "relaxed"): "the load saw the same push: its version is unique",
    ("hak_slab_stack_take_all", "load", "acquire", "relaxed"): "the swap acquires as well",
    ("hak_slab_stack_take_all", "cas", "acquire", "relaxed"): "the load acquires as well",
    ("hak_slab_stack_take_all", "cas", "acquire (failure)", "relaxed"): "the swap acquires as well",
    ("hak_tag_clear", "load", "acquire", "relaxed"): "it reads nothing of the table, and its store depends on the mask",
}
# (file, part of the line): the reason why no model covers it.
BY_CPU = "models are of threads that have heaps; the thread sanitizer runs with heaps of CPUs, under their locks"
UNMET = {
    ("core/heap/cpu_heaps.c", "heaps[cpu]"): BY_CPU,
    ("core/heap/cpu_heaps.c", "&count"): BY_CPU,
    ("core/heap/caches/cpu/cpu.c", "hak_arrays_of["): BY_CPU,
    ("core/pages/lookup.c", "n = HAK_LOAD_ACQUIRE(&hak_zone_count)"): "a long walk, for statistics",
    ("frontends/large/spans.c", "newest[kind]"): "for advice about huge pages; no model maps as much",
    ("frontends/large/large.c", "HAK_SLAB_SPAN"): "a thread finds the span through a block",
}
# Of two redundant orders one must remain: models detect if both are weakened.
TOGETHER = [
    [*((f"hak_slab_{call}", "load", "acquire", "relaxed") for call in ("collect", "reclaim", "adopt", "visit")),
     ("swap_word", "cas", "acq_rel", "release")],
    [("hak_slab_stack_take_all", "load", "acquire", "relaxed"),
     ("hak_slab_stack_take_all", "cas", "acquire", "relaxed"),
     ("hak_slab_stack_take_all", "cas", "acquire (failure)", "relaxed")],
]

ORDERED = re.compile(r"memory_order_(acquire|release|acq_rel)|HAK_\w+_(ACQUIRE|RELEASE|ACQ_REL)\(|"
                     r"__ATOMIC_(ACQ|REL(?!A))")
Site = collections.namedtuple("Site", "file line function kind order failure")


def check(checker, model, **settings):
    """The exit status and the output; a mutant that never ends counts as detected."""
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
    """The weakenings of a site, as keys of KEPT."""
    for weaker in WEAKER.get(site.order, []):
        yield site.function, site.kind, site.order, weaker
    for weaker in WEAKER.get(site.failure, []) if site.kind == "cas" else []:
        yield site.function, site.kind, f"{site.failure} (failure)", weaker


def weakened(found, keys):
    """The value of MODEL_WEAKEN for an object; empty if it has no such site."""
    changes = []
    for site, offsets in found.items():
        order, failure = site.order, site.failure
        for key in set(mutants(site)) & set(keys):
            if key[2].endswith("(failure)"):
                failure = key[3]
            else:
                order = key[3]
        if (order, failure) != (site.order, site.failure):
            changes += [f"{offset}:{order}:{failure}" for offset in offsets]
    return ",".join(changes)


def catcher(checker, by_model, keys):
    """The first model that fails, and how."""
    for model, found in by_model.items():
        changes = weakened(found, keys)
        status, said = check(checker, model, MODEL_WEAKEN=changes) if changes else (0, "")
        if status == 2:
            sys.exit(f"{model} with {changes}: {said}")
        if status:
            return next((line for line in said.splitlines() if ", run " in line), said)
    return None


def judge(checker, by_model, keys, where):
    """Prints a line; returns whether a model detected it."""
    by = catcher(checker, by_model, keys)
    what = "; ".join(f"{function}: {kind} {order} -> {weaker}" for function, kind, order, weaker in keys)
    kept = ": " + KEPT[keys[0]] if len(keys) == 1 and keys[0] in KEPT else ""
    print(f"{where}{what}: {by or 'NOT CAUGHT' + kept}", flush=True)
    return by is not None


def unmet(source, sites):
    """File, line and text of orders in the source without a site; a call may take several lines."""
    met = {(site.file, line) for site in sites for line in range(site.line, site.line + 3)}
    for folder, _, names in sorted(os.walk(source)):
        for name in sorted(names):
            path = os.path.realpath(os.path.join(folder, name))
            if not name.endswith((".c", ".h")) or name == "words.h":  # which names them
                continue
            for number, text in enumerate(open(path), 1):
                if ORDERED.search(text) and "#define" not in text and (path, number) not in met:
                    yield os.path.relpath(path, source), number, text.strip()


def judge_unmet(source, sites):
    """Prints them; returns those without a row in UNMET, and rows without an order."""
    wrong, unused = [], set(UNMET)
    for file, number, text in unmet(source, sites):
        rows = [row for row in UNMET if row[0] == file and row[1] in text]
        print(f"{file}:{number} no model meets {text}: {UNMET[rows[0]] if rows else 'WHY?'}")
        unused -= set(rows)
        wrong += [] if rows else [(file, text)]
    return wrong + sorted(unused)


def main(arguments):
    if "--long" in arguments and os.environ.get("STRESS_LONG") != "1":
        print("skipped: set STRESS_LONG=1 to run it")
        return SKIPPED
    checker, source, *models = [a for a in arguments if a != "--long"]
    source = os.path.realpath(source)
    by_model = {model: {site: offsets for site, offsets in sites_of(checker, model).items()
                        if site.file.startswith(source)} for model in models}
    sites = sorted(set().union(*by_model.values()))
    caught, missed = set(), set()
    for site in sites:
        where = f"{os.path.relpath(site.file, source)}:{site.line} "
        for key in mutants(site):
            (caught if judge(checker, by_model, [key], where) else missed).add(key)
    wrong = sorted(missed ^ set(KEPT))  # not caught and not listed, or listed and caught, or no order any more
    apart = [keys for keys in TOGETHER if not judge(checker, by_model, keys, "together: ")]
    wrong += judge_unmet(source, sites)
    print(f"{len(caught)} caught, {len(missed)} not, {len(wrong) + len(apart)} of them unexpected", *wrong, sep="\n  ")
    return bool(wrong or apart)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
