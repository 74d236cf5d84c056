/* SPDX-License-Identifier: MIT
 *
 * attack HOW [SIZE]: what an attacker gains by reading and writing a few bytes that are not the program's. Exit
 * status 1: it worked.
 *   leftover SIZE  new blocks hold words that the program did not write
 *   link           a block on a remote list leads malloc into a live block of another class
 *   calloc SIZE    bytes written to freed blocks, before and after their pages were purged, show in new calloc blocks
 *   order          the first blocks of a class come in the order of their addresses, up or down
 *   steer          a freed block's first word is an address, which malloc returns
 *   race           two threads free a block at the same time, and both get it again
 *   header         a byte behind a block, where header builds name the class of the next, names another; malloc returns
 * the next one for a larger size; header 1: malloc does not take it, and the bin is drained
 *   batch          two bytes of a block that another thread freed name a live block, which malloc returns
 *   blind          a free block is overwritten and freed again; malloc returns it twice. `blind 1`: after a drain
 *   owner SIZE     a block is freed by its owner, and then by another thread; malloc returns it twice
 *   other SIZE     the same in the other order
 *   unused         a block that no malloc returned is freed; malloc returns it twice
 *   forged         the same as `link`, by a mark and a link that are computed from those that were read */
#include "misuse.h"

enum { MANY = 100000, SMALL = 48, OURS = 0x41 };
static uintptr_t *block[MANY];

static void take(size_t n)
{
    for (size_t i = 0; i < n; i++) {
        block[i] = malloc(SMALL);
        memset(block[i], OURS, malloc_usable_size(block[i]));
    }
}

static void give(size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(block[i]);
}

/* Bytes that are all equal: the program's pattern, zeros, or the quarantine's filling. */
static int is_ours(uintptr_t word)
{
    return word == UINTPTR_MAX / 0xff * (word & 0xff);
}

static int leftover(size_t size)
{
    size_t found = 0;
    take(MANY);
    give(MANY);
    for (size_t bytes = 0; bytes < 4 * (size_t)MANY * SMALL; bytes += size) {
        uintptr_t *new = malloc(size);
        for (size_t i = 0; i < size / sizeof *new; i++)
            found += !is_ours(new[i]);
    }
    return found != 0;
}

enum { HOME = 3000, AT = 10 };
static uintptr_t *live, *target;
static pthread_barrier_t turn;
static int gained;

/* Owns the blocks. */
static void *own(void *unused)
{
    take(HOME);
    live = malloc(3000);
    target = live + 100;
    pthread_barrier_wait(&turn);
    pthread_barrier_wait(&turn);
    for (int i = 0; i < 2 * HOME; i++)
        gained |= malloc(SMALL) == target;
    return unused;
}

/* Assumes that link and mark are made by XOR with addresses. */
static int link_to_live(int is_forged)
{
    pthread_t t;
    pthread_barrier_init(&turn, NULL, 2);
    pthread_create(&t, NULL, own, NULL);
    pthread_barrier_wait(&turn);
    give(HOME);
    uintptr_t *from = block[AT], *next = block[AT + 1], link = from[0] ^ (uintptr_t)next;
    target[0] = link ^ __builtin_bswap64((uintptr_t)from) ^ __builtin_bswap64((uintptr_t)target);
    target[0] ^= (uintptr_t)block[AT + 2]; /* as many blocks as before */
    target[1] = is_forged ? from[1] ^ (uintptr_t)from ^ (uintptr_t)target : from[1];
    from[0] = link ^ (uintptr_t)target;
    pthread_barrier_wait(&turn);
    pthread_join(t, NULL);
    return gained;
}

static int show(size_t size)
{
    enum { BLOCKS = 8 };
    char *p[BLOCKS];
    int found = 0;
    for (int i = 0; i < BLOCKS; i++)
        p[i] = memset(malloc(size), OURS, size);
    for (int i = 0; i < BLOCKS; i++)
        free(p[i]);
    p[0][size / 2] = OURS;
    malloc_trim(0);
    for (int i = 0; i < BLOCKS; i++)
        p[i][size / 2] = OURS;
    for (int i = 0; i < BLOCKS; i++) {
        const char *q = calloc(1, size);
        for (size_t k = 0; k < size; k++)
            found |= q[k];
    }
    return found != 0;
}

static int steer(void)
{
    static _Alignas(64) uintptr_t aim[8];
    take(2 * AT);
    give(AT);
    block[AT - 1][0] = (uintptr_t)aim;
    for (int i = 0; i < 4; i++) {
        void *got = malloc(SMALL);
        __asm__("" : "+r"(got)); /* the compiler believes that it is nothing else */
        gained |= got == aim;
    }
    return gained;
}

/* Freed by its owner, and by another thread. */
static void *race_for(void *got)
{
    free(malloc(SMALL)); /* it has bins */
    pthread_barrier_wait(&turn);
    uintptr_t *p = block[0];
    free(p);
    pthread_barrier_wait(&turn);
    for (int i = 0; i < 200; i++) {
        void *q = malloc(SMALL);
        __asm__("" : "+r"(q));
        *(int *)got |= q == p;
    }
    return NULL;
}

