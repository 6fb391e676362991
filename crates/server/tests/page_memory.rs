//! The memory that one answer of the site allocates must not grow with the page.
//!
//! This test has its own binary, because its allocator counts for the whole process.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use common::TestServer;
use engine::{Mode, Op, Transaction};
use site::{Materializer, Note, Options, Row, TABLE};
use types::Principal;

/// An allocator that counts the allocations of all threads but the client's, while `ON` is set.
struct CountingAllocator;

static ON: AtomicBool = AtomicBool::new(false);
static LARGEST: AtomicUsize = AtomicUsize::new(0);
static TOTAL: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static IS_CLIENT: Cell<bool> = const { Cell::new(false) };
}

fn count(bytes: usize) {
    if ON.load(Relaxed) && !IS_CLIENT.with(Cell::get) {
        LARGEST.fetch_max(bytes, Relaxed);
        TOTAL.fetch_add(bytes, Relaxed);
    }
}

// SAFETY: all memory comes from the system allocator. Counting touches only atomics and a thread local without a destructor.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller upholds the contract of `alloc`, which is passed on unchanged.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the contract of `dealloc`, which is passed on unchanged.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        // SAFETY: the caller upholds the contract of `realloc`, which is passed on unchanged.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const REQUESTS: usize = 40;

/// Requests a page `REQUESTS` times on one connection without allocating. Returns the size of its body in bytes.
fn read(socket: &mut TcpStream, request: &[u8], buffer: &mut [u8]) -> usize {
    let mut size = 0;
    for _ in 0..REQUESTS {
        socket.write_all(request).unwrap();
        let mut filled = 0;
        let head = loop {
            filled += socket.read(&mut buffer[filled..]).unwrap();
            if let Some(at) = buffer[..filled].windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
        };
        let text = std::str::from_utf8(&buffer[..head]).unwrap();
        assert!(text.starts_with("HTTP/1.1 200"), "{text}");
        let length = text.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        size = length.parse().unwrap();
        let mut left = head + size - filled;
        while left > 0 {
            let most = left.min(buffer.len());
            left -= socket.read(&mut buffer[..most]).unwrap();
        }
    }
    size
}

#[test]
fn nothing_that_is_allocated_for_an_answer_grows_with_the_page() {
    let _limit = testkit::limit(120);
    IS_CLIENT.set(true);
    let running = TestServer::with_options("page-memory", |options| options.site = Some(TABLE.to_owned()));
    // The text is random hexadecimal digits. Gzip only halves them, so both encodings of the page are large.
    let mut rng = testkit::Rng::new(1);
    let digits: String =
        (0..3 << 20).map(|_| char::from(b"0123456789abcdef"[rng.below(16) as usize])).collect();
    let files = [
        ("small.md", "---\npublish: true\n---\nshort".to_owned()),
        ("large.md", format!("---\npublish: true\n---\n{digits}")),
    ];
    let rows: Vec<Row> = files
        .iter()
        .map(|(path, text)| Row {
            path: (*path).to_owned(),
            published: true,
            words: Some(Note::parse(path, text.as_bytes()).public_words()),
            content: text.clone().into_bytes().into(),
            modified: None,
        })
        .collect();
    let create = Op::CreateTable { def: site::definition(TABLE).unwrap(), if_absent: true };
    running.engine.commit(&Principal::local(), Transaction::new(vec![create])).unwrap();
    let insert = Transaction::insert(TABLE, site::batch(&rows).unwrap(), Mode::Upsert);
    running.engine.commit(&Principal::local(), insert).unwrap();
    let materializer = Materializer::new(Options::default(), Arc::default()).unwrap();
    running.engine.register(Arc::new(materializer)).unwrap();
    let end = Instant::now() + Duration::from_secs(60);
    while running.ask("GET", "/large", "").status != 200 {
        assert!(Instant::now() < end, "the pages do not come");
        std::thread::sleep(Duration::from_millis(10));
    }

    let mut socket = TcpStream::connect(running.address).unwrap();
    let mut buffer = vec![0; 64 << 10];
    let mut measure = |page: &str, encoding: &str| {
        let request =
            format!("GET {page} HTTP/1.1\r\nhost: localhost\r\naccept-encoding: {encoding}\r\n\r\n");
        read(&mut socket, request.as_bytes(), &mut buffer);
        LARGEST.store(0, Relaxed);
        TOTAL.store(0, Relaxed);
        ON.store(true, Relaxed);
        let size = read(&mut socket, request.as_bytes(), &mut buffer);
        ON.store(false, Relaxed);
        let (largest, each) = (LARGEST.load(Relaxed), TOTAL.load(Relaxed) / REQUESTS);
        println!("{page} {encoding}: {size} bytes; largest allocation {largest}, {each} a request");
        (size, largest, each)
    };
    for encoding in ["identity", "gzip"] {
        let (_, _, small) = measure("/small", encoding);
        let (size, largest, each) = measure("/large", encoding);
        assert!(size > 1 << 20, "{encoding}: a page of {size} bytes is not large");
        // Other threads are counted too: the request recorder builds its batches meanwhile.
        assert!(largest < 256 << 10, "{encoding}: {largest} bytes at once for a page of {size}");
        assert!(
            each < small + (64 << 10),
            "{encoding}: {each} bytes a request for a page of {size}, {small} for a short one"
        );
    }
}
