/* SPDX-License-Identifier: MIT
 * The page heap: all 64 KiB pages of the process that can be handed out. A run of free pages is as long as it can be,
 * also across superslabs. A superslab belongs to a set, and a request is served from one set, so a backend decides
 * what may share a superslab. Free pages are dirty until a purge has given them back (dirty.h,
 * parts/purge.h). Superslabs that are wholly free are kept in that state within the limits of
 * HAKMEM_SUPERSLAB_*: the cache, the oldest one first. Those of one class alone go back at once.
 * Any thread. One lock, hak_pages_lock; it is not held while superslabs are mapped or pages go back. */
#ifndef HAK_PAGE_HEAP_H
#define HAK_PAGE_HEAP_H

#include "core/base/lock.h"
#include "core/base/stats.h"
#include "core/os/os.h"
#include "slab.h"
#include "superslab.h"

/* Where a run came from, in the order in which a backend may want to try them. */
enum hak_pages_from {
    HAK_PAGES_DIRTY, /* dirty pages of the HAKMEM_SS_EMPTY_SCAN_LIMIT superslabs that became dirty last; not aligned */
    HAK_PAGES_FREE,  /* a run shorter than a superslab: free pages beside pages in use */
    HAK_PAGES_WHOLE, /* any free run, those of superslabs that are wholly free, too */
    HAK_PAGES_MAPPED /* new superslabs; makes system calls */
};

struct hak_page_request {
    size_t pages, align;          /* align: in pages, a power of two; 0 means 1 */
    size_t least;                 /* HAK_PAGES_WHOLE: so many will do where no run has `pages`, which is the result then */
    enum hak_pages_from until;    /* where none is to be had from the place that is asked for, the next ones are tried, */
    enum hak_pages_from from;     /* up to this one; and result: what served */
    unsigned set;
    bool roomy;                   /* from the longest run: the block will grow */
    bool slab;                    /* for a slab: its superslab is in use by slabs */
    bool uncharged;               /* pages that read as zero are not charged to the budget: the caller does it */
    bool header;                  /* HAK_SET_OWN: new superslabs come from the zone of blocks with a header byte */
    size_t map_pages;             /* HAK_PAGES_MAPPED: so many, if they can be had; 0: as few as will do */
    void (*fresh)(char *base, size_t bytes); /* HAK_PAGES_MAPPED: called for them before others can take any; or NULL */
    uint64_t *old;                /* receives a bit for each page with old content; or NULL */
    char *base;                   /* result */
    bool zero;                    /* result: all pages read as zero */
};

/* First of all: after how long pages are idle, and whether they go as soon as they are free. */
void hak_pages_start(uint64_t delay_ms, bool at_once);
/* Takes a run; false if there is none from there. */
bool hak_pages_take(struct hak_page_request *r, enum hak_pages_from from);
/* The same, described: NULL, or its descriptor (hak_pages_describe). */
struct hak_slab *hak_pages_take_run(struct hak_page_request *r, enum hak_pages_from from);
/* The descriptor of a run of pages that the caller has taken: base and pages are set, its state is UNUSED, and for a slab
 * all its pages lead to it. */
struct hak_slab *hak_pages_describe(char *base, size_t pages, bool slab);
/* Takes a run back, an EMPTY slab or another one. Its pages are dirty. */
void hak_pages_put(struct hak_slab *run);
/* The same for pages without a descriptor, the rest of what was handed out with `uncharged`. `unused`: it reads as
 * zero, as then. */
void hak_pages_put_rest(char *base, size_t pages, bool unused);
/* Makes a run shorter, which puts pages, or longer. False: the pages behind it are not free. */
bool hak_pages_resize(struct hak_slab *run, size_t pages);
/* How many of the pages were handed out and did not go back to the kernel since. */
unsigned hak_pages_given(const char *base, size_t pages);

struct hak_pages_count {
    size_t runs;            /* free ones */
    size_t dirty, returned; /* free pages with old content; and such that went back */
};
struct hak_pages_count hak_pages_count(void);
void hak_pages_stats(struct hak_stats_writer *w);

/* --- for parts/purge.c, under the lock ------------------------------------------------------------- */

/* What the superslab of an account is in use for. */
enum hak_pages_use {
    HAK_PAGES_SLABS,
    HAK_PAGES_SPANS,  /* and no slab */
    HAK_PAGES_CACHED, /* wholly free */
    HAK_PAGES_LEAVING /* the same, and it was of one class alone */
};

extern struct hak_lock hak_pages_lock;
enum hak_pages_use hak_pages_use(const struct hak_dirty *d);
/* Dirty pages become nobody's, and free again. */
void hak_pages_claim(struct hak_dirty *d, unsigned first, unsigned pages);
void hak_pages_settle(struct hak_dirty *d, unsigned first, unsigned pages);
/* A superslab that is to leave the cache, or that is beyond its limits, or beyond `keep` bytes; NULL if none is. */
struct hak_dirty *hak_pages_unwanted(size_t keep);
/* It leaves the cache; its pages are clean. */
void hak_pages_evict(struct hak_dirty *d);
/* Without the lock: superslabs that are wholly free and clean go back to the address space. */
void hak_pages_close(void);
/* By what was put, more waits than may, or some is idle, or a superslab is to leave the cache. */
extern _Atomic(bool) hak_pages_due;

#endif
