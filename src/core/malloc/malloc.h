/* SPDX-License-Identifier: MIT
 * Includes everything that src/api calls. */
#ifndef HAK_MALLOC_H
#define HAK_MALLOC_H

#include "aligned.h"
#include "block.h"
#include "fast.h"
#include "resize.h"
#include "trim.h"

#endif
