/* SPDX-License-Identifier: MIT
 * Bytes and text without the C library, whose functions a program may replace by some that allocate: so code that may
 * hold a lock, or is changing a heap, moves and compares bytes here. The statement without instructions in each loop
 * keeps compilers from making a call of memcpy, memset or strlen of it. */
#ifndef HAK_TEXT_H
#define HAK_TEXT_H

#include "words.h"

typedef uint64_t __attribute__((may_alias, aligned(1))) hak_any_word;
#define HAK_NO_CALL(i) __asm__("" : "+r"(i))

/* Forwards: what overlaps moves down. */
HAK_INLINE void hak_move(void *to, const void *from, size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        *(hak_any_word *)((char *)to + i) = *(const hak_any_word *)((const char *)from + i);
        HAK_NO_CALL(i);
    }
    for (; i < n; i++) {
        ((char *)to)[i] = ((const char *)from)[i];
        HAK_NO_CALL(i);
    }
}

HAK_INLINE void hak_fill(void *to, unsigned char byte, size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        *(hak_any_word *)((char *)to + i) = byte * (UINT64_MAX / 0xff);
        HAK_NO_CALL(i);
    }
    for (; i < n; i++) {
        ((unsigned char *)to)[i] = byte;
        HAK_NO_CALL(i);
    }
}

/* The first c, or the text's end. */
static inline char *hak_text_until(const char *text, char c)
{
    for (; *text && *text != c; text++)
        HAK_NO_CALL(text);
    return (char *)(uintptr_t)text;
}

static inline size_t hak_text_length(const char *text)
{
    return (size_t)(hak_text_until(text, 0) - text);
}

/* What follows the beginning; NULL if the text has another. */
static inline const char *hak_text_after(const char *text, const char *beginning)
{
    for (; *beginning; text++, beginning++)
        if (*text != *beginning)
            return NULL;
    return text;
}

static inline bool hak_text_is(const char *text, const char *other)
{
    const char *rest = hak_text_after(text, other);
    return rest && !*rest;
}

/* What follows the first such part; NULL if there is none. */
static inline const char *hak_text_behind(const char *text, const char *part)
{
    const char *rest = hak_text_after(text, part);
    for (; !rest && *text; text++)
        rest = hak_text_after(text + 1, part);
    return rest;
}

/* NULL if there is none. */
static inline char *hak_text_last(const char *text, char c)
{
    const char *last = NULL;
    for (; *(text = hak_text_until(text, c)); text++)
        last = text;
    return (char *)(uintptr_t)last;
}

#endif
