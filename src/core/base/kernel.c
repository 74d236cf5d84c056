/* SPDX-License-Identifier: MIT
 * See kernel.h. The clock is a function of the vDSO, which the kernel maps into each process. */
#include "kernel.h"

#include "text.h"

#include <link.h>
#include <sys/auxv.h>
#include <time.h>
#include <unistd.h>

/* Set by glibc's dynamic linker: where the kernel put argc, argv, the environment and the auxiliary vector. In a static
 * program its value is another one. Other C libraries lack it. */
extern void *__libc_stack_end __attribute__((weak));

/* CLONE_VM, FILES, SIGHAND, THREAD, SYSVSEM, SETTLS, PARENT_SETTID, CHILD_CLEARTID: as the C library's threads but for
 * CLONE_FS, since the kernel lets no process that shares its root and folder enter a mount namespace. The new thread
 * continues behind the system call, with the registers of this one but for the stack pointer. */
#define THREAD_FLAGS 0x3d0d00L

#if defined(__x86_64__)
long hak_syscall(long number, long a, long b, long c, long d, long e, long f)
{
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "+a"(number)
                     : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return number;
}

char *hak_kernel_thread_pointer(void)
{
    char *pointer;
    __asm__("movq %%fs:0, %0" : "=r"(pointer));
    return pointer;
}

/* At the thread pointer compilers expect its own value, and the secret of stack protectors. */
long hak_kernel_start_thread(char *stack_end, ptrdiff_t distance, _Atomic(int) *id, void (*run)(void))
{
    char *own = hak_kernel_thread_pointer(), *pointer = own + distance;
    hak_move(pointer, own, HAK_CACHELINE);
    ((char **)pointer)[0] = ((char **)pointer)[2] = pointer;
    register long r10 __asm__("r10") = (long)id, r8 __asm__("r8") = (long)pointer, r9 __asm__("r9") = (long)run;
    long result;
    __asm__ volatile("syscall\n\ttestq %%rax, %%rax\n\tjnz 1f\n\txorl %%ebp, %%ebp\n\tcallq *%%r9\n1:"
                     : "=a"(result)
                     : "0"(SYS_clone), "D"(THREAD_FLAGS), "S"(stack_end), "d"(id), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "cc", "memory");
    return result;
}
#elif defined(__aarch64__)
long hak_syscall(long number, long a, long b, long c, long d, long e, long f)
{
    register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c,
                     x3 __asm__("x3") = d, x4 __asm__("x4") = e, x5 __asm__("x5") = f;
    __asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
    return x0;
}

char *hak_kernel_thread_pointer(void)
{
    return __builtin_thread_pointer();
}

long hak_kernel_start_thread(char *stack_end, ptrdiff_t distance, _Atomic(int) *id, void (*run)(void))
{
    register long x8 __asm__("x8") = SYS_clone, x0 __asm__("x0") = THREAD_FLAGS, x1 __asm__("x1") = (long)stack_end,
                     x2 __asm__("x2") = (long)id, x3 __asm__("x3") = (long)hak_kernel_thread_pointer() + distance,
                     x4 __asm__("x4") = (long)id, x5 __asm__("x5") = (long)run;
    __asm__ volatile("svc #0\n\tcbnz x0, 1f\n\tmov x29, xzr\n\tblr x5\n1:"
                     : "+r"(x0)
                     : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
                     : "cc", "memory");
    return x0;
}
#else
long hak_syscall(long number, long a, long b, long c, long d, long e, long f)
{
    int saved = errno;
    long result = syscall(number, a, b, c, d, e, f);
    if (result == -1)
        result = -errno;
    errno = saved;
    return result;
}

char *hak_kernel_thread_pointer(void)
{
#if defined(__powerpc64__) /* its compilers lack the function */
    char *pointer;
    __asm__("mr %0, 13" : "=r"(pointer));
    return pointer;
#else
    return __builtin_thread_pointer();
#endif
}

long hak_kernel_start_thread(char *stack_end, ptrdiff_t distance, _Atomic(int) *id, void (*run)(void))
{
    (void)stack_end, (void)distance, (void)id, (void)run;
    return -ENOSYS;
}
#endif

void hak_kernel_raise(int number)
{
    HAK_SYSCALL(SYS_tgkill, hak_kernel_pid(), HAK_SYSCALL(SYS_gettid, 0), number);
}

char **hak_kernel_environment(void)
{
    intptr_t *stack = &__libc_stack_end ? __libc_stack_end : NULL;
    bool plausible = stack && stack[0] > 0 && stack[0] < 1 << 20 && !stack[1 + stack[0]];
    return plausible ? (char **)&stack[2 + stack[0]] : NULL;
}

/* The vector follows the environment. unsetenv, which shortens that in place, may have left several zeros; a program
 * that did so itself has left pointers there, which name no type. */
uintptr_t hak_kernel_auxv(uintptr_t type)
{
    const uintptr_t *at = (const uintptr_t *)hak_kernel_environment();
    if (!at)
        return getauxval(type);
    while (*at)
        at++;
    while (!*at)
        at++;
    while (*at && *at != type)
        at += 2;
    return *at ? at[1] : getauxval(type);
}

/* --- the clock ------------------------------------------------------------------------------------------- */

typedef int clock_function(clockid_t clock, struct timespec *time);

static int ask_kernel(clockid_t clock, struct timespec *time)
{
    return (int)HAK_SYSCALL(SYS_clock_gettime, clock, time);
}

static bool is_clock(const char *name)
{
    const char *rest = hak_text_behind(name, "clock_gettime"); /* after a prefix that depends on the architecture */
    return rest && !*rest;
}

/* The symbols end where their names begin. */
static clock_function *clock_among(const char *bias, const ElfW(Dyn) * entry)
{
    const char *names = NULL;
    const ElfW(Sym) *symbol = NULL;
    for (; entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_STRTAB)
            names = bias + entry->d_un.d_ptr;
        else if (entry->d_tag == DT_SYMTAB)
            symbol = (const void *)(bias + entry->d_un.d_ptr);
    }
    for (; symbol && (const char *)(symbol + 1) <= names; symbol++)
        if (symbol->st_shndx != SHN_UNDEF && is_clock(names + symbol->st_name))
            return (clock_function *)(uintptr_t)(bias + symbol->st_value);
    return NULL;
}

static clock_function *find_clock(void)
{
    const char *base = (const char *)hak_kernel_auxv(AT_SYSINFO_EHDR), *bias = NULL, *dynamic = NULL;
    if (!base)
        return NULL;
    const ElfW(Ehdr) *header = (const void *)base;
    const ElfW(Phdr) *segment = (const void *)(base + header->e_phoff);
    for (unsigned i = 0; i < header->e_phnum; i++) {
        if (segment[i].p_type == PT_LOAD && !bias)
            bias = base + segment[i].p_offset - segment[i].p_vaddr;
        else if (segment[i].p_type == PT_DYNAMIC)
            dynamic = base + segment[i].p_offset;
    }
    return bias && dynamic ? clock_among(bias, (const void *)dynamic) : NULL;
}

uint64_t hak_kernel_clock(int clock)
{
    static _Atomic(clock_function *) found;
    clock_function *read_time = HAK_LOAD_RELAXED(&found);
    struct timespec t = {0};
    if (!read_time) {
        read_time = find_clock();
        read_time = read_time ? read_time : ask_kernel;
        HAK_STORE_RELAXED(&found, read_time);
    }
    return read_time(clock, &t) ? 0 : (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
