/* SPDX-License-Identifier: MIT
 *
 * A stand-in for the library in the tests of the workbench: every malloc symbol,
 * served by glibc's own heap, a small table of settings, and the statistics
 * that the real one writes. It lets the tools be tested without a build of the
 * allocator, and with figures that are known beforehand. With PARTS_BY_NAME the
 * backend is chosen by a name; only the symbols show the names, one of which is
 * an external part's.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);
void __libc_free(void *);

void *malloc(size_t n)
{
    return __libc_malloc(n);
}
void *calloc(size_t n, size_t m)
{
    return __libc_calloc(n, m);
}
void *realloc(void *p, size_t n)
{
    return __libc_realloc(p, n);
}
void free(void *p)
{
    __libc_free(p);
}
void *memalign(size_t a, size_t n)
{
    return __libc_memalign(a, n);
}
void *aligned_alloc(size_t a, size_t n)
{
    return __libc_memalign(a, n);
}
int posix_memalign(void **out, size_t a, size_t n)
{
    return (*out = __libc_memalign(a, n)) ? 0 : ENOMEM;
}
void *hakmem_malloc(size_t n)
{
    return malloc(n);
}

struct setting {
    const char *name, *type, *def, *extra;
    const char *value, *source;
};

#ifdef PARTS_BY_NAME
const char hak_backend_shared_pool[] = "shared_pool", hak_backend_theirs[] = "theirs", hak_backend_unlisted[] = "gone";
#endif

static struct setting table[] = {
#ifdef PARTS_BY_NAME
    {"HAKMEM_BACKEND", "string", "", "\"moves\": \"allocator.backend\"", 0, 0},
#else
    {"HAKMEM_BACKEND", "enum", "shared_pool",
     "\"choices\": [\"shared_pool\", \"legacy\"], \"moves\": \"allocator.backend\", "
     "\"sentence\": \"What supplies spans.\"",
     0, 0},
#endif
    {"HAKMEM_RELEASE", "enum", "batch",
     "\"choices\": [\"batch\", \"direct\"], \"moves\": \"os_calls.batch_release\", "
     "\"sentence\": \"How ranges go back to the kernel.\"",
     0, 0},
    {"HAKMEM_TINY_SS_PARTIAL", "bool", "1",
     "\"moves\": \"os_calls.partial_release\", "
     "\"sentence\": \"Gives the pages of an EMPTY superslab back.\"",
     0, 0},
    {"HAKMEM_SS_PREFAULT", "bool", "0",
     "\"moves\": \"os_calls.prefault\", \"sentence\": \"Populates new superslabs at once.\"", 0, 0},
    {"HAKMEM_SUPERSLAB_MAX_CACHED", "int", "256",
     "\"min\": 0, \"max\": 65536, \"moves\": \"os_calls.lru_evict, retained.lru\", "
     "\"sentence\": \"How many unused superslabs are kept.\"",
     0, 0},
    {"HAKMEM_STATS", "enum", "0", "\"choices\": [\"0\", \"1\", \"json\"]", 0, 0},
    {"HAKMEM_STATS_FILE", "string", "", "\"sentence\": \"Where statistics go.\"", 0, 0},
    {"HAKMEM_STRICT", "bool", "0", "\"sentence\": \"Unknown settings are fatal.\"", 0, 0},
    {"HAKMEM_QUIET", "bool", "0", "\"sentence\": \"No message at all.\"", 0, 0},
};
#define COUNT (sizeof table / sizeof *table)

static int accepted(const struct setting *row, const char *value)
{
    if (!strcmp(row->type, "bool"))
        return !strcmp(value, "0") || !strcmp(value, "1");
    if (!strcmp(row->type, "int"))
        return *value && strspn(value, "0123456789") == strlen(value) && atol(value) <= 65536;
    if (!strcmp(row->type, "enum"))
        return strstr(row->extra, value) != NULL;
#ifdef PARTS_BY_NAME
    if (row == table)
        return !strcmp(value, hak_backend_shared_pool) || !strcmp(value, hak_backend_theirs);
#endif
    return 1;
}

static const char *value_of(const char *name)
{
    for (size_t i = 0; i < COUNT; i++)
        if (!strcmp(table[i].name, name))
            return table[i].value;
    return "";
}

__attribute__((constructor)) static void start(void)
{
    for (size_t i = 0; i < COUNT; i++) {
        const char *given = getenv(table[i].name);
        int good = given && accepted(&table[i], given);
        int taken = good || (given && !strcmp(table[i].type, "string")); /* a wrong part stays to be read */
        table[i].value = taken ? strdup(given) : table[i].def;
        table[i].source = taken ? "environment" : "default";
        if (given && !good)
            fprintf(stderr, "hakmem: %s=%s: is not allowed; the default is used\n", table[i].name, given);
    }
}

static void write_settings(FILE *out)
{
    fprintf(out, "\"settings\": [");
    for (size_t i = 0; i < COUNT; i++)
        fprintf(out,
                "%s{\"name\": \"%s\", \"type\": \"%s\", \"default\": \"%s\", \"value\": \"%s\", "
                "\"source\": \"%s\", %s}",
                i ? ", " : "", table[i].name, table[i].type, table[i].def, table[i].value, table[i].source,
                table[i].extra);
    fprintf(out, "],\n");
}

static FILE *open_target(void)
{
    char path[512], *to = path;
    const char *from = value_of("HAKMEM_STATS_FILE");
    if (!*from)
        return stderr;
    for (; *from && to < path + sizeof path - 32; from++) {
        if (from[0] == '%' && from[1] == 'p') {
            to += sprintf(to, "%d", (int)getpid());
            from++;
        } else {
            *to++ = *from;
        }
    }
    *to = 0;
    return fopen(path, "w");
}

__attribute__((destructor)) static void end(void)
{
    FILE *out;
    if (strcmp(value_of("HAKMEM_STATS"), "json") || !(out = open_target()))
        return;
    int partial = !strcmp(value_of("HAKMEM_TINY_SS_PARTIAL"), "1");
    fprintf(out,
            "{\"allocator\": {\"name\": \"hakmem\", \"version\": \"0.0-fake\", \"build_id\": \"feedface\", "
            "\"backend\": \"%s\", \"release\": \"%s\", \"tiny_header\": \"true\", "
            "\"frontends\": [\"tiny\", \"large\"]},\n",
            accepted(table, table[0].value) ? table[0].value : "shared_pool", value_of("HAKMEM_RELEASE"));
    write_settings(out);
    fprintf(out,
            "\"os_calls\": [{\"cause\": \"metadata\", \"call\": \"mmap\", \"calls\": 1, \"bytes\": 1073741824, "
            "\"ns\": 9000, \"regret_bytes\": 0}, {\"cause\": \"partial_release\", \"call\": \"madvise\", "
            "\"calls\": %d, \"bytes\": %d, \"ns\": 52000, \"regret_bytes\": %d}],\n",
            partial ? 12 : 0, partial ? 25165824 : 0, partial ? 20971520 : 0);
    fprintf(out, "\"stages\": {\"hot\": 900, \"empty\": 80, \"map\": 3}, \"slabs\": {\"active_to_full\": 40},\n"
                 "\"retained\": {\"thread_caches\": 65536, \"lru\": 4194304, \"dirty\": 0},\n"
                 "\"classes\": [], \"conservation\": {\"violations\": 0}}\n");
    if (out != stderr)
        fclose(out);
}
