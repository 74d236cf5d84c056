/* SPDX-License-Identifier: MIT
 * Heaps of CPUs. The test interrupts each restartable sequence before each of its instructions: a breakpoint's handler
 * does what another thread on the same CPU may do. Then come signals at any time, moves between CPUs, and threads that
 * take blocks away. Without rseq, only the test of the sequences alone runs. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "core/heap/decay.h"
#include "core/heap/enter.h"
#include "core/heap/heaps.h"
#include "core/process/figures.h"
#include "unit.h"

#define CLS 5u
#define N 6u /* blocks in the array at first */

static cpu_set_t allowed;

/* What the library reads as the length of the kernel's masks of CPUs; 0: what the kernel says. */
static long mask_bytes;

long __real_hak_syscall(long number, long a, long b, long c, long d, long e, long f);
long __wrap_hak_syscall(long number, long a, long b, long c, long d, long e, long f);
long __wrap_hak_syscall(long number, long a, long b, long c, long d, long e, long f)
{
    return number == SYS_sched_getaffinity && mask_bytes ? mask_bytes : __real_hak_syscall(number, a, b, c, d, e, f);
}

static void *begin_first(void *unused)
{
    assert_non_null(unit_thread());
    return unused;
}

/* The thread stays light, as after its end. */
static void start(void)
{
    unit_init(NULL);
    unit_in_thread(begin_first, NULL);
    hak_self.ended = true;
    sched_getaffinity(0, sizeof allowed, &allowed);
}

static void start_with_sequences(void)
{
    start();
    hak_free(hak_malloc(64));
    if (!hak_self.light)
        skip();
}

static unsigned nth_cpu(unsigned n)
{
    unsigned cpu = 0;
    for (n %= (unsigned)CPU_COUNT(&allowed); n || !CPU_ISSET(cpu, &allowed); cpu++)
        n -= CPU_ISSET(cpu, &allowed);
    return cpu;
}

static void move_to(unsigned cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    assert_int_equal(sched_setaffinity(0, sizeof set, &set), 0);
}

/* --- what sequences do ------------------------------------------------------------------------------------ */

/* The sequences do not access blocks, so numbers stand for them. */
static struct hak_arrays *arrays;
static void *const pushed[3] = {(void *)0x1000, (void *)0x2000, (void *)0x3000};
static void *popped[N];

/* Each works on the arrays of the CPU. Its results are `popped` and the return value. */
static HAK_NOINLINE uint32_t do_pop(void)
{
    return (popped[0] = hak_rseq_pop(CLS)) != NULL;
}

static HAK_NOINLINE uint32_t do_push(void)
{
    return hak_rseq_push(CLS, pushed[0]);
}

static HAK_NOINLINE uint32_t do_pop_some(void)
{
    return hak_rseq_pop_some(CLS, popped, 3);
}

static HAK_NOINLINE uint32_t do_push_some(void)
{
    return hak_rseq_push_some(CLS, pushed, 3, 100);
}

static const struct sequence {
    uint32_t (*run)(void);
    unsigned in, out; /* blocks */
    bool restarts;    /* when interrupted; else it moves nothing */
} sequences[] = {{do_pop, 0, 1, false}, {do_push, 1, 0, false}, {do_pop_some, 0, 3, true}, {do_push_some, 3, 0, true}};

static void **bottom(void)
{
    return CLS ? arrays->end[CLS - 1] + 1 : arrays->slots;
}

static void fill(void)
{
    arrays->top[CLS] = bottom();
    for (uintptr_t i = 1; i <= N; i++)
        *++arrays->top[CLS] = (void *)i;
    arrays->room[CLS] = 100;
}

static uint64_t sum_of(void *const *blocks, size_t n)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (uintptr_t)blocks[i];
    return sum;
}

/* Each block that was pushed is in the array or was popped, and none twice: the sums of the numbers show it. */
static void account(const struct sequence *s, uint32_t done, uint64_t others_took, uint64_t others_put)
{
    size_t n = (size_t)(arrays->top[CLS] - bottom());
    assert_int_equal(done, hak_max(s->in, s->out));
    assert_int_equal(n, N + s->in - s->out);
    assert_int_equal(sum_of(bottom() + 1, n) + sum_of(popped, s->out) + others_took,
                     N * (N + 1) / 2 + others_put + sum_of(pushed, s->in));
}

