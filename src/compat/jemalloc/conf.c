/* SPDX-License-Identifier: MIT
 * Options: of the program's malloc_conf, of the link /etc/malloc.conf, and of MALLOC_CONF, in this order. They are read
 * when the library is loaded. Those that mean something here become settings of hakmem, unless its own variable of the
 * environment is set; the rest is accepted if mallctl has a name for it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "jemalloc.h"

JE_EXPORT const char *malloc_conf __attribute__((weak));
JE_EXPORT void (*malloc_message)(void *opaque, const char *text);

struct je_conf je_conf;

void je_say(const char *text)
{
    if (malloc_message) {
        malloc_message(NULL, text);
        return;
    }
    ssize_t written = write(STDERR_FILENO, text, strlen(text));
    (void)written;
}

static void apply_setting(const char *variable, const char *value)
{
    if (!secure_getenv(variable))
        hakmem_set(variable, value);
}

static bool is(const char *text, size_t length, const char *word)
{
    return strlen(word) == length && memcmp(text, word, length) == 0;
}

/* True if the value of a flag was true or false. */
static bool take_flag(bool *flag, const char *value, size_t length)
{
    *flag = is(value, length, "true");
    return *flag || is(value, length, "false");
}

static bool take_decay(const char *value, size_t length)
{
    char text[24] = "", *end;
    if (!length || length >= sizeof text)
        return false;
    memcpy(text, value, length);
    long ms = strtol(text, &end, 10);
    if (*end || ms < -1)
        return false;
    union je_value number = {.ssize = ms};
    size_t size = sizeof number.ssize;
    return secure_getenv("HAKMEM_PURGE_DELAY_MS") || mallctl("arenas.dirty_decay_ms", NULL, NULL, &number, size) == 0;
}

static bool take_print_options(const char *value, size_t length)
{
    if (length >= sizeof je_conf.print_options)
        return false;
    memcpy(je_conf.print_options, value, length);
    return true;
}

static bool take_pair(const char *key, size_t key_length, const char *value, size_t length)
{
    bool flag = false;
    if (is(key, key_length, "abort_conf"))
        return take_flag(&je_conf.abort_conf, value, length);
    if (is(key, key_length, "confirm_conf"))
        return take_flag(&je_conf.confirm_conf, value, length);
    if (is(key, key_length, "stats_print"))
        return take_flag(&je_conf.stats_print, value, length);
    if (is(key, key_length, "stats_print_opts"))
        return take_print_options(value, length);
    if (is(key, key_length, "dirty_decay_ms"))
        return take_decay(value, length);
    if (is(key, key_length, "background_thread")) {
        if (!take_flag(&flag, value, length))
            return false;
        apply_setting("HAKMEM_BACKGROUND", flag ? "1" : "0");
        return true;
    }
    return je_has_option(key, key_length);
}

static void tell(const char *what, const char *pair, size_t length)
{
    char line[256];
    snprintf(line, sizeof line, JE_PREFIX "%s: %.*s\n", what, length < 128 ? (int)length : 128, pair);
    je_say(line);
}

static void take_all(const char *text)
{
    while (*text) {
        size_t pair = strcspn(text, ","), key = strcspn(text, ":");
        bool taken = key < pair && take_pair(text, key, text + key + 1, pair - key - 1);
        if (!taken)
            tell("Invalid conf pair", text, pair);
        else if (je_conf.confirm_conf)
            tell("Set conf value", text, pair);
        if (!taken && je_conf.abort_conf)
            abort();
        text += pair + (text[pair] == ',');
    }
}

static void print_at_exit(void)
{
    malloc_stats_print(NULL, NULL, je_conf.print_options);
}

__attribute__((constructor)) static void read_options(void)
{
    char link[1024];
    ssize_t length = readlink("/etc/malloc.conf", link, sizeof link - 1);
    link[length > 0 ? length : 0] = 0;
    const char *environment = secure_getenv("MALLOC_CONF");
    if (malloc_conf)
        take_all(malloc_conf);
    take_all(link);
    if (environment)
        take_all(environment);
    je_conf.background = je_setting("HAKMEM_BACKGROUND") != 0;
    size_t size = sizeof je_conf.decay_ms;
    mallctl("arenas.dirty_decay_ms", &je_conf.decay_ms, &size, NULL, 0);
    if (je_conf.stats_print)
        atexit(print_at_exit);
}
