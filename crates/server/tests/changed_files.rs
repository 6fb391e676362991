//! Changes every kind of file of a database in every way that a disk or a person may change one. After each change the database
//! must answer every question as before or report an error. It must never answer wrongly.

#[path = "changed_files/sample.rs"]
mod sample;

use std::collections::BTreeMap;
use std::path::Path;

use sample::{Database, Sample};
use sim::FileChange;
use types::Kind;

/// Number of parts that the changes are divided into, one for each seed. `make test` tries one part, `make test-full` all.
const PARTS: usize = 200;

/// Outcomes of the trials of one kind of file.
#[derive(Debug, Default)]
struct TrialCounts {
    correct: u64,
    reported: u64,
    wrong: Vec<String>,
}

/// Returns the kind of a file by its path. Trials are counted by kind.
fn kind(path: &Path) -> &'static str {
    let text = path.to_string_lossy();
    let ends = |suffix: &str| text.ends_with(suffix);
    match () {
        () if ends(".log") => "log file",
        () if ends(".spare") => "spare log file",
        () if ends("/durable") => "durable file",
        () if text.contains("manifest.copy-") => "copy of the manifest",
        () if text.contains("/manifest-") => "manifest",
        () if ends(".arrow") => "segment",
        () if ends(".meta") => "sidecar of a segment",
        () if ends(".run") => "run of a column index",
        () if ends(".piece") => "piece of a text index",
        () if ends(".metadata.json") => "metadata of the lake",
        () if ends(".avro") => "manifest of the lake",
        () if ends("-deletes.parquet") => "delete file of the lake",
        () if ends(".parquet") => "data file of the lake",
        () => "other",
    }
}

const AT_ONCE: &str = "at once";

/// Opens the sample's database after a change, asks all questions, lets background work run, and asks again.
fn trial(sample: &Sample, path: &Path, change: &FileChange, counts: &mut TrialCounts) {
    let machine = sample.machine.kill();
    machine.disk.change(path, change);
    let Ok(database) = Database::open(&machine) else {
        counts.reported += 1;
        return;
    };
    let mut reported = database.engine.status().write_error.is_some();
    for round in [AT_ONCE, "after background work"] {
        for (question, expected) in &sample.answers {
            match database.ask(question) {
                Ok(answer) if answer == *expected => {}
                // Commits after damage in the log are unknown, and every write reports that.
                Ok(_) if database.engine.status().write_error.is_some() => reported = true,
                Ok(answer) => {
                    let what = format!("{} {change:?}, {round}: {question:?}", path.display());
                    counts.wrong.push(format!("{what}: {answer:?} instead of {expected:?}"));
                    return;
                }
                // Indexes and the lake are opened in the background after a start, so they may be busy in the first round.
                Err(error)
                    if matches!(error.kind(), Kind::Busy | Kind::IndexBuilding) && round == AT_ONCE => {}
                // Later a busy answer is wrong: it advises to try again instead of reporting the damage.
                Err(error) if error.kind() == Kind::Busy => {
                    let what = format!("{} {change:?}, {round}: {question:?}", path.display());
                    counts.wrong.push(format!("{what}: {error}"));
                    return;
                }
                Err(_) => reported = true,
            }
        }
        database.work();
    }
    if reported {
        counts.reported += 1;
    } else {
        counts.correct += 1;
    }
}

/// A flipped bit in the header of the newest log file made acknowledged commits vanish. One in a page of Parquet returned wrong
/// values. Neither was reported.
#[test]
fn no_changed_file_of_a_database_leads_to_a_silent_wrong_answer() {
    let _limit = testkit::limit(3_000);
    let sample = Sample::make();
    let files = sample.machine.disk.files_with_contents();
    let mut counts: BTreeMap<&str, TrialCounts> = BTreeMap::new();
    testkit::for_each_seed(1, |seed| {
        for (path, bytes) in &files {
            let older = sample.older.iter().find(|(older, _)| older == path).map(|(_, bytes)| &bytes[..]);
            for change in FileChange::part(bytes, older, seed as usize % PARTS, PARTS) {
                trial(&sample, path, &change, counts.entry(kind(path)).or_default());
            }
        }
    });
    let bytes: usize = files.iter().map(|(_, bytes)| bytes.len()).sum();
    println!("{} files, {bytes} bytes", files.len());
    let mut wrong = Vec::new();
    for (kind, counts) in counts {
        println!(
            "{kind}: {} correct, {} reported, {} wrong",
            counts.correct,
            counts.reported,
            counts.wrong.len()
        );
        wrong.extend(counts.wrong);
    }
    assert!(
        wrong.is_empty(),
        "{} wrong answers, the first:\n{}",
        wrong.len(),
        wrong[..wrong.len().min(10)].join("\n")
    );
}
