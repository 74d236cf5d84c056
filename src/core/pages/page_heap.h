/* SPDX-License-Identifier: MIT
 * The page heap: all 64 KiB pages of the process that can be handed out. Adjacent free pages are always merged into one
 * run, across superslabs, too. Each superslab belongs to a set, and a request is served from one set, so a backend
 * decides which slabs may share a superslab. A free page stays dirty until a purge returns it to the kernel (dirty.h,
 * parts/purge.h). Superslabs whose pages are all free form a cache, oldest first, within the limits of
 * HAKMEM_SUPERSLAB_*. A superslab of one class alone is returned at once. Any thread may call the page heap. Its lock,
 * hak_pages_lock, is not held while superslabs are mapped or pages are purged. */
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
    HAK_PAGES_WHOLE, /* any free run, including those in wholly free superslabs */
    HAK_PAGES_MAPPED /* new superslabs; makes system calls */
};

struct hak_page_request {
    size_t pages, align;       /* align: in pages, a power of two; 0 means 1 */
    size_t least;              /* HAK_PAGES_WHOLE: if no run has `pages`, take a run of this many; then pages = least */
    enum hak_pages_from until; /* places are tried from the one that the caller passes up to this one */
    enum hak_pages_from from;  /* result: the place that served the request */
    unsigned set;
    bool roomy;  /* prefers a place with as many free pages on both sides: the block will grow */
    bool slab;   /* for a slab: its superslab is in use by slabs */
    bool header; /* HAK_SET_OWN: new superslabs come from the zone of blocks with a header byte */
    size_t (*map_pages)(const struct hak_page_request *r); /* HAK_PAGES_MAPPED: how many, if possible; or NULL */
    void (*fresh)(char *base, size_t bytes); /* HAK_PAGES_MAPPED: called before others can take any; or NULL */
    uint64_t *old;                           /* receives one bit for each page with old content; or NULL */
    char *base;                              /* result */
    bool zero;                               /* result: all pages read as zero */
    bool purged;                             /* result: some were purged */
};

/* Takes a run from there (and up to r->until); false if there is none. */
bool hak_pages_take(struct hak_page_request *r, enum hak_pages_from from);
/* The same; returns the run's descriptor (hak_pages_describe), or NULL. */
struct hak_slab *hak_pages_take_run(struct hak_page_request *r, enum hak_pages_from from);
/* Fills in the descriptor of a run that the caller has taken: its base and its number of pages. The state is UNUSED.
 * The descriptors of a slab's other pages then lead to this one. */
struct hak_slab *hak_pages_describe(char *base, size_t pages, bool slab);
/* Takes back a run, which may be an EMPTY slab. Its pages become dirty. */
void hak_pages_put(struct hak_slab *run);
/* Makes a run shorter, which frees pages, or longer. False: the pages behind it are not free. */
bool hak_pages_resize(struct hak_slab *run, size_t pages);
/* How many of the pages were handed out and have not been purged since. */
unsigned hak_pages_given(const char *base, size_t pages);

/* Replaces one advice by another; false: the memory cannot be left out of core dumps. */
bool hak_pages_advise(char *base, size_t bytes, unsigned before, unsigned advice);

struct hak_pages_count {
    size_t runs;            /* free ones */
    size_t dirty, returned; /* free pages with old content; free pages that were purged */
};
struct hak_pages_count hak_pages_count(void);
void hak_pages_stats(struct hak_stats_writer *w);

/* --- for parts/purge.c, under the lock ------------------------------------------------------------- */

extern struct hak_lock hak_pages_lock;
/* A purge claims dirty pages: they are no longer free. Settling makes them free again. */
void hak_pages_claim(struct hak_superslab *s, unsigned first, unsigned pages);
void hak_pages_settle(struct hak_superslab *s, unsigned first, unsigned pages);
/* Called without the lock, where there are huge pages: free pages that no block ever used become dirty, if they lie in
 * a superslab with others that were used. */
void hak_pages_soil(void);
/* A cached superslab that must go: one that is marked as leaving, else the oldest one if the cache exceeds its limits
 * (number, bytes, age) or `keep` bytes. NULL: none. */
struct hak_superslab *hak_pages_unwanted(size_t keep, uint64_t now_ms);
/* Removes it from the cache; its pages are clean. */
void hak_pages_evict(struct hak_superslab *s);
/* Called without the lock: returns superslabs that are wholly free and clean to the address space. */
void hak_pages_close(void);
/* Set when freed pages make a purge due: too many bytes are dirty, some pages are idle, or a superslab must leave the
 * cache. */
extern _Atomic(bool) hak_pages_due;
/* About how many pages more may become dirty before a purge is due; 0 where spans may not wait. */
extern HAK_HIDDEN _Atomic(size_t) hak_pages_room;
/* The same, but at most so many pages that the program does not use a block of them for long. */
extern HAK_HIDDEN _Atomic(size_t) hak_pages_room_soon;

#endif
