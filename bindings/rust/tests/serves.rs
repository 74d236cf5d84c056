// SPDX-License-Identifier: MIT
//! A program whose allocator is hakmem: what it holds is in hakmem's own account.
use std::alloc::{alloc, alloc_zeroed, dealloc, realloc, Layout};
use std::fs::{self, File};
use std::sync::mpsc;
use std::thread;

#[global_allocator]
static GLOBAL: hakmem::Hakmem = hakmem::Hakmem;

fn report(name: &str) -> String {
    let path = std::env::temp_dir().join(format!("hakmem-rust-{}-{name}", std::process::id()));
    hakmem::stats(File::create(&path).unwrap(), hakmem::Format::Json).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    fs::remove_file(path).unwrap();
    text
}

#[test]
fn it_serves() {
    let held: Vec<Vec<u8>> = (0..2000).map(|n| vec![n as u8; 1000]).collect();
    let text = report("serves");
    assert!(text.starts_with('{') && text.contains("\"os_calls\""));
    assert!(text.contains(&format!("\"version\": \"{}\"", env!("CARGO_PKG_VERSION"))), "{text}");
    assert_eq!(hakmem::version(), env!("CARGO_PKG_VERSION"));
    assert_eq!(hakmem::backend(), "shared_pool");
    assert!(held.iter().enumerate().all(|(n, block)| block.iter().all(|&byte| byte == n as u8)));
    drop(held);
    hakmem::trim(0);
}

#[test]
fn the_features_are_in_the_build() {
    let text = report("features");
    let header = if cfg!(feature = "header") {
        "true"
    } else if cfg!(feature = "header-small") {
        "small"
    } else {
        "false"
    };
    let cache = if cfg!(feature = "cache-list") { "list" } else { "array" };
    assert!(text.contains(&format!("\"tiny_header\": \"{header}\"")), "{text}");
    assert!(text.contains(&format!("\"cache\": \"{cache}\"")), "{text}");
    assert_eq!(text.contains("HAKMEM_QUARANTINE_KB"), cfg!(feature = "hardened"));
}

#[test]
fn every_layout_comes_zeroed_grows_and_goes() {
    for align in (0..16).map(|n| 1usize << n) {
        for size in [1, 15, 16, 64, 100, 1000, 5000, 60000, 3_000_000] {
            let layout = Layout::from_size_align(size, align).unwrap();
            unsafe {
                let dirty = alloc(layout);
                dirty.write_bytes(0xaa, size);
                dealloc(dirty, layout);
                let block = alloc_zeroed(layout);
                assert!(!block.is_null() && block as usize % align == 0);
                assert!(std::slice::from_raw_parts(block, size).iter().all(|&byte| byte == 0));
                block.write_bytes(7, size);
                let grown = realloc(block, layout, size * 2);
                assert!(!grown.is_null() && grown as usize % align == 0);
                assert!(std::slice::from_raw_parts(grown, size).iter().all(|&byte| byte == 7));
                dealloc(grown, Layout::from_size_align(size * 2, align).unwrap());
            }
        }
    }
}

#[test]
fn blocks_may_be_freed_elsewhere() {
    let (sender, receiver) = mpsc::channel::<Vec<String>>();
    let other = thread::spawn(move || receiver.into_iter().map(|list| list.len()).sum::<usize>());
    for round in 0..200 {
        sender.send((0..100).map(|n| format!("{round} {n}")).collect()).unwrap();
    }
    drop(sender);
    assert_eq!(other.join().unwrap(), 20000);
}

#[test]
fn a_descriptor_that_cannot_be_written_is_an_error() {
    let closed = File::open("/dev/null").unwrap();
    assert!(hakmem::stats(&closed, hakmem::Format::Text).is_err());
}

#[test]
fn figures_are_read() {
    let before = hakmem::read(hakmem::Stat::Live).unwrap();
    let held = vec![1u8; 3_000_000];
    assert!(hakmem::read(hakmem::Stat::Live).unwrap() >= before.saturating_sub(1_000_000) + held.len() as u64);
    assert!(hakmem::read(hakmem::Stat::Peak).unwrap() >= held.len() as u64);
    assert!(hakmem::read(hakmem::Stat::Threads).unwrap() > 0 && hakmem::good_size(100) >= 100);
}

#[test]
fn heaps_hold_values() {
    let options = hakmem::HeapOptions { name: "values", limit: 1 << 18, ..Default::default() };
    let heap = hakmem::Heap::new(&options).unwrap();
    #[repr(align(256))]
    struct Aligned(u8);
    let (kept, text) = (heap.put(Aligned(1)).unwrap(), heap.put([7u8; 1000]).unwrap());
    assert!(kept as *const _ as usize % 256 == 0 && kept.0 == 1);
    thread::scope(|scope| {
        let work = |n| {
            let heap = &heap;
            move || (0..1000).for_each(|i| assert_eq!(*heap.boxed((n, i)).unwrap(), (n, i)))
        };
        let threads: Vec<_> = (0..4).map(|n| scope.spawn(work(n))).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap()); // their caches are empty then
    });
    assert!(text.iter().all(|&byte| byte == 7));
    let stats = heap.stats();
    assert_eq!((stats.name.as_str(), stats.blocks, stats.limit), ("values", 2, 1 << 18));
    assert!(heap.put([0u8; 150_000]).is_none()); // beyond the limit
    assert!(hakmem::Heap::new(&hakmem::HeapOptions { alignment: 3, ..options }).is_err());
    heap.trim();
}

#[cfg(feature = "override")]
#[test]
fn c_code_is_served_too() {
    extern "C" {
        fn malloc(size: usize) -> *mut u8;
        fn hakmem_free(block: *mut u8);
    }
    unsafe { hakmem_free(malloc(100)) }; // another malloc's block would stop the process
}
