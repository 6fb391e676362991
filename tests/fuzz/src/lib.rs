//! A fuzzer on stable Rust. It mutates valid inputs, and a target must take each without a panic, an abort or an endless loop. It
//! does not measure coverage; in exchange every target runs in `make test` for a second.
//!
//! `POLYNYA_TEST_FUZZ_SECONDS` sets the time of each target, and `POLYNYA_TEST_FUZZ_FROM` the number of the first input. An input
//! is determined by its number. If the process aborts, the number is in the file that the target prints at its start.

#![forbid(unsafe_code)]

mod mutate;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use testkit::Rng;

pub use mutate::mutate;

/// The longest time for one input. A slower target has a missing bound.
const INPUT_MAX: Duration = Duration::from_secs(10);

/// Mutates `seeds` and passes each result to `target`, for the time that the environment sets. If `target` panics or is too slow,
/// this panics with the seed of the random numbers and the input.
pub fn fuzz(name: &str, seeds: &[Vec<u8>], target: impl Fn(&[u8])) {
    let seconds =
        std::env::var("POLYNYA_TEST_FUZZ_SECONDS").map_or(1.0, |text| text.parse().expect("seconds"));
    let _limit = testkit::limit(seconds as u64 + 120);
    let first = std::env::var("POLYNYA_TEST_FUZZ_FROM").map_or(0, |text| text.parse().expect("a number"));
    let path =
        std::env::temp_dir().join(format!("polynya-fuzz-{}-{}", std::process::id(), name.replace(' ', "-")));
    println!("{name}: the number of the last input is in {}", path.display());
    let number = File::create(&path).expect("noting the number of the input");
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    let mut inputs = 0;
    for seed in first.. {
        let mut rng = Rng::new(seed);
        let input = mutate(seeds, &mut rng);
        number.write_all_at(format!("{seed:020}").as_bytes(), 0).expect("noting the number of the input");
        let began = Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(|| target(&input)));
        let took = began.elapsed();
        let text = || String::from_utf8_lossy(&input[..input.len().min(2_000)]).into_owned();
        assert!(outcome.is_ok(), "{name} panicked at input {seed}: {}", text());
        assert!(took < INPUT_MAX, "{name} took {took:?} for input {seed}: {}", text());
        inputs += 1;
        if Instant::now() >= end {
            break;
        }
    }
    let _ = std::fs::remove_file(&path);
    println!("{name}: {inputs} inputs");
}
