//! Measures the cost of a folder feed while nothing changes: `idle [NOTES] [SECONDS]`. For each way of following a
//! folder it prints the processor time of the whole process in those seconds, and the duration of one scan.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use polynya_feeds::folder::{Feed, FolderRoot, Limits, Options};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let notes: usize = args.next().map_or(Ok(10_000), |text| text.parse())?;
    let seconds: u64 = args.next().map_or(Ok(20), |text| text.parse())?;
    let dir = testkit::temp_dir("idle");
    let vault = dir.path().join("vault");
    for i in 0..notes {
        let folder = vault.join(format!("folder{}", i / 100));
        if i % 100 == 0 {
            std::fs::create_dir_all(&folder)?;
        }
        std::fs::write(folder.join(format!("note{i}.md")), format!("# Note {i}\n\nSome words.\n"))?;
    }
    for watch in [true, false] {
        let data = dir.path().join(format!("data-{watch}"));
        let engine = engine::Engine::open(vfs::Env::real(), &data, engine::Options::default())?;
        let root = FolderRoot { path: vault.clone(), prefix: String::new(), notes_only: false, still: false };
        let begin = Instant::now();
        let feed = Feed::start(
            engine.clone(),
            Options {
                table: site::TABLE.to_owned(),
                roots: vec![root],
                rule: site::Options::default().rule()?,
                parsed: Arc::default(),
                limits: Limits::default(),
                watch,
            },
        )?;
        while !feed.status().get().settled {
            std::thread::sleep(Duration::from_millis(10));
        }
        let first = begin.elapsed();
        // The measurement must not include the seals and manifests of the first rows.
        std::thread::sleep(Duration::from_secs(3));
        let (before, scans) = (processor_time()?, feed.status().get().scans);
        std::thread::sleep(Duration::from_secs(seconds));
        let used = processor_time()? - before;
        let state = feed.status().get();
        println!(
            "{notes} notes, {}: first look and rows {first:?}; idle {:.2} % of a core; {} looks, the last {:?}",
            if watch { "told by the kernel" } else { "looked at again and again" },
            used.as_secs_f64() / seconds as f64 * 100.0,
            state.scans - scans,
            state.last_scan,
        );
        feed.stop();
        engine.close()?;
    }
    Ok(())
}

/// Returns the processor time of all threads of this process.
fn processor_time() -> Result<Duration, Box<dyn std::error::Error>> {
    let text = std::fs::read_to_string(Path::new("/proc/self/schedstat"))?;
    let own: u64 = text.split_whitespace().next().ok_or("no time")?.parse()?;
    let mut total = 0;
    for task in std::fs::read_dir("/proc/self/task")? {
        let text = std::fs::read_to_string(task?.path().join("schedstat"))?;
        total += text.split_whitespace().next().and_then(|text| text.parse().ok()).unwrap_or(own);
    }
    Ok(Duration::from_nanos(total))
}
