/* SPDX-License-Identifier: MIT
 * See samples.h. A hash table maps a live block to its entry: buckets of slots, each with a block's address and the
 * index of its entry. A slot is free (0), being written (BUSY), or taken. Only one thread knows a block while it adds
 * or removes it, so no two threads work on one address. */
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
#include "core/base/log.h"
#include "core/base/probe.h"

#define ENTRIES (1u << 15)
#define PROBES 64u
#define FRAMES (1u << 20)
#define MAPS (256 * HAK_KIB)
#define ENTRIES_AT 4096u
#define FRAMES_AT (ENTRIES_AT + ENTRIES * sizeof(struct hak_profile_entry))
#define MAPS_AT (FRAMES_AT + FRAMES * sizeof(uint64_t))
#define FILE_SIZE (MAPS_AT + MAPS)

#define BUCKETS_LG 14
#define BUCKET 8u
#define BUSY ((uintptr_t)1)
#define RANGES 512u
#define DESCRIPTOR_MAX 1023 /* low numbers are left to programs that use select */

struct place {
    _Atomic(uintptr_t) block;
    _Atomic(uint32_t) entry;
};

static struct place *places; /* in use: BUCKET << BUCKETS_LG of them */
static _Atomic(char *) file; /* NULL: there is none; or not yet, in a forked child */
static char *parents;        /* the parent's file, which a child has to copy */
static _Atomic(bool) opening, reading;
static bool has_none;
static struct range {
    uintptr_t start, end;
} ranges[RANGES]; /* code ranges that the file's maps contain */
static _Atomic(unsigned) nranges;
static unsigned entries_used, read_again; /* the number of entries from which maps are read again */

static struct hak_profile_header *header_of(char *f)
{
    return (struct hak_profile_header *)f;
}

static struct hak_profile_entry *entries_of(char *f)
{
    return (struct hak_profile_entry *)(f + ENTRIES_AT);
}

/* --- the file ------------------------------------------------------------------------------------------- */

static int open_profile(void)
{
    char path[HAK_PATH_MAX];
    const char *pattern = getenv("HAKMEM_PROFILE_FILE");
    int low;
    if (pattern && *pattern) {
        hak_text_path(path, pattern);
        low = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    } else {
        low = memfd_create(HAK_PROFILE_MEMORY, MFD_CLOEXEC);
    }
    int fd = low < 0 ? -1 : fcntl(low, F_DUPFD_CLOEXEC, DESCRIPTOR_MAX);
    if (fd < 0)
        return low;
    close(low);
    return fd;
}

