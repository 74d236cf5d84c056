/* SPDX-License-Identifier: MIT
 * A heap profile, as libhakmem-profile.so keeps it in memory, where `hakmem profile PID` reads it from outside
 * (core/base/layout.h). HAKMEM_PROFILE_FILE has the same, always current: it is mapped, and only written to.
 *
 * A header of 4096 bytes is followed by entries, frames, maps and heaps, at the offsets that it names. Numbers are
 * words of the machine. An entry stands for all samples with one stack, one size, one mean and one heap's name; its key
 * is a hash of these, and 0 where the entry is unused. Readers skip an entry of depth 0, which is being written. Frames
 * are return addresses, the innermost first. Maps are lines as in /proc/PID/maps, of code only, each ended by a
 * newline. Heaps are names of heaps of the program; where the key is 0 there is none.
 *
 * A block of s bytes is sampled with the probability 1 - exp(-s / mean). So one sample stands for the inverse of that
 * many blocks. Tools may write `mean` in the process: 0 switches the profile off. Threads notice after HAK_PROFILE_STEP
 * bytes. */
#ifndef HAK_FORMAT_H
#define HAK_FORMAT_H

#include "core/base/words.h"

#define HAK_PROFILE_MAGIC "HAKPROF1"
#define HAK_PROFILE_STEP HAK_MIB
#define HAK_PROFILE_DEPTH 128 /* frames of a stack; the outermost ones are cut */

struct hak_profile_header {
    char magic[8];
    uint32_t header_size, entry_size;
    uint64_t pid;
    uint64_t started_ns;    /* CLOCK_REALTIME */
    _Atomic(uint64_t) mean; /* bytes between two samples */
    uint64_t entries_at, entries;
    uint64_t frames_at, frames; /* in words */
    _Atomic(uint64_t) frames_used;
    uint64_t maps_at, maps; /* in bytes */
    _Atomic(uint64_t) maps_used;
    _Atomic(uint64_t) lost;       /* samples that found no room */
    _Atomic(uint64_t) live, peak; /* bytes for which the live samples stand, roughly: now, and most of it */
    uint64_t heaps_at, heaps;
    uint64_t inherited; /* bytes that lived, roughly, when this child began; 0: no child */
};

struct hak_profile_entry {
    _Atomic(uint64_t) key;
    uint64_t size, mean;
    uint64_t first;                     /* frame */
    _Atomic(uint64_t) depth;            /* stored with release after the members above */
    _Atomic(uint64_t) allocated, freed; /* samples */
    _Atomic(uint64_t) peak;             /* samples that lived when most did */
    uint64_t heap;                      /* its number from 1 on; 0: none; beyond the last one: its name has no room */
};

struct hak_profile_heap {
    _Atomic(uint64_t) key; /* a hash of the name */
    char name[32];
};

_Static_assert(sizeof(struct hak_profile_header) == 152 && sizeof(struct hak_profile_entry) == 72 &&
                   sizeof(struct hak_profile_heap) == 40,
               "readers know the layout");

#endif
