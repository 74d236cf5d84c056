/* SPDX-License-Identifier: MIT
 * For builds that are not hardened: see hardened/on/core/base/secret.h. */
#ifndef HAK_SECRET_H
#define HAK_SECRET_H

#include "core/base/sealed.h"

#define hak_secret (hak_sealed.secrets.of)

HAK_INLINE void hak_secret_draw(void)
{
}

#endif
