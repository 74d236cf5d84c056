/* SPDX-License-Identifier: MIT
 * See array.h. Arrays begin small and double as the thread uses the class, up to what its capacity and a beat of frees
 * take; outgrown ones serve the thread's other classes. */
#include "array.h"

#include <string.h>

#include "core/heap/drain.h"
#include "core/heap/owned.h"
#include "core/heap/share.h"
#include "core/heap/slots.h"
#include "core/pages/bundle.h"

#define BEATS 11u /* until the next check; a trim waits so long at most to be heard */

/* --- slots --------------------------------------------------------------------------------------------- */

/* The bin holds n blocks now. Its room is set anew by who changes it so. */
static void set_length(const struct hak_bin *b, unsigned cls, uint32_t n)
{
    hak_self.bin[cls] = b->slots + n;
}

static void count_refill(struct hak_thread *t, unsigned cls, uint32_t blocks)
{
    hak_count(&t->counters.classes[cls].refills, 1);
    hak_count(&t->counters.classes[cls].served, blocks);
}

static void count_drained(struct hak_thread *t, unsigned cls, uint64_t blocks)
{
    hak_count(&t->counters.classes[cls].served, -blocks);
}

/* Gives the bin slots for so many blocks, if there is memory; returns how many it can hold. */
static uint32_t grow_array(struct hak_thread *t, unsigned cls, uint32_t blocks)
{
    struct hak_bin *b = &t->bins[cls];
    unsigned lg = hak_slots_lg(blocks + 1);
    void **old = b->slots, **slots = lg > b->slots_lg ? hak_slots_get(t, lg) : NULL;
    if (!slots)
        return b->slots_lg ? hak_array_most(b) : 0;
    uint32_t n = hak_array_length(b, cls);
    slots[0] = NULL;
    if (old) {
        memcpy(slots + 1, old + 1, n * sizeof *slots);
        hak_slots_put(t, old, b->slots_lg);
    }
    b->slots = slots;
    b->slots_lg = (uint8_t)lg;
    set_length(b, cls, n);
    return hak_array_most(b);
}

/* --- room ---------------------------------------------------------------------------------------------- */

static uint32_t array_capacity(const struct hak_bin *b, unsigned cls)
{
    return hak_share_is_on(b, cls) ? hak_share_capacity(cls) : hak_parts.capacity[cls];
}

/* Frees until the next heartbeat: there are slots for them. Where the class is shared, not many. */
static void set_room(struct hak_thread *t, unsigned cls)
{
    const struct hak_bin *b = &t->bins[cls];
    uint32_t room = (uint32_t)hak_min(hak_bin_beat(), b->slots_lg ? hak_array_most(b) - hak_array_length(b, cls) : 0);
    if (hak_share_is_on(b, cls))
        room = (uint32_t)hak_min(room, 2 * hak_share_capacity(cls) + 1);
    hak_array_set_room(t, cls, room);
}

void hak_cache_start(struct hak_thread *t, unsigned cls)
{
    hak_owned_mark_used(t, cls); /* the slots are to be found again */
    grow_array(t, cls, 1);
    set_room(t, cls);
}

/* --- filling ------------------------------------------------------------------------------------------- */

/* A bin that is filled with so many has slots for as many frees. */
static uint32_t room_for(struct hak_thread *t, unsigned cls, uint32_t blocks)
{
    uint32_t most = (uint32_t)hak_max(hak_parts.capacity[cls], blocks) + HAK_ARRAY_FREES;
    return grow_array(t, cls, (uint32_t)hak_min(2 * blocks, most)) - hak_array_length(&t->bins[cls], cls);
}

static uint32_t take_from(struct hak_slab *slab, uint32_t want, void **slots)
{
    if (hak_bundles_are_few(slab, want))
        return hak_bundles_take_few(slab, slots);
    return (hak_bundles_open(slab) ? hak_slab_take_to_slots : hak_bundles_take_closed)(slab, want, slots);
}

uint32_t hak_cache_take(struct hak_thread *t, unsigned cls, struct hak_slab *slab, uint32_t want, bool exactly)
{
    struct hak_bin *b = &t->bins[cls];
    uint32_t n = hak_array_length(b, cls), room = room_for(t, cls, n + want);
    (void)exactly;
    if (!room)
        return 0;
    uint32_t taken = take_from(slab, (uint32_t)hak_min(want, room), b->slots + 1 + n);
    for (uint32_t i = n + 1; HAK_HARDENED && i <= n + taken; i++)
        hak_mark_renew(b->slots[i], cls);
    set_length(b, cls, n + taken);
    count_refill(t, cls, taken);
    set_room(t, cls);
    return taken;
}

bool hak_cache_give(struct hak_thread *t, unsigned cls, void *const *blocks, uint32_t n)
{
    struct hak_bin *b = &t->bins[cls];
    if (room_for(t, cls, n) < n) {
        hak_drain_array(t, blocks, n);
        return false;
    }
    memcpy(b->slots + 1, blocks, n * sizeof *blocks);
    set_length(b, cls, n);
    count_refill(t, cls, n);
    set_room(t, cls);
    return true;
}

