/* SPDX-License-Identifier: MIT
 * The format of a trace, which docs/trace-format.md describes: what trace.c writes and plan.c reads.
 * A file is a header and then chunks of one size. A chunk is written by one thread at a time, event by event, in place;
 * a byte 0 where an event would begin is its end. So the file is valid if the process is killed at any moment. */
#ifndef HAK_TRACE_FORMAT_H
#define HAK_TRACE_FORMAT_H

#include <stdint.h>

#define TRACE_MAGIC "HAKTRACE"

enum {
    TRACE_VERSION = 1,
    TRACE_CHUNK = 64 * 1024,
    TRACE_EVENT_MAX = 96, /* bytes of the longest event and a change of threads before it, rounded up */
    TRACE_TIME_SHIFT = 4, /* times are in units of 16 ns */
    TRACE_ADDRESS_SHIFT = 3,
    TRACE_LARGE = 128 * 1024, /* for blocks of this size and more, the touched bytes are recorded */
};

/* The low three bits of an event's first byte. */
enum trace_op {
    TRACE_END,     /* of the chunk */
    TRACE_MALLOC,  /* size, address */
    TRACE_CALLOC,  /* size, address */
    TRACE_ALIGNED, /* log2 of the alignment, size, address */
    TRACE_FREE,    /* address */
    TRACE_REALLOC, /* numbers since the call began, old address, size, address */
    TRACE_THREAD,  /* its number, its kernel thread id */
    TRACE_TOUCHED, /* address, bytes: before the free or realloc of a large block */
};

enum {
    TRACE_OP_MASK = 7,
    TRACE_NEXT = 8, /* the event's number is that of the chunk's event before, and 1 */
};

struct trace_header {
    char magic[8];
    uint32_t version;
    uint32_t header_bytes; /* a page of the machine */
    uint32_t chunk_bytes;
    uint32_t time_shift;
    uint32_t pid;
    uint32_t parent;
    uint64_t began;     /* CLOCK_MONOTONIC, ns */
    uint64_t began_day; /* CLOCK_REALTIME, ns */
    uint64_t numbers;   /* given out so far, one for each event and one for the begin of each realloc */
    uint64_t lost;      /* events that are not in the file */
    uint64_t chunks;
    uint64_t threads;
    char program[64]; /* its name, cut off */
};

/* The values to which the first event of a chunk is relative. */
struct trace_chunk {
    uint32_t thread;
    uint32_t kernel_thread;
    uint64_t number;
    uint64_t time;    /* since `began`, in units */
    uint64_t address; /* >> TRACE_ADDRESS_SHIFT */
};

#endif
