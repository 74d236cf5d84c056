/* SPDX-License-Identifier: MIT
 * See fork.h. In the child only the forking thread continues. The other threads may have stopped anywhere: the child
 * uses only heaps that are complete (heap/heaps.c). Slabs of others stay pinned and are counted. */
#include "fork.h"

#include <dlfcn.h>
#include <pthread.h>

#include "background.h"
#include "core/base/kernel.h"
#include "core/base/lock.h"
#include "core/base/memcheck.h"
#include "core/base/sealed.h"
#include "core/heap/cpu_heaps.h"
#include "core/heap/heaps.h"
#include "maintenance.h"
#include "start.h"

/* --- the C library's streams ---------------------------------------------------------------------------- */

/* glibc locks its list of streams after all prepare handlers. A thread that holds that lock waits for streams, and a
 * thread that holds a stream's lock may wait for ours; so glibc's lock comes first. It is recursive. Other C libraries
 * have no such functions. */
void _IO_list_lock(void) __attribute__((weak));
void _IO_list_unlock(void) __attribute__((weak));
void _IO_list_resetlock(void) __attribute__((weak));
extern char __libc_single_threaded __attribute__((weak)); /* since 2.32 */

static bool streams_locked; /* while the locks are held */
static _Atomic(bool) is_innermost;

/* A library that registered before us may have a handler that waits for a thread that needs a stream. A single thread
 * waits for no other; but a signal may have interrupted it while it changed the list, and then a reset in the child
 * would be wrong. */
static bool lock_streams(void)
{
    if (!_IO_list_lock || !HAK_LOAD_RELAXED(&is_innermost) || (&__libc_single_threaded && __libc_single_threaded))
        return false;
    _IO_list_lock();
    return true;
}

static void unlock_streams(bool locked, bool in_child)
{
    if (locked && in_child)
        _IO_list_resetlock(); /* glibc has done so by now, unless it believes that there is one thread */
    else if (locked)
        _IO_list_unlock();
}

/* --- the handlers ---------------------------------------------------------------------------------------- */

static HAK_LOCK(fork_lock, HAK_RANK_FORK);
static pid_t forking_process; /* id of the process that forks, or 0 without a background thread */
/* Nested forks, by handlers of this one, whose parent keeps the locks. All locks protect it. */
static unsigned inner;

/* If the thread holds a lock, a signal handler forks that has interrupted it. Parent and child continue from there; in
 * the child, locks of other threads are lost. A thread that waits for its first lock holds none. */
static void prepare(void)
{
    HAK_UNSEEN;
    if (hak_lock_owns_all()) {
        inner++;
        return;
    }
    if (hak_lock_is_any_held() || !hak_start())
        return;
    bool locked = lock_streams();
    hak_lock_acquire_all(HAK_CPU_HEAPS ? hak_cpu_heaps_lock : NULL);
    streams_locked = locked;
    forking_process = hak_options.background ? hak_kernel_pid() : 0;
}

/* Resets what threads that do not exist in this child had begun. */
static void forget_others(void)
{
    hak_lock_lose_others();
    if (HAK_CPU_HEAPS)
        hak_cpu_heaps_lose_others();
    hak_background_fork_child(forking_process);
    hak_maintenance_fork_child();
}

static void done(bool in_child)
{
    HAK_UNSEEN;
    if (!hak_lock_owns_all())
        return;
    bool locked = streams_locked;
    if (in_child)
        hak_heaps_fork_child();
    hak_lock_disown_all();
    if (HAK_CPU_HEAPS)
        hak_cpu_heaps_unlock();
    hak_lock_release_all();
    unlock_streams(locked, in_child);
}

static void parent(void)
{
    if (hak_lock_owns_all() && inner)
        inner--;
    else
        done(false);
}

static void child(void)
{
    HAK_UNSEEN;
    if (hak_lock_owns_all() || hak_lock_is_any_held())
        forget_others();
    if (hak_lock_owns_all())
        inner = 0;
    done(true);
}

/* --- before all others ----------------------------------------------------------------------------------- */

/* Sanitizers register handlers before our code can run, and serve malloc themselves. */
#if defined(__GLIBC__) && !HAK_SANITIZED
typedef int register_function(void (*)(void), void (*)(void), void (*)(void), void *);
register_function __register_atfork __attribute__((weak, visibility("default")));

/* Registered without a library handle: glibc drops a library's handlers when it runs its destructors, and a later
 * destructor may fork. */
HAK_STARTUP static void register_handlers(void)
{
    __register_atfork(prepare, parent, child, NULL);
}

/* glibc's pthread_atfork calls this in each library and program. If ours is found before glibc's, as our malloc is,
 * each registration in the process passes through here, after ours, whichever constructor runs first. A static program
 * uses glibc's, which is not weak. */
HAK_STARTUP int __register_atfork(void (*before)(void), void (*in_parent)(void), void (*in_child)(void), void *library)
{
    register_function *next = (register_function *)dlsym(RTLD_NEXT, "__register_atfork");
    hak_fork_register();
    HAK_STORE_RELAXED(&is_innermost, true);
    return next ? next(before, in_parent, in_child, library) : ENOSYS;
}
#else
HAK_STARTUP static void register_handlers(void)
{
    pthread_atfork(prepare, parent, child);
}
#endif

HAK_STARTUP void hak_fork_register(void)
{
    static _Atomic(bool) registered;
    if (!HAK_EXCHANGE_RELAXED(&registered, true))
        register_handlers();
}
