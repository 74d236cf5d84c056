/* SPDX-License-Identifier: MIT
 * See bits.h. Whole words at a time. */
#include "bits.h"

/* How many of the bits of a mask of n; most often all or none. */
static unsigned count(uint64_t bits, uint64_t mask, unsigned n)
{
    bits &= mask;
    return bits == mask ? n : bits ? (unsigned)__builtin_popcountll(bits) : 0;
}

/* The part of word i / 64 from bit i on, at most to bit `end`; *n is its length. */
static uint64_t word_mask(unsigned i, unsigned end, unsigned *n)
{
    *n = (unsigned)hak_min(64 - i % 64, end - i);
    return (*n == 64 ? ~(uint64_t)0 : ((uint64_t)1 << *n) - 1) << i % 64;
}

unsigned hak_bits_set(uint64_t *words, unsigned first, unsigned bits, bool value)
{
    unsigned changed = 0;
    for (unsigned i = first, n; i < first + bits; i += n) {
        uint64_t mask = word_mask(i, first + bits, &n), *word = &words[i / 64];
        changed += count(value ? ~*word : *word, mask, n);
        *word = value ? *word | mask : *word & ~mask;
    }
    return changed;
}

unsigned hak_bits_count(const uint64_t *words, unsigned first, unsigned bits)
{
    unsigned set = 0;
    for (unsigned i = first, n; i < first + bits; i += n) {
        uint64_t mask = word_mask(i, first + bits, &n);
        set += count(words[i / 64], mask, n);
    }
    return set;
}
