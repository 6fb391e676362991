//! Tests the limit in a process of its own, since it ends that process. Each test starts this test program again with
//! one of the `on_request_…` tests, which do nothing unless the variable requests them.

use super::*;
use std::process::{Command, Output};
use std::sync::mpsc;

const REQUEST: &str = "POLYNYA_TESTKIT_REQUEST";

fn requested(what: &str) -> bool {
    std::env::var(REQUEST).is_ok_and(|request| request == what)
}

fn run_alone(test: &str, request: &str) -> Output {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("limit::tests::{test}")])
        .env(REQUEST, request)
        .env("POLYNYA_TEST_SCALE", "1")
        .output()
        .unwrap()
}

#[inline(never)]
fn waits_for_what_never_comes(wake: &mpsc::Receiver<()>) {
    wake.recv().unwrap();
}

#[inline(never)]
fn turns_for_ever() {
    loop {
        std::hint::spin_loop();
    }
}

#[test]
fn on_request_two_threads_hang() {
    if !requested("hang") {
        return;
    }
    let _limit = limit(1);
    let (_keep, wake) = mpsc::channel();
    thread::Builder::new().name("spinner".into()).spawn(turns_for_ever).unwrap();
    waits_for_what_never_comes(&wake);
}

#[test]
fn on_request_a_test_ends_in_time() {
    if !requested("in time") {
        return;
    }
    let outer = limit(60);
    for _ in 0..100 {
        let _inner = limit(1);
    }
    drop(outer);
    // This waits longer than the dropped limits; the watcher must not abort the process.
    let (_keep, wake) = mpsc::channel::<()>();
    assert!(wake.recv_timeout(Duration::from_millis(1200)).is_err());
}

#[test]
#[cfg(target_os = "linux")]
fn a_test_over_its_limit_shows_every_thread_and_aborts() {
    use std::os::unix::process::ExitStatusExt;
    let output = run_alone("on_request_two_threads_hang", "hang");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{stderr}");
    let headline = "on_request_two_threads_hang exceeded its limit of 1 s, set at ";
    assert!(stderr.contains(headline), "{stderr}");
    assert!(stderr.contains("limit/tests.rs:"), "{stderr}");
    for expected in ["waits_for_what_never_comes", "turns_for_ever", "\"spinner\" (running)"] {
        assert!(stderr.contains(expected), "no {expected} in\n{stderr}");
    }
    assert!(!stderr.contains("limit/stacks.rs"), "the handler's own frames are of no interest:\n{stderr}");
    // The full thread name is printed; the kernel knows only its first 15 bytes.
    assert!(stderr.contains("\"limit::tests::on_request_two_threads_hang\" (waiting)"), "{stderr}");
}

#[test]
fn a_test_within_its_limit_is_left_alone() {
    let output = run_alone("on_request_a_test_ends_in_time", "in time");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
