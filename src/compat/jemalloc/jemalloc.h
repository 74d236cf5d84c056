/* SPDX-License-Identifier: MIT
 * The part of jemalloc's interface that this library serves (jemalloc 5.3), and what the files of this folder share.
 * Programs are compiled with jemalloc's own header; mallocx and its kin are in src/api/mallocx.c. */
#ifndef HAK_JEMALLOC_H
#define HAK_JEMALLOC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "api/hakmem.h"

#define MALLCTL_ARENAS_ALL 4096u
#define MALLCTL_ARENAS_DESTROYED 4097u

int mallctl(const char *name, void *oldp, size_t *oldlenp, void *newp, size_t newlen);
int mallctlnametomib(const char *name, size_t *mib, size_t *length);
int mallctlbymib(const size_t *mib, size_t length, void *oldp, size_t *oldlenp, void *newp, size_t newlen);
void malloc_stats_print(void (*write)(void *, const char *), void *opaque, const char *options);
extern void (*malloc_message)(void *opaque, const char *text);
extern const char *malloc_conf;

#define JE_EXPORT __attribute__((visibility("default")))
#define JE_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define JE_VERSION "5.3.0-0-hakmem-" HAK_VERSION
#define JE_PREFIX "<hakmem-jemalloc>: "
#define JE_LARGE 47u /* 64 KiB << 46 is more than any machine has */

/* A value that mallctl reads or writes. */
union je_value {
    bool flag;
    unsigned number;
    size_t size;
    ssize_t ssize;
    uint32_t u32;
    uint64_t u64;
    int64_t i64;
    const char *text;
    void *pointer;
};

/* Bytes that the calling thread allocated and freed, since a program asked for the first time. calls.c counts. */
struct je_thread {
    uint64_t allocated, freed, peak, base; /* peak: of what is allocated and not freed, above base */
    unsigned arena;
    bool no_tcache;
};
extern __thread struct je_thread je_self __attribute__((tls_model("initial-exec")));
extern bool je_counting;
void *je_counted(void *p);

/* The heap of an arena; NULL for 0 and for those that do not exist. arenas.c */
hakmem_heap *je_arena_heap(size_t index);

/* --- a name's row (ctl.c) ------------------------------------------------------------------------------- */

enum je_type { JE_none, JE_flag, JE_number, JE_size, JE_ssize, JE_u32, JE_u64, JE_i64, JE_text, JE_pointer };

/* A row of names.def. Functions return 0 or an errno. */
struct je_name {
    const char *name;
    enum je_type type, takes; /* of what is read, and of what is written; none: EPERM */
    bool answers;             /* what is read is the answer to what is written */
    union je_value fixed;
    int (*get)(const size_t *mib, union je_value *value);       /* NULL: the value is `fixed` */
    int (*set)(const size_t *mib, const union je_value *value); /* value: NULL if none is written */
};
extern const struct je_name je_names[];
extern const unsigned je_name_count;

/* Whether there is a name "opt.KEY"; key: not terminated. */
bool je_has_option(const char *key, size_t length);
/* Whether an index of this kind, the letter of names.def, exists. */
bool je_index_exists(char kind, size_t index);

/* --- the figures (figures.c) ------------------------------------------------------------------------------ */

/* What only hakmem's report says: the size classes, and how often and how much was purged. */
struct je_class {
    uint32_t usable, slab_bytes;
    uint64_t allocated; /* blocks that are not free in their slab */
    uint64_t slabs, full_slabs;
};
struct je_purges {
    uint64_t calls, bytes;
};

/* From now on figures are new ones. If several threads call it at once, they may be of different moments. */
void je_advance_epoch(void);
uint64_t je_epoch(void);
/* A figure of this epoch. */
uint64_t je_figure(enum hakmem_stat which);
/* The purges until this epoch; of its first reader. */
struct je_purges je_purges(void);
unsigned je_class_count(void);
struct je_class je_class(size_t number);
/* hakmem's report as text or JSON, terminated, or NULL. The caller frees it. */
char *je_report(bool json);

/* --- options (conf.c) ------------------------------------------------------------------------------------- */

extern struct je_conf {
    bool abort_conf, confirm_conf, stats_print, background;
    ssize_t decay_ms;
    char print_options[16];
} je_conf;

/* A setting of hakmem that is a number. */
long je_setting(const char *name);
/* Writes to malloc_message, or else to stderr. */
void je_say(const char *text);

#endif
