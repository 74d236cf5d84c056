/* SPDX-License-Identifier: MIT
 * The slab word: remote frees against its owner's collect, retire, disown and reclaim, and against visits and
 * adoption (core/pages/slab.c, slab_stack.h as they are). Exactly one thread must get each block, ordered after its
 * last use. */
#include "core/pages/slab.h"
#include "core/pages/slab_stack.h"
#include "world.h"

void hak_count_allocated(uint64_t bytes)
{
    (void)bytes;
}

static struct hak_slab *slab;
static void *blocks[4];
static struct hak_slab_stack published;
static unsigned publications[MODEL_THREADS], taken_off[MODEL_THREADS];

static void publish(unsigned self, enum hak_remote result)
{
    if (result == HAK_REMOTE_PUBLISH) {
        publications[self]++;
        hak_slab_stack_push(&published, slab);
    }
}

static void free_and_publish(unsigned self, void *block)
{
    publish(self, world_free(slab, block));
}

/* Like a backend's stage. */
static bool adopt_and_use(unsigned self)
{
    struct hak_slab *found = hak_slab_stack_pop(&published);
    if (!found)
        return false;
    if (hak_slab_adopt(found, world_thread(self)))
        world_use_up(found);
    else
        taken_off[self]++; /* a visitor is there */
    return true;
}

/* Whichever thread has the slab at the end: no block is lost, and the slab stands on a list if it must. */
static void expect_whole(void)
{
    unsigned total = 0;
    for (unsigned i = 0; i < MODEL_THREADS; i++)
        total += publications[i] - taken_off[i];
    MODEL_CHECK(total <= 1);
    if (hak_slab_state(slab) == HAK_SLAB_PARTIAL) {
        MODEL_CHECK(hak_slab_stack_pop(&published) == slab);
        hak_slab_adopt(slab, world_thread(0));
    } else if (hak_slab_state(slab) == HAK_SLAB_ACTIVE) {
        hak_slab_collect(slab);
    }
    MODEL_CHECK(hak_slab_stack_pop(&published) == NULL);
    MODEL_CHECK(slab->used + slab->free_count == slab->carved);
    unsigned listed = 0;
    for (const void *b = slab->free; b; b = hak_next_load(b))
        listed++;
    MODEL_CHECK(listed == slab->free_count);
}

/* --- collect: two threads free, the owner collects and reuses the blocks ----------------------------------- */

static void setup_collect(void)
{
    world_setup();
    slab = world_slab(0, 3, world_thread(0), 3, blocks);
}

static void collect(unsigned self)
{
    if (self) {
        free_and_publish(self, blocks[self]);
        return;
    }
    for (unsigned i = 0; i < 2; i++) {
        model_reached(hak_slab_collect(slab));
        world_use_up(slab);
    }
}

/* --- retire: the owner gives up a slab without a free block ----------------------------------------------- */

static void setup_retire(void)
{
    world_setup();
    slab = world_slab(0, 2, world_thread(0), 2, blocks);
}

static void retire(unsigned self)
{
    if (self) {
        free_and_publish(self, blocks[self - 1]);
        model_reached(self == 2 && adopt_and_use(self));
    } else if (!hak_slab_retire(slab)) {
        hak_slab_collect(slab);
        world_use_up(slab);
        model_reached(2);
    }
}

/* --- reclaim: the last owner of a FULL slab frees a block of it, as others do ----------------------------------- */

static void setup_reclaim(void)
{
    setup_retire();
    hak_slab_retire(slab);
}

static void reclaim(unsigned self)
{
    if (self == 0 && hak_slab_reclaim(slab, world_thread(0))) {
        world_use(blocks[0]);
        hak_next_store(blocks[0], NULL);
        hak_slab_put(slab, (struct hak_chain){blocks[0], blocks[0], 1});
        hak_slab_collect(slab);
        world_use_up(slab);
        model_reached(0);
    } else {
        free_and_publish(self, blocks[self]);
        if (adopt_and_use(self))
            model_reached(1);
    }
}

/* --- visit: two threads put blocks into a slab without an owner, a third one adopts it ---------------------------- */

