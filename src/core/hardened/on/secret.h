/* SPDX-License-Identifier: MIT
 * See core/base/secret.h. */
#ifndef HAK_ON_SECRET_H
#define HAK_ON_SECRET_H

/* Draws the secrets from the kernel; if it refuses, from the random bytes that it gave the process at start. */
void hak_secret_draw(void);

/* A number that depends on x and on the keys. An attacker who sees some of these numbers learns neither the keys nor
 * the number of another x: each product is folded, and the second one hides the first. */
HAK_INLINE uint64_t hak_secret_mix(uint64_t x)
{
    __extension__ typedef unsigned __int128 wide;
    const uint64_t *key = hak_secret.key;
    wide a = (wide)(x ^ key[0]) * key[1];
    wide b = (wide)((uint64_t)a ^ (uint64_t)(a >> 64) ^ key[2]) * key[3];
    return (uint64_t)b ^ (uint64_t)(b >> 64);
}

#endif
