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
#include <stdint.h>
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
/* [POSIX.1-2024] 0, or EINVAL (alignment no power of two, or no multiple of sizeof(void *)), or
 * ENOMEM; on failure *out is left alone.
 * Units: bytes. Alignment: as asked, at least 16. errno: ENOMEM, as glibc's. Threads: any. Since: 0.1. */
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
 * their own, above 64 MiB. The others are 0. So uordblks + hblkhd is the sum of malloc_usable_size over all blocks.
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
/* Settings compiled into a program, which defines this variable: words NAME=VALUE, separated by spaces, such as
 * "HAKMEM_PURGE_DELAY_MS=0 HAKMEM_LIMIT_MB=512". The environment comes before them, and they before the defaults; the
 * statistics name their source "program". Read once, at the process's first allocation, so it needs a constant
 * initialiser. If the library is preloaded rather than linked, the program must export the variable
 * (-rdynamic). Wrong settings give one line, as in the environment. */
extern const char *hakmem_conf;

/* Figures of the process, for hakmem_read. All are in bytes, except THREADS. */
enum hakmem_stat {
    HAKMEM_STAT_LIVE,     /* usable bytes of the program's blocks; free blocks in bins of other threads count as live */
    HAKMEM_STAT_BINS,     /* usable bytes of free blocks in the calling thread's bins, and in those of CPUs */
    HAKMEM_STAT_SLACK,    /* free and rounded-up bytes beside live blocks, in pages that are in use */
    HAKMEM_STAT_DIRTY,    /* free pages with old content, which a trim or the purge delay returns to the kernel */
    HAKMEM_STAT_METADATA, /* the library's own structures, beside the tables of pages */
    HAKMEM_STAT_RESIDENT, /* resident memory of the process, whoever mapped it; reading it takes three system calls */
    HAKMEM_STAT_MAPPED,   /* addresses mapped for blocks and metadata, touched or not */
    HAKMEM_STAT_PEAK,     /* the most that pages in use and dirty pages were together, since the start */
    HAKMEM_STAT_THREADS,  /* number of threads and CPUs with bins of their own */
    HAKMEM_STAT_LIMIT     /* the lowest limit in force: HAKMEM_LIMIT_MB, the container's, hakmem_limit's; 0: none */
};
/* Reads one figure, without a walk over blocks, pages or threads: cheap enough for a thousand calls a second. What
 * other threads did lately may be missing in LIVE and SLACK: at most 1 MiB for each of them; what the calling thread
 * did is there. Returns 0, or a negative error: EINVAL (no such figure), ENOSYS (the kernel does not tell), ENOMEM (the
 * library could not start).
 * Units: bytes, threads. Alignment: none. errno: may change. Threads: any. Since: 0.1. */
int hakmem_read(enum hakmem_stat stat, uint64_t *value);
/* The bytes that are usable, at least, in a block of `size` requested bytes: a request for them takes no more memory. 0
 * above PTRDIFF_MAX - 65536.
 * Units: bytes. Alignment: none. errno: kept. Threads: any. Since: 0.1. */
size_t hakmem_good_size(size_t size);
/* Makes a block of at least `size` usable bytes of it, where it is: returns ptr. Returns NULL if that is not possible,
 * or if ptr is NULL; then nothing has changed. A block that is long enough stays as it is.
 * Units: bytes. Alignment: none. errno: may change. Threads: any. Since: 0.1. */
void *hakmem_expand(void *ptr, size_t size);
/* As realloc, for blocks of aligned_alloc: the result is aligned, too. NULL and EINVAL when alignment is no power of
 * two. On failure the old block is untouched. With ptr NULL it allocates; with size 0 it frees ptr and returns NULL.
 * Units: bytes. Alignment: as asked, at least 16. errno: EINVAL, ENOMEM. Threads: any. Since: 0.1. */
