// SPDX-License-Identifier: MIT
//! Heaps of the program: blocks apart from all others, freed together.
use std::alloc::Layout;
use std::ffi::{CStr, CString};
use std::io;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::os::raw::{c_char, c_int, c_void};
use std::ptr::{self, NonNull};

const NAME_MAX: usize = 32;

#[repr(C)]
struct Options {
    name: *const c_char,
    limit: usize,
    reached: Option<unsafe extern "C" fn(*mut c_void, usize, *mut c_void) -> c_int>,
    context: *mut c_void,
    apart: c_int,
    alignment: usize,
    huge_pages: c_int,
    no_dump: c_int,
}

#[repr(C)]
struct Stats {
    name: [c_char; NAME_MAX],
    live: usize,
    blocks: usize,
    held: usize,
    peak: usize,
    limit: usize,
}

extern "C" {
    fn hakmem_heap_new(options: *const Options) -> *mut c_void;
    fn hakmem_heap_destroy(heap: *mut c_void);
    fn hakmem_heap_aligned_alloc(heap: *mut c_void, alignment: usize, size: usize) -> *mut c_void;
    #[cfg(feature = "allocator-api2")]
    fn hakmem_heap_realloc(heap: *mut c_void, block: *mut c_void, size: usize) -> *mut c_void;
    fn hakmem_heap_free(heap: *mut c_void, block: *mut c_void);
    fn hakmem_heap_trim(heap: *mut c_void) -> usize;
    fn hakmem_heap_stats(heap: *mut c_void, stats: *mut Stats);
}

/// How a [`Heap`] is made; the default has no name and no limit.
#[derive(Clone, Copy, Debug, Default)]
pub struct HeapOptions<'a> {
    /// Shown by the statistics, up to 31 bytes of it.
    pub name: &'a str,
    /// The most bytes of pages that it may hold; 0: no limit.
    pub limit: usize,
    /// The alignment of each run of pages: 0, or a power of two from 64 KiB to 2 MiB.
    pub alignment: usize,
    /// Whether its pages come from superslabs that no other blocks are in.
    pub apart: bool,
    /// Whether core dumps leave its blocks out.
    pub no_dump: bool,
    /// Whether the kernel is asked for huge pages; `None`: as `HAKMEM_THP` says.
    pub huge_pages: Option<bool>,
}

/// Figures of a heap, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeapStats {
    /// Its name.
    pub name: String,
    /// In live blocks.
    pub live: usize,
    /// Number of live blocks.
    pub blocks: usize,
    /// Of its pages.
    pub held: usize,
    /// The most that it held.
    pub peak: usize,
    /// 0: none.
    pub limit: usize,
}

/// A heap. Its end frees all blocks at once, without running destructors.
///
/// ```
/// let heap = hakmem::Heap::new(&hakmem::HeapOptions { name: "request", ..Default::default() }).unwrap();
/// let numbers = heap.put([1, 2, 3]).unwrap();
/// numbers[0] = 7;
/// assert_eq!(heap.stats().blocks, 1);
/// ```
#[derive(Debug)]
pub struct Heap(NonNull<c_void>);

// SAFETY: any thread may allocate in any heap, and free its blocks.
unsafe impl Send for Heap {}
unsafe impl Sync for Heap {}

impl Heap {
    /// Makes a heap; an error without memory, or with a wrong alignment.
    pub fn new(options: &HeapOptions) -> io::Result<Heap> {
        let name = CString::new(options.name).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        let options = Options {
            name: name.as_ptr(),
            limit: options.limit,
            reached: None,
            context: ptr::null_mut(),
            apart: options.apart as c_int,
            alignment: options.alignment,
            huge_pages: options.huge_pages.map_or(0, |wanted| if wanted { 1 } else { -1 }),
            no_dump: options.no_dump as c_int,
        };
        // SAFETY: the name is copied.
        NonNull::new(unsafe { hakmem_heap_new(&options) }).map(Heap).ok_or_else(io::Error::last_os_error)
    }

    fn place<T>(&self, value: T) -> Option<NonNull<T>> {
        let layout = Layout::new::<T>();
        // SAFETY: the block is fresh, long enough and aligned.
        unsafe {
            let block = hakmem_heap_aligned_alloc(self.0.as_ptr(), layout.align(), layout.size());
            let block = NonNull::new(block.cast::<T>())?;
            block.as_ptr().write(value);
            Some(block)
        }
    }

