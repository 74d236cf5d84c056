/* SPDX-License-Identifier: MIT
 * Hardened builds without -Dcxx=true (new.cc): sized delete, which checks the size and leaves the rest to the
 * operator without a size, as the C++ library's own does. So a program that replaces only that operator gets its own
 * one. */
#include "core/malloc/malloc.h"
#include "hakmem.h"

typedef void plain_delete(void *), aligned_delete(void *, size_t);
extern plain_delete delete_one __asm__("_ZdlPv") __attribute__((weak));
extern plain_delete delete_array __asm__("_ZdaPv") __attribute__((weak));
extern aligned_delete delete_one_aligned __asm__("_ZdlPvSt11align_val_t") __attribute__((weak));
extern aligned_delete delete_array_aligned __asm__("_ZdaPvSt11align_val_t") __attribute__((weak));

/* A C program may load C++ later: then our operator cannot find the C++ library's, whose own calls free. */
static void delete_sized(void *p, size_t size, plain_delete *plain)
{
    hak_block_check_most(p, size, "delete");
    if (plain)
        plain(p);
    else
        hakmem_free(p);
}

static void delete_aligned(void *p, size_t size, size_t align, aligned_delete *aligned)
{
    hak_block_check_most(p, size, "delete");
    if (aligned)
        aligned(p, align);
    else
        hakmem_free(p);
}

/* They are weak, as the C++ library's own operators are, since a static link may contain both. */
#define OPERATOR(name) __asm__(name) __attribute__((weak, visibility("default")))

void sized_delete_one(void *p, size_t size) OPERATOR("_ZdlPvm");
void sized_delete_one(void *p, size_t size)
{
    delete_sized(p, size, delete_one);
}

void sized_delete_array(void *p, size_t size) OPERATOR("_ZdaPvm");
void sized_delete_array(void *p, size_t size)
{
    delete_sized(p, size, delete_array);
}

void sized_delete_one_aligned(void *p, size_t size, size_t align) OPERATOR("_ZdlPvmSt11align_val_t");
void sized_delete_one_aligned(void *p, size_t size, size_t align)
{
    delete_aligned(p, size, align, delete_one_aligned);
}

void sized_delete_array_aligned(void *p, size_t size, size_t align) OPERATOR("_ZdaPvmSt11align_val_t");
void sized_delete_array_aligned(void *p, size_t size, size_t align)
{
    delete_aligned(p, size, align, delete_array_aligned);
}
