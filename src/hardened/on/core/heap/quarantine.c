/* SPDX-License-Identifier: MIT
 * See core/heap/quarantine.h. */
#include "core/heap/quarantine.h"

#include <string.h>

#include "core/base/layout.h"
#include "core/base/work.h"
#include "core/heap/drain.h"
#include "core/pages/mark.h"

#define FILL 0xf5u /* eight of these bytes are neither an address nor a small number */

/* The bytes of a block behind link and mark. */
static unsigned char *inside(const void *p, unsigned cls, size_t *size)
{
    size_t head = hak_mark_fits(cls) ? 2 * sizeof(uintptr_t) : sizeof(uintptr_t);
    *size = hak_class_usable(cls) - head;
    return (unsigned char *)p + head;
}

static unsigned fill_byte(void)
{
    HAK_SHOW_FIELD(hak_heap, quarantine[0].bytes);
    return hak_options.zero_on_free ? 0 : FILL;
}

/* Checks a block that leaves; returns the next one. */
static void *check_overwritten(const void *block, const struct hak_slab *slab, const void *last)
{
    size_t size;
    const unsigned char *bytes = inside(block, slab->cls, &size), fill = (unsigned char)fill_byte();
    unsigned char changed = 0;
    for (size_t i = 0; i < size; i++)
        changed |= bytes[i] ^ fill;
    if (changed)
        hak_link_fail(block);
    void *next = hak_next_load(block);
    if (!hak_mark_is_linked(block, slab->cls) || !next != (block == last))
        hak_link_fail(block);
    return next;
}

/* Drains the oldest blocks, as one list, until `keep` bytes are left. */
static void let_oldest_go(struct hak_heap *heap, size_t keep)
{
    struct hak_quarantine *q = heap->quarantine;
    void *first = q->first, *last = NULL;
    for (; q->first && q->bytes > keep; hak_work_add(1)) {
        const struct hak_slab *slab = hak_space_slab_of_block(q->first);
        last = q->first;
        q->first = check_overwritten(last, slab, q->last);
        q->bytes -= hak_class_usable(slab->cls);
    }
    if (last)
        hak_next_store(last, NULL);
    hak_drain(heap, last ? first : NULL);
}

static void append(struct hak_quarantine *q, void *p)
{
    hak_next_store(p, NULL);
    if (!q->first)
        q->first = p;
    else if (hak_next_load(q->last))
        hak_link_fail(q->last);
    else
        hak_next_store(q->last, p);
    q->last = p;
}

bool hak_quarantine_take(struct hak_heap *heap, unsigned cls, void *p)
{
    size_t size, most = hak_options.quarantine_kb * HAK_KIB, usable = hak_class_usable(cls);
    void *bytes = inside(p, cls, &size);
    memset(bytes, (int)fill_byte(), size);
    if (!heap)
        return false;
    hak_count(&heap->counters.overwritten, 1);
    if (usable > most)
        return false;
    hak_count(&heap->counters.quarantined, 1);
    append(heap->quarantine, p);
    heap->quarantine->bytes += usable;
    if (heap->quarantine->bytes > most)
        let_oldest_go(heap, most - most / 8); /* one drain takes several at once */
    return true;
}

void hak_quarantine_flush(struct hak_heap *heap)
{
    let_oldest_go(heap, 0);
}
