/* SPDX-License-Identifier: MIT
 *
 * calls_refused start|later LIBRARY
 *
 * The kernel refuses the n-th memory call, in a process of its own for each n of a sample:
 * that one alone, five in a row, or every one from there on. A seccomp filter
 * turns each call into SIGSYS, whose handler counts it and either makes it or
 * answers ENOMEM. "start" refuses from before the library is loaded, "later"
 * once it is in use.
 *
 * Whatever is refused: requests return NULL and ENOMEM, blocks keep their content, and after the refusals every request
 * is served.
 */
#include <dlfcn.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>

#include "check.h"

#ifndef SYS_process_madvise /* headers before Linux 5.10 */
#define SYS_process_madvise 440
#endif

#if defined(__x86_64__)
#define THIS_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define THIS_ARCH AUDIT_ARCH_AARCH64
#endif

#ifndef THIS_ARCH

int main(void)
{
    skip("seccomp handler not written for this architecture");
}

#else

enum { EACH_N = 16, LEAST_N = 40, MOST_N = 60 }; /* each n up to the first, then every third */

enum mode { ONE, FIVE, FOREVER, MODES };
static const char *const mode_names[MODES] = {"alone", "and four more", "and all after it"};

/* Shared with the parent. */
struct report {
    unsigned long calls;   /* memory calls made or refused */
    unsigned long refused; /* of these */
    unsigned long nulls;   /* requests that were answered NULL */
    bool loaded;           /* the loader itself got through */
};

static struct report *report;
static unsigned long refuse_from, refuse_to; /* [from, to) of calls, counted from 1 */

/* Our own system call, which the filter recognises by its address. */
long own_syscall(long nr, long a, long b, long c, long d, long e, long f);
extern const char own_syscall_done[];
#if defined(__x86_64__)
__asm__(".text\n"
        ".globl own_syscall\n.hidden own_syscall\n.type own_syscall, @function\n"
        ".globl own_syscall_done\n.hidden own_syscall_done\n"
        "own_syscall:\n"
        "  movq %rdi, %rax\n  movq %rsi, %rdi\n  movq %rdx, %rsi\n  movq %rcx, %rdx\n"
        "  movq %r8, %r10\n  movq %r9, %r8\n  movq 8(%rsp), %r9\n"
        "  syscall\n"
        "own_syscall_done:\n"
        "  ret\n"
        ".size own_syscall, . - own_syscall\n");
#else
__asm__(".text\n"
        ".globl own_syscall\n.hidden own_syscall\n.type own_syscall, %function\n"
        ".globl own_syscall_done\n.hidden own_syscall_done\n"
        "own_syscall:\n"
        "  mov x8, x0\n  mov x0, x1\n  mov x1, x2\n  mov x2, x3\n"
        "  mov x3, x4\n  mov x4, x5\n  mov x5, x6\n"
        "  svc #0\n"
        "own_syscall_done:\n"
        "  ret\n"
        ".size own_syscall, . - own_syscall\n");
#endif

static void on_memory_call(int sig, siginfo_t *info, void *context)
{
    (void)sig;
    mcontext_t *m = &((ucontext_t *)context)->uc_mcontext;
    long result = -ENOMEM;
    report->calls++;
    bool refuse = report->calls >= refuse_from && report->calls < refuse_to;
    if (refuse)
        report->refused++;
#if defined(__x86_64__)
    if (!refuse)
        result =
            own_syscall(info->si_syscall, (long)m->gregs[REG_RDI], (long)m->gregs[REG_RSI], (long)m->gregs[REG_RDX],
                        (long)m->gregs[REG_R10], (long)m->gregs[REG_R8], (long)m->gregs[REG_R9]);
    m->gregs[REG_RAX] = result;
#else
    if (!refuse)
        result = own_syscall(info->si_syscall, (long)m->regs[0], (long)m->regs[1], (long)m->regs[2], (long)m->regs[3],
                             (long)m->regs[4], (long)m->regs[5]);
    m->regs[0] = (unsigned long)result;
#endif
}

static void intercept_memory_calls(void)
{
    struct sigaction action = {.sa_sigaction = on_memory_call, .sa_flags = SA_SIGINFO};
    sigaction(SIGSYS, &action, NULL);
    uint64_t from = (uintptr_t)own_syscall_done;
#define LOAD_AT(offset) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)(offset))
#define LOAD(field) LOAD_AT(offsetof(struct seccomp_data, field))
#define IF_NR(nr, skip_to_check) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (nr), (skip_to_check), 0)
    struct sock_filter filter[] = {
        LOAD(arch),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, THIS_ARCH, 0, 7),
        LOAD(nr),
        IF_NR(SYS_mmap, 6),
        IF_NR(SYS_munmap, 5),
        IF_NR(SYS_mprotect, 4),
        IF_NR(SYS_mremap, 3),
        IF_NR(SYS_madvise, 2),
        IF_NR(SYS_process_madvise, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        LOAD(instruction_pointer),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)from, 0, 3),
        LOAD_AT(offsetof(struct seccomp_data, instruction_pointer) + 4),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)(from >> 32), 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
    };
    struct sock_fprog program = {COUNT(filter), filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        skip("seccomp: %s", strerror(errno));
}

static struct {
    void *(*malloc)(size_t);
    void (*free)(void *);
    void *(*calloc)(size_t, size_t);
    void *(*realloc)(void *, size_t);
    void *(*memalign)(size_t, size_t);
    size_t (*trim)(size_t);
} lib;