/* Runs a sequence unknown to the kernel: the area of an unregistered thread names CPU 0. */
static uint32_t run_alone(const struct sequence *s)
{
    ptrdiff_t distance = hak_rseq_distance;
    int32_t number = hak_rseq_none[1];
    struct hak_arrays *first = hak_arrays_of[HAK_CPUS_UNREAL];
    typedef volatile uint64_t __attribute__((may_alias)) word;
    *(word *)&hak_rseq_none[HAK_RSEQ_CS / 4] = 0; /* in one store: a single step may come between several */
    memset(&hak_rseq_none, 0, sizeof hak_rseq_none);
    hak_arrays_of[HAK_CPUS_UNREAL] = arrays;
    hak_rseq_set_distance(0);
    uint32_t done = s->run();
    hak_rseq_set_distance(distance);
    hak_arrays_of[HAK_CPUS_UNREAL] = first;
    hak_rseq_none[1] = number;
    return done;
}

/* This one also runs without rseq. */
TEST(each_sequence_moves_the_blocks_that_it_says)
{
    unit_init(NULL);
    if (!HAK_SEQUENCES)
        skip();
    arrays = hak_arrays_new();
    for (size_t i = 0; i < COUNT(sequences); i++) {
        fill();
        account(&sequences[i], run_alone(&sequences[i]), 0, 0);
        assert_ptr_equal(*arrays->top[CLS],
                         sequences[i].in ? pushed[sequences[i].in - 1] : bottom()[N - sequences[i].out]);
    }
    assert_ptr_equal(popped[0], N);
    assert_ptr_equal(popped[2], N - 2);
}

#if defined(__x86_64__) && !HAK_SANITIZED /* their code runs in handlers */
/* --- each restart point ----------------------------------------------------------------------------------- */

static struct {
    uint32_t version, flags;
    uint64_t start, length, abort;
} *volatile descriptor;
static uintptr_t points[64];
static unsigned point_count;

static void note_point(int signal, siginfo_t *info, void *context)
{
    uintptr_t at = (uintptr_t)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
    (void)signal, (void)info;
    memcpy((void *)&descriptor, &hak_rseq_none[HAK_RSEQ_CS / 4], sizeof descriptor);
    if (!descriptor || at - descriptor->start >= descriptor->length)
        return;
    for (unsigned i = 0; i < point_count; i++)
        if (points[i] == at)
            return;
    assert_true(point_count < COUNT(points));
    points[point_count++] = at;
}

static void on_signal(int signal, void (*handler)(int, siginfo_t *, void *))
{
    struct sigaction action = {.sa_flags = SA_SIGINFO | SA_RESTART};
    action.sa_sigaction = handler;
    sigaction(signal, &action, NULL);
}

/* Finds the first byte of each instruction of the sequence by single steps. */
static void find_points(const struct sequence *s)
{
    point_count = 0;
    fill();
    on_signal(SIGTRAP, note_point);
    __asm__ volatile("pushfq\n orq $0x100, (%%rsp)\n popfq" ::: "memory", "cc");
    run_alone(s);
    __asm__ volatile("pushfq\n andq $~0x100, (%%rsp)\n popfq" ::: "memory", "cc");
}

static unsigned char replaced;
static volatile unsigned hits;
static void *taken;

static void set_byte(uintptr_t at, unsigned char byte)
{
    *(volatile unsigned char *)at = byte;
}

/* Does what another thread on the CPU may do: takes a block, and returns one. */
static void interfere(int signal, siginfo_t *info, void *context)
{
    uintptr_t back = (uintptr_t)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
    (void)signal, (void)info;
    set_byte(points[hits >> 16], replaced);
    assert_int_equal(back, descriptor->abort);
    taken = hak_rseq_pop(CLS);
    assert_true(hak_rseq_push(CLS, (void *)0x9000));
    hits++;
}

