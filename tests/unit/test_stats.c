/* SPDX-License-Identifier: MIT
 * The output of the writer, byte for byte. */
#include "core/process/report.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "unit.h"

static char text[100000];

static struct hak_stats_writer writer(bool json)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    fcntl(ends[1], F_SETPIPE_SZ, 1 << 20);
    dup2(ends[0], unit_out);
    return (struct hak_stats_writer){.fd = ends[1], .form = json ? HAK_FORM_JSON : HAK_FORM_TEXT};
}

static void assert_text(const char *wanted)
{
    ssize_t n = read(unit_out, text, sizeof text - 1);
    assert_true(n >= 0);
    text[n] = 0;
    assert_string_equal(text, wanted);
}

static void write_sample(struct hak_stats_writer *w)
{
    hak_stats_begin(w, NULL);
    hak_stats_begin(w, "a");
    hak_stats_number(w, "n", UINT64_MAX);
    hak_stats_bool(w, "yes", true);
    hak_stats_text_n(w, "cut", "abcdef", 3);
    hak_stats_text(w, "k\"", "a\\b\n\x01");
    hak_stats_end(w);
    hak_stats_begin_array(w, "list");
    for (uint64_t i = 0; i < 2; i++) {
        hak_stats_begin(w, NULL);
        hak_stats_number(w, "x", i);
        if (i == 1) {
            hak_stats_text(w, "by", "trim");
            hak_stats_text_n(w, "call", "madvise...", 7);
        }
        hak_stats_number(w, "y", i);
        hak_stats_end(w);
    }
    hak_stats_end_array(w);
    hak_stats_begin(w, "none");
    hak_stats_begin_array(w, "in");
    hak_stats_begin(w, NULL);
    hak_stats_number(w, "z", 1);
    hak_stats_end(w);
    hak_stats_begin(w, NULL);
    hak_stats_number(w, "z", 2);
    hak_stats_end(w);
    hak_stats_end_array(w);
    hak_stats_end(w);
    hak_stats_number(w, "all", 4);
    hak_stats_end(w);
}

static void collect(struct hak_stats_writer *w, const char *path, uint64_t value)
{
    (void)w;
    size_t n = strlen(text);
    snprintf(text + n, sizeof text - n, "%s=%llu ", path, (unsigned long long)value);
}

/* As paths, an array's elements have the texts before a number for names. */
TEST(a_sample_as_json_and_as_text_and_as_paths)
{
    struct hak_stats_writer w = writer(true), paths = {.form = HAK_FORM_PATHS, .take = collect};
    write_sample(&w);
    assert_text("{\n \"a\": {\n  \"n\": 18446744073709551615,\n  \"yes\": true,\n  \"cut\": \"abc\",\n  \"k\\u0022\": "
                "\"a\\u005cb\\u000a\\u0001\"},\n \"list\": [\n  {\n   \"x\": 0,\n   \"y\": 0},\n  {\n   \"x\": 1,\n   "
                "\"by\": \"trim\",\n   \"call\": \"madvise\",\n   \"y\": 1}],\n \"none\": {\n  \"in\": [\n   {\n    "
                "\"z\": 1},\n   {\n    \"z\": 2}]},\n \"all\": 4}\n");
    w = writer(false);
    write_sample(&w);
    assert_text(
        "\na: \n  n: 18446744073709551615\n  yes: true\n  cut: abc\n  k\": a\\b\n\x01\nlist: \n  x=0  y=0\n  x=1  "
        "by=trim  call=madvise  y=1\nnone: \n  in: z=1  z=2\nall: 4\n");
    text[0] = 0;
    write_sample(&paths);
    assert_string_equal(text, "a.n=18446744073709551615 a.yes=1 list.0.x=0 list.0.y=0 list.1.x=1 "
                              "list.1.trim.madvise.y=1 none.in.0.z=1 none.in.1.z=2 all=4 ");
    assert_int_equal(paths.error, 0);
}

TEST(more_than_the_buffer_comes_out_whole_and_an_error_is_kept)
{
    struct hak_stats_writer w = writer(true);
    char big[5000], wanted[6000];
    memset(big, 'z', sizeof big);
    big[sizeof big - 1] = 0;
    hak_stats_begin(&w, NULL);
    hak_stats_text(&w, "big", big);
    hak_stats_end(&w);
    strcpy(wanted, "{\n \"big\": \"");
    strcat(strcat(wanted, big), "\"}\n");
    assert_text(wanted);
    assert_int_equal(w.error, 0);
    w.fd = -1;
    write_sample(&w);
    assert_int_equal(w.error, EBADF);
}

TEST(the_buffer_is_not_overrun)
{
    struct hak_stats_writer w = writer(true), untouched = w;
    char big[sizeof w];
    memset(big, 'z', sizeof big);
    hak_stats_begin(&w, NULL);
    hak_stats_text_n(&w, "big", big, sizeof w.buffer + sizeof w.ends / 2);
    assert_memory_equal(w.ends, untouched.ends, sizeof w.ends);
    assert_in_range(w.length, 0, sizeof w.buffer);
}
