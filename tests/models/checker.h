/* SPDX-License-Identifier: MIT
 * What a model tells the checker, and may ask of it. A model is a shared object of the library's own source files,
 * compiled with -fsanitize=thread, whose calls the checker answers, and of one file that says who does what. */
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

/* This cannot be: the schedule that led here is printed, and the process stops. */
_Noreturn void model_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
#define MODEL_CHECK(x) ((x) ? (void)0 : model_fail("%s:%d: not so: %s", __FILE__, __LINE__, #x))
/* Memory outside of the object whose accesses count, too. Its content is the same in each run only if setup says so. */
void model_track(void *from, size_t size);
/* An access that the compiler does not report. */
void model_access(const void *from, size_t size, int writes);
/* The kernel's futex, where a model has it; none of this orders anything. The thread sleeps if the word still holds the
 * value, until it is woken. True: a timed one that took too long. Time passes where no other thread can go on, and once
 * in a run at any other moment. */
int model_sleep(const void *word, unsigned value, int timed);
/* One thread that sleeps on the word, if there is any. */
void model_wake(const void *word);
/* Whether a thread sleeps, or waits for a lock, as others can see it. */
int model_is_waiting(unsigned thread);
/* An outcome of the model's list has come about: a model whose runs all miss one shows less than it seems to. */
void model_reached(unsigned outcome);

#endif
