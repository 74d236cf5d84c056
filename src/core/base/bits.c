/* SPDX-License-Identifier: MIT
 * See bits.h. Whole words at a time. */
#include "bits.h"

/* The part of word i / 64 from bit i on, at most to bit `end`; *n is its length. */
static uint64_t word_mask(unsigned i, unsigned end, unsigned *n)
{
    *n = (unsigned)hak_min(64 - i % 64, end - i);
    return (*n == 64 ? ~(uint64_t)0 : ((uint64_t)1 << *n) - 1) << i % 64;
}

unsigned hak_bits_set(uint64_t *words, unsigned first, unsigned count, bool value)
{
    unsigned changed = 0;
    for (unsigned i = first, n; i < first + count; i += n) {
        uint64_t mask = word_mask(i, first + count, &n), *word = &words[i / 64];
        changed += (unsigned)__builtin_popcountll((value ? ~*word : *word) & mask);
        *word = value ? *word | mask : *word & ~mask;
    }
    return changed;
}

unsigned hak_bits_count(const uint64_t *words, unsigned first, unsigned count)
{
    unsigned set = 0;
    for (unsigned i = first, n; i < first + count; i += n)
        set += (unsigned)__builtin_popcountll(words[i / 64] & word_mask(i, first + count, &n));
    return set;
}
