//! Prints the stack of every thread of this process, without a debugger.
//!
//! Each thread in turn gets a signal whose handler captures its own stack. Capturing allocates and takes std's
//! backtrace lock. A signal handler must not do that in a program that goes on, but this one is about to abort. A
//! thread that was interrupted at a bad place costs only its own stack. Sleeping threads come first: those of a
//! deadlock hold no allocator lock. Every thread gets a bounded time to answer.

#![allow(unsafe_code)]

use std::backtrace::Backtrace;
use std::fs;
use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The time within which a thread must capture its stack. A thread that exceeds it never will.
const CAPTURE_TIME_MAX: Duration = Duration::from_secs(2);

struct CapturedStack {
    name: Option<String>,
    stack: Backtrace,
}

/// The id of the thread whose answer is awaited. An answer by any other thread is too late and is dropped.
static REQUESTED: AtomicI32 = AtomicI32::new(0);
static CAPTURED: Mutex<Option<CapturedStack>> = Mutex::new(None);

pub(super) fn print_all(out: &mut impl Write) {
    let signal = libc::SIGUSR2;
    install(signal);
    let own = own_id();
    let mut tasks = tasks();
    tasks.retain(|task| task.id != own);
    tasks.sort_by_key(|task| (task.state != 'S', task.id));
    for task in tasks {
        REQUESTED.store(task.id, Ordering::SeqCst);
        // SAFETY: no memory is passed. A thread that has ended meanwhile makes the call fail.
        let sent = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), task.id, signal) } == 0;
        let captured = if sent { wait() } else { None };
        REQUESTED.store(0, Ordering::SeqCst);
        let name = captured.as_ref().and_then(|captured| captured.name.clone()).unwrap_or(task.name);
        let _ = writeln!(out, "\n--- thread {} \"{name}\" ({})", task.id, state_in_words(task.state));
        let _ = match captured {
            Some(captured) => out.write_all(below_the_signal(&captured.stack.to_string()).as_bytes()),
            None => writeln!(out, "  (did not answer)"),
        };
    }
}

fn install(signal: libc::c_int) {
    // SAFETY: all-zero bytes are a valid sigaction; `capture_own_stack` has the type of a plain handler and lives for
    // ever; both pointers are to live locals or null.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = capture_own_stack as extern "C" fn(libc::c_int) as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigemptyset(&mut action.sa_mask);
        libc::sigaction(signal, &action, std::ptr::null_mut());
    }
}

/// The signal handler; runs on the signalled thread.
#[inline(never)]
extern "C" fn capture_own_stack(_signal: libc::c_int) {
    let own = own_id();
    if REQUESTED.load(Ordering::SeqCst) != own {
        return;
    }
    let stack = Backtrace::force_capture();
    // libtest names its threads after their tests, in full; the kernel cuts names at 15 bytes.
    let name = thread::current().name().map(str::to_owned);
    if let Ok(mut captured) = CAPTURED.try_lock()
        && REQUESTED.load(Ordering::SeqCst) == own
    {
        *captured = Some(CapturedStack { name, stack });
    }
}

fn wait() -> Option<CapturedStack> {
    let deadline = Instant::now() + CAPTURE_TIME_MAX;
    while Instant::now() < deadline {
        // The handler must not have to wait for this lock, so it is polled with pauses.
        thread::sleep(Duration::from_millis(1));
        if let Some(captured) = CAPTURED.lock().ok()?.take() {
            return Some(captured);
        }
    }
    None
}

/// Cuts off the frames of the handler itself, which are above the interesting ones.
fn below_the_signal(stack: &str) -> &str {
    // The handler is found by its file name, because the debug information decides whether a frame shows a function's
    // full path.
    let Some(handler) = stack.rfind("limit/stacks.rs:") else { return stack };
    let rest = &stack[handler..];
    // The next line that starts with a frame's number is the kernel's trampoline.
    rest.match_indices('\n')
        .map(|(at, _)| &rest[at + 1..])
        .find(|rest| rest.trim_start().starts_with(|c: char| c.is_ascii_digit()))
        .unwrap_or(stack)
}

struct ThreadInfo {
    id: i32,
    name: String,
    state: char,
}

fn tasks() -> Vec<ThreadInfo> {
    let Ok(entries) = fs::read_dir("/proc/self/task") else { return Vec::new() };
    entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let id = entry.file_name().to_str()?.parse().ok()?;
            // The format is "id (name) state …"; the name may itself hold parentheses.
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            let (head, tail) = stat.rsplit_once(") ")?;
            let name = head.split_once('(')?.1.to_owned();
            Some(ThreadInfo { id, name, state: tail.chars().next()? })
        })
        .collect()
}

fn state_in_words(state: char) -> &'static str {
    match state {
        'R' => "running",
        'S' => "waiting",
        'D' => "in the kernel, on I/O",
        'T' | 't' => "stopped",
        _ => "ending",
    }
}

fn own_id() -> i32 {
    // SAFETY: the call takes nothing and cannot fail.
    unsafe { libc::gettid() }
}
