/* SPDX-License-Identifier: MIT
 * Data that is written once, at start, and is read-only from then on: all settings, then the table of parts (plugin.h),
 * and at the end the secrets of hardened builds (secret.h). Its pages hold nothing else. */
#ifndef HAK_SEALED_H
#define HAK_SEALED_H

#include "options.h"

#if defined(__x86_64__)
#define HAK_SEALED_SIZE 4096
#else
#define HAK_SEALED_SIZE 65536
#endif

struct hak_secrets {
    uint64_t key[4], first, end; /* for hak_secret_mix, for link.h, and for canaries (api/edge.h) */
};

union hak_sealed {
    struct hak_option_values options;
    struct {
        char before[HAK_SEALED_SIZE - sizeof(struct hak_secrets)];
        struct hak_secrets of;
    } secrets;
    char bytes[HAK_SEALED_SIZE];
};
extern HAK_HIDDEN union hak_sealed hak_sealed;

#define hak_options (hak_sealed.options)
/* HAKMEM_MADV=free: purged pages may keep their content for a while. */
HAK_INLINE bool hak_pages_go_lazily(void)
{
    return hak_options.madv != 0;
}

#define HAK_SEALED_PARTS ((sizeof(struct hak_option_values) + HAK_CACHELINE - 1) & ~(size_t)(HAK_CACHELINE - 1))

#endif
