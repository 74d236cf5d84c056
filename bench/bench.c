/* SPDX-License-Identifier: MIT */
/*
 * The shared part of the benchmark programs, see bench.h.
 * Owns argument errors (exit code 2), the start line of the threads and the result line.
 */
#include "bench.h"

#include "allocator.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* stdio would allocate its buffer from the allocator under test. */
static void write_all(int fd, const char *text, size_t length)
{
    while (length > 0) {
        ssize_t done = write(fd, text, length);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return;
        text += done;
        length -= (size_t)done;
    }
}

/* Appends to a line of fixed size; truncates what does not fit. */
struct line {
    char text[2048];
    size_t length;
};

static void append_v(struct line *line, const char *fmt, va_list args)
{
    size_t room = sizeof line->text - line->length;
    int wanted = vsnprintf(line->text + line->length, room, fmt, args);
    if (wanted > 0)
        line->length += (size_t)wanted < room ? (size_t)wanted : room - 1;
}

BENCH_PRINTF(2, 3) static void append(struct line *line, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    append_v(line, fmt, args);
    va_end(args);
}

static void end_line(struct line *line, int fd)
{
    if (line->length > sizeof line->text - 2)
        line->length = sizeof line->text - 2;
    line->text[line->length++] = '\n';
    write_all(fd, line->text, line->length);
}

static const char *program_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* _exit, since any thread may call this while the others still run. */
_Noreturn static void end_with_message(int code, const char *fmt, va_list args)
{
    struct line line = {.length = 0};
    append(&line, "%s: ", program_name(program_invocation_name));
    append_v(&line, fmt, args);
    end_line(&line, STDERR_FILENO);
    _exit(code);
}

_Noreturn void bench_die(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    end_with_message(1, fmt, args);
}

_Noreturn void bench_usage_error(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    end_with_message(2, fmt, args);
}

static void append_param(struct line *line, const struct bench_param *param)
{
    if (!param->choices) {
        append(line, " [%s=%llu]", param->name, (unsigned long long)param->value);
        return;
    }
    append(line, " [%s=%s]", param->name, param->choices);
}

_Noreturn static void print_usage(char **argv, const struct bench_param *params, size_t count)
{
    struct line line = {.length = 0};
    append(&line, "usage: %s", program_name(argv[0]));
    for (size_t i = 0; i < count; i++)
        append_param(&line, &params[i]);
    end_line(&line, STDOUT_FILENO);
    exit(0);
}

/* The reason why `text` is not a value of `param`, or NULL after storing it. */
static const char *read_number(const char *text, struct bench_param *param)
{
    if (text[0] < '0' || text[0] > '9')
        return "not a whole number";
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (*end)
        return "not a whole number";
    if (errno || value < param->min || value > param->max)
        return "out of range";
    param->value = value;
    return NULL;
}

static const char *read_choice(const char *text, struct bench_param *param)
{
    size_t length = strlen(text);
    uint64_t index = 0;
    for (const char *word = param->choices; word; index++) {
        size_t word_length = strcspn(word, "|");
        if (length == word_length && !strncmp(word, text, length)) {
            param->value = index;
            return NULL;
        }
        word = word[word_length] ? word + word_length + 1 : NULL;
    }
    return "unknown word";
}

_Noreturn static void reject(const char *text, const char *reason, const struct bench_param *param)
{
    if (param->choices)
        bench_usage_error("%s \"%s\": %s; use one of %s", param->name, text, reason, param->choices);
    bench_usage_error("%s \"%s\": %s; give a whole number from %llu to %llu", param->name, text, reason,
                      (unsigned long long)param->min, (unsigned long long)param->max);
}

bool bench_take_flag(int *argc, char **argv, const char *flag)
{
    if (*argc < 2 || strcmp(argv[1], flag) != 0)
        return false;
    for (int i = 1; i < *argc; i++)
        argv[i] = argv[i + 1];
    --*argc;
    return true;
}

