/* SPDX-License-Identifier: MIT
 * The generated tables of sizeclass.h, read-only and shared between processes. */
#include "sizeclass.h"

const uint32_t hak_strides[HAK_NCLASSES] = {HAK_STRIDES};
const uint8_t hak_slab_pages[HAK_NCLASSES] = {HAK_SLAB_PAGES};
const uint32_t hak_divisors[HAK_NCLASSES] = {HAK_DIVISORS};
const uint8_t hak_class_map[HAK_MAP_SIZE] = {HAK_CLASS_MAP};