/* The descriptor of a file in memory stays open, since it is the only name. */
static char *make_profile(void)
{
    int fd = open_profile();
    void *p = MAP_FAILED;
    if (fd >= 0 && hak_file_resize(fd, FILE_SIZE) == 0)
        p = mmap(NULL, FILE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    const char *pattern = getenv("HAKMEM_PROFILE_FILE");
    if (fd >= 0 && (p == MAP_FAILED || (pattern && *pattern)))
        close(fd);
    if (p == MAP_FAILED) {
        hak_log("HAKMEM_PROFILE_FILE: no file can be made (errno %d); there is no profile", errno);
        return NULL;
    }
    struct hak_profile_header *h = p;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    *h = (struct hak_profile_header){.header_size = ENTRIES_AT,
                                     .entry_size = sizeof(struct hak_profile_entry),
                                     .pid = (uint64_t)getpid(),
                                     .entries_at = ENTRIES_AT,
                                     .entries = ENTRIES,
                                     .started_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec,
                                     .frames_at = FRAMES_AT,
                                     .frames = FRAMES,
                                     .maps_at = MAPS_AT,
                                     .maps = MAPS};
    memcpy(h->magic, HAK_PROFILE_MAGIC, sizeof h->magic);
    return p;
}

/* At first, a child's live blocks are its parent's. Earlier frees do not concern the child. */
static void copy_entries(char *to, char *from)
{
    struct hak_profile_entry *t = entries_of(to), *f = entries_of(from);
    for (unsigned i = 0; i < ENTRIES; i++) {
        uint64_t allocated = HAK_LOAD_RELAXED(&f[i].allocated), freed = HAK_LOAD_RELAXED(&f[i].freed);
        if (!HAK_LOAD_RELAXED(&f[i].key))
            continue;
        memcpy(&t[i], &f[i], sizeof t[i]);
        HAK_STORE_RELAXED(&t[i].allocated, allocated > freed ? allocated - freed : 0);
        HAK_STORE_RELAXED(&t[i].freed, 0);
    }
}

static void copy_file(char *to, char *from)
{
    struct hak_profile_header *t = header_of(to), *f = header_of(from);
    uint64_t frames = hak_min(HAK_LOAD_RELAXED(&f->frames_used), FRAMES);
    copy_entries(to, from);
    memcpy(to + FRAMES_AT, from + FRAMES_AT, frames * sizeof(uint64_t));
    memcpy(to + MAPS_AT, from + MAPS_AT, HAK_LOAD_RELAXED(&f->maps_used));
    HAK_STORE_RELAXED(&t->frames_used, frames);
    HAK_STORE_RELAXED(&t->maps_used, HAK_LOAD_RELAXED(&f->maps_used));
    HAK_STORE_RELAXED(&t->mean, HAK_LOAD_RELAXED(&f->mean));
}

/* The file. In a child the first thread makes it; threads that come in the meantime do not sample. */
static char *get_file(void)
{
    char *f = HAK_LOAD_ACQUIRE(&file);
    if (HAK_LIKELY(f) || has_none || HAK_EXCHANGE_ACQUIRE(&opening, true))
        return f;
    int saved = errno;
    f = make_profile();
    has_none = !f;
    if (f && parents)
        copy_file(f, parents);
    if (parents)
        munmap(parents, FILE_SIZE);
    parents = NULL;
    HAK_STORE_RELEASE(&file, f); /* acquired above */
    HAK_STORE_RELEASE(&opening, false);
    errno = saved;
    return f;
}

/* A child that execs at once makes no file. */
static void forked(void)
{
    if (!parents)
        parents = HAK_LOAD_RELAXED(&file);
    HAK_STORE_RELAXED(&file, NULL);
    HAK_STORE_RELAXED(&opening, false); /* the thread that did this does not exist here */
    HAK_STORE_RELAXED(&reading, false);
}

size_t hak_samples_mean(void)
{
    char *f = get_file();
    return f ? HAK_LOAD_RELAXED(&header_of(f)->mean) : 0;
}

bool hak_samples_set_mean(size_t mean)
{
    char *f = get_file();
    if (f)
        HAK_STORE_RELAXED(&header_of(f)->mean, mean);
    return f != NULL;
}

void hak_samples_start(size_t mean)
{
    size_t size = (sizeof *places * BUCKET) << BUCKETS_LG;
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    has_none = p == MAP_FAILED;
    places = has_none ? NULL : p;
    pthread_atfork(NULL, NULL, forked);
    hak_samples_set_mean(mean);
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
static void take_line(char *f, const char *line, size_t length)
{
    struct hak_profile_header *h = header_of(f);
    const char *at = line;
    uintptr_t start = hexadecimal(&at), end = (at++, hexadecimal(&at));
    unsigned n = HAK_LOAD_RELAXED(&nranges);
    uint64_t used = HAK_LOAD_RELAXED(&h->maps_used);
    if (at[3] != 'x' || is_known_code(start) || n == RANGES || used + length + 1 > MAPS)
        return;
    memcpy(f + MAPS_AT + used, line, length);
    f[MAPS_AT + used + length] = '\n';
    HAK_STORE_RELEASE(&h->maps_used, used + length + 1); /* acquired by readers */
    ranges[n] = (struct range){start, end};
    HAK_STORE_RELEASE(&nranges, n + 1); /* acquired by is_known_code */
}

/* Reads line by line through a window, since the kernel returns whole lines, up to a page. */
static void read_maps(char *f)
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
            take_line(f, line, (size_t)(end - line));
        }
        have -= (size_t)(line - text);
        memmove(text, line, have);
        if (have == sizeof text)
            break;
    }
    close(fd);
}

