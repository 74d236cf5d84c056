/* SPDX-License-Identifier: MIT
 * See guard.h. One mapping holds all places: an inaccessible page, the pages of a block, an inaccessible page, and so
 * on. Blocks lie alternately at the end and at the beginning of their pages. A lock of its own protects it. */
#include "guard.h"

#include <signal.h>
#include <sys/mman.h>

#include "core/base/kernel.h"
#include "core/base/layout.h"
#include "core/base/lock.h"
#include "core/base/log.h"
#include "core/base/sealed.h"
#include "core/base/text.h"
#include "core/os/limit.h"
#include "core/os/os.h"

#define PLACES 256u
#define FILL 0xa5 /* in the bytes of its pages that a block does not use */

enum place_state { PLACE_UNUSED, PLACE_LIVE, PLACE_FREED };

static HAK_SELDOM struct place {
    enum place_state state;
    char *block;
    size_t size;
    const void *allocated_by, *freed_by;
} places[PLACES];

static HAK_LOCK(guard_lock, HAK_RANK_GUARD);
static char *first;         /* the page before the first place; NULL: no guarded blocks */
static size_t page, stride; /* stride: a place and the inaccessible page before it */
static unsigned next_place; /* the place that was never used, or freed longest ago */
static uint64_t sampled, no_place;
static _Atomic(uint64_t) blocks_left;
static HAK_SELDOM struct sigaction before;

static char *guarded_pages(const struct place *p)
{
    return first + (size_t)(p - places) * stride + page;
}

static struct place *place_of(const void *p)
{
    size_t offset = (size_t)((const char *)p - first);
    return first && offset < PLACES * stride ? &places[offset / stride] : NULL;
}

/* --- what happened -------------------------------------------------------------------------------------- */

/* "block 0x... of 96 bytes, allocated by the call before 0x..., freed by the call before 0x..." */
static void describe(const struct place *p, char *out, size_t size)
{
    if (p->state == PLACE_UNUSED)
        hak_text_format(out, size, "no block");
    else if (p->state == PLACE_LIVE)
        hak_text_format(out, size, "block %p of %zu bytes, allocated by the call before %p", (void *)p->block, p->size,
                        p->allocated_by);
    else
        hak_text_format(out, size,
                        "block %p of %zu bytes, allocated by the call before %p, freed by the call before %p",
                        (void *)p->block, p->size, p->allocated_by, p->freed_by);
}

static void tell_access(const struct place *p, const char *address)
{
    char block[160];
    describe(p, block, sizeof block);
    if (p->state != PLACE_LIVE)
        hak_log("invalid access to %p, in guarded pages of %s", (const void *)address, block);
    else if (address < p->block)
        hak_log("invalid access to %p, %zu bytes before guarded %s", (const void *)address,
                (size_t)(p->block - address), block);
    else
        hak_log("invalid access to %p, %zu bytes behind guarded %s", (const void *)address,
                (size_t)(address - (p->block + p->size)) + 1, block);
}

/* The inaccessible page behind a block is the one before the next place. */
static struct place *nearest(const char *address)
{
    struct place *p = place_of(address);
    bool before_it = address < guarded_pages(p);
    if (before_it && p > places &&
        (p->state != PLACE_LIVE || address - (guarded_pages(p) - page) < (ptrdiff_t)page / 2))
        p--;
    return p;
}

static void on_fault(int signal, siginfo_t *info, void *context)
{
    (void)context;
    bool is_sent = info->si_code <= 0; /* by kill or a timer: no instruction runs again */
    if (!is_sent && place_of(info->si_addr))
        tell_access(nearest(info->si_addr), info->si_addr);
    sigaction(signal, &before, NULL); /* the instruction runs again and meets the handler installed before ours */
    if (is_sent)
        HAK_SYSCALL(SYS_rt_tgsigqueueinfo, hak_kernel_pid(), HAK_SYSCALL(SYS_gettid, 0), signal, info);
}

static _Noreturn HAK_COLD void fail_guarded(const struct place *p, const void *address, const char *verb,
                                            const char *what)
{
    char block[160];
    describe(p, block, sizeof block);
    hak_log_fatal("invalid %s of %p: %s; guarded %s", verb, address, what, block);
}

/* Checks the bytes of its pages that do not belong to the block. */
static void check_fill(const struct place *p, const char *verb)
{
    const char *from = guarded_pages(p), *end = from + hak_align_up(p->size, page);
    for (const char *c = from; c < end; c++)
        if ((c < p->block || c >= p->block + p->size) && (unsigned char)*c != FILL)
            fail_guarded(p, p->block, verb, "bytes beside the block were written");
}

/* --- life of a place ------------------------------------------------------------------------------------ */

bool hak_guard_is_on;

