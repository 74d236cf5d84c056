/* SPDX-License-Identifier: MIT */
/*
 * bench_calls CALL SIZE CYCLES WS: what programs call beside malloc and free (decision 0061).
 * As in bench_fixed_size, WS blocks of SIZE bytes are replaced in turn; CALL names the calls that allocate and free a
 * block, or the call that a timer makes beside malloc and free. Functions outside of ISO C are looked up by name, so
 * that a preloaded allocator's are found; operators new and delete then need libstdc++.so.6.
 */
#include "bench.h"

#include <dlfcn.h>
#include <string.h>

enum { CALL, SIZE, CYCLES, WS, PARAMS };
enum { TIMER = 10000, ALIGNMENT = 64 }; /* cycles between two calls by a timer */

static struct bench_param params[PARAMS] = {
    [CALL] = {"CALL", 0, 0, 0,
              "calloc|realloc_grow|realloc_same|aligned|usable|free_null|new_sized|new_aligned|mallinfo|trim"},
    [SIZE] = {"SIZE", 64, 2, 1u << 30, NULL},
    [CYCLES] = {"CYCLES", 5000000, 1, UINT64_C(1) << 40, NULL},
    [WS] = {"WS", 256, 1, 1u << 26, NULL},
};

struct info {
    size_t fields[10];
};
static size_t (*usable)(void *);
static struct info (*info)(void);
static int (*trim)(size_t);
static void *(*new_sized)(size_t), *(*new_aligned)(size_t, size_t);
static void (*delete_sized)(void *, size_t), (*delete_aligned)(void *, size_t, size_t);

static void find(void *into, const char *name)
{
    void *symbol = dlsym(RTLD_DEFAULT, name);
    memcpy(into, &symbol, sizeof symbol);
    if (!symbol)
        bench_die("no library has %s", name);
}

static void find_all(void)
{
    dlopen("libstdc++.so.6", RTLD_NOW | RTLD_GLOBAL);
    find(&usable, "malloc_usable_size");
    find(&info, "mallinfo2");
    find(&trim, "malloc_trim");
    find(&new_sized, "_Znwm");
    find(&delete_sized, "_ZdlPvm");
    find(&new_aligned, "_ZnwmSt11align_val_t");
    find(&delete_aligned, "_ZdlPvmSt11align_val_t");
}

static void *take_zeroed(size_t size)
{
    return calloc(1, size);
}

static void *take_grown(size_t size)
{
    void *block = bench_malloc(size / 2);
    bench_touch_ends(block, size / 2);
    return realloc(block, size);
}

static void *take_twice(size_t size)
{
    return realloc(bench_malloc(size), size);
}

static void *take_aligned(size_t size)
{
    void *block;
    return posix_memalign(&block, ALIGNMENT, size) ? NULL : block;
}

/* As redis does, at each allocation and each free. */
static void *take_and_measure(size_t size)
{
    void *block = bench_malloc(size);
    usable(block);
    return block;
}

static void *take_new(size_t size)
{
    return new_sized(size);
}

static void *take_new_aligned(size_t size)
{
    return new_aligned(size, ALIGNMENT);
}

static void give(void *block, size_t size)
{
    (void)size;
    free(block);
}

static void measure_and_give(void *block, size_t size)
{
    usable(block);
    give(block, size);
}

static void give_and_null(void *block, size_t size)
{
    give(block, size);
    free(NULL);
}

static void give_deleted(void *block, size_t size)
{
    delete_sized(block, size);
}

static void give_deleted_aligned(void *block, size_t size)
{
    delete_aligned(block, size, ALIGNMENT);
}

static void ask_info(void)
{
    info();
}

static void ask_trim(void)
{
    trim(0);
}

/* In the order of CALL's choices. */
static const struct call {
    void *(*take)(size_t);
    void (*give)(void *, size_t);
    void (*beside)(void);
} calls[] = {
    {take_zeroed, give, NULL},
    {take_grown, give, NULL},
    {take_twice, give, NULL},
    {take_aligned, give, NULL},
    {take_and_measure, measure_and_give, NULL},
    {bench_malloc, give_and_null, NULL},
    {take_new, give_deleted, NULL},
    {take_new_aligned, give_deleted_aligned, NULL},
    {bench_malloc, give, ask_info},
    {bench_malloc, give, ask_trim},
};

static void *take(const struct call *call, size_t size)
{
    void *block = call->take(size);
    if (!block)
        bench_die("no block of %zu bytes; use a smaller WS", size);
    bench_touch_ends(block, size);
    return block;
}

static void replace(const struct call *call, void **slots)
{
    size_t size = (size_t)params[SIZE].value;
    for (uint64_t i = 0, at = 0; i < params[CYCLES].value; i++) {
        call->give(slots[at], size);
        slots[at] = take(call, size);
        if (++at == params[WS].value)
            at = 0;
        if (call->beside && i % TIMER == 0)
            call->beside();
    }
}

int main(int argc, char **argv)
{
    bench_parse(argc, argv, params, PARAMS);
    find_all();
    const struct call *call = &calls[params[CALL].value];
    size_t size = (size_t)params[SIZE].value;
    uint32_t working_set = (uint32_t)params[WS].value;
    void **slots = bench_map(working_set * sizeof *slots);
    for (uint32_t i = 0; i < working_set; i++)
        slots[i] = take(call, size);

    uint64_t begin = bench_now_ns();
    replace(call, slots);
    uint64_t ns = bench_now_ns() - begin;
    for (uint32_t i = 0; i < working_set; i++)
        call->give(slots[i], size);

    bench_report("calls", params[CYCLES].value, ns, "call=%llu size=%zu ws=%u", (unsigned long long)params[CALL].value,
                 size, working_set);
    return 0;
}
