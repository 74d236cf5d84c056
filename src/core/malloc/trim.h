/* SPDX-License-Identifier: MIT
 * Giving memory back because the program asks for it. */
#ifndef HAK_TRIM_H
#define HAK_TRIM_H

#include "core/base/words.h"

/* Gives back what is kept beyond `keep` bytes, for all threads. Returns bytes given back. */
size_t hak_trim(size_t keep);

#endif
