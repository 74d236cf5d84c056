/* SPDX-License-Identifier: MIT
 * Other builds than hardened ones: see core/base/secret.h. */
#ifndef HAK_OFF_SECRET_H
#define HAK_OFF_SECRET_H

HAK_INLINE void hak_secret_draw(void)
{
}

#endif
