/* SPDX-License-Identifier: MIT
 * Size classes: which class serves a request, and how its slabs are carved. sizeclass.py generates the tables. */
#ifndef HAK_SIZECLASS_H
#define HAK_SIZECLASS_H

#include "block_policy.h"
#include "sizeclass_table.h"
#include "words.h"

extern HAK_HIDDEN const uint8_t hak_class_map[HAK_MAP_SIZE];
extern const uint32_t hak_strides[HAK_NCLASSES];
extern const uint8_t hak_slab_pages[HAK_NCLASSES]; /* in 64 KiB pages */

/* 2^32 / stride, rounded up; 0 for classes whose slabs are longer than a page. */
extern const uint32_t hak_divisors[HAK_NCLASSES];

/* 2^64 / stride, rounded up: exact for slabs of any length. In hardened builds (hardened/on/mark.c). */
extern HAK_HIDDEN const uint64_t hak_inverses[HAK_NCLASSES];

/* The class of a request of at most HAK_SMALL_MAX bytes; zero bytes count as one. */
HAK_INLINE unsigned hak_class_of(size_t size)
{
#if HAK_HEADER_LIMIT && defined(__x86_64__)
    size_t sum = size + 15;
    /* the carry is the difference between the two biases; C takes one more instruction */
    __asm__("cmpq %[above], %[size]\n\tadcq $0, %[sum]"
            : [sum] "+r"(sum)
            : [size] "r"(size), [above] "i"(HAK_HEADER_LIMIT + 1)
            : "cc");
    return hak_class_map[sum >> 4];
#else
    return hak_class_map[(size + HAK_SIZE_BIAS(size)) >> 4];
#endif
}

/* Whether a class with header bytes serves requests of that size; also, whether a stride belongs to such a class. */
HAK_INLINE bool hak_size_has_header(size_t size)
{
    return HAK_SIZE_BIAS(size) != 15;
}

HAK_INLINE bool hak_class_has_header(unsigned cls)
{
    return HAK_CLASS_HAS_HEADER(cls);
}

/* The smallest class for a request whose blocks are all aligned to `align`, a power of two from 16 on; HAK_NCLASSES if
 * there is none. Slabs are aligned to 64 KiB, so a stride that is a multiple of `align` will do. There are eight
 * strides per doubling: up to eight times the alignment, each of its multiples is a stride; beyond that, each stride is
 * a multiple, unless the frontends leave a gap: so hak_class_of_rounded mostly is the class. A header takes a byte. */
HAK_INLINE unsigned hak_class_of_rounded(size_t align, size_t size)
{
    if (HAK_UNLIKELY(size > HAK_SMALL_MAX || align > HAK_PAGE))
        return HAK_NCLASSES;
    size_t stride = hak_align_up(hak_max(size, 1) + hak_size_has_header(size), align);
    size_t request = stride - hak_size_has_header(stride);
    return HAK_LIKELY(request <= HAK_SMALL_MAX) ? hak_class_of(request) : HAK_NCLASSES;
}

HAK_INLINE unsigned hak_class_of_aligned(size_t align, size_t size)
{
    unsigned cls = hak_class_of_rounded(align, size);
    while (HAK_UNLIKELY(cls < HAK_NCLASSES && hak_strides[cls] & (align - 1)))
        cls++;
    return cls;
}

#define HAK_HEADER_MAGIC 0xa0u

/* 0xa0 + class: there are 32 header classes at most, so the byte stays within 0xa0..0xbf. */
HAK_INLINE unsigned hak_header_byte(unsigned cls)
{
    return HAK_HEADER_MAGIC + cls;
}
_Static_assert(HAK_HEADER_CLASSES <= 32, "a header byte holds 32 classes");

/* Usable bytes of a block. */
HAK_INLINE size_t hak_class_usable(unsigned cls)
{
    return hak_strides[cls] - hak_class_has_header(cls);
}

/* Whether a block of the class may begin at p, by the address alone; false for classes whose slabs are longer than a
 * page. The low half of the product is below the divisor only for multiples of the stride, since offset and stride have
 * 16 bits (Lemire, Kaser, Kurz: Faster remainder by direct computation, 2019). */
HAK_INLINE bool hak_class_starts_at(uint64_t cls, const void *p)
{
    uint32_t offset = (uintptr_t)p & 0xffff, divisor = hak_divisors[cls];
    return offset * divisor < divisor && offset + hak_strides[cls] <= 0x10000;
}

/* The number of the block in its slab, if one begins there. */
HAK_INLINE uint32_t hak_class_number_of(uint64_t cls, const void *p)
{
    return (uint32_t)(((uintptr_t)p & 0xffff) * (uint64_t)hak_divisors[cls] >> 32);
}

#endif
