/* SPDX-License-Identifier: MIT
 *
 * mlockall of what is and will be, then a workload with several threads.
 */
#include <sys/mman.h>

#include "churn.h"

int main(void)
{
    alarm(60);
    free(malloc(100));
    if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0) {
        if (geteuid() == 0)
            die("mlockall: %s", strerror(errno));
        skip("mlockall: %s", strerror(errno));
    }
    churn_in_threads();
    return 0;
}
