// SPDX-License-Identifier: MIT
//! Small workloads of Rust programs under the allocator whose feature is on; without one, the system's. Each prints its
//! name and nanoseconds for an operation, the best of ROUNDS: cargo run --release
//! --features hakmem [OPERATIONS [ROUNDS]]
use std::collections::{BTreeMap, HashMap};
use std::hint::black_box;
use std::sync::mpsc;
use std::time::Instant;
use std::{env, thread};

#[cfg(feature = "hakmem")]
#[global_allocator]
static GLOBAL: hakmem::Hakmem = hakmem::Hakmem;
#[cfg(feature = "mimalloc")]
#[global_allocator]
static GLOBAL: mimalloc::MiMalloc = mimalloc::MiMalloc;
#[cfg(feature = "jemalloc")]
#[global_allocator]
static GLOBAL: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;
#[cfg(feature = "snmalloc")]
#[global_allocator]
static GLOBAL: snmalloc_rs::SnMalloc = snmalloc_rs::SnMalloc;
#[cfg(feature = "rpmalloc")]
#[global_allocator]
static GLOBAL: rpmalloc::RpMalloc = rpmalloc::RpMalloc;

fn pairs(n: usize) {
    for i in 0..n {
        black_box(Box::new([i; 8]));
    }
}

fn strings(n: usize) {
    let mut map = HashMap::new();
    for i in 0..n {
        map.insert(i % 10_000, format!("value {i}"));
    }
    black_box(map);
}

fn tree(n: usize) {
    let mut map = BTreeMap::new();
    for i in 0..n {
        map.insert(i.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 50_000, vec![i as u8; i % 500]);
    }
    black_box(map);
}

fn growth(n: usize) {
    for _ in 0..n / 1000 {
        let mut list = Vec::new();
        (0..1000).for_each(|i| list.push(i));
        black_box(list);
    }
}

fn handed_over(n: usize) {
    let (sender, receiver) = mpsc::sync_channel::<Vec<Box<[u8; 100]>>>(16);
    let other = thread::spawn(move || receiver.into_iter().for_each(|blocks| drop(black_box(blocks))));
    for _ in 0..n / 100 {
        sender.send((0..100).map(|i| Box::new([i as u8; 100])).collect()).unwrap();
    }
    drop(sender);
    other.join().unwrap();
}

fn main() {
    let mut numbers = env::args().skip(1).map(|word| word.parse().expect("a number"));
    let (n, rounds): (usize, usize) = (numbers.next().unwrap_or(5_000_000), numbers.next().unwrap_or(5));
    let workloads: [(&str, fn(usize)); 5] =
        [("pairs", pairs), ("strings", strings), ("tree", tree), ("growth", growth), ("handed_over", handed_over)];
    for (name, workload) in workloads {
        let time = |_| {
            let began = Instant::now();
            workload(n);
            began.elapsed().as_nanos() as f64 / n as f64
        };
        println!("{name} {:.2}", (0..rounds).map(time).fold(f64::INFINITY, f64::min));
    }
    #[cfg(feature = "hakmem")]
    assert_eq!(hakmem::version(), env!("CARGO_PKG_VERSION"));
}
