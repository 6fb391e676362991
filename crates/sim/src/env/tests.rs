use super::*;
use std::path::Path;
use std::time::Duration;

use crate::clock::START;

#[test]
fn time_moves_only_when_it_is_told_to_and_goes_on_over_a_crash() {
    let machine = SimEnv::new(1);
    let env = machine.env();
    assert_eq!((env.clock.now(), env.clock.monotonic()), (START, Duration::ZERO));
    machine.clock.advance(Duration::from_millis(1500));
    machine.clock.jump(-1_000_000);
    assert_eq!((env.clock.now(), env.clock.monotonic()), (START + 500_000, Duration::from_millis(1500)));
    let next = machine.crash(&mut Rng::new(1));
    next.clock.advance(Duration::from_secs(1));
    assert_eq!(next.env().clock.now(), START + 1_500_000);
}

#[test]
fn random_bytes_follow_the_seed_and_do_not_repeat_after_a_restart() {
    let bytes = |machine: &SimEnv| machine.env().random.next_u64();
    let (a, b) = (SimEnv::new(1), SimEnv::new(1));
    assert_eq!(bytes(&a), bytes(&b));
    assert_ne!(bytes(&SimEnv::new(1)), bytes(&SimEnv::new(2)));
    let first = bytes(&a);
    assert_ne!(bytes(&a.kill()), first);
}

#[test]
fn the_trace_goes_on_over_crashes_and_kills() {
    let run = || {
        let machine = SimEnv::new(3);
        machine.env().disk.create_dir_all(Path::new("/a")).unwrap();
        let crashed = machine.crash(&mut Rng::new(3));
        crashed.env().disk.exists(Path::new("/a")).unwrap();
        let killed = crashed.kill();
        assert_eq!(killed.trace_hash(), crashed.trace_hash());
        killed.env().disk.list(Path::new("/")).unwrap();
        assert_ne!(killed.trace_hash(), crashed.trace_hash());
        killed.trace_hash()
    };
    assert_eq!(run(), run());
}
