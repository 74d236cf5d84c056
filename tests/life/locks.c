/* SPDX-License-Identifier: MIT
 * malloc and free from inside of the C library's own critical sections: where it holds the lock of its cached stacks,
 * of its loader, its thread-local storage, its list of streams, its locales, environment or exit handlers. The C
 * library makes some of these calls itself; others come from callbacks of the program. */
#include <dlfcn.h>
#include <iconv.h>
#include <limits.h>
#include <link.h>
#include <locale.h>
#include <time.h>

#include "cases.h"

enum { COPIES = 24 /* more than fit into a thread's initial table */, SLEEPERS = 1000 };

typedef void *body(void *);

static _Atomic(bool) over;

static void traffic(void)
{
    static _Atomic(unsigned) seed;
    life_traffic(20, atomic_fetch_add(&seed, 1));
}

static pthread_t thread(body *run)
{
    pthread_t t;
    if (pthread_create(&t, NULL, run, NULL))
        die("no thread");
    return t;
}

static void join(pthread_t t)
{
    if (pthread_join(t, NULL))
        die("no join");
}

/* Waits until the main thread is done. */
static void beside(body *const *bodies, unsigned threads, void (*part)(unsigned), unsigned count)
{
    pthread_t t[8];
    for (unsigned i = 0; i < threads; i++)
        t[i] = thread(bodies[i]);
    part(count);
    atomic_store(&over, true);
    for (unsigned i = 0; i < threads; i++)
        join(t[i]);
}

/* --- opening and closing libraries----------------------------------------------------------------------------- */

struct opened {
    void *handle;
    void (*touch)(void);
};

static char copies[COPIES][PATH_MAX];
static struct opened kept[COPIES];

static void copy_file(const char *from, const char *to)
{
    char buffer[8192];
    FILE *in = fopen(from, "r"), *out = fopen(to, "w");
    if (!in || !out)
        die("%s cannot be copied to %s", from, to);
    for (size_t n; (n = fread(buffer, 1, sizeof buffer, in)) > 0;)
        if (fwrite(buffer, 1, n, out) != n)
            die("%s cannot be written", to);
    fclose(in);
    fclose(out);
}

/* The loader treats each as a separate library. */
static void make_copies(void)
{
    char folder[] = "/tmp/life.XXXXXX", self[PATH_MAX - 64] = "", from[PATH_MAX];
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0 || !mkdtemp(folder))
        die("no folder");
    *strrchr(self, '/') = 0;
    snprintf(from, sizeof from, "%s/liblife_tls.so", self);
    for (unsigned i = 0; i < COPIES; i++) {
        snprintf(copies[i], sizeof copies[i], "%s/%u.so", folder, i);
        copy_file(from, copies[i]);
    }
}

static void drop_copies(void)
{
    for (unsigned i = 0; i < COPIES; i++)
        unlink(copies[i]);
    *strrchr(copies[0], '/') = 0;
    rmdir(copies[0]);
}

static struct opened open_copy(unsigned i)
{
    struct opened o = {dlopen(copies[i], RTLD_NOW), NULL};
    if (!o.handle)
        die("%s", dlerror());
    *(void **)&o.touch = dlsym(o.handle, "life_tls_touch");
    return o;
}

static void open_all(void)
{
    for (unsigned i = 0; i < COPIES; i++)
        kept[i] = open_copy(i);
}

static void close_all(void)
{
    for (unsigned i = 0; i < COPIES; i++)
        dlclose(kept[i].handle);
}

static void touch_all(void)
{
    for (unsigned i = 0; i < COPIES; i++)
        kept[i].touch();
}

/* --- cached stacks --------------------------------------------------------------------------------------------- */

/* Called by the C++ runtime for thread_local objects. */
extern int __cxa_thread_atexit_impl(void (*)(void *), void *, void *);
extern void *__dso_handle;

static void end_object(void *unused)
{
    (void)unused;
    traffic();
}

