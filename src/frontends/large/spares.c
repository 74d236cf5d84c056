/* SPDX-License-Identifier: MIT
 * See spares.h. Spares stay among the mappings that os/limit.h counts: as many as there are blocks and spares, the
 * process has at most for them, since each lies in one. */
#include "spares.h"

#include <sys/mman.h>

#include "core/os/fence.h"
#include "core/os/limit.h"

static bool page_exists(char *page)
{
    return hak_os_resident(page, hak_os_page_size(), HAK_CAUSE_large_unmap) != -ENOMEM;
}

static bool would_split(const struct mapping *m)
{
    return !m->fenced && page_exists((char *)m->base - hak_os_page_size()) && page_exists((char *)m->base + m->size);
}

/* At the limit the kernel may refuse. */
static bool unmap(const struct mapping *m)
{
    return (hak_limit_allows(-1) || !would_split(m)) &&
           !hak_fence_unmap(m->base, m->size, m->fenced, HAK_CAUSE_large_unmap);
}

void hak_spares_put(struct mapping *m)
{
    if (unmap(m)) {
        hak_limit_note(-1);
        hak_registry_forget(m);
        return;
    }
    m->clean = !hak_os_advise(m->base, m->size, MADV_DONTNEED, HAK_CAUSE_large_unmap);
    hak_registry_add_spare(m);
}

/* What the program advised on its block, or protected, ends with that block. */
static bool reopen(const struct mapping *m)
{
    static const int undo[] = {MADV_DOFORK, MADV_KEEPONFORK, MADV_DODUMP};
    for (unsigned i = 0; i < sizeof undo / sizeof *undo; i++)
        hak_os_advise(m->base, m->size, undo[i], HAK_CAUSE_large_map);
    return !hak_os_protect(m->base, m->size, PROT_READ | PROT_WRITE, HAK_CAUSE_large_map);
}

static struct mapping *reopened(struct mapping *m)
{
    if (!m || reopen(m))
        return m;
    hak_registry_add_spare(m);
    return NULL;
}

struct mapping *hak_spares_take(size_t size, bool zero)
{
    return reopened(hak_registry_spare(size, zero));
}

bool hak_spares_extend(struct mapping *m, size_t size)
{
    struct mapping *behind;
    while (m->size < size && !m->fenced && (behind = reopened(hak_registry_spare_at((char *)m->base + m->size)))) {
        m->size += behind->size;
        hak_limit_note(-1);
        hak_registry_forget(behind);
    }
    return m->size >= size;
}
