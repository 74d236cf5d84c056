/* SPDX-License-Identifier: MIT */
/*
 * Identifies the allocator that serves; see allocator.h.
 * A telling symbol counts only if the object that defines it is the one that defines malloc:
 * a library can be loaded, and even export its own API, while malloc comes from elsewhere.
 */
#include "allocator.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Writes the symbol's version as text to `out`; the address may be of a function of any type. */
typedef void (*version_fn)(void *symbol, char *out, size_t size);

struct known {
    const char *symbol;
    const char *name;
    version_fn version;
};

/* ISO C has no cast from an object pointer, which dlsym returns, to a function pointer. */
#define AS_FUNCTION(target, symbol) memcpy(&(target), &(symbol), sizeof(target))

static void version_none(void *symbol, char *out, size_t size)
{
    (void)symbol;
    snprintf(out, size, "-");
}

static void version_text(void *symbol, char *out, size_t size)
{
    const char *(*get)(void);
    AS_FUNCTION(get, symbol);
    snprintf(out, size, "%s", get());
}

/* 224 means 2.2.4, and 20400 means 2.4.0. */
static void version_mimalloc(void *symbol, char *out, size_t size)
{
    int (*get)(void);
    AS_FUNCTION(get, symbol);
    int v = get();
    if (v >= 10000)
        snprintf(out, size, "%d.%d.%d", v / 10000, v / 100 % 100, v % 100);
    else
        snprintf(out, size, "%d.%d.%d", v / 100, v / 10 % 10, v % 10);
}

static void version_jemalloc(void *symbol, char *out, size_t size)
{
    int (*control)(const char *, void *, size_t *, void *, size_t);
    const char *text = "-";
    size_t length = sizeof text;
    AS_FUNCTION(control, symbol);
    if (control("version", &text, &length, NULL, 0) != 0)
        text = "-";
    snprintf(out, size, "%.*s", (int)strcspn(text, "-"), text);
}

static void version_tcmalloc(void *symbol, char *out, size_t size)
{
    const char *(*get)(int *, int *, const char **);
    int major;
    int minor;
    const char *patch;
    AS_FUNCTION(get, symbol);
    get(&major, &minor, &patch);
    snprintf(out, size, "%d.%d%s", major, minor, patch ? patch : "");
}

static const struct known known[] = {
    {"hakmem_version", "hakmem", version_text},
    {"mi_version", "mimalloc", version_mimalloc},
    {"mallctl", "jemalloc", version_jemalloc},
    {"tc_version", "tcmalloc", version_tcmalloc},
    {"MallocExtension_Internal_GetNumericProperty", "tcmalloc-google", version_none},
    {"rpmalloc_initialize", "rpmalloc", version_none},
    {"hz3_malloc", "hz3", version_none},
    {"sn_malloc", "snmalloc", version_none},
    {"__malloc_end_pointer", "snmalloc", version_none},
    {"gnu_get_libc_version", "system", version_text},
};

static const char *object_of(void *address)
{
    Dl_info info;
    if (!address || !dladdr(address, &info) || !info.dli_fname || !info.dli_fname[0])
        return "unknown";
    return info.dli_fname;
}

static void squeeze_blanks(char *text)
{
    for (; *text; text++) {
        if (*text == ' ' || *text == '\n')
            *text = '_';
    }
}

struct allocator allocator_identify(void)
{
    /* The malloc to which this program is bound; dlsym may find another one, since versions of symbols may differ. */
    void *(*bound)(size_t) = malloc;
    void *address;
    memcpy(&address, &bound, sizeof address);
    struct allocator served = {"unknown", object_of(address), "-"};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        void *symbol = dlsym(RTLD_DEFAULT, known[i].symbol);
        if (!symbol || strcmp(object_of(symbol), served.object) != 0)
            continue;
        served.name = known[i].name;
        known[i].version(symbol, served.version, sizeof served.version);
        squeeze_blanks(served.version);
        return served;
    }
    if (strstr(served.object, "ld-musl"))
        served.name = "system";
    return served;
}
