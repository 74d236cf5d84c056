/* SPDX-License-Identifier: MIT
 * See tags.h. Before start, one tag, which names no owner, stands for all pages. */
#include "tags.h"

static _Atomic(uint64_t) no_tag;
struct hak_tags hak_tags = {.table = &no_tag};
