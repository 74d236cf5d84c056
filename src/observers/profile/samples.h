/* SPDX-License-Identifier: MIT
 * The sampled blocks that live, and the file of the profile (format.h). Without locks: a thread that is stopped
 * anywhere, by a fork too, keeps nobody waiting. A forked child goes on in a file of its own. */
#ifndef HAK_SAMPLES_H
#define HAK_SAMPLES_H

#include "format.h"

/* Opens the file. The profile begins with this mean; 0: it waits to be switched on. */
void hak_samples_start(size_t mean);
/* Bytes between two samples; 0: none are wanted. */
size_t hak_samples_mean(void);
/* False without a file. */
bool hak_samples_set_mean(size_t mean);
/* A block was sampled. */
void hak_samples_add(const void *block, size_t size, size_t mean, void *const *frames, unsigned depth);
/* A block goes: whether it was a sampled one. */
bool hak_samples_remove(const void *block);
/* It did not go after all. */
void hak_samples_restore(const void *block);

#endif
