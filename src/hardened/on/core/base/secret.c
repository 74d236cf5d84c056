/* SPDX-License-Identifier: MIT
 * See core/base/secret.h. */
#include "core/base/secret.h"

#include <sys/auxv.h>
#include <sys/random.h>

#include "core/base/kernel.h"
#include "core/base/text.h"

#define GOLDEN 0x9e3779b97f4a7c15u

void hak_secret_draw(void)
{
    if (HAK_SYSCALL(SYS_getrandom, &hak_secret, sizeof hak_secret, GRND_NONBLOCK) != (long)sizeof hak_secret) {
        const void *from_kernel = (const void *)hak_kernel_auxv(AT_RANDOM);
        if (from_kernel)
            hak_move(&hak_secret, from_kernel, 16); /* the kernel gives 16 bytes */
        hak_secret.key[2] = hak_secret.key[0] * GOLDEN ^ (uintptr_t)from_kernel;
        hak_secret.key[3] = hak_secret.key[1] * GOLDEN ^ (uintptr_t)&from_kernel;
        hak_secret.first = (hak_secret.key[2] ^ hak_secret.key[1]) * GOLDEN;
        hak_secret.end = (hak_secret.key[3] ^ hak_secret.key[0]) * GOLDEN;
    }
    hak_secret.end |= 1;
    hak_secret.key[1] |= 1; /* odd, so that a multiplication loses no information */
    hak_secret.key[3] |= 1;
}
