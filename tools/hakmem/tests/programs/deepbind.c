/* SPDX-License-Identifier: MIT
 * Loads the object that is its first argument with RTLD_DEEPBIND, or, with a
 * second argument, into a linker namespace of its own, and lets it allocate. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

int main(int count, char **words)
{
    void *object = count > 2 ? dlmopen(LM_ID_NEWLM, words[1], RTLD_NOW) : dlopen(words[1], RTLD_NOW | RTLD_DEEPBIND);
    if (!object) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    void (*plug)(void) = (void (*)(void))dlsym(object, "plug");
    plug();
    return 0;
}
