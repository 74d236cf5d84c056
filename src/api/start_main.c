/* SPDX-License-Identifier: MIT
 * When main is called. The C library runs the program's constructors and main in __libc_start_main; a shared
 * library that comes before it, preloaded or linked, is called in its place, and hands main on in a wrapper. That
 * is in the shared library only, and only where it stands before malloc too. */
#include <dlfcn.h>

#include "core/log.h"
#include "hakmem.h"

typedef int main_function(int argc, char **argv, char **environment);
typedef int start_function(main_function *main, int argc, char **argv, void (*init)(void), void (*fini)(void),
                           void (*loader_fini)(void), void *stack_end);

start_function __libc_start_main __attribute__((visibility("default")));
static main_function *program_main;

static int call_main(int argc, char **argv, char **environment)
{
    hakmem_main_called();
    return program_main(argc, argv, environment);
}

int __libc_start_main(main_function *main, int argc, char **argv, void (*init)(void), void (*fini)(void),
                      void (*loader_fini)(void), void *stack_end)
{
    start_function *next = (start_function *)dlsym(RTLD_NEXT, "__libc_start_main");
    if (!next)
        hak_log_fatal("no __libc_start_main behind this one");
    program_main = main;
    return next(call_main, argc, argv, init, fini, loader_fini, stack_end);
}
