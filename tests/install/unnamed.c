/* SPDX-License-Identifier: MIT
 * A program that calls no function of hakmem by its name: its memory comes by the C library, in C++ by operator new. A
 * linker that drops unreferenced libraries (--as-needed), or reads the archive before malloc is referenced, must not
 * lose hakmem. HAKMEM_VERBOSE=1 shows which allocator serves it.
 */
#ifdef __cplusplus
#include <string>

int main(int, char **argv)
{
    std::string *name = new std::string(argv[0]);
    bool empty = name->empty();
    delete name;
    return empty;
}
#else
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    char *name = strdup(argv[argc - 1]);
    return !name || puts(name) < 0;
}
#endif
