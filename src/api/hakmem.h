/* SPDX-License-Identifier: MIT
 * hakmem: public interface. Functions that are named like those of the C library behave like them; the brackets name
 * the document that specifies them. The last line of each comment says
 * Units: of arguments and results;
 * Alignment: of the returned blocks, in bytes;
 * errno: its value after a failure; "kept": it is not changed;
 * Threads: "any": all threads may call it concurrently, and a forked child, too; no signal handler may call any of the
 * functions;
 * Since: the version that introduced it. */
#ifndef HAKMEM_H
#define HAKMEM_H

#include <stddef.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* [C23 7.24.3.6] malloc(0) gives a unique pointer. Above PTRDIFF_MAX: NULL, ENOMEM.
 * Units: bytes. Alignment: 16. errno: ENOMEM. Threads: any. Since: 0.1. */
void *hakmem_malloc(size_t size);
/* [C23 7.24.3.3] NULL is ignored. A pointer that hakmem did not allocate stops the process with one line.
 * Units: none. Alignment: none. errno: kept. Threads: any. Since: 0.1. */
void hakmem_free(void *ptr);
/* [C23 7.24.3.2] Zeroed; NULL and ENOMEM when count * size overflows.
 * Units: elements, bytes. Alignment: 16. errno: ENOMEM. Threads: any. Since: 0.1. */
void *hakmem_calloc(size_t count, size_t size);
/* [glibc manual 3.2.3.5] realloc(NULL, n) allocates; realloc(p, 0) frees p and returns NULL. On failure the old block
 * is untouched.
 * Units: bytes. Alignment: 16. errno: ENOMEM. Threads: any. Since: 0.1. */
void *hakmem_realloc(void *ptr, size_t size);
/* [POSIX.1-2024] realloc of count * size; NULL and ENOMEM on overflow.
 * Units: elements, bytes. Alignment: 16. errno: ENOMEM. Threads: any. Since: 0.1. */
void *hakmem_reallocarray(void *ptr, size_t count, size_t size);
/* [POSIX.1-2024] 0, or EINVAL (alignment no power of two, or no multiple of sizeof(void *)), or ENOMEM; errno is left
 * alone; on failure *out is too.
 * Units: bytes. Alignment: as asked, at least 16. errno: kept. Threads: any. Since: 0.1. */
int hakmem_posix_memalign(void **out, size_t alignment, size_t size);
/* [C23 7.24.3.1] NULL and EINVAL when alignment is no power of two. size need not be a multiple of it.
 * Units: bytes. Alignment: as asked, at least 16. errno: EINVAL, ENOMEM. Threads: any. Since: 0.1. */
void *hakmem_aligned_alloc(size_t alignment, size_t size);
/* [glibc manual 3.2.3.6] As aligned_alloc, but an alignment that is no power of two is rounded up.
 * Units: bytes. Alignment: as asked, at least 16. errno: EINVAL, ENOMEM. Threads: any. Since: 0.1. */
void *hakmem_memalign(size_t alignment, size_t size);
/* [glibc manual 3.2.3.6] Aligned to a system page.
 * Units: bytes. Alignment: a system page. errno: ENOMEM. Threads: any. Since: 0.1. */
void *hakmem_valloc(size_t size);
/* [glibc manual 3.2.3.6] As valloc, size rounded up to whole pages.
 * Units: bytes. Alignment: a system page. errno: ENOMEM. Threads: any. Since: 0.1. */
void *hakmem_pvalloc(size_t size);
/* [glibc malloc_usable_size(3)] Usable bytes at ptr, at least the requested size; 0 for NULL.
 * Units: bytes. Alignment: none. errno: kept. Threads: any. Since: 0.1. */
size_t hakmem_malloc_usable_size(void *ptr);
/* [C23 7.24.3.4] size: as given to malloc, calloc or realloc.
 * Units: bytes. Alignment: none. errno: kept. Threads: any. Since: 0.1. */
void hakmem_free_sized(void *ptr, size_t size);
/* [C23 7.24.3.5] alignment and size: as given to aligned_alloc.
 * Units: bytes. Alignment: none. errno: kept. Threads: any. Since: 0.1. */
void hakmem_free_aligned_sized(void *ptr, size_t alignment, size_t size);
/* [glibc malloc_trim(3)] Returns free memory beyond `pad` bytes to the kernel; 1 if it returned some, else 0.
 * Units: bytes. Alignment: none. errno: kept. Threads: any. Since: 0.1. */
int hakmem_malloc_trim(size_t pad);

