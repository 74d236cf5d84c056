/* SPDX-License-Identifier: MIT
 * See samples.h. A hash table maps a live block to its entry: buckets of slots, each with a block's address and the
 * index of its entry. A slot is free (0), being written (BUSY), or taken. Only one thread knows a block while it adds
 * or removes it, so no two threads work on one address. All of it is private memory, of which a forked child has a
 * copy; of the file, which other processes may change, nothing is read. */
#include "samples.h"

#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core/base/file.h"
#include "core/base/layout.h"
#include "core/base/log.h"
#include "core/base/probe.h"

#define ENTRIES (1u << 15)
#define PROBES 64u
#define FRAMES (1u << 20)
#define MAPS (256 * HAK_KIB)
#define HEAPS 512u
#define ENTRIES_AT 4096u
#define FRAMES_AT (ENTRIES_AT + ENTRIES * sizeof(struct hak_profile_entry))
#define MAPS_AT (FRAMES_AT + FRAMES * sizeof(uint64_t))
#define HEAPS_AT (MAPS_AT + MAPS)
#define FILE_SIZE (HEAPS_AT + HEAPS * sizeof(struct hak_profile_heap))

#define BUCKETS_LG 14
#define BUCKET 8u
#define BUSY ((uintptr_t)1)
#define RANGES 512u
#define COUNTS_LG 12

struct place {
    _Atomic(uintptr_t) block;
    _Atomic(uint32_t) entry, count; /* where its heap is counted; 0: none */
};

static struct place *places;                      /* in use: BUCKET << BUCKETS_LG of them */
static _Atomic(uint32_t) counts[1u << COUNTS_LG]; /* live samples, by a hash of their heap */
static char *profile;                             /* header, entries, frames, maps and heaps; NULL: no profile */
static char pattern[HAK_PATH_MAX];                /* HAKMEM_PROFILE_FILE; programs overwrite their environment */
static struct own {                               /* the kernel clears it in every child, however that was made */
    _Atomic(bool) begun, reading, keeping;
    _Atomic(char *) file; /* mapped, and not inherited by children; NULL: none */
} * own;
static struct range {
    uintptr_t start, end;
} ranges[RANGES]; /* code ranges that the maps contain */
static _Atomic(unsigned) nranges;
static unsigned entries_used, read_again; /* the number of entries from which maps are read again */

static struct hak_profile_header *header(void)
{
    return (struct hak_profile_header *)profile;
}

static struct hak_profile_entry *all_entries(void)
{
    return (struct hak_profile_entry *)(profile + ENTRIES_AT);
}

static struct hak_profile_heap *all_heaps(void)
{
    return (struct hak_profile_heap *)(profile + HEAPS_AT);
}

/* --- the file ------------------------------------------------------------------------------------------- */

/* Where the file has this part of the profile; NULL without a file. */
static void *in_file(const void *part)
{
    char *f = HAK_LOAD_ACQUIRE(&own->file); /* stored by open_file */
    return f ? f + ((const char *)part - profile) : NULL;
}

static void show(const void *part, size_t size)
{
    void *copy = in_file(part);
    if (copy)
        memcpy(copy, part, size);
}

static void show_word(_Atomic(uint64_t) *word)
{
    _Atomic(uint64_t) *copy = in_file(word);
    if (copy)
        HAK_STORE_RELEASE(copy, HAK_LOAD_RELAXED(word)); /* acquired by readers */
}

/* Both sums are exact, whatever other threads add. */
static void add(_Atomic(uint64_t) *word, uint64_t n)
{
    _Atomic(uint64_t) *copy = in_file(word);
    HAK_ADD_RELAXED(word, n);
    if (copy)
        HAK_ADD_RELAXED(copy, n);
}