static void *sleep_long(void *unused)
{
    usleep(300000); /* so that all of them are there at once: the C library keeps few of their stacks */
    return unused;
}

static void sleepers(unsigned count)
{
    static pthread_t t[SLEEPERS];
    for (unsigned i = 0; i < count; i++) {
        unsigned n = 0;
        while (n < SLEEPERS && !pthread_create(&t[n], NULL, sleep_long, NULL)) /* or as many as the system allows */
            n++;
        while (n)
            join(t[--n]);
    }
}

static void *live_short(void *unused)
{
    __cxa_thread_atexit_impl(end_object, NULL, &__dso_handle);
    touch_all();
    traffic();
    usleep(1000); /* so that there are many at once */
    return unused;
}

static void come_and_go(unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        pthread_t t[16];
        for (unsigned n = 0; n < COUNT(t); n++)
            t[n] = thread(live_short);
        for (unsigned n = 0; n < COUNT(t); n++)
            join(t[n]);
    }
}

static void *others_come_and_go(void *unused)
{
    while (!atomic_load(&over))
        come_and_go(1);
    return unused;
}

static void with_copies(body *const *bodies, unsigned threads, void (*part)(unsigned), unsigned count)
{
    make_copies();
    open_all();
    beside(bodies, threads, part, count);
    close_all();
    drop_copies();
}

static void in_stacks(unsigned count)
{
    with_copies((body *const[]){others_come_and_go, others_come_and_go}, 2, come_and_go, count);
}

/* --- the loader, and thread-local storage ---------------------------------------------------------------------- */

static int visit(struct dl_phdr_info *info, size_t size, void *unused)
{
    (void)info, (void)size, (void)unused;
    traffic();
    return 1; /* enough */
}

static void *visit_all(void *unused)
{
    while (!atomic_load(&over))
        if (dl_iterate_phdr(visit, NULL))
            usleep(500); /* or the lock is never free for long */
    return unused;
}

static char twice[PATH_MAX + 8];

static void open_and_close(unsigned count)
{
    snprintf(twice, sizeof twice, "%.*s/again", (int)(strrchr(copies[0], '/') - copies[0]), copies[0]);
    copy_file(copies[0], twice);
    for (unsigned i = 0; i < count; i++) {
        void *handle = dlopen(twice, i % 2 ? RTLD_LAZY : RTLD_NOW);
        if (!handle || dlsym(handle, "no_such_name"))
            die("%s", dlerror());
        free(strdup(dlerror()));
        dlclose(handle);
    }
    unlink(twice);
}

static void in_loader(unsigned count)
{
    with_copies((body *const[]){visit_all, others_come_and_go}, 2, open_and_close, count);
}

static _Atomic(unsigned) asked, answered;

/* A thread that is older than the libraries whose storage it touches. */
static void *touch_when_asked(void *unused)
{
    for (unsigned n = 0; !atomic_load(&over); usleep(100))
        if (atomic_load(&asked) != n) {
            n = atomic_load(&asked);
            touch_all();
            traffic();
            atomic_store(&answered, n);
        }
    return unused;
}

static void open_and_touch(unsigned count)
{
    for (unsigned i = 1; i <= count; i++) {
        open_all();
        atomic_store(&asked, i);
        come_and_go(2);
        while (atomic_load(&answered) != i)
            usleep(100);
        close_all();
    }
}

static void in_tls(unsigned count)
{
    make_copies();
    beside((body *const[]){touch_when_asked}, 1, open_and_touch, count);
    drop_copies();
}

/* --- streams --------------------------------------------------------------------------------------------------- */

static ssize_t write_busily(void *unused, const char *bytes, size_t size)
{
    (void)unused, (void)bytes;
    traffic();
    return (ssize_t)size;
}

static FILE *busy_stream(void)
{
    FILE *f = fopencookie(NULL, "w", (cookie_io_functions_t){.write = write_busily});
    if (!f)
        die("no stream");
    fputs("text", f);
    return f;
}

