/* SPDX-License-Identifier: MIT
 * The functions that names.def names: get() and set() of each value. arenas.c and values.c define them. */
#ifndef HAK_JEMALLOC_HANDLERS_H
#define HAK_JEMALLOC_HANDLERS_H

#include "jemalloc.h"

#define JE_GET(get) int je_##get(const size_t *mib, union je_value *value);
#define JE_SET(set) int je_##set(const size_t *mib, const union je_value *value);
#define FIXED(name, type, value, meaning)
#define READ(name, type, get, meaning) JE_GET(get)
#define BOTH(name, type, get, set, meaning) JE_GET(get) JE_SET(set)
#define ASK(name, taken, set, type, get, meaning) JE_SET(set) JE_GET(get)
#define WRITE(name, type, set, meaning) JE_SET(set)
#define RUN(name, set, meaning) JE_SET(set)
#define REFUSED(name, meaning)
#include "names.def"
#undef FIXED
#undef READ
#undef BOTH
#undef ASK
#undef WRITE
#undef RUN
#undef REFUSED

#endif
