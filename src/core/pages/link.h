/* SPDX-License-Identifier: MIT
 * What a free block carries: its link, and the one pair of accessors for it; in hardened builds marks, too. Those write a
 * link as a number that depends on the block's address and on secrets, and look at what they read before they use it:
 * what a program wrote to a block after free leads nowhere. Whoever reads a link and knows where it leads can turn it
 * elsewhere; so a block's mark is looked at before its own link is followed.
 * A mark is a number that depends on the block's address and on secrets: a second free finds it, and so does malloc, which
 * finds out what was written there. It is the block's second word. Of a bin that is an array the first word is one, too;
 * on a list it is the link. Both are cleared where a block leaves malloc, and where its slab is empty: neither the program
 * nor what the pages serve next sees them. */
#ifndef HAK_LINK_H
#define HAK_LINK_H

#include "core/base/sizeclass.h"

#if HAK_HARDENED
#include "core/hardened/on/link.h"
#else
#include "core/hardened/off/link.h"
#endif

#endif
