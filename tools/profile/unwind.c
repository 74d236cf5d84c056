/* SPDX-License-Identifier: MIT
 * See unwind.h. Walks stacks by unwind tables, through libgcc, which the dynamic linker loads with us; from glibc 2.35
 * on it finds an address's table without a lock. Or by frame pointers, if HAKMEM_PROFILE_UNWIND=frames promises that
 * the whole program has them: a stack does not show that one is missing. */
#include "unwind.h"

#include <link.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unwind.h>

#define STEP_MAX HAK_MIB /* between two frame pointers */

extern void *__libc_stack_end __attribute__((weak));

static bool by_frames;
static uintptr_t unwinder, unwinder_end; /* its code */

struct walk {
    void **frames, *caller;
    unsigned n, most;
};

/* --- frame pointers ------------------------------------------------------------------------------------- */

/* glibc puts a thread's control block at the end of its stack, except for the first thread. */
static uintptr_t stack_end(uintptr_t here)
{
    uintptr_t end = (uintptr_t)(&__libc_stack_end ? __libc_stack_end : NULL), self = (uintptr_t)pthread_self();
    return here < end && (self < here || end < self) ? end : self;
}

/* The frame of the program's innermost function if this library was compiled without frame pointers, else our own. */
static uintptr_t first_frame(void)
{
    uintptr_t frame = 0;
#if defined(__x86_64__)
    __asm__("movq %%rbp, %0" : "=r"(frame));
#elif defined(__aarch64__)
    __asm__("mov %0, x29" : "=r"(frame));
#endif
    return frame;
}

static unsigned walk_frames(void **frames, unsigned most, void *caller)
{
    uintptr_t low = (uintptr_t)&low, end = stack_end(low), frame = first_frame();
    unsigned n = 0;
    frames[n++] = caller;
    while (n < most && frame > low && frame - low <= STEP_MAX && frame + 2 * sizeof frame <= end &&
           frame % sizeof frame == 0) {
        void *address = ((void **)frame)[1];
        if (!address)
            break;
        frames[n++] = address;
        if (address == caller) /* the frames before are our own */
            n = 1;
        low = frame;
        frame = ((uintptr_t *)frame)[0];
    }
    return n;
}

/* --- tables --------------------------------------------------------------------------------------------- */

static _Unwind_Reason_Code step(struct _Unwind_Context *context, void *argument)
{
    struct walk *w = argument;
    void *ip = (void *)_Unwind_GetIP(context);
    if (!ip)
        return _URC_END_OF_STACK;
    if (!w->n && ip != w->caller)
        return _URC_NO_REASON; /* the library's own frame */
    w->frames[w->n++] = ip;
    return w->n < w->most ? _URC_NO_REASON : _URC_END_OF_STACK;
}

unsigned hak_unwind(void **frames, unsigned most, void *caller)
{
    if (by_frames)
        return walk_frames(frames, most, caller);
    struct walk w = {.frames = frames, .caller = caller, .most = most};
    _Unwind_Backtrace(step, &w);
    if (!w.n)
        frames[w.n++] = caller;
    return w.n;
}

/* --- start ---------------------------------------------------------------------------------------------- */

static int find_unwinder(struct dl_phdr_info *info, size_t size, void *unused)
{
    (void)size, (void)unused;
    uintptr_t function = (uintptr_t)_Unwind_Backtrace, ours = (uintptr_t)find_unwinder;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        uintptr_t start = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr, length = info->dlpi_phdr[i].p_memsz;
        if (info->dlpi_phdr[i].p_type != PT_LOAD || function - start >= length)
            continue;
        if (ours - start >= length) { /* otherwise the program is linked statically, and all code lies there */
            unwinder = start;
            unwinder_end = start + length;
        }
        return 1;
    }
    return 0;
}

void hak_unwind_start(void)
{
    const char *how = getenv("HAKMEM_PROFILE_UNWIND");
    void *frames[4];
    by_frames = how && !strcmp(how, "frames");
    dl_iterate_phdr(find_unwinder, NULL);
    hak_unwind(frames, 4, __builtin_return_address(0)); /* its one-time initialisation happens here */
}

bool hak_unwind_is_safe(const void *caller)
{
    return (uintptr_t)caller - unwinder >= unwinder_end - unwinder;
}
