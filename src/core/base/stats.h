/* SPDX-License-Identifier: MIT
 * Writes the statistics as text or as one JSON object, without allocating: a small buffer, then write(2).
 * Parts add their numbers through the same writer. */
#ifndef HAK_STATS_H
#define HAK_STATS_H

#include "words.h"

#define HAK_STATS_DEPTH 8

struct hak_stats_writer {
    int fd, error;
    bool json, first;
    unsigned depth, length;
    char buffer[2048];
    /* Where it is not NULL, nothing is written: it takes each number under its path, as "bins.refills". The texts of
     * an array's element stand in the path in place of its index. */
    void (*number)(const char *path, uint64_t value);
    bool in_element;
    unsigned elements; /* of the array so far */
    unsigned ends[HAK_STATS_DEPTH]; /* of the paths of the levels above */
};

/* key NULL: an element of an array */
void hak_stats_begin(struct hak_stats_writer *w, const char *key);
void hak_stats_begin_array(struct hak_stats_writer *w, const char *key);
void hak_stats_end(struct hak_stats_writer *w);
void hak_stats_end_array(struct hak_stats_writer *w);
void hak_stats_number(struct hak_stats_writer *w, const char *key, uint64_t value);
void hak_stats_text(struct hak_stats_writer *w, const char *key, const char *value);
void hak_stats_text_n(struct hak_stats_writer *w, const char *key, const char *value, size_t length);
void hak_stats_bool(struct hak_stats_writer *w, const char *key, bool value);

#endif
