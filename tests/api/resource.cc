/* SPDX-License-Identifier: MIT
 *
 * hakmem/memory_resource.h, under containers, from several threads, and at a limit.
 */
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory_resource>
#include <string>
#include <thread>
#include <vector>

#include <hakmem/memory_resource.h>

#define CHECK(that)                                                         \
    do {                                                                    \
        if (!(that)) {                                                      \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #that); \
            std::exit(1);                                                   \
        }                                                                   \
    } while (0)

static struct hakmem_heap_stats stats_of(const hakmem::heap_resource &resource)
{
    struct hakmem_heap_stats stats;
    hakmem_heap_stats(resource.heap(), &stats);
    return stats;
}

static void fill(std::pmr::map<int, std::pmr::string> &map, int from)
{
    for (int i = from; i < from + 2000; i++)
        map.emplace(i, std::pmr::string(std::size_t(i % 300), 'x', map.get_allocator()));
}

static void containers()
{
    hakmem::heap_resource resource;
    {
        std::pmr::map<int, std::pmr::string> map(&resource);
        fill(map, 0);
        CHECK(hakmem_heap_of(&*map.begin()) == resource.heap());
        CHECK(stats_of(resource).live > 2000 * 50);
        for (int i = 0; i < 2000; i++)
            CHECK(map[i].size() == std::size_t(i % 300));
    }
    CHECK(stats_of(resource).live == 0);
}

static void release_is_destroy()
{
    hakmem_heap_options options = {};
    options.name = "released";
    hakmem::heap_resource resource(options);
    for (int i = 0; i < 10; i++) {
        auto *map = new (resource.allocate(sizeof(std::pmr::map<int, std::pmr::string>)))
            std::pmr::map<int, std::pmr::string>(&resource);
        fill(*map, i);
        resource.release(); /* no destructor runs */
        CHECK(stats_of(resource).live == 0 && stats_of(resource).name == std::string("released"));
    }
}

static void equal_and_aligned()
{
    hakmem::heap_resource a, b, same(a.heap());
    CHECK(a == same && !(a == b) && !(a == *std::pmr::new_delete_resource()));
    for (std::size_t align = 1; align <= 4096; align *= 2) {
        void *p = a.allocate(100, align);
        CHECK(reinterpret_cast<std::uintptr_t>(p) % align == 0);
        same.deallocate(p, 100, align);
    }
    CHECK(stats_of(a).live == 0);
}

static void at_the_limit()
{
    hakmem_heap_options options = {};
    options.limit = 1 << 20;
    hakmem::heap_resource resource(options);
    std::pmr::vector<std::pmr::vector<char>> blocks(&resource);
    bool thrown = false;
    try {
        for (int i = 0; i < 100; i++)
            blocks.emplace_back(100000);
    } catch (const std::bad_alloc &) {
        thrown = true;
    }
    CHECK(thrown && blocks.size() > 3 && blocks.size() < 11);
}

static void many_threads()
{
    hakmem::heap_resource resource;
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++)
        threads.emplace_back([&resource] {
            for (int k = 0; k < 5; k++) {
                std::pmr::map<int, std::pmr::string> map(&resource);
                fill(map, k);
            }
        });
    for (std::thread &thread : threads)
        thread.join();
    CHECK(stats_of(resource).live == 0);
}

int main()
{
    containers();
    release_is_destroy();
    equal_and_aligned();
    at_the_limit();
    many_threads();
    return 0;
}
