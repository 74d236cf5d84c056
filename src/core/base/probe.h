/* SPDX-License-Identifier: MIT
 * Static probes for bpftrace, perf, SystemTap and gdb (-Dprobes=true): a nop, and an ELF note with its address and the
 * locations of its arguments. docs/profile.md lists them. In other builds they are empty, and their arguments are not
 * evaluated. */
#ifndef HAK_PROBE_H
#define HAK_PROBE_H

#include "words.h"

#if HAK_PROBES
#define SDT_USE_VARIADIC 1
#include <sys/sdt.h>
#define HAK_PROBE(name, ...) STAP_PROBEV(hakmem, name, __VA_ARGS__)
#else
#define HAK_PROBE(name, ...) ((void)0)
#endif

#endif
