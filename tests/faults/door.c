/* SPDX-License-Identifier: MIT
 * A kernel that answers in part, for whole programs: this file is linked into a copy of the library, and stands before
 * its system calls for memory (core/os/os.h).
 *
 * FAULTS=CALL:FROM:COUNT:HOW: of the calls of that kind (`any`: of all but prctl), COUNT calls from the FROM-th on are
 * answered HOW:
 *   ENOMEM, EAGAIN, EINTR, EPERM, EINVAL   refused, nothing is done
 *   part      a vector is done up to its middle, and the answer says so
 *   locked    a page in the middle of the range is locked before the call
 *   late      done 3 ms later
 * FAULTS_COUNTS=FILE gets a line "CALL NUMBER" for each kind at exit. door_over(), which a program may look up and
 * call, ends the faults and unlocks the pages. */
#include <fcntl.h>
#include <string.h>
#include <time.h>

#include "core/base/file.h"
#include "core/base/kernel.h"
#include "core/base/log.h"
#include "core/os/os.h"

#define PAGE ((uintptr_t)4096)

enum { CALL_ANY = HAK_NOSCALLS, NCALLS };
enum how { NONE, PART = 10001, LOCKED, LATE }; /* or an error number */
static const struct {
    const char *name;
    int how;
} hows[] = {{"ENOMEM", ENOMEM}, {"EAGAIN", EAGAIN}, {"EINTR", EINTR},   {"EPERM", EPERM},
            {"EINVAL", EINVAL}, {"part", PART},     {"locked", LOCKED}, {"late", LATE}};

static const struct timespec late = {0, 3000000};
static _Atomic(unsigned long) calls[NCALLS];
static unsigned long from, count;
static int how, kind = -1;
static _Atomic(bool) over;
static const char *counts_file;
static void *_Atomic(locked)[64];
static _Atomic(unsigned) locked_count;

void door_over(void);
bool __real_hak_start(void);
bool __wrap_hak_start(void);

/* --- settings -------------------------------------------------------------------------------------------- */

static const char *name_of(int call)
{
    return call == CALL_ANY ? "any" : hak_os_call_name((enum hak_os_call)call);
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
    for (int i = 0; i < NCALLS && kind < 0; i++) {
        size_t length = strlen(name_of(i));
        if (!strncmp(text, name_of(i), length) && text[length] == ':') {
            text += length + 1;
            kind = i;
        }
    }
    from = number(&text);
    count = number(&text);
    for (size_t i = 0; i < sizeof hows / sizeof *hows; i++)
        if (!strcmp(text, hows[i].name))
            how = hows[i].how;
    if (kind < 0 || !how)
        hak_log_fatal("FAULTS: %s", text);
}

static void read_settings(void)
{
    for (char **e = hak_kernel_environment(); e && *e; e++) {
        if (!strncmp(*e, "FAULTS=", 7))
            parse(*e + 7);
        else if (!strncmp(*e, "FAULTS_COUNTS=", 14))
            counts_file = *e + 14;
    }
}

/* --- faults ------------------------------------------------------------------------------------------------ */

/* Counts a call; returns how to answer it. */
static int arrive(enum hak_os_call call)
{
    unsigned long n = HAK_ADD_RELAXED(&calls[call], 1) + 1, any = 0;
    if (call != HAK_OS_prctl)
        any = HAK_ADD_RELAXED(&calls[CALL_ANY], 1) + 1;
    if (kind == CALL_ANY)
        n = any;
    else if ((int)call != kind)
        return NONE;
    if (!n || n < from || n - from >= count || HAK_LOAD_RELAXED(&over))
        return NONE;
    if (how == LATE)
        HAK_SYSCALL(SYS_nanosleep, &late, NULL);
    return how == LATE ? NONE : how;
}

static void lock_page(void *range, size_t size)
{
    void *page = (void *)(((uintptr_t)range + size / 2) & ~(PAGE - 1));
    unsigned i = HAK_ADD_RELAXED(&locked_count, 1);
    if (i < sizeof locked / sizeof *locked && HAK_SYSCALL(SYS_mlock, page, PAGE) == 0)
        HAK_STORE_RELAXED(&locked[i], page);
}

HAK_EXPORT void door_over(void)
{
    HAK_STORE_RELAXED(&over, true);
    for (unsigned i = 0; i < sizeof locked / sizeof *locked; i++) {
        void *page = HAK_EXCHANGE_RELAXED(&locked[i], NULL);
        if (page)
            HAK_SYSCALL(SYS_munlock, page, PAGE);
    }
}

/* --- the door ------------------------------------------------------------------------------------------------ */

#define REFUSE_OR(call, expr)                             \
    ({                                                    \
        int fault = arrive(HAK_OS_##call);                \
        fault &&fault < PART ? -fault : (intptr_t)(expr); \
    })

static intptr_t door_map(void *hint, size_t size, int prot, int flags)
{
    return REFUSE_OR(mmap, hak_os_linux.map(hint, size, prot, flags));
}

static intptr_t door_unmap(void *addr, size_t size)
{
    return REFUSE_OR(munmap, hak_os_linux.unmap(addr, size));
}

static intptr_t door_protect(void *addr, size_t size, int prot)
{
    return REFUSE_OR(mprotect, hak_os_linux.protect(addr, size, prot));
}

static intptr_t door_remap(void *addr, size_t old_size, size_t new_size, int flags, void *to)
{
    return REFUSE_OR(mremap, hak_os_linux.remap(addr, old_size, new_size, flags, to));
}

static intptr_t door_advise(void *addr, size_t size, int advice)
{
    return REFUSE_OR(madvise,
                     (fault == LOCKED ? lock_page(addr, size) : (void)0, hak_os_linux.advise(addr, size, advice)));
}

static intptr_t door_advise_vector(const struct iovec *ranges, size_t n, int advice)
{
    const struct iovec *middle = ranges + n / 2;
    return REFUSE_OR(process_madvise, (fault == LOCKED ? lock_page(middle->iov_base, middle->iov_len) : (void)0,
                                       hak_os_linux.advise_vector(ranges, fault == PART ? (n + 1) / 2 : n, advice)));
}

static intptr_t door_resident(void *addr, size_t size, unsigned char *each_page)
{
    return REFUSE_OR(mincore, hak_os_linux.resident(addr, size, each_page));
}

static intptr_t door_name(void *addr, size_t size, const char *name)
{
    return REFUSE_OR(prctl, hak_os_linux.name(addr, size, name));
}

/* The linker puts it before the library's first step, which makes no system call. */
bool __wrap_hak_start(void)
{
    static struct hak_os door = {
        .map = door_map,
        .unmap = door_unmap,
        .protect = door_protect,
        .remap = door_remap,
        .advise = door_advise,
        .advise_vector = door_advise_vector,
        .resident = door_resident,
        .name = door_name,
    };
    if (hak_os != &door) {
        read_settings();
        door.clock_ns = hak_os_linux.clock_ns;
        hak_os = &door;
    }
    return __real_hak_start();
}

__attribute__((destructor)) static void write_counts(void)
{
    char line[64];
    int fd = counts_file ? hak_file_open(counts_file, O_WRONLY | O_CREAT | O_APPEND) : -1;
    for (int i = 0; i < NCALLS && fd >= 0; i++) {
        hak_text_format(line, sizeof line, "%s %lu\n", name_of(i), HAK_LOAD_RELAXED(&calls[i]));
        hak_file_write(fd, line, strlen(line));
    }
}
