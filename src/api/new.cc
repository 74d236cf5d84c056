// SPDX-License-Identifier: MIT
// operator new and delete over hakmem (option cxx). The plain forms loop over the new handler and throw, as
// C++ [new.delete.single] says; hardened builds check the size of a sized delete.
#include <new>

#include "hakmem.h"

namespace {

void *allocate(std::size_t size, std::size_t align, bool may_throw)
{
    for (;;) {
        void *p = align > __STDCPP_DEFAULT_NEW_ALIGNMENT__ ? hakmem_aligned_alloc(align, size) : hakmem_malloc(size);
        if (p)
            return p;
        std::new_handler handler = std::get_new_handler();
        if (!handler) {
            if (may_throw)
                throw std::bad_alloc();
            return nullptr;
        }
        handler();
    }
}

void *allocate_nothrow(std::size_t size, std::size_t align) noexcept
{
    try {
        return allocate(size, align, false);
    } catch (...) {
        return nullptr;
    }
}

std::size_t value(std::align_val_t align)
{
    return static_cast<std::size_t>(align);
}

} // namespace

#define EXPORT __attribute__((visibility("default")))
using std::align_val_t;
using std::nothrow_t;
using std::size_t;

EXPORT void *operator new(size_t n) { return allocate(n, 1, true); }
EXPORT void *operator new[](size_t n) { return allocate(n, 1, true); }
EXPORT void *operator new(size_t n, const nothrow_t &) noexcept { return allocate_nothrow(n, 1); }
EXPORT void *operator new[](size_t n, const nothrow_t &) noexcept { return allocate_nothrow(n, 1); }
EXPORT void *operator new(size_t n, align_val_t a) { return allocate(n, value(a), true); }
EXPORT void *operator new[](size_t n, align_val_t a) { return allocate(n, value(a), true); }
EXPORT void *operator new(size_t n, align_val_t a, const nothrow_t &) noexcept { return allocate_nothrow(n, value(a)); }
EXPORT void *operator new[](size_t n, align_val_t a, const nothrow_t &) noexcept
{
    return allocate_nothrow(n, value(a));
}

EXPORT void operator delete(void *p) noexcept { hakmem_free(p); }
EXPORT void operator delete[](void *p) noexcept { hakmem_free(p); }
EXPORT void operator delete(void *p, const nothrow_t &) noexcept { hakmem_free(p); }
EXPORT void operator delete[](void *p, const nothrow_t &) noexcept { hakmem_free(p); }
EXPORT void operator delete(void *p, size_t n) noexcept { hakmem_free_sized(p, n); }
EXPORT void operator delete[](void *p, size_t n) noexcept { hakmem_free_sized(p, n); }
EXPORT void operator delete(void *p, align_val_t) noexcept { hakmem_free(p); }
EXPORT void operator delete[](void *p, align_val_t) noexcept { hakmem_free(p); }
EXPORT void operator delete(void *p, align_val_t, const nothrow_t &) noexcept { hakmem_free(p); }
EXPORT void operator delete[](void *p, align_val_t, const nothrow_t &) noexcept { hakmem_free(p); }
EXPORT void operator delete(void *p, size_t n, align_val_t a) noexcept
{
    hakmem_free_aligned_sized(p, value(a), n);
}
EXPORT void operator delete[](void *p, size_t n, align_val_t a) noexcept
{
    hakmem_free_aligned_sized(p, value(a), n);
}
