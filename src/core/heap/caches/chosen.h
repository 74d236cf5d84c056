/* SPDX-License-Identifier: MIT
 * The cache of this build (-Dcache), whose contract is contract.h. */
#ifndef HAK_CACHES_CHOSEN_H
#define HAK_CACHES_CHOSEN_H

#include "core/base/words.h"

#if HAK_CACHE_ARRAY
#include "array/array.h"
#else
#include "list/list.h"
#endif

#endif
