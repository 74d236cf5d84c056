/* SPDX-License-Identifier: MIT
 * Sets of small numbers, pages of a chunk for example, as bits of 64-bit words: bit i is bit i % 64 of word i / 64.
 * Nothing here is atomic: the caller's lock guards the words. */
#ifndef HAK_BITS_H
#define HAK_BITS_H

#include "words.h"

HAK_INLINE bool hak_bit(const uint64_t *words, unsigned i)
{
    return words[i / 64] >> i % 64 & 1;
}

/* Sets bits [first, first + bits) to `value`; returns how many changed. */
unsigned hak_bits_set(uint64_t *words, unsigned first, unsigned bits, bool value);
/* How many of them are set. */
unsigned hak_bits_count(const uint64_t *words, unsigned first, unsigned bits);

#endif