static void interrupt(const struct sequence *s, unsigned point)
{
    fill();
    hits = point << 16;
    replaced = *(unsigned char *)points[point];
    set_byte(points[point], 0xcc);
    const struct sequence nothing = {NULL, 0, 0, false};
    uint32_t done = s->run();
    assert_int_equal(hits, (point << 16) + 1);
    account(s->restarts ? s : &nothing, done, (uintptr_t)taken, 0x9000);
}

TEST(a_sequence_moves_all_its_blocks_or_none_wherever_it_is_interrupted)
{
    start_with_sequences();
    move_to(nth_cpu(0));
    void *p = hak_malloc(64); /* the CPU then has a heap */
    arrays = hak_arrays_new();
    for (size_t i = 0; i < COUNT(sequences); i++) {
        find_points(&sequences[i]);
        assert_in_range(point_count, 5, COUNT(points));
        uintptr_t page = points[0] & ~(uintptr_t)4095;
        assert_int_equal(mprotect((void *)page, 2 * 4096, PROT_READ | PROT_WRITE | PROT_EXEC), 0);
        struct hak_arrays *own = hak_arrays_of[HAK_CPUS_UNREAL + nth_cpu(0)];
        hak_arrays_open(nth_cpu(0), arrays);
        on_signal(SIGTRAP, interfere);
        for (unsigned k = 0; k < point_count; k++)
            interrupt(&sequences[i], k);
        hak_arrays_open(nth_cpu(0), own);
    }
    hak_free(p);
}
#endif

#if !HAK_SANITIZED
/* --- at each instruction ----------------------------------------------------------------------------------- */

enum { STEPS_OF_A_PAIR = 5000 };

static HAK_NOINLINE void pairs(void)
{
    for (unsigned i = 0; i < 20; i++)
        hak_free(hak_malloc(64));
}

/* The number of instructions; at most `most`. */
static unsigned long count_steps(pid_t child, unsigned long most)
{
    int status;
    for (unsigned long steps = 0; steps < most; steps++) {
        if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status) || ptrace(PTRACE_SINGLESTEP, child, NULL, NULL))
            return steps;
    }
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    return most;
}

/* Each trap aborts the sequence, so none ever commits. */
TEST(pairs_end_while_each_instruction_is_interrupted)
{
    start_with_sequences();
    pairs();
    pid_t child = fork();
    if (!child) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
            _exit(1);
        raise(SIGSTOP);
        pairs();
        _exit(0);
    }
    unsigned long steps = count_steps(child, 20 * STEPS_OF_A_PAIR);
    print_message("%lu steps\n", steps);
    assert_true(steps < 20 * STEPS_OF_A_PAIR);
}
#endif

/* --- at any time ------------------------------------------------------------------------------------------ */

enum { SLOTS = 400 };

/* Marks each block as its own, and checks that no other thread wrote to it. */
static void work(uint64_t seed, unsigned rounds, unsigned moves_every)
{
    struct {
        uint64_t *block;
        size_t words;
    } slots[SLOTS] = {{0}};
    for (unsigned i = 0; i < rounds; i++) {
        size_t at = unit_random(&seed) % SLOTS;
        if (moves_every && i % moves_every == 0)
            move_to(nth_cpu((unsigned)unit_random(&seed)));
        for (size_t w = 0; w < slots[at].words; w++)
            if (slots[at].block[w] != (uintptr_t)&slots[at] + w)
                fail_msg("block %p of %zu words: word %zu is %lx", (void *)slots[at].block, slots[at].words, w,
                         (unsigned long)slots[at].block[w]);
        hak_free(slots[at].block);
        slots[at].words = 2 + unit_random(&seed) % (i % 16 ? 30 : 500);
        slots[at].block = hak_malloc(slots[at].words * sizeof(uint64_t));
        for (size_t w = 0; w < slots[at].words; w++)
            slots[at].block[w] = (uintptr_t)&slots[at] + w;
    }
    for (size_t at = 0; at < SLOTS; at++)
        hak_free(slots[at].block);
}

static void expect_nothing_held(void)
{
    hak_cpu_heaps_dissolve(UINT64_MAX);
    hak_purge_all(0);
    assert_int_equal(unit_census().used, 0);
}

static _Atomic(bool) stop;
static volatile unsigned storms;

static void count_storm(int signal)
{
    (void)signal;
    storms++;
}

