/* A child writes to everything that it shares with its parent through a profile, by the mapping and by the descriptor;
 * then the parent allocates on. Prints how much the child found. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void *volatile kept[3000];

static void work(void)
{
    for (int i = 0; i < 3000; i++) {
        free(kept[i]);
        kept[i] = malloc(100 + i % 900);
    }
}

static int harm(void)
{
    char line[600], *name = getenv("HAKMEM_PROFILE_FILE");
    unsigned long at, end;
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps)) {
        char *base = name ? strrchr(name, '/') : NULL;
        int is_ours = strstr(line, "memfd:hakmem") || (base && strstr(line, " rw-s ") && strstr(line, "/"));
        if (!is_ours || sscanf(line, "%lx-%lx", &at, &end) != 2)
            continue;
        for (int word = 4; word < 14; word++) /* the header's, behind its magic, sizes, id and time */
            ((volatile uint64_t *)at)[word] = ~(uint64_t)0;
        found++;
    }
    for (int fd = 3; fd < 1100; fd++) {
        char path[64], target[200] = "";
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        if (readlink(path, target, sizeof target - 1) > 0 && strstr(target, "memfd:hakmem") && !ftruncate(fd, 0))
            found++;
    }
    return found;
}

int main(void)
{
    int status;
    work();
    pid_t child = fork();
    if (child == 0) {
        if (setgid(65534) || setuid(65534))
            perror("the child keeps its rights");
        _exit(harm());
    }
    waitpid(child, &status, 0);
    for (int i = 0; i < 100; i++)
        work();
    printf("the child found %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    return 0;
}
