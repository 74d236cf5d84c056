// SPDX-License-Identifier: MIT
//! hakmem as the allocator of a Rust program:
//!
//! ```
//! #[global_allocator]
//! static GLOBAL: hakmem::Hakmem = hakmem::Hakmem;
//!
//! let blocks: Vec<String> = (0..1000).map(|n| n.to_string()).collect();
//! drop(blocks);
//! hakmem::trim(0);
//! ```
//!
//! The settings are hakmem's: variables of the environment that begin with `HAKMEM_`, which the first allocation reads.
#![warn(missing_docs)]

mod heap;

pub use heap::{Heap, HeapBox, HeapOptions, HeapStats};
use std::alloc::{GlobalAlloc, Layout};
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::raw::{c_char, c_int, c_void};

extern "C" {
    fn hakmem_malloc(size: usize) -> *mut c_void;
    fn hakmem_calloc(count: usize, size: usize) -> *mut c_void;
    fn hakmem_realloc(ptr: *mut c_void, size: usize) -> *mut c_void;
    fn hakmem_aligned_alloc(alignment: usize, size: usize) -> *mut c_void;
    fn hakmem_free_sized(ptr: *mut c_void, size: usize);
    fn hakmem_free_aligned_sized(ptr: *mut c_void, alignment: usize, size: usize);
    fn hakmem_trim(keep: usize) -> usize;
    fn hakmem_stats(fd: c_int, json: c_int) -> c_int;
    fn hakmem_read(stat: c_int, value: *mut u64) -> c_int;
    fn hakmem_good_size(size: usize) -> usize;
    fn hakmem_version() -> *const c_char;
    fn hakmem_backend() -> *const c_char;
}

/// Each block has it.
const ALIGNMENT: usize = 16;

/// The global allocator.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hakmem;

// SAFETY: hakmem's calls are those of C; a block is freed with its requested size and, if one was given, its alignment.
unsafe impl GlobalAlloc for Hakmem {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= ALIGNMENT {
            hakmem_malloc(layout.size()).cast()
        } else {
            hakmem_aligned_alloc(layout.align(), layout.size()).cast()
        }
    }

    #[inline]
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        if layout.align() <= ALIGNMENT {
            hakmem_free_sized(ptr.cast(), layout.size());
        } else {
            hakmem_free_aligned_sized(ptr.cast(), layout.align(), layout.size());
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= ALIGNMENT {
            return hakmem_calloc(1, layout.size()).cast();
        }
        let ptr = self.alloc(layout);
        if !ptr.is_null() {
            ptr.write_bytes(0, layout.size());
        }
        ptr
    }

    #[inline]
    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if layout.align() <= ALIGNMENT {
            return hakmem_realloc(ptr.cast(), size).cast();
        }
        let new = self.alloc(Layout::from_size_align_unchecked(size, layout.align()));
        if !new.is_null() {
            new.copy_from_nonoverlapping(ptr, layout.size().min(size));
            self.dealloc(ptr, layout);
        }
        new
    }
}

/// Returns free memory of all threads to the kernel, except for at most `keep` bytes.
/// Returns approximately how many bytes.
pub fn trim(keep: usize) -> usize {
    // SAFETY: any thread may call it at any time.
    unsafe { hakmem_trim(keep) }
}

/// How [`stats`] writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// For people.
    Text,
    /// One object.
    Json,
}

/// Writes the statistics to a file. Allocates nothing.
pub fn stats(file: impl AsFd, format: Format) -> io::Result<()> {
    // SAFETY: the descriptor is open as long as `file` lives.
    match unsafe { hakmem_stats(file.as_fd().as_raw_fd(), (format == Format::Json) as c_int) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}

/// Figures of the process, for [`read`]; `hakmem.h` explains them (`enum hakmem_stat`).
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Stat {
    Live,
    Bins,
    Slack,
    Dirty,
    Metadata,
    Resident,
    Mapped,
    Peak,
    Threads,
    Limit,
}

/// Reads one figure, without a walk over blocks, pages or threads.
pub fn read(stat: Stat) -> io::Result<u64> {
    let mut value = 0;
    // SAFETY: any thread may call it at any time.
    match unsafe { hakmem_read(stat as c_int, &mut value) } {
        0 => Ok(value),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}

/// The bytes that are usable, at least, in a block of `size` requested bytes.
pub fn good_size(size: usize) -> usize {
    // SAFETY: it computes.
    unsafe { hakmem_good_size(size) }
}

fn text(string: *const c_char) -> &'static str {
    // SAFETY: constants of the library, in ASCII.
    unsafe { CStr::from_ptr(string) }.to_str().unwrap_or("")
}

/// The version of the library.
pub fn version() -> &'static str {
    text(unsafe { hakmem_version() })
}

/// The span backend in use.
pub fn backend() -> &'static str {
    text(unsafe { hakmem_backend() })
}
