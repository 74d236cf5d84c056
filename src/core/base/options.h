/* SPDX-License-Identifier: MIT
 * Settings from the environment and from the program (hakmem_conf), parsed once into sealed memory (sealed.h). Their
 * tables are core/options.def and those of parts; Meson writes hak_settings.def, which includes them. A wrong setting
 * gives one line and keeps the default; under AT_SECURE the environment is ignored. */
#ifndef HAK_OPTIONS_H
#define HAK_OPTIONS_H

#include "words.h"

enum hak_stats_setting { HAK_STATS_NONE, HAK_STATS_TEXT, HAK_STATS_JSON, HAK_STATS_PROMETHEUS }; /* of HAKMEM_STATS */
enum hak_thp { HAK_THP_AUTO, HAK_THP_NEVER, HAK_THP_ALWAYS }; /* the values of HAKMEM_THP */

#define HAK_TEXT_MAX 256

struct hak_option_values {
#define HAK_BOOL(field, name, def, moves, sentence) uint32_t field;
#define HAK_NUM(field, name, def, min, max, moves, sentence) uint32_t field;
#define HAK_ENUM(field, name, def, choices, moves, sentence) uint32_t field;
#define HAK_TEXT(field, name, moves, sentence) char field[HAK_TEXT_MAX];
#define HAK_PICK(field, name, def, target, picks, moves, sentence) uint32_t field;
#include "hak_settings.def"
#undef HAK_BOOL
#undef HAK_NUM
#undef HAK_ENUM
#undef HAK_TEXT
#undef HAK_PICK
};

enum hak_option_type { HAK_TYPE_BOOL, HAK_TYPE_NUM, HAK_TYPE_ENUM, HAK_TYPE_TEXT };

/* The table has no pointer and needs no relocation, so a start does not touch its pages. */
struct hak_option_info {
    uint32_t default_value, min, max;
    uint16_t offset; /* in struct hak_option_values */
    uint16_t target; /* of a setting that picks: the offset of the setting for which it picks a value */
    uint16_t texts;  /* see hak_option_text */
    uint8_t type;    /* an enum hak_option_type */
    bool inherited;  /* an inherited name, which sets what another setting controls */
};

enum {
#define HAK_BOOL(field, name, def, moves, sentence) HAK_OPTION_##field,
#define HAK_NUM(field, name, def, min, max, moves, sentence) HAK_OPTION_##field,
#define HAK_ENUM(field, name, def, choices, moves, sentence) HAK_OPTION_##field,
#define HAK_TEXT(field, name, moves, sentence) HAK_OPTION_##field,
#define HAK_PICK(field, name, def, target, picks, moves, sentence) HAK_OPTION_##field,
#include "hak_settings.def"
#undef HAK_BOOL
#undef HAK_NUM
#undef HAK_ENUM
#undef HAK_TEXT
#undef HAK_PICK
    HAK_OPTION_COUNT
};

/* The settings that may change in a running process: their readers accept any value at any time. */
/* clang-format off */
#define HAK_OPTIONS_CHANGEABLE(X)                                                                                     \
    X(purge_delay_ms) X(limit_mb) X(background) X(batch_max_mb) X(batch_max_ranges) X(lru_max_cached) X(lru_max_mb)    \
    X(lru_ttl_sec) X(ace_cache_mb) X(ace_waste_pct) X(empty_scan_limit) X(hot_slabs) X(ss_partial)                     \
    X(ss_partial_interval) X(guard_rate) X(profile) X(ace_trace) X(p0_log) X(log_lru) X(log_free) X(log_acquire)       \
    X(log_registry) X(stage_stats)
/* clang-format on */

extern const struct hak_option_info hak_option_table[HAK_OPTION_COUNT];
/* What has set a row of the table. */
enum hak_option_source { HAK_FROM_DEFAULT, HAK_FROM_PROGRAM, HAK_FROM_ENVIRONMENT };
extern uint8_t hak_option_sources[HAK_OPTION_COUNT];

enum hak_option_text {
    HAK_TEXT_NAME,
    HAK_TEXT_CHOICES, /* of an enumeration, separated by | */
    HAK_TEXT_PICKS,   /* what 0 and 1 choose, separated by | */
    HAK_TEXT_MOVES,   /* the counter that shows the setting at work */
};

/* A text about a setting, "" if it has none of that kind. */
const char *hak_option_text(const struct hak_option_info *info, enum hak_option_text which);

void hak_options_defaults(struct hak_option_values *options);
/* Applies the settings of a program, words NAME=VALUE, and those HAKMEM_* strings of `environment` that are set; either
 * may be NULL, and the environment wins. Records in hak_option_sources what set which rows. Reports wrong settings, and
 * stops the process for them if HAKMEM_STRICT is 1. */
void hak_options_parse(struct hak_option_values *options, const char *program, char **environment);
/* Called once, after parsing: applies inherited names to the settings that they stand for, so that no other code needs
 * to know them. */
void hak_options_translate(struct hak_option_values *options);
/* Reports one wrong setting as hak_options_parse does; for values that only a later step can check. */
void hak_options_reject(const struct hak_option_values *options, const char *name, const char *value, const char *why);
/* The setting of that name; NULL if there is none. */
const struct hak_option_info *hak_option_find(const char *name, size_t length);

bool hak_option_is_changeable(const struct hak_option_info *info);
/* Parses a value; false if the setting does not allow it. Not for settings that are texts. */
bool hak_option_parse(const struct hak_option_info *info, const char *value, uint32_t *out);
/* The i-th choice of an enumeration, as a string of *length bytes. */
const char *hak_option_choice(const char *choices, unsigned i, size_t *length);

#endif