TEST(a_storm_of_signals_harms_no_block)
{
    start();
    struct itimerval often = {{0, 50}, {0, 50}}, never = {{0, 0}, {0, 0}};
    signal(SIGALRM, count_storm);
    setitimer(ITIMER_REAL, &often, NULL);
    for (unsigned i = 0; i < 100 && storms < 2000; i++)
        work(i, 20000, 0);
    setitimer(ITIMER_REAL, &never, NULL);
    assert_true(storms > 10);
    expect_nothing_held();
}

/* --- what belongs to whom --------------------------------------------------------------------------------- */

static void *free_list(void *list)
{
    unit_free_blocks(list);
    return NULL;
}

TEST(however_many_threads_there_are_heaps_are_those_of_processors)
{
    start();
    for (unsigned i = 0; i < 50; i++)
        unit_join(unit_begin_light(free_list, unit_blocks(64, 100)));
    assert_in_range(unit_stat("threads", "cpus"), 1, hak_self.light ? (unsigned)CPU_COUNT(&allowed) : 16);
    assert_int_equal(unit_stat("threads", "live"), 0);
    assert_null(hak_self.heap);
}

TEST(what_another_processor_frees_goes_home)
{
    start_with_sequences();
    if (CPU_COUNT(&allowed) < 2)
        skip();
    move_to(nth_cpu(0));
    struct unit_block *blocks = unit_blocks(64, 5000);
    move_to(nth_cpu(1));
    unit_free_blocks(blocks);
    struct hak_heaps_totals counted = unit_totals();
    assert_true(counted.counters.remote_blocks);
    assert_int_equal(counted.counters.reclaimed, 0); /* FULL slabs stay those of the first one */
    expect_nothing_held();
}

/* The clock of this test is late, so that the heap's own maintenance steps come before it. */
static uint64_t now_ms = UINT64_C(1) << 40;

TEST(scans_empty_the_arrays_and_slabs_of_a_processor_in_use)
{
    start();
    move_to(nth_cpu(0));
    unit_free_blocks(unit_blocks(64, 1000));
    size_t before = hak_figure_bins();
    assert_true(before > 0);
    for (unsigned i = 0; i < 16 * HAK_NCLASSES; i++) {
        now_ms += hak_max(1, hak_options.purge_delay_ms / HAK_NCLASSES);
        hak_cpu_heap_scan(now_ms);
        hak_cpu_heaps_dissolve(now_ms - 1); /* finds no idle CPU */
        assert_true(i >= HAK_NCLASSES || hak_figure_bins() >= before / 5);
    }
    assert_int_equal(hak_figure_bins(), 0);
    assert_int_equal(unit_census().used, 0);
    assert_int_equal(unit_totals().active_slabs, 0);
    unit_free_blocks(unit_blocks(64, 1000)); /* and is served again */
}

TEST(a_processor_that_nobody_is_seen_on_keeps_nothing)
{
    start();
    move_to(nth_cpu(0));
    unit_free_blocks(unit_blocks(64, 1000));
    hak_cpu_heap_scan(now_ms);
    hak_cpu_heaps_dissolve(now_ms - 1); /* seen since */
    assert_true(hak_figure_bins() > 0);
    hak_cpu_heaps_dissolve(now_ms);
    assert_int_equal(hak_figure_bins(), 0);
    assert_int_equal(unit_census().used, 0);
    unit_free_blocks(unit_blocks(64, 1000)); /* and is served again */
}

/* An array serves all pairs but the first. */
static void expect_fast_pairs(void)
{
    hak_free(hak_malloc(64));
    uint64_t before = unit_stat("bins", "refills");
    for (unsigned i = 0; i < 1000; i++)
        hak_free(hak_malloc(64));
    assert_int_equal(unit_stat("bins", "refills"), before);
}