void *hakmem_aligned_realloc(void *ptr, size_t alignment, size_t size);
/* As aligned_alloc of count * size bytes, zeroed; NULL and ENOMEM when that overflows, EINVAL when alignment is no
 * power of two.
 * Units: elements, bytes. Alignment: as asked, at least 16. errno: EINVAL, ENOMEM. Threads: any. Since: 0.1. */
void *hakmem_aligned_calloc(size_t alignment, size_t count, size_t size);
/* Sets the process's hard limit for the memory that hakmem holds and the program touched, without metadata; 0: none. A
 * request that would exceed it first purges all idle memory; then `reached`, unless it is NULL, is called with the
 * bytes that are wanted, in the thread that makes the request, which holds no lock. It may free, and allocate within
 * the limit. If it returns 0, the request fails with ENOMEM; otherwise the library tries again, up to 16 times. A
 * second call replaces limit and function. What is held already stays. Returns 0, or -ENOMEM (the library could not
 * start).
 * Units: bytes. Alignment: none. errno: may change. Threads: any. Since: 0.1. */
int hakmem_limit(size_t bytes, int (*reached)(size_t wanted, void *context), void *context);
/* --- heaps ------------------------------------------------------------------------------------------------
 * A heap holds blocks apart from all others, with a limit and figures of its own, and can be destroyed with all of them
 * at once. Any thread may allocate in any heap. free, realloc, malloc_usable_size and all functions above take a heap's
 * blocks like others, in any thread; realloc leaves a block in its heap. A block of a heap is at most 4 GiB - 64 KiB
 * long. Blocks that were freed serve the heap again; pages without blocks serve the whole process. docs/heaps.md has an
 * example. */
typedef struct hakmem_heap hakmem_heap;

/* All members may be 0. */
struct hakmem_heap_options {
    const char *name; /* shown by the statistics; copied, up to HAKMEM_HEAP_NAME_MAX - 1 bytes; NULL: none */
    size_t limit;     /* the most bytes of pages that the heap may hold, counted by 64 KiB; 0: no limit */
    /* Called before a request fails at the limit, with the bytes of pages that are wanted, in the thread that makes the
     * request, which holds no lock. It may free, and allocate elsewhere. Returns 0: the request fails. 1: the library
     * tries again, up to 16 times. 2: the request may pass the limit, which is soft then. NULL: requests fail. */
    int (*reached)(hakmem_heap *heap, size_t wanted, void *context);
    void *context;
    /* 1: the heap's pages come from superslabs (2 MiB of addresses, by default) that have pages of such heaps alone,
     * except for blocks of more than a superslab. */
    int apart;
    /* The alignment of each run of pages, and so of each block of more than 52 KiB: a power of two from 64 KiB to a
     * superslab. 0: 64 KiB. */
    size_t alignment;
    /* 1: the kernel is asked for huge pages, until a purge returns a part of one; -1: it is asked for none; 0: as
     * HAKMEM_THP says. Such a heap is apart. */
    int huge_pages;
    /* 1: core dumps leave the blocks out (MADV_DONTDUMP); a request fails if the kernel refuses that. Such a heap is
     * apart. */
    int no_dump;
};
#define HAKMEM_HEAP_NAME_MAX 32

/* A heap without blocks, which takes no pages; options may be NULL. NULL and ENOMEM without memory, NULL and EINVAL
 * with a wrong alignment.
 * Units: bytes. Alignment: none. errno: EINVAL, ENOMEM. Threads: any. Since: 0.1. */
hakmem_heap *hakmem_heap_new(const struct hakmem_heap_options *options);
/* Frees all blocks of the heap, and the heap, in time by its pages, not by its blocks. No thread may use the heap or a
 * block of it during the call or after it. A later free of such a block stops the process as long as nothing else lies
 * there; in hardened builds a later access does. NULL is ignored.
 * Units: none. Alignment: none. errno: kept. Threads: any. Since: 0.1. */
