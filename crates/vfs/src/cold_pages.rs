//! Marks pages that only background work touches as the first to be evicted. A build that reads a whole table must not
//! evict the pages that readers use.
//!
//! Background work opens a scope with [`background_reads`]. Code that hands out bytes of a mapped file inside such a
//! scope reports them with [`note_background_read`], unless a reader has used a part of them already. The last few
//! reports are kept, because the work may still use those bytes. For older ones, and for all at the end of the scope,
//! the kernel is told to evict them before other pages. The bytes stay cached as long as there is enough memory, so a
//! later reader loses nothing.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::marker::PhantomData;

use bytes::Bytes;

use crate::real::advise_cold;

/// The number of latest blocks kept back, which the work itself may still be using.
const REMEMBERED: usize = 16;

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    static RECENT: RefCell<VecDeque<Bytes>> = const { RefCell::new(VecDeque::new()) };
}

/// Marks the thread as doing background work until the returned value is dropped. Scopes nest.
#[must_use = "the scope ends when the value is dropped"]
pub fn background_reads() -> BackgroundReads {
    DEPTH.with(|depth| depth.set(depth.get() + 1));
    BackgroundReads { _stays_on_its_thread: PhantomData }
}

/// Returns true if this thread is inside a [`background_reads`] scope.
#[inline]
pub fn in_background_reads() -> bool {
    DEPTH.with(|depth| depth.get() > 0)
}

/// Reports bytes of a mapped file that this thread is about to read inside a [`background_reads`] scope and that no
/// reader has used.
pub fn note_background_read(bytes: Bytes) {
    RECENT.with_borrow_mut(|passed| {
        if passed.back().is_some_and(|last| last.as_ptr() == bytes.as_ptr()) {
            return;
        }
        passed.push_back(bytes);
        if passed.len() > REMEMBERED
            && let Some(first) = passed.pop_front()
        {
            advise_cold(&first);
        }
    });
}

/// The scope that [`background_reads`] opens; it ends when this is dropped.
#[derive(Debug)]
pub struct BackgroundReads {
    _stays_on_its_thread: PhantomData<*const ()>,
}

impl Drop for BackgroundReads {
    fn drop(&mut self) {
        let left = DEPTH.with(|depth| {
            depth.set(depth.get() - 1);
            depth.get()
        });
        if left == 0 {
            RECENT.take().iter().for_each(|bytes| advise_cold(bytes));
        }
    }
}
