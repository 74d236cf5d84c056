/* SPDX-License-Identifier: MIT
 * See cache.h. */
#include "cache.h"

HAK_THREAD_LOCAL struct hak_cache hak_self = {.tag = HAK_TAG_NOBODY};
