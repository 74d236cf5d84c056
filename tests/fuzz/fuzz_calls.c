/* SPDX-License-Identifier: MIT
 * libFuzzer's entry for programs of calls (program.h). Each runs twice: here, with the backend that the environment
 * names, and in a second process with `legacy`, the plain reference; both must give the same answers. */
#include <errno.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "hakmem.h"
#include "program.h"
#include "shadow.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

#define PATIENCE 60 /* seconds that the reference may take */

/* Shared by both processes. */
static struct shared {
    sem_t asked, answered;
    size_t size;
    uint8_t bytes[FUZZ_INPUT_MAX];
    struct fuzz_trace trace;
} * shared;
static pid_t reference;

static _Noreturn void serve(void)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setenv("HAKMEM_BACKEND", "legacy", 1);
    fuzz_start();
    for (;;) {
        while (sem_wait(&shared->asked))
            ;
        fuzz_run(shared->bytes, shared->size, &shared->trace);
        sem_post(&shared->answered);
    }
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED || sem_init(&shared->asked, 1, 0) || sem_init(&shared->answered, 1, 0))
        stress_fail("fuzz: no shared memory");
    reference = HAVE_REFERENCE ? fork() : -1;
    if (reference == 0)
        serve();
    fuzz_start();
    return 0;
}

static void await_reference(void)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE;
    while (sem_timedwait(&shared->answered, &until)) {
        if (errno == EINTR)
            continue;
        int status = 0;
        pid_t ended = waitpid(reference, &status, WNOHANG);
        stress_fail("fuzz: the reference %s", ended == reference ? "died" : "hangs");
    }
}

static void compare(const struct fuzz_trace *mine, const struct fuzz_trace *theirs)
{
    for (size_t i = 0; i < mine->length && i < theirs->length; i++)
        if (memcmp(&mine->answers[i], &theirs->answers[i], sizeof mine->answers[i]))
            stress_fail("fuzz: answer %zu: given %u, usable %u; the reference: given %u, usable %u", i,
                        mine->answers[i].given, mine->answers[i].usable, theirs->answers[i].given,
                        theirs->answers[i].usable);
    if (mine->length != theirs->length)
        stress_fail("fuzz: %zu answers; the reference: %zu", mine->length, theirs->length);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static struct fuzz_trace trace;
    if (size > FUZZ_INPUT_MAX)
        return -1;
    if (reference > 0) {
        memcpy(shared->bytes, bytes, size);
        shared->size = size;
        sem_post(&shared->asked);
    }
    int comparable = fuzz_run(bytes, size, &trace);
    if (reference > 0) {
        await_reference();
        if (comparable)
            compare(&trace, &shared->trace);
    }
    return 0;
}
