/* SPDX-License-Identifier: MIT
 * A kernel that answers in part, for whole programs: preloaded, this library stands between libhakmem.so and the C
 * library's mmap, munmap, mprotect, mremap, madvise, mincore, prctl and syscall. Calls of others pass.
 *
 * FAULTS=CALL:FROM:COUNT:HOW: of the library's calls of that kind (`any`: of all but prctl), COUNT calls from the
 * FROM-th on are answered HOW:
 *   ENOMEM, EAGAIN, EINTR, EPERM, EINVAL   refused, nothing is done
 *   part      a vector is done up to its middle, and the answer says so
 * locked a page in the middle of the range is locked before the call
 *   late      done 3 ms later
 * FAULTS_COUNTS=FILE gets a line "CALL NUMBER" for each kind at exit. door_over(), which a program may look up and
 * call, ends the faults and unlocks the pages. Nothing here allocates or calls the C library, which may not be ready at
 * the first call. */
#undef _FILE_OFFSET_BITS /* with it mmap is another name of mmap64, and both are needed here */
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>

#ifndef SYS_process_madvise
#define SYS_process_madvise 440
#endif
#define EXPORT __attribute__((visibility("default")))
#define PAGE ((uintptr_t)4096)
#define LATE_NS 3000000
#define FROM_LIBRARY is_ours(__builtin_return_address(0))

#define CALLS(X) X(mmap) X(munmap) X(mprotect) X(mremap) X(madvise) X(process_madvise) X(mincore) X(prctl)
enum call {
#define X(name) CALL_##name,
    CALLS(X)
#undef X
        CALL_any,
    NCALLS
};
static const char *const call_names[NCALLS] = {
#define X(name) #name,
    CALLS(X)
#undef X
        "any"};

enum how { NONE, PART = 10001, LOCKED, LATE }; /* or an error number */
static const struct {
    const char *name;
    int how;
} hows[] = {{"ENOMEM", ENOMEM}, {"EAGAIN", EAGAIN}, {"EINTR", EINTR},   {"EPERM", EPERM},
            {"EINVAL", EINVAL}, {"part", PART},     {"locked", LOCKED}, {"late", LATE}};

static _Atomic(unsigned long) calls[NCALLS];
static unsigned long from, count;
static int how, kind = -1;
static _Atomic(bool) over;
static _Atomic(int) ready; /* 0 no, 1 a thread reads the settings, 2 yes */
static char counts_file[256];
static void *_Atomic(locked)[64];
static _Atomic(unsigned) locked_count;

void door_over(void);

/* --- the kernel itself ---------------------------------------------------------------------------------- */

static long raw(long nr, long a, long b, long c, long d, long e, long f)
{
#if defined(__x86_64__)
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = nr, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c,
                     x3 __asm__("x3") = d, x4 __asm__("x4") = e, x5 __asm__("x5") = f;
    __asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
    return x0;
#else
#error "a system call of this architecture is not written here"
#endif
}

static long answer(long result)
{
    if (result < 0 && result > -4096) {
        errno = (int)-result;
        return -1;
    }
    return result;
}

/* --- settings, from the kernel's copy of the environment -------------------------------------------------- */

static const char *setting(const char *environment, size_t size, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = environment; at < environment + size; at += strlen(at) + 1)
        if (!strncmp(at, name, length))
            return at + length;
    return NULL;
}

static unsigned long number(const char **text)
{
    unsigned long n = 0;
    while (**text >= '0' && **text <= '9')
        n = n * 10 + (unsigned long)(*(*text)++ - '0');
    *text += **text == ':';
    return n;
}

static void parse(const char *text)
{
    for (int i = 0; i < NCALLS; i++) {
        size_t length = strlen(call_names[i]);
        if (!strncmp(text, call_names[i], length) && text[length] == ':') {
            text += length + 1;
            kind = i;
            break;
        }
    }
    from = number(&text);
    count = number(&text);
    for (size_t i = 0; i < sizeof hows / sizeof *hows; i++)
        if (!strcmp(text, hows[i].name))
            how = hows[i].how;
    if (kind < 0 || !how)
        raw(SYS_exit_group, 98, 0, 0, 0, 0, 0);
}

static void read_settings(void)
{
    static char environment[131072];
    size_t size = 0;
    long n, fd = raw(SYS_openat, AT_FDCWD, (long)"/proc/self/environ", O_RDONLY, 0, 0, 0);
    while ((n = raw(SYS_read, fd, (long)(environment + size), (long)(sizeof environment - 1 - size), 0, 0, 0)) > 0)
        size += (size_t)n;
    raw(SYS_close, fd, 0, 0, 0, 0, 0);
    const char *faults = setting(environment, size, "FAULTS="), *file = setting(environment, size, "FAULTS_COUNTS=");
    if (file)
        strncpy(counts_file, file, sizeof counts_file - 1);
    if (faults)
        parse(faults);
}

static void get_ready(void)
{
    int expected = 0;
    if (atomic_load(&ready) == 2)
        return;
    if (atomic_compare_exchange_strong(&ready, &expected, 1)) {
        read_settings();
        atomic_store(&ready, 2);
    }
    while (atomic_load(&ready) != 2)
        ;
}

