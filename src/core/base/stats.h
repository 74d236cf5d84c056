/* SPDX-License-Identifier: MIT
 * Writes the statistics without allocating. Modules report their numbers through the functions below. The form decides
 * the output: indented text, one JSON object, or a call for each number with its path. */
#ifndef HAK_STATS_H
#define HAK_STATS_H

#include "words.h"

#define HAK_STATS_DEPTH 8

enum hak_stats_form {
    HAK_FORM_TEXT, /* indented text, without what is at its default */
    HAK_FORM_JSON, /* one JSON object with all values, for programs */
    /* Calls `take` for each number with its path: "bins.refills". In the path, the texts of an array's element replace
     * its index. Other threads may change the numbers in the meantime. */
    HAK_FORM_PATHS,
};

struct hak_stats_writer {
    enum hak_stats_form form;
    int fd, error;                                                              /* of text and JSON */
    void (*take)(struct hak_stats_writer *w, const char *path, uint64_t value); /* of numbers by path */
    /* private to the form */
    bool first;
    unsigned depth, length;
    char buffer[2048];
    bool in_element;
    unsigned elements;              /* of the array so far */
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