bool hak_guard_start(void)
{
    HAK_SHOW_VARIABLE(first);
    HAK_SHOW_VARIABLE(stride);
    HAK_SHOW_VARIABLE(places);
    HAK_SHOW_SIZE(place);
    HAK_SHOW_FIELD(place, state);
    HAK_SHOW_FIELD(place, size);
    HAK_SHOW_NUMBER("guard_live", PLACE_LIVE);
    void *base = NULL;
    hak_lock_acquire(&guard_lock);
    bool starts = !first;
    if (starts) {
        page = hak_os_page_size();
        stride = page + hak_align_up(HAK_GUARD_MAX, page);
        starts =
            hak_limit_allows(2 * PLACES) && hak_os_map(&base, PLACES * stride + page, PROT_NONE, HAK_CAUSE_guard) == 0;
        HAK_STORE_RELAXED(&blocks_left, hak_options.guard_rate);
        hak_guard_is_on = starts; /* before a thread can hand out a guarded block, which free has to know */
        first = base;
    }
    hak_lock_release(&guard_lock);
    if (starts) {
        hak_limit_split(2 * PLACES);
        struct sigaction handler = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
        sigaction(SIGSEGV, &handler, &before);
    }
    return first;
}

static void set_up_place(struct place *p, size_t size, const void *caller)
{
    size_t bytes = hak_align_up(size, page);
    char *pages = guarded_pages(p);
    hak_fill(pages, FILL, bytes);
    p->block = sampled % 2 ? pages : pages + (bytes - size) / 16 * 16;
    p->size = size;
    p->allocated_by = caller;
    p->freed_by = NULL;
    p->state = PLACE_LIVE;
    sampled++;
}

static struct place *find_guard_place(void)
{
    for (unsigned i = 0; i < PLACES; i++) {
        struct place *p = &places[next_place];
        next_place = (next_place + 1) % PLACES;
        if (p->state != PLACE_LIVE)
            return p;
    }
    no_place++;
    return NULL;
}

static void *make_block(size_t size, const void *caller)
{
    void *block = NULL;
    hak_lock_acquire(&guard_lock);
    struct place *p = find_guard_place();
    if (p && hak_os_protect(guarded_pages(p), hak_align_up(size, page), PROT_READ | PROT_WRITE, HAK_CAUSE_guard) == 0) {
        set_up_place(p, size, caller);
        block = p->block;
    }
    hak_lock_release(&guard_lock);
    return block;
}

/* If the rate was changed, what was left of the old one does not count. */
static uint64_t left_of_rate(uint64_t left)
{
    return hak_min(left - 1, hak_options.guard_rate - (uint64_t)1) + 1;
}

/* Several threads may find that a block is due: only one of them allocates it. */
void *hak_guard_sample(size_t size, const void *caller)
{
    uint64_t left = HAK_LOAD_RELAXED(&blocks_left);
    if (!first || size > HAK_GUARD_MAX || left_of_rate(left) > 1 ||
        !HAK_CAS_RELAXED(&blocks_left, &left, hak_options.guard_rate))
        return NULL;
    return make_block(hak_max(size, 1), caller);
}

/* Two simultaneous calls may count as one: the rate is approximate. */
void hak_guard_count(uint32_t blocks)
{
    uint64_t left = left_of_rate(HAK_LOAD_RELAXED(&blocks_left));
    HAK_STORE_RELAXED(&blocks_left, left > blocks ? left - blocks : 1);
}

static struct place *live_place(const void *p, const char *verb)
{
    struct place *place = place_of(p);
    if (place->state == PLACE_FREED)
        fail_guarded(place, p, verb, "it was freed before");
    if (place->state != PLACE_LIVE || place->block != p)
        fail_guarded(nearest(p), p, verb, "it is not the start of a block");
    return place;
}

size_t hak_guard_usable(const void *p, const char *verb)
{
    if (!place_of(p))
        return 0;
    hak_lock_acquire(&guard_lock);
    size_t size = live_place(p, verb)->size;
    hak_lock_release(&guard_lock);
    return size;
}

/* The block's pages are returned to the kernel at once, and stay inaccessible. */
void hak_guard_free(void *p, const void *caller)
{
    hak_lock_acquire(&guard_lock);
    struct place *place = live_place(p, "free");
    size_t bytes = hak_align_up(place->size, page);
    check_fill(place, "free");
    hak_os_advise(guarded_pages(place), bytes, MADV_DONTNEED, HAK_CAUSE_guard);
    hak_os_protect(guarded_pages(place), bytes, PROT_NONE, HAK_CAUSE_guard);
    place->freed_by = caller;
    place->state = PLACE_FREED;
    hak_lock_release(&guard_lock);
}

size_t hak_guard_bytes(void)
{
    size_t bytes = 0;
    hak_lock_acquire(&guard_lock);
    for (const struct place *p = places; p < &places[PLACES]; p++)
        bytes += p->state == PLACE_LIVE ? p->size : 0;
    hak_lock_release(&guard_lock);
    return bytes;
}

void hak_guard_stats(struct hak_stats_writer *w)
{
    hak_lock_acquire(&guard_lock);
    uint64_t blocks = sampled, refused = no_place;
    hak_lock_release(&guard_lock);
    hak_stats_begin(w, "guard");
    hak_stats_number(w, "sampled", blocks);
    hak_stats_number(w, "no_place", refused);
    hak_stats_end(w);
}
