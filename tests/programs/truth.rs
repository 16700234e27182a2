// A release build with threads, closures, collections and sorting below functions that are known.
use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::time::{Duration, Instant};

#[no_mangle]
#[inline(never)]
pub fn rust_recursive(depth: u32, v: &mut Vec<u64>) -> u64 {
    if depth == 0 {
        v.sort_by(|a, b| b.cmp(a));
        return v.iter().fold(0u64, |a, b| a.wrapping_mul(31).wrapping_add(*b));
    }
    let mut w = v.clone();
    w.push(depth as u64);
    rust_recursive(depth - 1, &mut w).wrapping_add(w.len() as u64)
}

#[no_mangle]
#[inline(never)]
pub fn rust_collections(n: u64) -> u64 {
    let mut h = HashMap::new();
    let mut b = BTreeMap::new();
    for i in 0..n {
        *h.entry(i.wrapping_mul(2654435761) % 1000).or_insert(0u64) += i;
        b.insert(format!("k{}", i % 500), i);
    }
    h.values().sum::<u64>() + b.len() as u64
}

#[no_mangle]
#[inline(never)]
pub fn rust_worker(end: Instant) -> u64 {
    let mut t = 0u64;
    while Instant::now() < end {
        t = t.wrapping_add(rust_collections(2000));
    }
    std::hint::black_box(t)
}

#[no_mangle]
#[inline(never)]
pub fn rust_main(end: Instant) -> u64 {
    let mut t = 0u64;
    while Instant::now() < end {
        let mut v: Vec<u64> = (0..2000u64).map(|x| x.wrapping_mul(6364136223846793005).wrapping_add(t)).collect();
        t = t.wrapping_add(rust_recursive(12, &mut v));
    }
    std::hint::black_box(t)
}

fn main() {
    let seconds: f64 = std::env::args().nth(1).and_then(|s| s.parse().ok()).unwrap_or(1.0);
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    println!("pid {}", std::process::id());
    // *: closures, the collections' own functions, and the runtime's start
    for depth in 1..14 {
        println!("chain *;{}rust_main;*;main;?;?;_start", "rust_recursive;".repeat(depth));
    }
    println!("chain *;rust_collections;rust_worker;*;?;?");
    println!("chain *;rust_main;*;main;?;?;_start");
    println!("chain *;rust_worker;*;?;?");
    println!("chain *;main;?;?;_start");
    println!("ready");
    std::io::stdout().flush().unwrap();
    let other = std::thread::spawn(move || rust_worker(end));
    let t = rust_main(end);
    println!("truth sum {}", t.wrapping_add(other.join().unwrap()) & 1);
}
