//! What background work touches in passing makes way first: a build that reads a whole table must not drive out of memory
//! what readers use.
//!
//! Background work opens a scope with [`pass_through`]. Whoever hands out bytes of a mapped file inside of it, of which no
//! reader has had a part yet, says so with [`passed`]. The last of them are remembered; the kernel is told of each, a little
//! later and at the end of the scope, that it may go before all others. Nothing is lost by it: bytes that a reader comes to
//! want are as near as before, as long as memory lasts.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::marker::PhantomData;

use bytes::Bytes;

use crate::real::first_to_go;

/// Blocks that may still be in use by the work itself.
const REMEMBERED: usize = 16;

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    static PASSED: RefCell<VecDeque<Bytes>> = const { RefCell::new(VecDeque::new()) };
}

/// Until the value is dropped, this thread does background work. Scopes nest.
#[must_use = "the scope ends when the value is dropped"]
pub fn pass_through() -> Passing {
    DEPTH.with(|depth| depth.set(depth.get() + 1));
    Passing { _stays_on_its_thread: PhantomData }
}

/// Whether this thread is inside a [`pass_through`] scope.
#[inline]
pub fn is_passing() -> bool {
    DEPTH.with(|depth| depth.get() > 0)
}

/// Bytes of a mapped file that this thread is about to read inside a [`pass_through`] scope, and that nobody else has
/// wanted.
pub fn passed(bytes: Bytes) {
    PASSED.with_borrow_mut(|passed| {
        if passed.back().is_some_and(|last| last.as_ptr() == bytes.as_ptr()) {
            return;
        }
        passed.push_back(bytes);
        if passed.len() > REMEMBERED
            && let Some(first) = passed.pop_front()
        {
            first_to_go(&first);
        }
    });
}

/// The scope that [`pass_through`] opened.
#[derive(Debug)]
pub struct Passing {
    _stays_on_its_thread: PhantomData<*const ()>,
}

impl Drop for Passing {
    fn drop(&mut self) {
        let left = DEPTH.with(|depth| {
            depth.set(depth.get() - 1);
            depth.get()
        });
        if left == 0 {
            PASSED.take().iter().for_each(|bytes| first_to_go(bytes));
        }
    }
}