    /// Puts a value into the heap, where it stays until the heap's end. Its destructor does not run. `None`, and the
    /// value is dropped, without memory or at the limit.
    #[allow(clippy::mut_from_ref)] // each call has a block of its own
    pub fn put<T>(&self, value: T) -> Option<&mut T> {
        // SAFETY: nobody else knows the block, and it lives as long as the heap.
        self.place(value).map(|block| unsafe { &mut *block.as_ptr() })
    }

    /// The same, as a value that owns its block: it is destroyed and freed when it is dropped.
    pub fn boxed<T>(&self, value: T) -> Option<HeapBox<'_, T>> {
        self.place(value).map(|block| HeapBox { block, owns: PhantomData })
    }

    /// The figures at this moment.
    pub fn stats(&self) -> HeapStats {
        let mut stats = Stats { name: [0; NAME_MAX], live: 0, blocks: 0, held: 0, peak: 0, limit: 0 };
        // SAFETY: the heap is alive; the name ends with a zero.
        let name = unsafe {
            hakmem_heap_stats(self.0.as_ptr(), &mut stats);
            CStr::from_ptr(stats.name.as_ptr()).to_string_lossy().into_owned()
        };
        HeapStats {
            name,
            live: stats.live,
            blocks: stats.blocks,
            held: stats.held,
            peak: stats.peak,
            limit: stats.limit,
        }
    }

    /// Gives up its pages without blocks, and does what [`crate::trim`] does with 0.
    pub fn trim(&self) -> usize {
        // SAFETY: the heap is alive.
        unsafe { hakmem_heap_trim(self.0.as_ptr()) }
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        // SAFETY: all references into the heap borrow it, so none is left.
        unsafe { hakmem_heap_destroy(self.0.as_ptr()) }
    }
}

/// A value in a heap.
#[derive(Debug)]
pub struct HeapBox<'heap, T> {
    block: NonNull<T>,
    owns: PhantomData<(&'heap Heap, T)>,
}

// SAFETY: it owns its value, and any thread may free the block.
unsafe impl<T: Send> Send for HeapBox<'_, T> {}
unsafe impl<T: Sync> Sync for HeapBox<'_, T> {}

impl<T> Deref for HeapBox<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: it owns the value.
        unsafe { self.block.as_ref() }
    }
}

impl<T> DerefMut for HeapBox<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: it owns the value.
        unsafe { self.block.as_mut() }
    }
}

impl<T> Drop for HeapBox<'_, T> {
    fn drop(&mut self) {
        // SAFETY: it owns the value and the block, which a heap gave.
        unsafe {
            ptr::drop_in_place(self.block.as_ptr());
            hakmem_heap_free(ptr::null_mut(), self.block.as_ptr().cast());
        }
    }
}

#[cfg(feature = "allocator-api2")]
mod allocator {
    use super::*;
    use crate::ALIGNMENT;
    use allocator_api2::alloc::{AllocError, Allocator};

    /// What the library returned, as a block of the layout.
    fn block_of(block: *mut c_void, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        let block = NonNull::new(block.cast::<u8>()).ok_or(AllocError)?;
        Ok(NonNull::slice_from_raw_parts(block, layout.size()))
    }

    impl Heap {
        /// A realloc aligns as a malloc does.
        unsafe fn resize(
            &self,
            block: NonNull<u8>,
            old: Layout,
            new: Layout,
        ) -> Result<NonNull<[u8]>, AllocError> {
            if new.align() <= ALIGNMENT && new.size() > 0 {
                return block_of(hakmem_heap_realloc(self.0.as_ptr(), block.as_ptr().cast(), new.size()), new);
            }
            let moved = self.allocate(new)?;
            ptr::copy_nonoverlapping(block.as_ptr(), moved.cast().as_ptr(), old.size().min(new.size()));
            self.deallocate(block, old);
            Ok(moved)
        }
    }

    // SAFETY: blocks stay where they are until they are freed, and the heap lives as long as a reference to it; all
    // copies of the reference mean the same heap.
    unsafe impl Allocator for &Heap {
        fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
            // SAFETY: the heap is alive.
            block_of(unsafe { hakmem_heap_aligned_alloc(self.0.as_ptr(), layout.align(), layout.size()) }, layout)
        }

        unsafe fn deallocate(&self, block: NonNull<u8>, _: Layout) {
            hakmem_heap_free(self.0.as_ptr(), block.as_ptr().cast());
        }

        unsafe fn grow(&self, block: NonNull<u8>, old: Layout, new: Layout) -> Result<NonNull<[u8]>, AllocError> {
            self.resize(block, old, new)
        }

        unsafe fn shrink(&self, block: NonNull<u8>, old: Layout, new: Layout) -> Result<NonNull<[u8]>, AllocError> {
            self.resize(block, old, new)
        }
    }
}