void hakmem_heap_destroy(hakmem_heap *heap);
/* As malloc, in the heap. NULL and ENOMEM without memory, at the heap's or the process's limit, or above 4 GiB - 64
 * KiB. Units: bytes. Alignment: 16. errno: ENOMEM. Threads: any. Since: 0.1. */
void *hakmem_heap_malloc(hakmem_heap *heap, size_t size);
/* As free, in fewer instructions for small blocks of a heap that the calling thread uses steadily. `heap` may be NULL,
 * and is not checked.
 * Units: none. Alignment: none. errno: kept. Threads: any. Since: 0.1. */
void hakmem_heap_free(hakmem_heap *heap, void *ptr);
/* As calloc, in the heap.
 * Units: elements, bytes. Alignment: 16. errno: ENOMEM. Threads: any. Since: 0.1. */
void *hakmem_heap_calloc(hakmem_heap *heap, size_t count, size_t size);
/* As aligned_alloc, in the heap.
 * Units: bytes. Alignment: as asked, at least 16. errno: EINVAL, ENOMEM. Threads: any. Since: 0.1. */
void *hakmem_heap_aligned_alloc(hakmem_heap *heap, size_t alignment, size_t size);
/* With ptr NULL: malloc in the heap. Else realloc, which leaves the block in its own heap, whatever `heap` is.
 * Units: bytes. Alignment: 16. errno: ENOMEM. Threads: any. Since: 0.1. */
void *hakmem_heap_realloc(hakmem_heap *heap, void *ptr, size_t size);
/* The heap of a live block; NULL for blocks of none, and for what is no block of hakmem's.
 * Units: none. Alignment: none. errno: kept. Threads: any. Since: 0.1. */
hakmem_heap *hakmem_heap_of(const void *ptr);
/* From now on malloc, calloc, the aligned functions and realloc(NULL, n) of the calling thread, and of the libraries
 * that it calls, allocate in this heap; NULL: in none, as at first. Returns the heap before, so that calls nest: set,
 * call, set back. realloc still leaves each block in its heap. Reset it before the heap is destroyed, and before the
 * thread ends. Until it is reset, the thread's frees of blocks outside of heaps take longer. Without memory nothing
 * changes, and errno is ENOMEM. Guarded blocks (HAKMEM_GUARD_RATE) and the heap profile leave blocks of heaps out.
 * Units: none. Alignment: none. errno: ENOMEM. Threads: any. Since: 0.1. */
hakmem_heap *hakmem_heap_set_default(hakmem_heap *heap);
/* Gives up the heap's pages without blocks, and returns all free pages of the process to the kernel, as hakmem_trim(0)
 * does, whose result it returns.
 * Units: bytes. Alignment: none. errno: kept. Threads: any. Since: 0.1. */
size_t hakmem_heap_trim(hakmem_heap *heap);
/* The heap's figures at this moment. live: usable bytes of its blocks; blocks: their number; held: bytes of its pages,
 * in use or kept for it; peak: the most that it held; limit: 0 if there is none.
 * Units: bytes, blocks. Alignment: none. errno: kept. Threads: any. Since: 0.1. */
struct hakmem_heap_stats {
    char name[HAKMEM_HEAP_NAME_MAX];
    size_t live, blocks, held, peak, limit;
};
void hakmem_heap_stats(hakmem_heap *heap, struct hakmem_heap_stats *stats);
/* Calls `visit` for each block that the heap's pages were cut into, live or free, until it returns another value than
 * 0, and returns that value, or 0. Blocks never handed out are left out. During the call, no thread may use the heap,
 * not even `visit`, which may only read and write its live blocks; it may allocate elsewhere. size: usable bytes.
 * Units: bytes. Alignment: none. errno: may change. Threads: one at a time for each heap. Since: 0.1. */
struct hakmem_heap_block {
    void *address;
    size_t size;
    int is_live;
};
int hakmem_heap_visit(hakmem_heap *heap, int (*visit)(const struct hakmem_heap_block *block, void *context),
                      void *context);

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
