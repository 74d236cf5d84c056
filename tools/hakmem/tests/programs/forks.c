/* Sixteen children, each of which leaks 500 blocks of 10000 bytes. As redis does, they shrink a block that has much
 * more room than that; and as PostgreSQL does, they overwrite their environment. */
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static void *volatile sink;

__attribute__((noinline)) static void leaks(void)
{
    for (int i = 0; i < 500; i++) {
        sink = malloc(10000);
        if (malloc_usable_size(sink) > 12000)
            sink = realloc(sink, 10000);
    }
}

int main(void)
{
    sink = malloc(100); /* the parent has drawn a distance */
    for (char **e = environ; *e; e++)
        memset(*e, 0, strlen(*e));
    for (int i = 0; i < 16; i++)
        if (fork() == 0) {
            leaks();
            _exit(0);
        }
    while (wait(NULL) > 0)
        ;
    return 0;
}
