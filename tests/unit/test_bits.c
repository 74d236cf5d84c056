/* SPDX-License-Identifier: MIT
 * Against one bit at a time, across the borders of words. */
#include "core/base/bits.h"

#include "unit.h"

#define WORDS 3
#define BITS (WORDS * 64)

static bool model[BITS];

static void assert_like_model(const uint64_t *words)
{
    for (unsigned i = 0; i < BITS; i++)
        assert_int_equal(hak_bit(words, i), model[i]);
}

static unsigned model_count(unsigned first, unsigned count)
{
    unsigned n = 0;
    for (unsigned i = first; i < first + count; i++)
        n += model[i];
    return n;
}

TEST(any_range_is_set_cleared_and_counted)
{
    uint64_t words[WORDS] = {0}, random = 1;
    for (unsigned round = 0; round < 5000; round++) {
        unsigned first = (unsigned)(unit_random(&random) % (BITS + 1));
        unsigned count = (unsigned)(unit_random(&random) % (BITS - first + 1));
        bool value = unit_random(&random) % 2;
        unsigned set = model_count(first, count);
        assert_int_equal(hak_bits_count(words, first, count), set);
        assert_int_equal(hak_bits_set(words, first, count, value), value ? count - set : set);
        for (unsigned i = first; i < first + count; i++)
            model[i] = value;
        assert_like_model(words);
    }
}

UNIT_MAIN(T(any_range_is_set_cleared_and_counted))
