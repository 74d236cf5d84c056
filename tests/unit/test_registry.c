/* SPDX-License-Identifier: MIT */
#include "frontends/large/registry.h"

#include "unit.h"

static char *at(size_t i)
{
    return (char *)((i + 1) << 12);
}

static struct mapping mapping(size_t i)
{
    return (struct mapping){.block = at(i), .base = at(i), .size = 4096 * (i + 1), .usable = 4096};
}

TEST(entries_are_found_and_taken_out)
{
    unit_start(NULL);
    enum { N = 5000 }; /* several in each chain */
    size_t count, bytes = 0;
    for (size_t i = 0; i < N; i++) {
        assert_true(hak_registry_add(mapping(i)));
        bytes += 4096;
    }
    assert_int_equal(hak_registry_bytes(&count), bytes);
    assert_int_equal(count, N);
    for (size_t i = 0; i < N; i += 3) {
        struct mapping *m = hak_registry_detach(at(i));
        assert_ptr_equal(m->block, at(i));
        assert_int_equal(m->size, 4096 * (i + 1));
        assert_null(hak_registry_detach(at(i)));
        hak_registry_forget(m);
    }
    for (size_t i = 0; i < N; i++) {
        assert_int_equal(hak_registry_usable(at(i)), i % 3 ? 4096 : 0);
        assert_int_equal(hak_registry_usable(at(i) + 1), 0);
    }
    for (size_t i = 0; i < N; i++)
        assert_int_equal(hak_registry_detach(at(i)) != NULL, i % 3 != 0);
    assert_int_equal(hak_registry_bytes(&count), 0);
    assert_int_equal(count, 0);
}

TEST(an_entry_is_used_again_without_memory)
{
    unit_start(NULL);
    assert_true(hak_registry_add(mapping(1)));
    uint64_t calls = fake_os_total();
    fake_os_refuse_any(1, ENOMEM, true);
    for (size_t i = 0; i < 10000; i++) {
        hak_registry_forget(hak_registry_detach(at(i + 1)));
        assert_true(hak_registry_add(mapping(i + 2)));
    }
    assert_int_equal(fake_os_total(), calls);
}

TEST(a_detached_entry_comes_back_changed)
{
    unit_start(NULL);
    size_t count;
    assert_null(hak_registry_detach(at(1)));
    assert_true(hak_registry_add(mapping(1)));
    struct mapping *entry = hak_registry_detach(at(1));
    assert_non_null(entry);
    assert_int_equal(hak_registry_usable(at(1)), 0);
    assert_true(hak_registry_add(mapping(1))); /* another mapping may lie there meanwhile */
    *entry = mapping(7);
    hak_registry_attach(entry);
    assert_int_equal(hak_registry_usable(at(7)), 4096);
    assert_int_equal(hak_registry_bytes(&count), mapping(1).usable + mapping(7).usable);
    assert_int_equal(count, 2);
}

TEST(without_memory_no_entry_and_never_two_for_an_address)
{
    unit_start(NULL);
    size_t count;
    fake_os_refuse_any(1, ENOMEM, true);
    assert_false(hak_registry_add(mapping(1)));
    assert_int_equal(hak_registry_usable(at(1)), 0);
    assert_int_equal(hak_registry_bytes(&count), 0);
    fake_os_allow();
    assert_true(hak_registry_add(mapping(1)));
    assert_dies(hak_registry_add(mapping(1)), "internal check failed");
}