/* Finds libhakmem's addresses in the loader's list, without a lock. */
static bool is_ours(const void *caller)
{
    static _Atomic(uintptr_t) begin, end;
    if (!atomic_load(&end))
        for (const struct link_map *m = _r_debug.r_map; m; m = m->l_next) {
            if (!m->l_name || !strstr(m->l_name, "libhakmem.so"))
                continue;
            const ElfW(Ehdr) *header = (const void *)m->l_addr;
            const ElfW(Phdr) *segment = (const void *)(m->l_addr + header->e_phoff);
            uintptr_t last = 0;
            for (unsigned i = 0; i < header->e_phnum; i++)
                if (segment[i].p_type == PT_LOAD)
                    last = m->l_addr + segment[i].p_vaddr + segment[i].p_memsz;
            atomic_store(&begin, m->l_addr);
            atomic_store(&end, last);
        }
    return (uintptr_t)caller - atomic_load(&begin) < atomic_load(&end) - atomic_load(&begin);
}

/* --- faults ------------------------------------------------------------------------------------------------ */

/* Counts a call of the library; returns how to answer it. */
static int arrive(enum call call)
{
    get_ready();
    unsigned long n = atomic_fetch_add(&calls[call], 1) + 1, any = 0;
    if (call != CALL_prctl)
        any = atomic_fetch_add(&calls[CALL_any], 1) + 1;
    if (kind == CALL_any)
        n = any;
    else if ((int)call != kind)
        return NONE;
    if (!n || n < from || n - from >= count || atomic_load(&over))
        return NONE;
    if (how == LATE)
        raw(SYS_nanosleep, (long)&(struct timespec){0, LATE_NS}, 0, 0, 0, 0, 0);
    return how == LATE ? NONE : how;
}

static void lock_page(void *range, size_t size)
{
    void *page = (void *)(((uintptr_t)range + size / 2) & ~(PAGE - 1));
    unsigned i = atomic_fetch_add(&locked_count, 1);
    if (i < sizeof locked / sizeof *locked && raw(SYS_mlock, (long)page, (long)PAGE, 0, 0, 0, 0) == 0)
        atomic_store(&locked[i], page);
}

EXPORT void door_over(void)
{
    atomic_store(&over, true);
    for (unsigned i = 0; i < sizeof locked / sizeof *locked; i++) {
        void *page = atomic_exchange(&locked[i], NULL);
        if (page)
            raw(SYS_munlock, (long)page, (long)PAGE, 0, 0, 0, 0);
    }
}

static long pass(enum call call, long nr, long a, long b, long c, long d, long e, long f)
{
    int fault = arrive(call);
    if (fault && fault < PART)
        return -fault;
    if (fault == LOCKED && call == CALL_madvise)
        lock_page((void *)a, (size_t)b);
    if (fault == LOCKED && call == CALL_process_madvise) {
        const struct iovec *range = (const struct iovec *)b + c / 2;
        lock_page(range->iov_base, range->iov_len);
    }
    if (fault == PART && call == CALL_process_madvise)
        c = (c + 1) / 2;
    return raw(nr, a, b, c, d, e, f);
}

#define DOOR(name, a, b, c, d, e, f)                                                                             \
    answer(FROM_LIBRARY                                                                                          \
               ? pass(CALL_##name, SYS_##name, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f)) \
               : raw(SYS_##name, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f)))

EXPORT void *mmap(void *addr, size_t size, int prot, int flags, int fd, off_t offset)
{
    return (void *)DOOR(mmap, addr, size, prot, flags, fd, offset);
}

EXPORT void *mmap64(void *addr, size_t size, int prot, int flags, int fd, off64_t offset)
{
    return (void *)DOOR(mmap, addr, size, prot, flags, fd, offset);
}

EXPORT int munmap(void *addr, size_t size)
{
    return (int)DOOR(munmap, addr, size, 0, 0, 0, 0);
}

EXPORT int mprotect(void *addr, size_t size, int prot)
{
    return (int)DOOR(mprotect, addr, size, prot, 0, 0, 0);
}

EXPORT void *mremap(void *addr, size_t old_size, size_t new_size, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    void *to = flags & MREMAP_FIXED ? va_arg(rest, void *) : NULL;
    va_end(rest);
    return (void *)DOOR(mremap, addr, old_size, new_size, flags, to, 0);
}

EXPORT int madvise(void *addr, size_t size, int advice)
{
    return (int)DOOR(madvise, addr, size, advice, 0, 0, 0);
}

EXPORT int mincore(void *addr, size_t size, unsigned char *each)
{
    return (int)DOOR(mincore, addr, size, each, 0, 0, 0);
}

#define SIX_MORE(last, a)               \
    long a[6];                          \
    va_list rest_;                      \
    va_start(rest_, last);              \
    for (unsigned i_ = 0; i_ < 6; i_++) \
        a[i_] = va_arg(rest_, long);    \
    va_end(rest_)

EXPORT int prctl(int option, ...)
{
    SIX_MORE(option, a);
    return (int)DOOR(prctl, option, a[0], a[1], a[2], a[3], 0);
}

EXPORT long syscall(long nr, ...)
{
    SIX_MORE(nr, a);
    if (nr == SYS_process_madvise)
        return DOOR(process_madvise, a[0], a[1], a[2], a[3], a[4], 0);
    return answer(raw(nr, a[0], a[1], a[2], a[3], a[4], a[5]));
}

__attribute__((destructor)) static void write_counts(void)
{
    char line[64];
    get_ready();
    if (!counts_file[0])
        return;
    long fd = raw(SYS_openat, AT_FDCWD, (long)counts_file, O_WRONLY | O_CREAT | O_APPEND, 0600, 0, 0);
    for (int i = 0; i < NCALLS; i++) {
        int n = snprintf(line, sizeof line, "%s %lu\n", call_names[i], atomic_load(&calls[i]));
        raw(SYS_write, fd, (long)line, n, 0, 0, 0);
    }
    raw(SYS_close, fd, 0, 0, 0, 0, 0);
}