TEST(each_id_of_a_cpu_has_a_heap_whatever_its_number)
{
    static const int32_t ids[] = {1023, 0, 64, 63, 500};
    mask_bytes = HAK_CPUS / 8;
    start_with_sequences();
    move_to(nth_cpu(0));
    ptrdiff_t distance = hak_rseq_distance;
    for (unsigned i = 0; i < COUNT(ids); i++) {
        uint64_t before = unit_stat("threads", "cpus");
        hak_rseq_none[1] = ids[i];
        hak_rseq_set_distance(0);
        expect_fast_pairs();
        assert_in_range(unit_stat("threads", "cpus"), ids[i] > 1 ? before + 1 : before, before + 1);
    }
    expect_nothing_held(); /* also of CPUs that are offline, or never were */
    hak_rseq_set_distance(distance);
}

TEST(with_ids_beyond_the_table_there_are_no_sequences)
{
    mask_bytes = -EINVAL; /* the kernel's masks are longer */
    start();
    hak_free(hak_malloc(64));
    assert_false(hak_self.light);
    assert_int_equal(unit_stat("threads", "cpus"), 1);
}

static void *without_registration(void *unused)
{
    char *area = (char *)hak_rseq_none + hak_rseq_distance;
    if (syscall(SYS_rseq, area, 32, 1 /* RSEQ_FLAG_UNREGISTER */, 0x53053053))
        return unused; /* aarch64 has another signature */
    assert_true(hak_rseq_cpu() < 0);
    work(3, 20000, 0);
    return unused;
}

TEST(a_thread_that_the_kernel_does_not_know_is_served)
{
    start_with_sequences();
    unit_join(unit_begin_light(without_registration, NULL));
    expect_nothing_held();
}

static int work_on_each_cpu(void)
{
    for (unsigned cpu = 0; cpu < (unsigned)CPU_COUNT(&allowed); cpu++) {
        move_to(nth_cpu(cpu));
        work(cpu, 5000, 0);
        hak_cpu_heaps_dissolve(UINT64_MAX);
        hak_purge_all(0);
    }
    return unit_census().violations != 0;
}

static void *take_away(void *unused)
{
    while (!HAK_LOAD_RELAXED(&stop)) {
        hak_cpu_heaps_dissolve(UINT64_MAX);
        sched_yield();
    }
    return unused;
}

static void *fork_in_midst(void *unused)
{
    for (unsigned i = 0; i < 20; i++)
        unit_in_child(work_on_each_cpu);
    HAK_STORE_RELAXED(&stop, true);
    return unused;
}

static void *work_until_stopped(void *seed)
{
    for (uintptr_t i = (uintptr_t)seed; !HAK_LOAD_RELAXED(&stop); i += 2)
        work(i, 2000, 100);
    return NULL;
}

TEST(threads_and_forked_children_go_on_while_others_take_blocks_away)
{
    start();
    pthread_t threads[] = {unit_begin_light(work_until_stopped, (void *)1),
                           unit_begin_light(work_until_stopped, (void *)2), unit_begin_light(fork_in_midst, NULL),
                           unit_begin_light(take_away, NULL)};
    for (unsigned i = 0; i < COUNT(threads); i++)
        unit_join(threads[i]);
    expect_nothing_held();
}

static _Atomic(bool) is_inside;

static void *enter_elsewhere(void *unused)
{
    move_to(nth_cpu(1));
    struct hak_heap *heap = hak_heap_enter();
    HAK_STORE_RELAXED(&is_inside, true);
    hak_heap_leave(heap);
    return unused;
}

/* A fork handler makes this heap: no other thread may enter it before the fork is over. */
TEST(a_heap_that_is_made_during_a_fork_is_locked)
{
    start();
    move_to(nth_cpu(0));
    hak_free(hak_malloc(64));
    if (!hak_self.light || CPU_COUNT(&allowed) < 2)
        skip();
    assert_int_equal(unit_stat("threads", "cpus"), 1);
    hak_cpu_heaps_lock();
    hak_lock_own_all();
    move_to(nth_cpu(1));
    hak_free(hak_malloc(64));
    move_to(nth_cpu(0));
    assert_int_equal(unit_stat("threads", "cpus"), 2);
    pthread_t thread = unit_begin_light(enter_elsewhere, NULL);
    usleep(100000);
    bool inside = HAK_LOAD_RELAXED(&is_inside);
    hak_lock_disown_all();
    hak_cpu_heaps_unlock();
    unit_join(thread);
    assert_false(inside);
    assert_true(is_inside);
    expect_nothing_held();
}
