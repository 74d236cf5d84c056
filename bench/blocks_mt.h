/* SPDX-License-Identifier: MIT */
/*
 * The loop of pool_tls and mid_large_mt, which differ only in their range of sizes: THREADS independent threads, each
 * with WS slots of its own; one byte of each page is touched.
 */
#ifndef HAKMEM_BENCH_BLOCKS_MT_H
#define HAKMEM_BENCH_BLOCKS_MT_H

#include <stdint.h>

/* The whole program: arguments THREADS CYCLES WS SEED, sizes from min to max bytes. */
int blocks_mt_main(int argc, char **argv, const char *workload, uint32_t min, uint32_t max);

#endif