/* A child's file begins with its parent's live blocks. */
static void open_file(void)
{
    char path[HAK_PATH_MAX];
    hak_text_path(path, pattern);
    int fd = hak_file_create(path, O_RDWR, 0600), error = fd < 0 ? fd : hak_file_resize(fd, FILE_SIZE);
    char *f = error ? MAP_FAILED : mmap(NULL, FILE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    if (f == MAP_FAILED || madvise(f, FILE_SIZE, MADV_DONTFORK)) {
        hak_log("HAKMEM_PROFILE_FILE=%s: cannot be written (errno %d); name a writable file", path,
                error ? -error : errno);
        return;
    }
    HAK_STORE_RELEASE(&own->file, f); /* acquired by in_file */
    struct hak_profile_header *h = header();
    show(h, sizeof *h);
    for (unsigned i = 0; i < ENTRIES && HAK_LOAD_RELAXED(&h->frames_used); i++)
        if (HAK_LOAD_RELAXED(&all_entries()[i].key))
            show(&all_entries()[i], sizeof(struct hak_profile_entry));
    show(profile + FRAMES_AT, hak_min(HAK_LOAD_RELAXED(&h->frames_used), FRAMES) * sizeof(uint64_t));
    show(profile + MAPS_AT, HAK_LOAD_RELAXED(&h->maps_used));
    for (unsigned i = 0; i < HEAPS; i++)
        if (HAK_LOAD_RELAXED(&all_heaps()[i].key))
            show(&all_heaps()[i], sizeof(struct hak_profile_heap));
}

/* A child has its parent's live blocks; earlier frees do not concern it. */
static void forget_freed(void)
{
    for (unsigned i = 0; i < ENTRIES && HAK_LOAD_RELAXED(&header()->frames_used); i++) {
        struct hak_profile_entry *e = &all_entries()[i];
        uint64_t freed = HAK_LOAD_RELAXED(&e->freed);
        if (freed) {
            HAK_SUB_RELAXED(&e->allocated, freed);
            HAK_SUB_RELAXED(&e->freed, freed);
        }
    }
}

/* The first sample in a process. A child that execs at once makes no file. */
static HAK_NOINLINE void begin(void)
{
    struct timespec now;
    int saved = errno;
    HAK_SHOW_VARIABLE(profile);
    HAK_SHOW_NUMBER("profile_bytes", FILE_SIZE);
    forget_freed();
    clock_gettime(CLOCK_REALTIME, &now);
    HAK_STORE_RELAXED(&header()->peak, 0);
    header()->inherited = HAK_LOAD_RELAXED(&header()->live);
    header()->pid = (uint64_t)getpid();
    header()->started_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    if (*pattern)
        open_file();
    errno = saved;
}

/* False if there is no profile. */
static bool has_profile(void)
{
    if (HAK_UNLIKELY(!profile))
        return false;
    if (HAK_UNLIKELY(!HAK_LOAD_RELAXED(&own->begun)) && !HAK_EXCHANGE_RELAXED(&own->begun, true))
        begin();
    return true;
}

size_t hak_samples_mean(void)
{
    return has_profile() ? HAK_LOAD_RELAXED(&header()->mean) : 0;
}

bool hak_samples_set_mean(size_t mean)
{
    if (!has_profile())
        return false;
    HAK_STORE_RELAXED(&header()->mean, mean);
    show_word(&header()->mean);
    return true;
}

static void *map_private(size_t size)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

void hak_samples_start(size_t mean)
{
    const char *file = getenv("HAKMEM_PROFILE_FILE");
    hak_text_format(pattern, sizeof pattern, "%s", file ? file : "");
    places = map_private((sizeof *places * BUCKET) << BUCKETS_LG);
    own = map_private(sizeof *own);
    char *p = map_private(FILE_SIZE);
    if (!places || !own || !p || madvise(own, sizeof *own, MADV_WIPEONFORK)) {
        hak_log("HAKMEM_PROFILE: no memory (errno %d); there is no profile", errno);
        return;
    }
    *(struct hak_profile_header *)p = (struct hak_profile_header){.header_size = ENTRIES_AT,
                                                                  .entry_size = sizeof(struct hak_profile_entry),
                                                                  .mean = mean,
                                                                  .entries_at = ENTRIES_AT,
                                                                  .entries = ENTRIES,
                                                                  .frames_at = FRAMES_AT,
                                                                  .frames = FRAMES,
                                                                  .maps_at = MAPS_AT,
                                                                  .maps = MAPS,
                                                                  .heaps_at = HEAPS_AT,
                                                                  .heaps = HEAPS};
    memcpy(p, HAK_PROFILE_MAGIC, sizeof HAK_PROFILE_MAGIC - 1);
    profile = p;
    has_profile();
}

/* --- maps ----------------------------------------------------------------------------------------------- */

static bool is_known_code(uintptr_t address)
{
    unsigned n = HAK_LOAD_ACQUIRE(&nranges);
    for (unsigned i = 0; i < n; i++)
        if (address - ranges[i].start < ranges[i].end - ranges[i].start)
            return true;
    return false;
}

static uintptr_t hexadecimal(const char **text)
{
    uintptr_t n = 0;
    for (;; (*text)++) {
        unsigned c = (unsigned char)**text, digit = c - '0' < 10 ? c - '0' : c - 'a' < 6 ? c - 'a' + 10 : 16;
        if (digit == 16)
            return n;
        n = n << 4 | digit;
    }
}

/* Takes a line "start-end r-xp offset device inode path", if it is code, and not known yet. */
static void take_line(const char *line, size_t length)
{
    struct hak_profile_header *h = header();
    const char *at = line;
    uintptr_t start = hexadecimal(&at), end = (at++, hexadecimal(&at));
    unsigned n = HAK_LOAD_RELAXED(&nranges);
    uint64_t used = HAK_LOAD_RELAXED(&h->maps_used);
    if (at[3] != 'x' || is_known_code(start) || n == RANGES || used + length + 1 > MAPS)
        return;
    memcpy(profile + MAPS_AT + used, line, length);
    profile[MAPS_AT + used + length] = '\n';
    show(profile + MAPS_AT + used, length + 1);
    HAK_STORE_RELEASE(&h->maps_used, used + length + 1); /* acquired by readers */
    show_word(&h->maps_used);
    ranges[n] = (struct range){start, end};
    HAK_STORE_RELEASE(&nranges, n + 1); /* acquired by is_known_code */
}

/* Reads line by line through a window, since the kernel returns whole lines, up to a page. */
static void read_maps(void)
{
    char text[8192];
    size_t have = 0;
    int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    for (ssize_t n; (n = read(fd, text + have, sizeof text - have)) > 0;) {
        have += (size_t)n;
        char *line = text, *end;
        for (; (end = memchr(line, '\n', have - (size_t)(line - text))); line = end + 1) {
            *end = 0;
            take_line(line, (size_t)(end - line));
        }
        have -= (size_t)(line - text);
        memmove(text, line, have);
        if (have == sizeof text)
            break;
    }
    close(fd);
}

/* Code without a file stays unknown: so maps are not read again for each entry. */
static void learn_maps(void *const *frames, unsigned depth)
{
    unsigned unknown = 0;
    for (unsigned i = 0; i < depth; i++)
        unknown += !is_known_code((uintptr_t)frames[i]);
    if (!unknown || entries_used < read_again || HAK_EXCHANGE_ACQUIRE(&own->reading, true))
        return;
    unsigned before = HAK_LOAD_RELAXED(&nranges);
    read_maps();
    if (HAK_LOAD_RELAXED(&nranges) == before)
        read_again = entries_used + entries_used / 8 + 16;
    HAK_STORE_RELEASE(&own->reading, false);
}

/* --- entries -------------------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 32;
}

/* The number of its name. */
static uint32_t number_of(hakmem_heap *heap)
{
    struct hakmem_heap_stats stats;
    uint64_t key = 1;
    if (!heap)
        return 0;
    hakmem_heap_stats(heap, &stats);
    for (const char *c = stats.name; *c; c++)
        key = mix(key, (unsigned char)*c);
    key += !key;
    for (uint32_t i = 0; i < PROBES; i++) {
        uint32_t n = (uint32_t)(key + i) % HEAPS;
        struct hak_profile_heap *h = &all_heaps()[n];
        uint64_t found = HAK_LOAD_RELAXED(&h->key);
        if (!found && HAK_CAS_RELAXED(&h->key, &found, key)) {
            memcpy(h->name, stats.name, sizeof h->name);
            show(h, sizeof *h);
            return n + 1;
        }
        if (found == key)
            return n + 1;
    }
    return HEAPS + 1;
}

static void fill(struct hak_profile_entry *e, size_t size, size_t mean, uint32_t heap, void *const *frames,
                 unsigned depth)
{
    struct hak_profile_header *h = header();
    uint64_t first = HAK_ADD_RELAXED(&h->frames_used, depth);
    if (first + depth > FRAMES) {
        first = 0;
        depth = 1; /* no room: a stack of one frame, which other entries share */
        add(&h->lost, 1);
    } else {
        uint64_t *to = (uint64_t *)(profile + FRAMES_AT) + first;
        memcpy(to, frames, depth * sizeof *frames);
        show(to, depth * sizeof *frames);
    }
    show_word(&h->frames_used);
    e->size = size;
    e->mean = mean;
    e->first = first;
    e->heap = heap;
    show(e, sizeof *e);
    HAK_STORE_RELEASE(&e->depth, depth); /* acquired by readers */
    show_word(&e->depth);
    entries_used++; /* the count is approximate */
    learn_maps(frames, depth);
}

/* The index of the entry; ENTRIES if there is no room. */
static uint32_t find_entry(size_t size, size_t mean, uint32_t heap, void *const *frames, unsigned depth)
{
    struct hak_profile_entry *all = all_entries();
    uint64_t key = mix(mix(mix(1, size), mean), heap);
    for (unsigned i = 0; i < depth; i++)
        key = mix(key, (uintptr_t)frames[i]);
    key += !key;
    for (uint32_t i = 0; i < PROBES; i++) {
        uint32_t n = (uint32_t)(key + i) % ENTRIES;
        uint64_t found = HAK_LOAD_RELAXED(&all[n].key);
        if (!found && HAK_CAS_RELAXED(&all[n].key, &found, key)) {
            fill(&all[n], size, mean, heap, frames, depth);
            return n;
        }
        if (found == key)
            return n;
    }
    return ENTRIES;
}

/* --- live blocks ----------------------------------------------------------------------------------------- */

static struct place *bucket_of(uintptr_t block)
{
    return places + ((block >> 12) * 0x9e3779b97f4a7c15u >> (64 - BUCKETS_LG)) * BUCKET;
}

static struct place *find_living(uintptr_t block)
{
    struct place *p = bucket_of(block);
    for (unsigned i = 0; i < BUCKET; i++)
        if (HAK_LOAD_RELAXED(&p[i].block) == block)
            return &p[i];
    return NULL;
}

size_t hak_samples_size(const void *block)
{
    struct place *p = profile ? find_living((uintptr_t)block) : NULL;
    return p ? hak_max(all_entries()[HAK_LOAD_RELAXED(&p->entry)].size, 1) : 0;
}

static uint32_t count_of(const hakmem_heap *heap)
{
    uint32_t hash = (uint32_t)((uintptr_t)heap * 0x9e3779b97f4a7c15u >> (64 - COUNTS_LG));
    return heap ? 1 + hash % ((1u << COUNTS_LG) - 1) : 0;
}

static bool put_place(uintptr_t block, uint32_t entry, uint32_t count)
{
    struct place *p = bucket_of(block);
    for (unsigned i = 0; i < BUCKET; i++) {
        uintptr_t found = 0;
        if (HAK_LOAD_RELAXED(&p[i].block) || !HAK_CAS_RELAXED(&p[i].block, &found, BUSY))
            continue;
        HAK_STORE_RELAXED(&p[i].entry, entry);
        HAK_STORE_RELAXED(&p[i].count, count);
        if (count)
            HAK_ADD_RELAXED(&counts[count], 1);
        /* the program synchronises when it hands over the block, and with it this */
        HAK_STORE_RELAXED(&p[i].block, block);
        return true;
    }
    return false;
}

/* The contract of OpenTelemetry's profiler: the weight is an estimate of the bytes that the sample stands for. */
#if HAK_PROBES
static void tell_alloc(const void *block, size_t size, size_t mean)
{
    uint64_t weight = (uint64_t)((double)size / -expm1(-(double)size / (double)mean) + 0.5);
    STAP_PROBE3(otel_memory, alloc, block, size, weight);
}
#define TELL_FREE(block) STAP_PROBE1(otel_memory, free, block)
#else
#define tell_alloc(block, size, mean) ((void)0)
#define TELL_FREE(block) ((void)0)
#endif

/* When more lives than ever, each entry keeps how many of its samples do. Steps of a 64th bound the cost: a heap that
 * grows a thousandfold is scanned some 440 times. */
static HAK_NOINLINE void keep_peak(uint64_t live)
{
    if (HAK_EXCHANGE_ACQUIRE(&own->keeping, true))
        return;
    HAK_STORE_RELAXED(&header()->peak, live);
    show_word(&header()->peak);
    for (unsigned i = 0; i < ENTRIES; i++) {
        struct hak_profile_entry *e = &all_entries()[i];
        if (!HAK_LOAD_RELAXED(&e->key))
            continue;
        HAK_STORE_RELAXED(&e->peak, HAK_LOAD_RELAXED(&e->allocated) - HAK_LOAD_RELAXED(&e->freed));
        show_word(&e->peak);
    }
    HAK_STORE_RELEASE(&own->keeping, false);
}

static void count_allocated(struct hak_profile_entry *e)
{
    add(&e->allocated, 1);
    uint64_t weight = hak_max(e->size, e->mean), live = HAK_ADD_RELAXED(&header()->live, weight) + weight,
             peak = HAK_LOAD_RELAXED(&header()->peak);
    if (live > peak + peak / 64)
        keep_peak(live);
}

static void count_freed(struct hak_profile_entry *e, bool freed)
{
    uint64_t weight = hak_max(e->size, e->mean);
    add(&e->freed, freed ? 1 : (uint64_t)-1);
    HAK_ADD_RELAXED(&header()->live, freed ? -weight : weight);
}

void hak_samples_add(const void *block, size_t size, size_t mean, void *const *frames, unsigned depth)
{
    if (!has_profile())
        return;
    hak_samples_remove(block); /* a block that was freed without us, through another function */
    hakmem_heap *heap = hakmem_heap_of(block);
    uint32_t entry = find_entry(size, mean, number_of(heap), frames, depth);
    if (entry == ENTRIES || !put_place((uintptr_t)block, entry, count_of(heap)))
        add(&header()->lost, 1);
    else
        count_allocated(&all_entries()[entry]);
    tell_alloc(block, size, mean);
}

static _Thread_local struct {
    uint32_t entry, count;
} last_removed __attribute__((tls_model("initial-exec")));

static void remove_place(struct place *p)
{
    TELL_FREE(HAK_LOAD_RELAXED(&p->block));
    last_removed.entry = HAK_LOAD_RELAXED(&p->entry);
    last_removed.count = HAK_LOAD_RELAXED(&p->count);
    HAK_STORE_RELAXED(&p->block, 0);
    if (last_removed.count)
        HAK_SUB_RELAXED(&counts[last_removed.count], 1);
    count_freed(&all_entries()[last_removed.entry], true);
}

bool hak_samples_remove(const void *block)
{
    struct place *p = profile ? find_living((uintptr_t)block) : NULL;
    if (!p || !has_profile())
        return false;
    remove_place(p);
    return true;
}

void hak_samples_restore(const void *block)
{
    if (has_profile() && put_place((uintptr_t)block, last_removed.entry, last_removed.count))
        count_freed(&all_entries()[last_removed.entry], false);
}

/* All places are searched if a live sample may be the heap's. No other thread uses its blocks. */
void hak_samples_end(const hakmem_heap *heap)
{
    uint32_t count = count_of(heap);
    if (!HAK_LOAD_RELAXED(&counts[count]) || !has_profile())
        return;
    for (struct place *p = places; p < places + ((size_t)BUCKET << BUCKETS_LG); p++) {
        uintptr_t block = HAK_LOAD_RELAXED(&p->block);
        if (block > BUSY && HAK_LOAD_RELAXED(&p->count) == count && hakmem_heap_of((const void *)block) == heap)
            remove_place(p);
    }
}
