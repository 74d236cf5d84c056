/* SPDX-License-Identifier: MIT
 * hakmem: a std::pmr::memory_resource over a heap (hakmem.h), for C++17. Containers that use it allocate in the heap;
 * release() and the destructor free all of their blocks at once, without a walk, like a monotonic_buffer_resource; but
 * each block can be freed before, too, and any thread may use the resource. */
#ifndef HAKMEM_MEMORY_RESOURCE_H
#define HAKMEM_MEMORY_RESOURCE_H

#include <cstddef>
#include <memory_resource>
#include <new>

#include <hakmem.h>

namespace hakmem
{

class heap_resource : public std::pmr::memory_resource
{
  public:
    /* A heap of its own. Throws std::bad_alloc without memory. */
    explicit heap_resource(const hakmem_heap_options &options = {})
        : options_(options), heap_(make(options)), owns_(true)
    {
    }
    /* A heap of the program's, which must outlive the resource; release() leaves it alone. */
    explicit heap_resource(hakmem_heap *heap) noexcept : heap_(heap), owns_(false)
    {
    }
    heap_resource(const heap_resource &) = delete;
    heap_resource &operator=(const heap_resource &) = delete;
    ~heap_resource() override
    {
        if (owns_)
            hakmem_heap_destroy(heap_);
    }

    hakmem_heap *heap() const noexcept
    {
        return heap_;
    }
    /* Frees all blocks of a heap of its own; no thread may use them any more. If it throws std::bad_alloc, nothing has
     * changed. The name in the options must still be there. */
    void release()
    {
        if (!owns_)
            return;
        hakmem_heap *fresh = make(options_);
        hakmem_heap_destroy(heap_);
        heap_ = fresh;
    }

  private:
    static hakmem_heap *make(const hakmem_heap_options &options)
    {
        hakmem_heap *heap = hakmem_heap_new(&options);
        if (!heap)
            throw std::bad_alloc();
        return heap;
    }
    void *do_allocate(std::size_t bytes, std::size_t alignment) override
    {
        void *p =
            alignment <= 16 ? hakmem_heap_malloc(heap_, bytes) : hakmem_heap_aligned_alloc(heap_, alignment, bytes);
        if (!p)
            throw std::bad_alloc();
        return p;
    }
    void do_deallocate(void *p, std::size_t, std::size_t) override
    {
        hakmem_heap_free(heap_, p);
    }
    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override
    {
        const heap_resource *that = dynamic_cast<const heap_resource *>(&other);
        return that && that->heap_ == heap_;
    }

    hakmem_heap_options options_{};
    hakmem_heap *heap_;
    bool owns_;
};

} // namespace hakmem

#endif