static void setup_visit(void)
{
    world_setup();
    slab = world_slab(0, 3, world_thread(0), 3, blocks);
    hak_slab_retire(slab);
}

static void visit(unsigned self)
{
    if (self == 2) {
        model_reached(adopt_and_use(self) && taken_off[self]);
    } else if (hak_slab_visit(slab)) {
        world_use(blocks[self]);
        hak_next_store(blocks[self], NULL);
        hak_slab_put(slab, (struct hak_chain){blocks[self], blocks[self], 1});
        publish(self, hak_slab_leave(slab));
    } else {
        free_and_publish(self, blocks[self]);
        model_reached(2);
    }
}

/* --- reclaim from another heap, whose old tag is still seen ------------------------------------------------------- */

static void reclaim_other(unsigned self)
{
    if (self == 0 && hak_slab_reclaim(slab, world_thread(0))) {
        MODEL_CHECK(slab->used == 2 && slab->touched == HAK_PAGE);
        model_reached(0);
    } else if (self == 1) {
        slab->touched = HAK_PAGE;
        hak_slab_retire(slab);
    }
}

/* --- disown: the owner ends; one block is free, two are allocated
 * --------------------------------------------------- */

static void setup_disown(void)
{
    world_setup();
    slab = world_slab(0, 3, world_thread(0), 2, blocks);
}

static void disown(unsigned self)
{
    if (self == 0) {
        if (hak_slab_disown(slab) == HAK_SLAB_PARTIAL)
            hak_slab_stack_push(&published, slab);
        return;
    }
    enum hak_remote found = world_free(slab, blocks[self - 1]);
    MODEL_CHECK(found != HAK_REMOTE_PUBLISH);
    model_reached(found == HAK_REMOTE_EMPTY);
    if (self == 1 && adopt_and_use(self))
        model_reached(2);
}

/* --- full: the owner ends with all blocks allocated; the first free publishes, the second completes
 * ------------------ */

static void setup_full(void)
{
    world_setup();
    slab = world_slab(0, 2, world_thread(0), 2, blocks);
}

static void full(unsigned self)
{
    if (self == 0) {
        enum hak_slab_state state = hak_slab_disown(slab);
        if (state == HAK_SLAB_PARTIAL)
            hak_slab_stack_push(&published, slab);
        model_reached(state == HAK_SLAB_PARTIAL);
        return;
    }
    enum hak_remote found = world_free(slab, blocks[self - 1]);
    if (found == HAK_REMOTE_PUBLISH)
        hak_slab_stack_push(&published, slab);
    if (found == HAK_REMOTE_EMPTY && hak_slab_all_back(slab))
        model_reached(2);
}

/* --- reuse: empty, to another thread and another class ---------------------------------------------------------- */

static void reuse(unsigned self)
{
    if (self == 0) {
        hak_slab_collect(slab);
        if (slab->used)
            return;
        hak_slab_empty(slab);
        hak_slab_stack_push(&published, slab);
        model_reached(0);
    } else if (self == 1) {
        world_free(slab, blocks[0]);
    } else if (hak_slab_stack_pop(&published)) {
        world_format(slab, 3, world_thread(self));
        MODEL_CHECK(world_use_up(slab) == 3);
        model_reached(1);
    }
}

static void setup_reuse(void)
{
    world_setup();
    slab = world_slab(0, 2, world_thread(0), 1, blocks);
}

static void expect_counts(void)
{
    MODEL_CHECK(slab->used + slab->free_count == slab->carved);
}

const struct model models[] = {
    {"collect", 3, setup_collect, collect, expect_whole, 3},
    {"retire", 3, setup_retire, retire, expect_whole, 3},
    {"reclaim", 2, setup_reclaim, reclaim, expect_whole, 2},
    {"visit", 3, setup_visit, visit, expect_whole, 3},
    {"reclaim_other", 2, setup_retire, reclaim_other, expect_whole, 1},
    {"disown", 3, setup_disown, disown, expect_whole, 3},
    {"full", 3, setup_full, full, expect_whole, 3},
    {"reuse", 3, setup_reuse, reuse, expect_counts, 2},
    {0},
};