/* [glibc mallinfo(3)] The fields of glibc's struct mallinfo2, in bytes. arena: superslabs in use; uordblks: usable
 * bytes of the program's blocks in them; fordblks: the rest; ordblks: free pieces, each a block of a slab, the part of
 * a slab not yet carved, or a run of free pages; hblks and hblkhd: number and usable bytes of blocks with a mapping of
 * their own, from 32 MiB on. The others are 0. So uordblks + hblkhd is the sum of malloc_usable_size over all blocks.
 * Free blocks in the bins of other running threads count as in use, since only their thread can walk them; those in
 * bins of the caller and of ended threads do not. Blocks that HAKMEM_GUARD_RATE guards are left out.
 * Units: bytes, pieces. Alignment: none. errno: may change. Threads: any. Since: 0.1. */
struct hakmem_mallinfo2 {
    size_t arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost;
};
struct hakmem_mallinfo2 hakmem_mallinfo2(void);
/* [glibc malloc_info(3)] Writes XML with glibc's element names. Returns 0; EINVAL if options is not 0; -1 if the stream
 * fails.
 * Units: none. Alignment: none. errno: as fprintf. Threads: any. Since: 0.1. */
int hakmem_malloc_info(int options, FILE *stream);
/* [glibc malloc_stats(3)] Writes the statistics as text to stderr.
 * Units: none. Alignment: none. errno: may change. Threads: any. Since: 0.1. */
void hakmem_malloc_stats(void);
/* [glibc mallopt(3)] Changes nothing. Returns 1 for parameters that tune how glibc retains and returns memory, since a
 * program cannot notice that they have no effect; 0 (an error) for all others. docs/limits.md names the corresponding
 * settings of the environment.
 * Units: those of glibc. Alignment: none. errno: kept. Threads: any. Since: 0.1. */
int hakmem_mallopt(int parameter, int value);

/* Returns free memory of all threads to the kernel, except for at most `keep` bytes, which stay available for reuse.
 * Threads other than the caller empty their bins at their next slow path. Returns approximately how many bytes of free
 * pages this call returned to the kernel, resident or not; 0 means that there were none.
 * Units: bytes. Alignment: none. errno: kept. Threads: any. Since: 0.1. */
size_t hakmem_trim(size_t keep);
/* Starts the thread of HAKMEM_BACKGROUND=1 at once, however small the heap is. Does nothing without the setting, or if
 * the thread exists. Not for signal handlers.
 * Units: none. Alignment: none. errno: may change. Threads: any. Since: 0.1. */
void hakmem_main_called(void);
/* Writes the statistics to a file descriptor: text, or one JSON object when json is not 0. Returns 0, or a negative
 * errno (ENOMEM if the library could not start, else that of write). Allocates nothing.
 * Units: a file descriptor. Alignment: none. errno: may change. Threads: any. Since: 0.1. */
int hakmem_stats(int fd, int json);
/* Copies the current value of a setting (`hakmem options` lists them) as a zero-terminated string. Returns 0, or a
 * negative error: ENOENT (no such setting), ERANGE (longer than `size` allows; 256 bytes are enough), ENOMEM (the
 * library could not start).
 * Units: bytes. Alignment: none. errno: may change. Threads: any. Since: 0.1. */
int hakmem_get(const char *name, char *value, size_t size);
/* Changes a setting of the running process; `hakmem options` marks those that can change. The change takes effect at
 * each thread's next slow path. The environment of started programs does not change. Returns 0, or a negative error:
 * ENOENT (no such setting), EPERM (it is only read at start), EINVAL (not a valid value), ENOSYS (HAKMEM_PROFILE
 * without libhakmem-profile.so), ENOMEM, or the kernel's error.
 * Units: those of the setting. Alignment: none. errno: may change. Threads: any. Since: 0.1. */
int hakmem_set(const char *name, const char *value);
/* Samples the heap: one allocation every `mean` bytes, on average; 0 stops that. Other threads follow within 1 MiB of
 * allocations. Returns 0; -ENOSYS if libhakmem-profile.so is not loaded (docs/profile.md), -EINVAL above 2^40 (the
 * setting HAKMEM_PROFILE ends at 2^30), -ENOMEM without a file.
 * Units: bytes. Alignment: none. errno: may change. Threads: any. Since: 0.1. */
int hakmem_profile(size_t mean);
/* The version, "major.minor.patch".
 * Units: none. Alignment: none. errno: kept. Threads: any. Since: 0.1. */
const char *hakmem_version(void);
/* The span backend in use, such as "shared_pool".
 * Units: none. Alignment: none. errno: may change. Threads: any. Since: 0.1. */
const char *hakmem_backend(void);

#ifdef __cplusplus
}
#endif

#endif
