/* SPDX-License-Identifier: MIT
 * The interface between a model and the checker. A model is a shared object of the library's own source files,
 * compiled with -fsanitize=thread, whose calls the checker answers, and of one file that says what each thread does. */
#ifndef TESTS_MODELS_CHECKER_H
#define TESTS_MODELS_CHECKER_H

#include <stddef.h>

#define MODEL_THREADS 4

struct model {
    const char *name;
    unsigned threads;
    void (*setup)(void);             /* alone, before the threads */
    void (*thread)(unsigned number); /* each of them */
    void (*check)(void);             /* alone, after them */
    unsigned outcomes;               /* so many must have been reached by some run: model_reached(0), (1), ... */
};

/* In each model's file; ends with one that has no name. */
extern const struct model models[];

/* Fails: prints the schedule that led here, and stops the process. */
_Noreturn void model_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
#define MODEL_CHECK(x) ((x) ? (void)0 : model_fail("%s:%d: not so: %s", __FILE__, __LINE__, #x))
/* Declares memory outside of the object whose accesses count, too. Its content is the same in each run only if setup
 * resets it. */
void model_track(void *from, size_t size);
/* An access that the compiler does not report. */
void model_access(const void *from, size_t size, int writes);
/* The kernel's futex, in models that use it; it orders nothing. The thread sleeps if the word still holds the value,
 * until it is woken. True: it timed out. Time passes if no other thread can continue, and once in a run at any other
 * moment. */
int model_sleep(const void *word, unsigned value, int timed);
/* Wakes one thread that sleeps on the word, if there is any. */
void model_wake(const void *word);
/* Whether a thread sleeps, or waits for a lock, as others can see it. */
int model_is_waiting(unsigned thread);
/* Records an outcome of the model's list: if no run reaches it, the model shows less than it seems to. */
void model_reached(unsigned outcome);

#endif
