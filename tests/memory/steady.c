/* SPDX-License-Identifier: MIT
 * steady KIND: what giving memory back costs while a program goes on as before.
 * 2 s of random mallocs and frees over a fixed number of slots, each page touched. For a million operations
 * there may be at most so many release calls, and so many bytes that were needed again within a second (regret):
 * at most 2 % of the time, if a call costs 2 us and a page of regret 1 us, for giving back and faulting in. */
#include "../limits/check.h"

#include <time.h>

#include "hakmem.h"

static const struct kind {
    const char *name;
    size_t min, max, slots;
} kinds[] = {
    {"small", 16, 1040, 8192},
    {"pool", 8 * KIB, 52 * KIB, 256},
    {"large", 64 * KIB, 4 * MIB, 64},
    {"mixed", 16, 400 * KIB, 1000},
};

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Small sizes are the more frequent ones where the range is wide. */
static size_t choose_size(const struct kind *k, uint64_t *random)
{
    uint64_t r = next_random(random);
    size_t span = k->max - k->min + 1;
    if (k->name[0] == 'm' && r % 16)
        span /= 256;
    return k->min + (size_t)(r >> 16) % span;
}

static uint64_t load(const struct kind *k, uint64_t ns, uint64_t *took)
{
    static void *slot[8192];
    uint64_t random = 1, operations = 0, begin = now_ns(), end = begin;
    for (; end - begin < ns; end = now_ns())
        for (unsigned i = 0; i < 100; i++, operations++) {
            void **s = &slot[next_random(&random) % k->slots];
            size_t size = choose_size(k, &random);
            free(*s);
            if (!(*s = malloc(size)))
                die("malloc(%zu) returned NULL", size);
            mark(*s, size, 1);
        }
    *took = end - begin;
    return operations;
}

/* The number behind `key`, after `at`. */
static uint64_t number(const char *at, const char *key)
{
    char pattern[64];
    snprintf(pattern, sizeof pattern, "\"%s\": ", key);
    const char *found = strstr(at, pattern);
    return found ? strtoull(found + strlen(pattern), NULL, 10) : 0;
}

struct cost {
    uint64_t calls, regret_bytes;
};

static struct cost cost_of_giving_back(void)
{
    static const char *const causes[] = {"partial_release", "batch_release", "direct_release",
                                         "lru_evict",       "purge",         "trim"};
    static char text[1 << 20];
    FILE *f = tmpfile();
    if (!f || hakmem_stats(fileno(f), 1))
        die("no statistics");
    rewind(f);
    size_t n = fread(text, 1, sizeof text - 1, f);
    text[n] = 0;
    fclose(f);
    struct cost cost = {0};
    if (!strstr(text, "\"os_calls\""))
        die("the statistics have no os_calls");
    for (size_t i = 0; i < COUNT(causes); i++) {
        char pattern[64];
        snprintf(pattern, sizeof pattern, "\"cause\": \"%s\"", causes[i]);
        for (const char *at = text; (at = strstr(at, pattern)) != NULL; at++) {
            cost.calls += number(at, "calls");
            cost.regret_bytes += number(at, "regret_bytes");
        }
    }
    return cost;
}

int main(int argc, char **argv)
{
    for (size_t i = 0; argc == 2 && i < COUNT(kinds); i++) {
        if (strcmp(argv[1], kinds[i].name))
            continue;
        uint64_t ns;
        load(&kinds[i], 500000000, &ns); /* what the start costs is not steady */
        struct cost before = cost_of_giving_back();
        uint64_t operations = load(&kinds[i], 2000000000, &ns);
        struct cost after = cost_of_giving_back();
        uint64_t calls = after.calls - before.calls, regret = after.regret_bytes - before.regret_bytes;
        double share = ((double)calls * 2000 + (double)regret / 4096 * 1000) / (double)ns;
        say("%s: for a million operations %.1f release calls, %.0f KiB of regret: %.2f %% of the time", argv[1],
            (double)calls * 1e6 / (double)operations, (double)regret / 1024 * 1e6 / (double)operations, share * 100);
        if (share > 0.02)
            die("more than 2 %% of the time");
        return 0;
    }
    die("usage: steady small|pool|large|mixed");
}
