/* SPDX-License-Identifier: MIT
 * See fork.h. The child goes on with the forking thread; the other threads' private lists are never walked,
 * since they may have stopped anywhere: their slabs stay pinned and are counted. */
#include "fork.h"

#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include "background.h"
#include "core/base/lock.h"
#include "core/base/memcheck.h"
#include "core/base/sealed.h"
#include "core/heap/cpu_heaps.h"
#include "core/heap/heaps.h"
#include "live.h"
#include "maintenance.h"
#include "start.h"

/* --- the C library's streams ---------------------------------------------------------------------------- */

/* glibc locks its list of streams after all prepare handlers. A thread with that lock waits for streams, and a thread
 * with a stream may wait for our locks; so glibc's comes first. Its owner may take it twice. Other C libraries have no
 * such functions. */
void _IO_list_lock(void) __attribute__((weak));
void _IO_list_unlock(void) __attribute__((weak));
void _IO_list_resetlock(void) __attribute__((weak));
extern char __libc_single_threaded __attribute__((weak)); /* since 2.32 */

static bool streams_locked; /* while the locks are held */
static _Atomic(bool) is_innermost;

/* Where a library may have registered before us, its handler may wait for a thread that wants a stream. A single thread
 * waits for none. It may have been interrupted with the list half changed, where a child's reset would be wrong. */
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
        _IO_list_resetlock(); /* as glibc has done by now, unless it thinks that there is one thread */
    else if (locked)
        _IO_list_unlock();
}

/* --- the handlers ---------------------------------------------------------------------------------------- */

static HAK_LOCK(fork_lock, HAK_RANK_FORK);
static pid_t forking_process; /* the number of the process, */
static unsigned inner; /* and forks by handlers of this one, whose parent keeps the locks for it; guarded by them */

/* A thread that has a lock was interrupted by a signal, whose handler forks. Parent and child go on where it was; the
 * child has lost the locks of other threads. A thread that waits for its first lock has none. */
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
    hak_lock_acquire_all(hak_heaps_are_of_cpus() ? hak_cpu_heaps_lock : NULL);
    streams_locked = locked;
    forking_process = getpid();
}

/* What a thread had begun that is not in this child. */
static void forget_others(void)
{
    hak_lock_lose_others();
    if (hak_heaps_are_of_cpus())
        hak_cpu_heaps_lose_others();
    hak_background_fork_child(forking_process);
    hak_maintenance_fork_child();
    if (hak_options.stats_shm)
        hak_live_fork_child();
}

static void done(bool in_child)
{
    HAK_UNSEEN;
    if (!hak_lock_owns_all())
        return;
    bool locked = streams_locked;
    hak_lock_disown_all();
    if (in_child)
        hak_heaps_fork_child();
    if (hak_heaps_are_of_cpus())
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

/* A sanitizer registers handlers before it can bear code of ours; and serves malloc itself. */
#if defined(__GLIBC__) && !HAK_SANITIZED
typedef int register_function(void (*)(void), void (*)(void), void (*)(void), void *);
register_function __register_atfork __attribute__((weak, visibility("default")));

/* Registered for no library: glibc forgets a library's handlers in its destructor, and a later destructor may fork. */
HAK_STARTUP static void register_handlers(void)
{
    __register_atfork(prepare, parent, child, NULL);
}

/* glibc's pthread_atfork calls it in each library and program. Where ours is found before glibc's, as our malloc is,
 * each registration of the process comes by here, and ours is before it, whichever constructor runs first. A static
 * program has glibc's own, which is not weak. */
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
