/* Sixteen children, each of which leaks 500 blocks of 10000 bytes. */
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void *volatile sink;

__attribute__((noinline)) static void leaks(void)
{
    for (int i = 0; i < 500; i++)
        sink = malloc(10000);
}

int main(void)
{
    sink = malloc(100); /* the parent has drawn a distance */
    for (int i = 0; i < 16; i++)
        if (fork() == 0) {
            leaks();
            _exit(0);
        }
    while (wait(NULL) > 0)
        ;
    return 0;
}
