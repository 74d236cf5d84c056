/* SPDX-License-Identifier: MIT
 * The live sampled blocks, and the file of the profile (format.h). No locks: a thread that stops anywhere, also by a
 * fork, blocks no other thread. A forked child continues with a copy, and a file of its own. */
#ifndef HAK_SAMPLES_H
#define HAK_SAMPLES_H

#include "api/hakmem.h"
#include "format.h"

/* The profile begins with this mean; 0: it is off until it is switched on. */
void hak_samples_start(size_t mean);
/* Average number of bytes between two samples; 0: off. */
size_t hak_samples_mean(void);
/* False without memory for a profile. */
bool hak_samples_set_mean(size_t mean);
/* Adds a sampled block. */
void hak_samples_add(const void *block, size_t size, size_t mean, void *const *frames, unsigned depth);
/* The size for which a sampled block was requested, at least 1; 0 if it was not sampled. */
size_t hak_samples_size(const void *block);
/* Removes a block that is freed; false if it was not sampled. */
bool hak_samples_remove(const void *block);
/* The block was not freed after all: adds it again. */
void hak_samples_restore(const void *block);
/* The heap will be destroyed: removes its blocks. */
void hak_samples_end(const hakmem_heap *heap);

#endif
