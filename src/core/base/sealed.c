/* SPDX-License-Identifier: MIT
 * See sealed.h. */
#include "sealed.h"

_Alignas(HAK_SEALED_SIZE) union hak_sealed hak_sealed;
