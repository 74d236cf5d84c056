/* SPDX-License-Identifier: MIT */
/*
 * Counts of values from 0 to 2^64 - 1, log-linear: each doubling has HISTOGRAM_STEPS cells, so that a quantile is at
 * most 1.6 % too high, and a count is a few instructions. Each thread counts in its own; sums are made after all have
 * ended.
 */
#ifndef HAKMEM_BENCH_HISTOGRAM_H
#define HAKMEM_BENCH_HISTOGRAM_H

#include <stdint.h>

enum { HISTOGRAM_BITS = 6, HISTOGRAM_STEPS = 1 << HISTOGRAM_BITS };
enum { HISTOGRAM_CELLS = (64 - HISTOGRAM_BITS + 1) * HISTOGRAM_STEPS };

struct histogram {
    uint64_t count;
    uint64_t worst;
    uint64_t cells[HISTOGRAM_CELLS];
};

static inline unsigned histogram_cell(uint64_t value)
{
    if (value < HISTOGRAM_STEPS)
        return (unsigned)value;
    unsigned shift = 63u - (unsigned)__builtin_clzll(value) - HISTOGRAM_BITS;
    return shift * HISTOGRAM_STEPS + (unsigned)(value >> shift);
}

/* The largest value that the cell counts. */
static inline uint64_t histogram_top(unsigned cell)
{
    if (cell < HISTOGRAM_STEPS)
        return cell;
    unsigned shift = cell / HISTOGRAM_STEPS - 1;
    return ((uint64_t)(cell % HISTOGRAM_STEPS + HISTOGRAM_STEPS + 1) << shift) - 1;
}

static inline void histogram_count(struct histogram *histogram, uint64_t value)
{
    histogram->count++;
    histogram->cells[histogram_cell(value)]++;
    if (value > histogram->worst)
        histogram->worst = value;
}

static inline void histogram_add(struct histogram *sum, const struct histogram *other)
{
    sum->count += other->count;
    for (unsigned i = 0; i < HISTOGRAM_CELLS; i++)
        sum->cells[i] += other->cells[i];
    if (other->worst > sum->worst)
        sum->worst = other->worst;
}

/* The value that at most `above` of `of` counted values exceed: 1 of 100 is the 99th percentile. */
static inline uint64_t histogram_quantile(const struct histogram *histogram, uint64_t above, uint64_t of)
{
    uint64_t left = histogram->count * above / of;
    unsigned cell = HISTOGRAM_CELLS;
    for (uint64_t over = 0; cell > 0; over += histogram->cells[cell]) {
        if (over + histogram->cells[--cell] > left)
            break;
    }
    uint64_t top = histogram_top(cell);
    return top < histogram->worst ? top : histogram->worst;
}

#endif
