/* SPDX-License-Identifier: MIT
 * Hardened builds: numbers that the process draws once, before its first block, and keeps in sealed memory. */
#ifndef HAK_SECRET_H
#define HAK_SECRET_H

#include "core/base/sealed.h"

#define hak_secret (hak_sealed.secrets.of)

/* Draws the secrets from the kernel; if it refuses, from the random bytes that it gave the process at start. */
void hak_secret_draw(void);

HAK_INLINE uint64_t hak_secret_fold(uint64_t x, uint64_t key)
{
    __extension__ typedef unsigned __int128 wide;
    wide product = (wide)x * key;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* To be folded with a further key before anybody sees it. */
HAK_INLINE uint64_t hak_secret_inner(uint64_t x)
{
    return hak_secret_fold(x ^ hak_secret.key[0], hak_secret.key[1]);
}

/* A number that depends on x and on the keys. An attacker who sees some of these numbers learns neither the keys nor
 * the number of another x: each product is folded, and the second one hides the first. */
HAK_INLINE uint64_t hak_secret_mix(uint64_t x)
{
    return hak_secret_fold(hak_secret_inner(x) ^ hak_secret.key[2], hak_secret.key[3]);
}

#endif
