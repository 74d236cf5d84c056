/* SPDX-License-Identifier: MIT
 * What a free block carries: its link, which only one pair of accessors touches, and in hardened builds a mark.
 * Hardened builds encode a link with the block's address and with secrets, and check a link before they follow it: so a
 * link that a program overwrote after free leads nowhere. An attacker who reads a link and knows its target can forge
 * another; so the block's mark is checked before its link is followed. A mark is a number that depends on the block's
 * address and on secrets. It is the block's second word. free detects a second free by it, and malloc detects that it
 * was overwritten. In a bin that is an array, the first word is a mark, too; on a list it is the link. Both are cleared
 * when malloc returns the block, and when its slab becomes empty: neither the program nor the next user of the pages
 * sees them. */
#ifndef HAK_LINK_H
#define HAK_LINK_H

#include "core/base/sizeclass.h"

#if HAK_HARDENED
#include "core/hardened/on/link.h"
#else
#include "core/hardened/off/link.h"
#endif

#endif
