/* SPDX-License-Identifier: MIT
 * Starts the program that is its first argument with an empty environment. */
#include <unistd.h>

int main(int count, char **words)
{
    char *nothing[] = {0};
    (void)count;
    execve(words[1], words + 1, nothing);
    return 127;
}