static bool load(const char *path)
{
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL)
        return false;
    struct {
        const char *name;
        void *into;
    } wanted[] = {
        {"hakmem_malloc", &lib.malloc},   {"hakmem_free", &lib.free},         {"hakmem_calloc", &lib.calloc},
        {"hakmem_realloc", &lib.realloc}, {"hakmem_memalign", &lib.memalign}, {"hakmem_trim", &lib.trim},
    };
    for (size_t i = 0; i < COUNT(wanted); i++) {
        void *symbol = dlsym(handle, wanted[i].name);
        if (symbol == NULL)
            return false;
        memcpy(wanted[i].into, &symbol, sizeof(symbol));
    }
    return true;
}

enum { BLOCKS = 96 };

static void *request(size_t i, size_t size)
{
    errno = 0;
    void *p = i % 5 == 3 ? lib.calloc(1, size) : i % 5 == 4 ? lib.memalign(i % 2 ? 64 : 65536, size) : lib.malloc(size);
    if (p == NULL) {
        report->nulls++;
        if (errno != ENOMEM)
            die("%zu bytes refused with errno %d", size, errno);
        return NULL;
    }
    if (i % 5 == 3)
        for (size_t at = 0; at < size; at += 61)
            if (((unsigned char *)p)[at] != 0)
                die("calloc(%zu): byte %zu is not zero", size, at);
    return p;
}

/* A few calls of each kind; each block is checked before it is freed. */
static void workload(void)
{
    static const size_t sizes[] = {16,    100,   64,    1000, 700,    5000,   3000,   20000,
                                   40000, 60000, 70000, 8,    300000, 100000, 500000, 2500000};
    void *p[BLOCKS];
    size_t size[BLOCKS];
    for (size_t i = 0; i < BLOCKS; i++) {
        size[i] = sizes[i % COUNT(sizes)] + i;
        p[i] = request(i, size[i]);
        if (p[i] != NULL)
            mark(p[i], size[i], (unsigned char)i);
        if (i % 7 == 6 && p[i - 3] != NULL) {
            size_t j = i - 3, bigger = size[j] * 2 + 100;
            errno = 0;
            void *q = lib.realloc(p[j], bigger);
            if (q == NULL) {
                report->nulls++;
                if (errno != ENOMEM)
                    die("realloc to %zu refused with errno %d", bigger, errno);
            } else {
                if (!marked(q, size[j], (unsigned char)j))
                    die("realloc from %zu to %zu lost content", size[j], bigger);
                p[j] = q;
                size[j] = bigger;
                mark(q, bigger, (unsigned char)j);
            }
        }
    }
    for (size_t i = 0; i < BLOCKS; i++)
        if (p[i] != NULL && !marked(p[i], size[i], (unsigned char)i))
            die("block %p of %zu bytes changed", p[i], size[i]);
    for (size_t i = 0; i < BLOCKS; i++) {
        errno = EDOM;
        lib.free(p[(i * 7) % BLOCKS]);
        if (errno != EDOM)
            die("free set errno to %d", errno);
    }
    lib.trim(0);
}

static void child(const char *path, bool from_start, unsigned long n, enum mode mode)
{
    static const unsigned long lengths[MODES] = {1, 5, (unsigned long)-1 / 2};
    alarm(100);
    if (!from_start) {
        report->loaded = load(path);
        if (!report->loaded)
            die("%s", dlerror());
        lib.free(lib.malloc(100));
    }
    refuse_from = n;
    refuse_to = n == 0 ? 0 : n + lengths[mode];
    intercept_memory_calls();
    if (from_start)
        report->loaded = load(path);
    if (!report->loaded)
        _exit(0); /* it was the loader's own call */
    workload();
    workload();
    if (n != 0 && report->calls < refuse_to)
        _exit(0);
    /* The refusals are over, or never began. */
    unsigned long nulls = report->nulls;
    workload();
    if (report->nulls != nulls)
        die("%lu requests refused although the kernel refuses no more", report->nulls - nulls);
    exit(0);
}

static void run(const char *path, bool from_start, unsigned long n, enum mode mode)
{
    char what[100];
    snprintf(what, sizeof(what), "memory call %lu refused %s", n, mode_names[mode]);
    memset(report, 0, sizeof(*report));
    pid_t pid = fork();
    if (pid < 0)
        die("fork: %s", strerror(errno));
    if (pid == 0)
        child(path, from_start, n, mode);
    int status = 0;
    if (waitpid(pid, &status, 0) != pid)
        die("waitpid: %s", strerror(errno));
    if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED)
        _exit(SKIPPED);
    if (WIFSIGNALED(status))
        die("%s: killed by signal %d%s", what, WTERMSIG(status), WTERMSIG(status) == SIGALRM ? ", it hung" : "");
    if (WEXITSTATUS(status) != 0)
        die("%s: exit status %d", what, WEXITSTATUS(status));
}

int main(int argc, char **argv)
{
    if (argc != 3)
        die("usage: calls_refused start|later LIBRARY");
    bool from_start = strcmp(argv[1], "start") == 0;
    report = mmap(NULL, sizeof(*report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (report == MAP_FAILED)
        die("mmap: %s", strerror(errno));

    run(argv[2], from_start, 0, ONE);
    if (!report->loaded || report->calls == 0)
        die("without refusals: library %sloaded, %lu memory calls seen", report->loaded ? "" : "not ", report->calls);
    unsigned long last = report->calls < LEAST_N ? LEAST_N : report->calls < MOST_N ? report->calls : MOST_N;
    unsigned long loaders = 0, refused = 0, nulls = 0;
    for (unsigned long n = 1; n <= last; n += n < EACH_N ? 1 : 3)
        for (int mode = 0; mode < MODES; mode++) {
            run(argv[2], from_start, n, (enum mode)mode);
            loaders += !report->loaded;
            refused += report->refused;
            nulls += report->nulls;
        }
    say("n up to %lu, %lu calls refused, %lu requests answered NULL; in %lu runs the loader gave up", last, refused,
        nulls, loaders);
    return 0;
}

#endif