/* Code without a file stays unknown: so maps are not read again for each entry. */
static void learn_maps(char *f, void *const *frames, unsigned depth)
{
    unsigned unknown = 0;
    for (unsigned i = 0; i < depth; i++)
        unknown += !is_known_code((uintptr_t)frames[i]);
    if (!unknown || entries_used < read_again || HAK_EXCHANGE_ACQUIRE(&reading, true))
        return;
    unsigned before = HAK_LOAD_RELAXED(&nranges);
    read_maps(f);
    if (HAK_LOAD_RELAXED(&nranges) == before)
        read_again = entries_used + entries_used / 8 + 16;
    HAK_STORE_RELEASE(&reading, false);
}

/* --- entries -------------------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 32;
}

static void fill(char *f, struct hak_profile_entry *e, size_t size, size_t mean, void *const *frames, unsigned depth)
{
    uint64_t first = HAK_ADD_RELAXED(&header_of(f)->frames_used, depth);
    if (first + depth > FRAMES) {
        first = 0;
        depth = 1; /* no room: a stack of one frame, which other entries share */
        HAK_ADD_RELAXED(&header_of(f)->lost, 1);
    } else {
        memcpy((uint64_t *)(f + FRAMES_AT) + first, frames, depth * sizeof *frames);
    }
    e->size = size;
    e->mean = mean;
    e->first = first;
    HAK_STORE_RELEASE(&e->depth, depth); /* acquired by readers */
    entries_used++;                      /* approximate */
    learn_maps(f, frames, depth);
}

/* The index of the entry; ENTRIES if there is no room. */
static uint32_t find_entry(char *f, size_t size, size_t mean, void *const *frames, unsigned depth)
{
    struct hak_profile_entry *entries = entries_of(f);
    uint64_t key = mix(mix(1, size), mean);
    for (unsigned i = 0; i < depth; i++)
        key = mix(key, (uintptr_t)frames[i]);
    key += !key;
    for (uint32_t i = 0; i < PROBES; i++) {
        uint32_t n = (uint32_t)(key + i) % ENTRIES;
        uint64_t found = HAK_LOAD_RELAXED(&entries[n].key);
        if (!found && HAK_CAS_RELAXED(&entries[n].key, &found, key)) {
            fill(f, &entries[n], size, mean, frames, depth);
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

static bool put_place(uintptr_t block, uint32_t entry)
{
    struct place *p = bucket_of(block);
    for (unsigned i = 0; i < BUCKET; i++) {
        uintptr_t found = 0;
        if (HAK_LOAD_RELAXED(&p[i].block) || !HAK_CAS_RELAXED(&p[i].block, &found, BUSY))
            continue;
        HAK_STORE_RELAXED(&p[i].entry, entry);
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

void hak_samples_add(const void *block, size_t size, size_t mean, void *const *frames, unsigned depth)
{
    char *f = get_file();
    if (!f)
        return;
    hak_samples_remove(block); /* a block that was freed without us, through another function */
    uint32_t entry = find_entry(f, size, mean, frames, depth);
    if (entry == ENTRIES || !put_place((uintptr_t)block, entry))
        HAK_ADD_RELAXED(&header_of(f)->lost, 1);
    else
        HAK_ADD_RELAXED(&entries_of(f)[entry].allocated, 1);
    tell_alloc(block, size, mean);
}

static _Thread_local uint32_t last_removed __attribute__((tls_model("initial-exec")));

bool hak_samples_remove(const void *block)
{
    struct place *p = places ? find_living((uintptr_t)block) : NULL;
    if (!p)
        return false;
    TELL_FREE(block);
    last_removed = HAK_LOAD_RELAXED(&p->entry);
    HAK_STORE_RELAXED(&p->block, 0);
    char *f = get_file();
    if (f)
        HAK_ADD_RELAXED(&entries_of(f)[last_removed].freed, 1);
    return true;
}

void hak_samples_restore(const void *block)
{
    char *f = get_file();
    if (f && put_place((uintptr_t)block, last_removed))
        HAK_SUB_RELAXED(&entries_of(f)[last_removed].freed, 1);
}