static void *flush_all(void *unused)
{
    while (!atomic_load(&over)) {
        FILE *f = busy_stream();
        fflush(NULL); /* with the list locked */
        fputs("more", f);
        fclose(f);
    }
    return unused;
}

static void fork_and_flush(unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        FILE *f = busy_stream();
        pid_t child = fork();
        if (child == 0) {
            fclose(busy_stream());
            fflush(f);
            exit(0);
        }
        expect_success(child, "a child that flushes");
        fclose(f);
    }
}

static void in_streams(unsigned count)
{
    beside((body *const[]){flush_all, flush_all}, 2, fork_and_flush, count);
}

/* --- locales, environment, time zone, conversions ---------------------------------------------------------------- */

static void *make_locales(void *unused)
{
    while (!atomic_load(&over)) {
        locale_t l = newlocale(LC_ALL_MASK, "C.UTF-8", NULL), other = l ? duplocale(l) : NULL;
        iconv_t c = iconv_open("UTF-16", "ISO-8859-1");
        traffic();
        if (c != (iconv_t)-1)
            iconv_close(c);
        if (other)
            freelocale(other);
        if (l)
            freelocale(l);
    }
    return unused;
}

static void set_locales(unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        setlocale(LC_ALL, "C");
        setlocale(LC_CTYPE, "C.UTF-8");
        free(strdup(setlocale(LC_ALL, NULL)));
        traffic();
    }
}

static void *live_quiet(void *unused)
{
    traffic();
    return unused;
}

static void *start_quiet(void *unused)
{
    while (!atomic_load(&over))
        join(thread(live_quiet));
    return unused;
}

static void set_variables(unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        char name[32], zone[32];
        snprintf(name, sizeof name, "LIFE_%u", i % 100);
        snprintf(zone, sizeof zone, "LIF%u", i % 20);
        setenv(name, zone, 1);
        setenv("TZ", zone, 1);
        tzset();
        traffic();
        if (i % 100 == 99)
            unsetenv(name);
    }
}

static void in_names(unsigned count)
{
    beside((body *const[]){make_locales, make_locales, start_quiet}, 3, set_locales, count);
    atomic_store(&over, false);
    beside((body *const[]){start_quiet}, 1, set_variables, count); /* no thread reads the environment meanwhile */
}

/* --- exit handlers ------------------------------------------------------------------------------------------------ */

static _Atomic(unsigned) left;

static void at_end(void)
{
    traffic();
    if (atomic_fetch_sub(&left, 1) < 100) /* there are enough */
        atexit(traffic);
}

static void at_end_with(int status, void *block)
{
    (void)status;
    free(block);
    traffic();
}

static void *register_handlers(void *unused)
{
    for (unsigned i = 0; i < 100; i++) {
        atexit(at_end);
        at_quick_exit(traffic);
        on_exit(at_end_with, malloc(100));
        traffic();
    }
    return unused;
}

static void register_many(unsigned count)
{
    atomic_store(&left, 300);
    for (unsigned i = 0; i < count; i++)
        register_handlers(NULL);
}

/* The process itself ends in the same way as its children. */
static void in_exit(unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        pid_t child = fork();
        if (child == 0) {
            beside((body *const[]){register_handlers, register_handlers}, 2, register_many, 1);
            if (i % 2)
                quick_exit(0);
            exit(0);
        }
        expect_success(child, "a child with exit handlers");
    }
    register_many(1);
    life_start_busy(2);
}

const struct life_case life_locks[] = {
    {"sleepers", sleepers, 1},      {"in_stacks", in_stacks, 10}, {"in_loader", in_loader, 300}, {"in_tls", in_tls, 5},
    {"in_streams", in_streams, 15}, {"in_names", in_names, 200},  {"in_exit", in_exit, 4},       {0},
};