/* --- emptying ------------------------------------------------------------------------------------------ */

/* Drains the blocks freed longest ago; so many stay. */
static void drain_to(struct hak_thread *t, unsigned cls, uint32_t keep)
{
    struct hak_bin *b = &t->bins[cls];
    uint32_t n = hak_array_length(b, cls);
    if (n <= keep)
        return;
    hak_drain_array(t, b->slots + 1, n - keep);
    count_drained(t, cls, n - keep);
    memmove(b->slots + 1, b->slots + 1 + n - keep, keep * sizeof *b->slots);
    set_length(b, cls, keep);
}

void hak_cache_drain(struct hak_thread *t, unsigned cls)
{
    drain_to(t, cls, 0);
}

void hak_cache_halve(struct hak_thread *t, unsigned cls)
{
    drain_to(t, cls, hak_array_length(&t->bins[cls], cls) / 2);
}

static void drain_one(struct hak_thread *t, void *p)
{
    hak_drain_array(t, &p, 1);
}

void hak_cache_leave(unsigned cls, void *p)
{
    hak_self.room[cls] = HAK_ROOM_NONE;
    drain_one(NULL, p);
}

/* In place of the block freed longest ago, where there is no slot. */
static void put_in_array(struct hak_thread *t, unsigned cls, void *p)
{
    struct hak_bin *b = &t->bins[cls];
    if (!b->slots_lg) {
        drain_one(t, p);
        count_drained(t, cls, 1);
        return;
    }
    drain_to(t, cls, hak_array_most(b) - 1);
    void **end = hak_self.bin[cls];
    end[1] = p;
    hak_self.bin[cls] = end + 1;
}

/* A thread that comes here often has its array doubled, until it has slots for many frees. A bin that overflows and
 * was not refilled since it did before belongs to a program that frees a lot: it keeps one block. */
void hak_cache_check(struct hak_thread *t, unsigned cls, void *p)
{
    struct hak_bin *b = &t->bins[cls];
    uint32_t keep = array_capacity(b, cls), most = b->slots_lg ? hak_array_most(b) : 0, n = hak_array_length(b, cls);
    hak_owned_mark_used(t, cls);
    hak_count(&t->counters.checks, 1);
    hak_work_add(hak_min(most - n, HAK_BIN_BEAT));
    if (n < keep && most - n < HAK_BIN_BEAT && most < keep + HAK_ARRAY_FREES)
        grow_array(t, cls, 2 * most);
    put_in_array(t, cls, p);
    if (hak_array_length(b, cls) > keep) {
        hak_count(&t->counters.overflows, 1);
        drain_to(t, cls, b->shrinking || !keep ? 1 : keep); /* the last one shows whether it is freed again */
        b->shrinking = true;
    }
    b->later = BEATS;
    most = b->slots_lg ? hak_array_most(b) : 0;
    b->steady = (uint16_t)(most > HAK_BIN_BEAT ? hak_min(hak_parts.capacity[cls], most - HAK_BIN_BEAT) : 0);
    set_room(t, cls);
}

/* --- a thread's end ------------------------------------------------------------------------------------ */

static void retire_array(struct hak_thread *t, unsigned cls)
{
    struct hak_bin *b = &t->bins[cls];
    b->parked = (uint16_t)hak_array_length(b, cls);
    b->parked_room = (uint8_t)hak_room_left(hak_self.room[cls]);
    hak_self.bin[cls] = (void *)hak_cache_no_slots;
    hak_self.room[cls] = HAK_ROOM_NONE;
}

void hak_cache_park(struct hak_thread *t)
{
    hak_heap_each_class(t, retire_array);
}

static void resume(struct hak_thread *t, unsigned cls)
{
    struct hak_bin *b = &t->bins[cls];
    if (!b->slots_lg)
        return;
    set_length(b, cls, b->parked);
    hak_self.room[cls] = hak_room(b->parked_room);
}

void hak_cache_resume(struct hak_thread *t)
{
    hak_heap_each_class(t, resume);
}

void hak_cache_drain_parked(struct hak_thread *t, unsigned cls)
{
    struct hak_bin *b = &t->bins[cls];
    if (b->parked)
        hak_drain_array(t, b->slots + 1, b->parked);
    count_drained(t, cls, b->parked);
    hak_count(&t->counters.classes[cls].served, (uint64_t)(b->given - b->parked_room)); /* frees since it got room */
    if (b->slots_lg)
        hak_slots_put(t, b->slots, b->slots_lg);
}

/* --- looking ------------------------------------------------------------------------------------------- */

size_t hak_cache_parked_length(const struct hak_thread *t, unsigned cls)
{
    return t->bins[cls].parked;
}

size_t hak_cache_length(unsigned cls)
{
    const struct hak_thread *t = hak_self.thread;
    return t ? hak_array_length(&t->bins[cls], cls) : 0;
}

void hak_cache_each(unsigned cls, void (*visit)(unsigned cls, void *block))
{
    for (void **slot = hak_self.bin[cls]; *slot; slot--)
        visit(cls, *slot);
}
