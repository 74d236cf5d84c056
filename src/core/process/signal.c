/* SPDX-License-Identifier: MIT
 * See signal.h. The handler takes locks, so it writes only in a thread that holds none. A signal that comes to another
 * one is kept until a slow path ends, and then sent to the process again. */
#include "signal.h"

#include <signal.h>

#include "core/base/kernel.h"
#include "core/base/lock.h"
#include "core/base/log.h"
#include "core/base/sealed.h"
#include "core/base/work.h"
#include "report.h"

#define BIT(number) ((uint64_t)1 << (number))
/* Most of these report a faulting instruction, which would run again after the handler returns; two cannot be
 * handled. */
static const uint64_t unusable = BIT(SIGKILL) | BIT(SIGSTOP) | BIT(SIGSEGV) | BIT(SIGBUS) | BIT(SIGFPE) | BIT(SIGILL) |
                                 BIT(SIGTRAP) | BIT(SIGABRT) | BIT(SIGSYS);
static const uint64_t ending = BIT(SIGTERM) | BIT(SIGINT) | BIT(SIGHUP) | BIT(SIGQUIT);

_Atomic(int) hak_signal_waiting; /* negative while a thread reads or writes `kept_info` */
static HAK_SELDOM siginfo_t kept_info;
static HAK_SELDOM struct sigaction action_before;

static void go_on(int number, siginfo_t *info, void *context)
{
    const struct sigaction *a = &action_before;
    if (a->sa_flags & SA_SIGINFO) {
        a->sa_sigaction(number, info, context);
    } else if (a->sa_handler == SIG_DFL && ending & BIT(number)) {
        sigaction(number, a, NULL);
        hak_kernel_raise(number);
    } else if (a->sa_handler != SIG_DFL && a->sa_handler != SIG_IGN) {
        a->sa_handler(number);
    }
}

/* A signal that came before, and was not sent again yet, stands for this one too. */
static void keep_signal(const siginfo_t *info)
{
    int self = hak_kernel_pid(), waiting = HAK_LOAD_RELAXED(&hak_signal_waiting);
    if (waiting != self && waiting != -self && HAK_CAS_ACQUIRE(&hak_signal_waiting, &waiting, -self)) {
        kept_info = *info;
        HAK_STORE_RELEASE(&hak_signal_waiting, self);
    }
    HAK_STORE_RELAXED(&hak_purge_waits, true); /* the slow path ends in a maintenance step */
}

static void on_signal(int number, siginfo_t *info, void *context)
{
    int saved = errno;
    if (hak_lock_is_any_held()) {
        keep_signal(info);
    } else {
        hak_stats_now();
        go_on(number, info, context);
    }
    errno = saved;
}

/* Only the first thread of a process may send the siginfo_t of kill. A child forgets its parent's signal. */
void hak_signal_send_again(void)
{
    int self = hak_kernel_pid(), waiting = HAK_LOAD_RELAXED(&hak_signal_waiting);
    if (waiting != -self && HAK_CAS_ACQUIRE(&hak_signal_waiting, &waiting, -self)) {
        siginfo_t info = kept_info;
        HAK_STORE_RELEASE(&hak_signal_waiting, 0);
        if (waiting == self && HAK_SYSCALL(SYS_rt_sigqueueinfo, self, info.si_signo, &info))
            HAK_SYSCALL(SYS_kill, self, info.si_signo);
    }
}

/* Now the signal has its default action again: the process dies with its core and exit status at the original place. */
static void on_abort(int number)
{
    int saved = errno;
    hak_log_show_ring();
    hak_kernel_raise(number);
    errno = saved;
}

void hak_signal_show_ring_on_abort(void)
{
    int saved = errno;
    struct sigaction now, handler = {.sa_handler = on_abort, .sa_flags = SA_RESETHAND | SA_ONSTACK};
    if (!sigaction(SIGABRT, NULL, &now) && now.sa_handler == SIG_DFL)
        sigaction(SIGABRT, &handler, NULL);
    errno = saved;
}

void hak_signal_start(void)
{
    static _Atomic(bool) started;
    int number = (int)hak_options.stats_signal, saved = errno;
    if (HAK_EXCHANGE_RELAXED(&started, true))
        return;
    struct sigaction handler = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART};
    if (unusable & BIT(number) || sigaction(number, &handler, &action_before))
        hak_log("HAKMEM_STATS_SIGNAL=%d: not with this signal; use another one, as 10 (SIGUSR1) or 15 (SIGTERM)",
                number);
    errno = saved;
}
