/* SPDX-License-Identifier: MIT
 * opens NAME: opens a library with RTLD_DEEPBIND by its bare name, which the C library finds by the run path of the
 * caller alone, so dlopen must know its caller; then blocks pass both ways. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    void *library = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_DEEPBIND) : NULL;
    if (!library) {
        fprintf(stderr, "%s\n", argc == 2 ? dlerror() : "usage: opens NAME");
        return 1;
    }
    char *(*exchange)(char *) = (char *(*)(char *))dlsym(library, "opened_exchange");
    for (unsigned i = 0; i < 1000; i++) {
        char *text = exchange(strdup("from the program"));
        if (strcmp(text, "from the library") != 0)
            return 2;
        free(text);
    }
    return 0;
}
