/* SPDX-License-Identifier: MIT
 * mallctl: finds the row of a name, checks what is passed, and calls the row's functions. A MIB has a number for each
 * component of the name: an index itself, or the number of the first row that begins with the same components. */
#include <errno.h>
#include <string.h>

#include "handlers.h"

#define DEPTH 8u

#define FIXED(path, kind, value, meaning) {.name = path, .type = JE_##kind, .fixed.kind = value},
#define READ(path, kind, getter, meaning) {.name = path, .type = JE_##kind, .get = je_##getter},
#define BOTH(path, kind, getter, setter, meaning) \
    {.name = path, .type = JE_##kind, .takes = JE_##kind, .get = je_##getter, .set = je_##setter},
#define ASK(path, taken, setter, kind, getter, meaning) \
    {.name = path, .type = JE_##kind, .takes = JE_##taken, .answers = true, .get = je_##getter, .set = je_##setter},
#define WRITE(path, kind, setter, meaning) {.name = path, .takes = JE_##kind, .set = je_##setter},
#define RUN(path, setter, meaning) {.name = path, .set = je_##setter},
#define REFUSED(path, meaning)
const struct je_name je_names[] = {
#include "names.def"
};
const unsigned je_name_count = sizeof je_names / sizeof *je_names;

static const uint8_t sizes[] = {
    0, sizeof(bool), sizeof(unsigned), sizeof(size_t), sizeof(ssize_t), 4, 8, 8, sizeof(char *), sizeof(void *),
};

/* --- names ------------------------------------------------------------------------------------------------ */

static const char *component_end(const char *p)
{
    return p + strcspn(p, ".");
}

/* Whether a component of a row matches one of a name; an index goes to *index. */
static bool component_matches(const char *row, const char *name, size_t *index)
{
    size_t length = (size_t)(component_end(name) - name);
    if (*row != '<')
        return length == (size_t)(component_end(row) - row) && length && memcmp(row, name, length) == 0;
    size_t number = 0;
    for (size_t i = 0; i < length; i++) {
        if (name[i] < '0' || name[i] > '9' || number > UINT32_MAX)
            return false;
        number = number * 10 + (size_t)(name[i] - '0');
    }
    *index = number;
    return length && je_index_exists(row[1], number);
}

/* Translates as many components of the name as it has. Returns their number if they begin the row, else 0. */
static size_t row_matches(const struct je_name *row, const char *name, size_t *mib, bool *whole)
{
    const char *r = row->name;
    for (size_t depth = 0; depth < DEPTH; depth++) {
        if (!component_matches(r, name, &mib[depth]))
            return 0;
        r = component_end(r);
        name = component_end(name);
        if (!*name || !*r) {
            *whole = !*r;
            return *name ? 0 : depth + 1;
        }
        r++;
        name++;
    }
    return 0;
}

/* Number of the first row that begins like `row` as far as `end`. */
static size_t first_row(const char *row, const char *end)
{
    size_t length = (size_t)(end - row), i = 0;
    while (strncmp(je_names[i].name, row, length) || (je_names[i].name[length] && je_names[i].name[length] != '.'))
        i++;
    return i;
}

/* The MIB of a name. Returns its length; 0 if there is no such name. */
static size_t find(const char *name, size_t *mib, const struct je_name **row)
{
    for (unsigned i = 0; i < je_name_count; i++) {
        bool whole = false;
        size_t depth = row_matches(&je_names[i], name, mib, &whole);
        if (!depth)
            continue;
        const char *r = je_names[i].name;
        for (size_t k = 0; k < depth; k++) {
            const char *end = component_end(r);
            if (*r != '<')
                mib[k] = first_row(je_names[i].name, end);
            r = end + 1;
        }
        *row = whole ? &je_names[i] : NULL;
        return depth;
    }
    return 0;
}

/* The row of a whole MIB, or NULL. */
static const struct je_name *row_of(const size_t *mib, size_t length)
{
    if (!length || length > DEPTH || mib[length - 1] >= je_name_count)
        return NULL;
    const struct je_name *row = &je_names[mib[length - 1]];
    const char *r = row->name;
    for (size_t k = 0; k < length; k++) {
        const char *end = component_end(r);
        if (*r == '<' ? !je_index_exists(r[1], mib[k]) : mib[k] != first_row(row->name, end))
            return NULL;
        if (!*end)
            return k + 1 == length ? row : NULL;
        r = end + 1;
    }
    return NULL;
}

bool je_has_option(const char *key, size_t length)
{
    for (unsigned i = 0; i < je_name_count; i++)
        if (strncmp(je_names[i].name, "opt.", 4) == 0 && strlen(je_names[i].name + 4) == length &&
            memcmp(je_names[i].name + 4, key, length) == 0)
            return true;
    return false;
}

/* --- values ----------------------------------------------------------------------------------------------- */

static int answer(const struct je_name *row, const size_t *mib, void *oldp, size_t *oldlenp)
{
    union je_value value = row->fixed;
    int error = row->get ? row->get(mib, &value) : 0;
    if (error)
        return error;
    size_t size = sizes[row->type], room = *oldlenp;
    *oldlenp = room < size ? room : size;
    memcpy(oldp, &value, *oldlenp);
    return room == size ? 0 : EINVAL;
}

/* What is passed is checked first, so that a call that fails has done nothing. */
static int call(const struct je_name *row, const size_t *mib, void *oldp, size_t *oldlenp, void *newp, size_t newlen)
{
    bool reads = oldp && oldlenp;
    if ((!row->type && (oldp || oldlenp)) || (!row->takes && (newp || newlen)))
        return EPERM;
    if (newp ? newlen != sizes[row->takes] : row->takes && !row->type)
        return EINVAL;
    if (row->answers && reads && *oldlenp != sizes[row->type]) {
        *oldlenp = 0;
        return EINVAL;
    }
    union je_value value = {0};
    if (newp)
        memcpy(&value, newp, newlen);
    int error = reads && !row->answers ? answer(row, mib, oldp, oldlenp) : 0;
    if (!error && row->set && (newp || row->answers || !row->takes))
        error = row->set(mib, newp ? &value : NULL);
    return !error && reads && row->answers ? answer(row, mib, oldp, oldlenp) : error;
}

/* --- the calls -------------------------------------------------------------------------------------------- */

JE_EXPORT int mallctl(const char *name, void *oldp, size_t *oldlenp, void *newp, size_t newlen)
{
    size_t mib[DEPTH];
    const struct je_name *row = NULL;
    return find(name, mib, &row) && row ? call(row, mib, oldp, oldlenp, newp, newlen) : ENOENT;
}

JE_EXPORT int mallctlnametomib(const char *name, size_t *mib, size_t *length)
{
    size_t whole[DEPTH];
    const struct je_name *row;
    size_t depth = find(name, whole, &row);
    if (!depth)
        return ENOENT;
    if (depth < *length)
        *length = depth;
    memcpy(mib, whole, *length * sizeof *mib);
    return 0;
}

JE_EXPORT int mallctlbymib(const size_t *mib, size_t length, void *oldp, size_t *oldlenp, void *newp, size_t newlen)
{
    const struct je_name *row = row_of(mib, length);
    return row ? call(row, mib, oldp, oldlenp, newp, newlen) : ENOENT;
}