void bench_parse(int argc, char **argv, struct bench_param *params, size_t count)
{
    if (argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")))
        print_usage(argv, params, count);
    for (int i = 1; i < argc; i++) {
        if ((size_t)i > count)
            bench_usage_error("\"%s\": one argument too many; give at most %zu, see --help", argv[i], count);
        struct bench_param *param = &params[i - 1];
        const char *reason = param->choices ? read_choice(argv[i], param) : read_number(argv[i], param);
        if (reason)
            reject(argv[i], reason, param);
    }
}

void **bench_slots(uint32_t n)
{
    void **slots = calloc(n, sizeof *slots);
    if (!slots)
        bench_die("no memory for %u slots; give a smaller WS", n);
    return slots;
}

void bench_free_slots(void **slots, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        free(slots[i]);
    free(slots);
}

static uint64_t read_clock(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t bench_now_ns(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

uint64_t bench_cpu_ns(void)
{
    return read_clock(CLOCK_PROCESS_CPUTIME_ID);
}

void bench_wait_ms(uint64_t ms)
{
    nanosleep(&(struct timespec){.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000}, NULL);
}

/* A field of /proc/self/status in KiB; 0 if it cannot be read. */
static uint64_t status_kib(const char *field)
{
    char text[4096];
    int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t length = read(fd, text, sizeof text - 1);
    close(fd);
    if (length <= 0)
        return 0;
    text[length] = '\0';
    const char *found = strstr(text, field);
    return found ? strtoull(found + strlen(field), NULL, 10) : 0;
}

uint64_t bench_rss_kib(void)
{
    return status_kib("\nVmRSS:");
}

uint64_t bench_peak_kib(void)
{
    return status_kib("\nVmHWM:");
}

pthread_t bench_start(void *(*fn)(void *), void *context)
{
    pthread_t thread;
    int error = pthread_create(&thread, NULL, fn, context);
    if (error)
        bench_die("no thread: %s; use fewer threads", strerror(error));
    return thread;
}

void *bench_map(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        bench_die("mmap of %zu bytes: %s; use a smaller working set", size, strerror(errno));
    return memory;
}

void bench_unmap(void *memory, size_t size)
{
    munmap(memory, size);
}

struct worker {
    void (*fn)(void *);
    void *context;
    pthread_barrier_t *start;
    uint64_t began;
};

static void *run_worker(void *arg)
{
    struct worker *worker = arg;
    pthread_barrier_wait(worker->start);
    worker->began = bench_now_ns();
    worker->fn(worker->context);
    return NULL;
}

uint64_t bench_run_threads(unsigned count, void (*fn)(void *), void *contexts, size_t stride)
{
    pthread_t threads[BENCH_MAX_THREADS];
    struct worker workers[BENCH_MAX_THREADS];
    pthread_barrier_t start;

    pthread_barrier_init(&start, NULL, count + 1);
    for (unsigned i = 0; i < count; i++) {
        workers[i] = (struct worker){fn, (char *)contexts + i * stride, &start, 0};
        int error = pthread_create(&threads[i], NULL, run_worker, &workers[i]);
        if (error)
            bench_die("thread %u of %u: %s; use fewer threads", i + 1, count, strerror(error));
    }
    pthread_barrier_wait(&start);
    /* The first worker to run took the time: this thread may wake long after that. */
    uint64_t begin = UINT64_MAX;
    for (unsigned i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
        if (workers[i].began < begin)
            begin = workers[i].began;
    }
    uint64_t end = bench_now_ns();
    pthread_barrier_destroy(&start);
    return end - begin;
}

void bench_report(const char *workload, uint64_t ops, uint64_t ns, const char *fmt, ...)
{
    struct line line = {.length = 0};
    double seconds = (double)ns / 1e9;

    append(&line, "%s ops=%llu seconds=%.6f mops=%.4g", workload, (unsigned long long)ops, seconds,
           ns ? (double)ops / seconds / 1e6 : 0.0);
    if (fmt[0]) {
        va_list args;
        append(&line, " ");
        va_start(args, fmt);
        append_v(&line, fmt, args);
        va_end(args);
    }
    struct allocator served = allocator_identify();
    append(&line, " allocator=%s version=%s object=%s", served.name, served.version, served.object);
    end_line(&line, STDOUT_FILENO);
}