static int race(void)
{
    pthread_t t;
    int got[2] = {0};
    pthread_barrier_init(&turn, NULL, 2);
    pthread_create(&t, NULL, race_for, &got[0]);
    take(1000);
    race_for(&got[1]);
    pthread_join(t, NULL);
    return got[0] && got[1];
}

static int header(size_t is_drained)
{
    enum { HEADER = 0xa0, HEADERS = 32, LARGER = 900 };
    for (int i = 0; i < HEADERS; i++) {
        char *p[8];
        for (int k = 0; k < 8; k++)
            p[k] = malloc(SMALL - 1);
        for (int k = 0; k < 8 && !gained; k++)
            if (k && p[k] == p[k - 1] + SMALL) {
                p[k][-1] = (char)(HEADER + i);
                free(p[k]);
                gained = is_drained ? passed() : malloc(LARGER) == p[k];
                break;
            }
    }
    return gained;
}

/* Counts the blocks that a block of 48 bytes may name. */
struct batch {
    void *next;
    uint16_t count, number[19];
};

static int batch(void)
{
    pthread_t t;
    pthread_barrier_init(&turn, NULL, 2);
    pthread_create(&t, NULL, own, NULL);
    pthread_barrier_wait(&turn);
    target = block[HOME - 1];
    give(HOME - 1);
    for (int i = 0; i < HOME - 1; i++) {
        struct batch *b = (struct batch *)block[i];
        uintptr_t page = ~(uintptr_t)0xffff;
        if (((uintptr_t)b & page) == ((uintptr_t)target & page) && b->count && b->count <= 19) {
            b->number[0] = (uint16_t)(((uintptr_t)target & ~page) / SMALL);
            break;
        }
    }
    pthread_barrier_wait(&turn);
    pthread_join(t, NULL);
    return gained;
}

/* How often malloc returns the block. */
static int times(const void *p)
{
    int n = 0;
    for (int i = 0; i < 3 * HOME; i++) {
        void *q = malloc(SMALL);
        __asm__("" : "+r"(q));
        n += q == p;
    }
    return n;
}

static int blind(size_t is_drained)
{
    take(HOME);
    uintptr_t *p = block[AT];
    give(2 * AT);
    if (is_drained)
        malloc_trim(0);
    memset(p, OURS, 16);
    free(p);
    return times(p) > 1;
}

static void *give_one(void *p)
{
    free(p);
    return NULL;
}

/* The program clears each block that it gets. */
static int both(size_t size, int owner_first)
{
    enum { OTHERS = 64, NEXT = 2000 };
    static void *next[NEXT];
    pthread_t t;
    void *p[OTHERS];
    for (int i = 0; i < OTHERS; i++)
        p[i] = malloc(size);
    if (owner_first)
        free(p[20]);
    pthread_create(&t, NULL, give_one, p[20]);
    pthread_join(t, NULL);
    if (!owner_first)
        free(p[20]);
    returned();
    for (int i = 0; i < NEXT; i++) {
        next[i] = memset(malloc(size), 0, size);
        *(int *)next[i] = i;
    }
    for (int i = 0; i < NEXT; i++)
        gained |= *(int *)next[i] != i;
    return gained ? gained : passed();
}

/* The last block of a system page, of which malloc has returned only the others that are here. */
static int unused(void)
{
    enum { FEW = 10, PAGE = 4096 };
    uintptr_t stride = PAGE;
    take(FEW);
    for (int i = 1; i < FEW; i++) {
        uintptr_t a = (uintptr_t)block[i], b = (uintptr_t)block[0], apart = a > b ? a - b : b - a;
        stride = apart < stride ? apart : stride;
    }
    uintptr_t p = (uintptr_t)block[0];
    while ((p + 2 * stride - 1) / PAGE == (uintptr_t)block[0] / PAGE)
        p += stride;
    for (int i = 0; i < FEW; i++)
        if ((uintptr_t)block[i] == p)
            p -= stride, i = -1;
    free((void *)p);
    return times((void *)p) > 1;
}

static int order(void)
{
    int up = 0;
    take(24);
    for (int i = 1; i < 24; i++)
        up += block[i] > block[i - 1];
    return up == 0 || up == 23;
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "";
    size_t size = argc == 3 ? strtoul(argv[2], NULL, 0) : 0;
    if (!strcmp(how, "leftover"))
        return leftover(size);
    if (!strcmp(how, "calloc"))
        return show(size);
    if (!strcmp(how, "steer"))
        return steer();
    if (!strcmp(how, "race"))
        return race();
    if (!strcmp(how, "header"))
        return header(size);
    if (!strcmp(how, "batch"))
        return batch();
    if (!strcmp(how, "blind"))
        return blind(size);
    if (!strcmp(how, "owner") || !strcmp(how, "other"))
        return both(size, *(how + 1) == 'w');
    if (!strcmp(how, "unused"))
        return unused();
    if (!strcmp(how, "order"))
        return order();
    if (!strcmp(how, "link") || !strcmp(how, "forged"))
        return link_to_live(*how == 'f');
    return 2;
}
