/* SPDX-License-Identifier: MIT
 * Tells tools where the library's variables are and how its structures are laid out, so that they can read a running
 * process or a core from outside. Each line below adds a record to the section .hakmem.layout, which is not loaded: it
 * takes no memory, survives strip, and the linker fills in the addresses. A record is a zero-terminated text, "variable
 * NAME", "field STRUCTURE.NAME", "number NAME" or "sentence SETTING what it does", and two words of 64 bits: address
 * and size, offset and size, value and 0, or nothing. Reader: tools/hakmem/hakmem_workbench/inspection.py. Such a line
 * belongs in a function that is not inlined and rarely called; it compiles to no instruction. */
#ifndef HAK_LAYOUT_H
#define HAK_LAYOUT_H

#include <stddef.h>

#define HAK_SHOW_WORDS "%c0, %c1"
#if defined(__aarch64__)
#define HAK_SHOW_ADDRESS "S"
#elif defined(__s390x__)
#define HAK_SHOW_ADDRESS "X" /* "i" refuses addresses that may be odd */
#elif defined(__riscv)
#define HAK_SHOW_ADDRESS "i"
#undef HAK_SHOW_WORDS
#define HAK_SHOW_WORDS "%0, %1" /* gcc prints them bare, and knows no %c */
#else
#define HAK_SHOW_ADDRESS "i"
#endif
#ifdef HAK_SHOW_NOTHING /* tests compile these files with preemptible symbols, whose addresses are not yet known */
#define HAK_SHOW_RECORD(text, kind, value, size) ((void)0)
#else
#define HAK_SHOW_RECORD(text, kind, value, size)                                                                    \
    __asm__ volatile(".pushsection .hakmem.layout,\"\",%%progbits\n\t.asciz \"" text "\"\n\t.8byte " HAK_SHOW_WORDS \
                     "\n\t.popsection"                                                                              \
                     :                                                                                              \
                     : kind(value), "i"(size))
#endif

/* At the top level of a file. */
#define HAK_SHOW_TEXT(text)                                                                        \
    __asm__(".pushsection .hakmem.layout,\"\",%progbits\n\t.asciz \"" text "\"\n\t.8byte 0, 0\n\t" \
            ".popsection");

#define HAK_SHOW_VARIABLE(variable) \
    HAK_SHOW_RECORD("variable " #variable, HAK_SHOW_ADDRESS, &(variable), sizeof(__typeof__(variable)))
#define HAK_SHOW_FIELD(type, field)                                               \
    HAK_SHOW_RECORD("field " #type "." #field, "i", offsetof(struct type, field), \
                    sizeof(__typeof__(((struct type *)0)->field)))
#define HAK_SHOW_SIZE(type) HAK_SHOW_RECORD("number sizeof." #type, "i", sizeof(struct type), 0)
#define HAK_SHOW_NUMBER(name, value) HAK_SHOW_RECORD("number " name, "i", value, 0)

#endif
