/* SPDX-License-Identifier: MIT */
/* bench_mid_large_mt THREADS CYCLES WS SEED: independent threads, blocks of 8 to 32 KiB. */
#include "blocks_mt.h"

int main(int argc, char **argv)
{
    return blocks_mt_main(argc, argv, "mid_large_mt", 8 * 1024, 32 * 1024);
}
