/* SPDX-License-Identifier: MIT
 * See identity.h. */
#include "identity.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

unsigned hak_identity(void)
{
    char name[64]; /* "pid:[4026531836]" */
    int saved = errno;
    long n = syscall(SYS_readlinkat, AT_FDCWD, "/proc/self/ns/pid", name, sizeof name);
    unsigned identity = (unsigned)getpid();
    for (long i = 0; i < n; i++)
        identity = identity * 31 + (unsigned char)name[i];
    errno = saved;
    return identity & ((1u << HAK_IDENTITY_BITS) - 1);
}
