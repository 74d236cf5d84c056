/* SPDX-License-Identifier: MIT */
/* bench_pool_tls THREADS CYCLES WS SEED: independent threads, blocks of 8 to 52 KiB. */
#include "blocks_mt.h"

int main(int argc, char **argv)
{
    return blocks_mt_main(argc, argv, "pool_tls", 8 * 1024, 52 * 1024);
}
