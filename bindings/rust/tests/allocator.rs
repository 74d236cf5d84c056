// SPDX-License-Identifier: MIT
//! Collections of other crates in a heap.
#![cfg(feature = "allocator-api2")]
use allocator_api2::alloc::{Allocator, Layout};
use allocator_api2::{boxed::Box, vec::Vec};
use hakmem::{Heap, HeapOptions};

#[test]
fn collections_lie_in_the_heap() {
    let heap = Heap::new(&HeapOptions { name: "tenant", ..Default::default() }).unwrap();
    let mut numbers = Vec::new_in(&heap);
    for n in 0..100_000u64 {
        numbers.push(n);
    }
    let boxed = Box::new_in([7u8; 100], &heap);
    assert!(heap.stats().live >= 800_100 && heap.stats().blocks == 2);
    numbers.truncate(10);
    numbers.shrink_to_fit();
    assert!(heap.stats().live < 1000 && numbers.iter().copied().eq(0..10) && boxed[99] == 7);
    drop((numbers, boxed));
    assert_eq!(heap.stats().blocks, 0);
}

#[test]
fn each_layout_grows_and_shrinks() {
    let heap = Heap::new(&HeapOptions::default()).unwrap();
    let heap = &heap;
    for (align, other) in [(1, 8), (16, 64), (64, 16), (4096, 1), (1, 65536)] {
        for (size, more) in [(0, 1), (1, 100), (100, 5000), (5000, 3_000_000)] {
            let (old, new) =
                (Layout::from_size_align(size, align).unwrap(), Layout::from_size_align(more, other).unwrap());
            unsafe {
                let block = heap.allocate(old).unwrap().cast::<u8>();
                block.as_ptr().write_bytes(9, size);
                let grown = heap.grow(block, old, new).unwrap().cast::<u8>();
                assert!(grown.as_ptr() as usize % other == 0);
                assert!(std::slice::from_raw_parts(grown.as_ptr(), size).iter().all(|&byte| byte == 9));
                let shrunk = heap.shrink(grown, new, old).unwrap().cast::<u8>();
                assert!(shrunk.as_ptr() as usize % align == 0);
                assert!(std::slice::from_raw_parts(shrunk.as_ptr(), size).iter().all(|&byte| byte == 9));
                heap.deallocate(shrunk, old);
            }
        }
    }
    assert_eq!(heap.stats().blocks, 0);
}

#[test]
fn a_limit_is_an_error() {
    let heap = Heap::new(&HeapOptions { limit: 1 << 20, ..Default::default() }).unwrap();
    assert!(Vec::<u8, _>::new_in(&heap).try_reserve(4 << 20).is_err());
}
