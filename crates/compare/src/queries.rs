//! Generated SQL whose answers must equal SQLite's.
//!
//! Each seed creates a world of its own: three tables with nulls, duplicates, negative and extreme values of all types that both
//! databases have, and 200 statements. Between statements rows are inserted, updated and deleted, and indexes are declared. So
//! statements meet tables without indexes, with indexes under construction, and with finished indexes and newer rows. [`world`]
//! lists the SQL that is left out because the two dialects differ.

mod condition;
mod pair;
mod statement;
mod world;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use bench::random::Random;
use clap::Args;
use types::{Error, Result};

use condition::StatementScope;
use pair::{DatabasePair, Verdict, shown};
use statement::Select;
use world::{Kind, TABLES, Table};

/// Beginnings of the messages with which Polynya is known to refuse statements. A refusal is not a wrong answer. A refusal that
/// is not listed here fails the run, and so do too many.
const REFUSED: &[&str] = &["not supported yet:", "no plan was found in which all rows come in the order"];
/// The largest share of refused statements: one in this number.
const REFUSED_SHARE_MAX: u64 = 50;

const STEPS: u64 = 8;
const STATEMENTS: u64 = 25;

#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Worlds, of 200 statements each
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Number of differences after which the run stops
    #[arg(long, default_value_t = 20)]
    show: usize,
}

/// The counts over all worlds.
#[derive(Default)]
struct Tally {
    statements: u64,
    explained: u64,
    by_index: u64,
    different: usize,
    refused: BTreeMap<String, (u64, String)>,
}

pub fn run(options: &Options, progress: bench::ProgressSink<'_>) -> Result<ExitCode> {
    let mut tally = Tally::default();
    for seed in options.first..options.first + options.seeds {
        if seed > options.first && (seed - options.first).is_multiple_of(20) {
            progress(&format!("{} statements, {} different", tally.statements, tally.different));
        }
        world(seed, &mut tally).map_err(|error| error.with("seed", seed))?;
        if tally.different >= options.show {
            break;
        }
    }
    println!(
        "{} statements, {} different, {} refused; {} of {} explained ones ask an index",
        tally.statements,
        tally.different,
        tally.refused.values().map(|(count, _)| count).sum::<u64>(),
        tally.by_index,
        tally.explained
    );
    for (why, (count, text)) in &tally.refused {
        println!("refused {count} times: {why}\n  {text}");
    }
    Ok(if tally.is_right() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Tally {
    fn is_right(&self) -> bool {
        let is_known = |why: &String| REFUSED.iter().any(|known| why.starts_with(known));
        let refused: u64 = self.refused.values().map(|(count, _)| count).sum();
        self.different == 0
            && self.refused.keys().all(is_known)
            && refused * REFUSED_SHARE_MAX <= self.statements
    }
}

fn world(seed: u64, tally: &mut Tally) -> Result<()> {
    let mut random = Random::new(seed);
    let dir = tempfile::tempdir().map_err(|error| Error::io("making a directory", error))?;
    let pair = DatabasePair::new(dir.path())?;
    let mut next = [1; TABLES.len()];
    for (table, next) in TABLES.iter().zip(&mut next) {
        let [ours, theirs] = table.create();
        pair.write([&ours, &theirs])?;
        let rows = table.rows / 2 + random.below(table.rows);
        let text = table.insert(&mut random, *next, rows);
        *next += rows;
        pair.write([&text, &text])?;
    }
    for step in 0..STEPS {
        // The first statements meet the tables as they were filled.
        if step > 0 {
            change(&pair, &mut random, &mut next)?;
        }
        for _ in 0..STATEMENTS {
            let select = statement::any(&mut random);
            let (text, ordered) = (select.text(), select.is_ordered());
            tally.statements += 1;
            if tally.statements.is_multiple_of(16) {
                tally.explained += 1;
                tally.by_index += u64::from(pair.uses_index(&text));
            }
            match pair.compare(&text, ordered) {
                Verdict::Same => {}
                Verdict::InvalidStatement(why) => {
                    return Err(Error::internal(format!("SQLite refuses it: {why}")).with("statement", text));
                }
                Verdict::Refused(why) => tally.refused.entry(kind_of(&why)).or_insert((0, text)).0 += 1,
                Verdict::Different(..) => {
                    tally.different += 1;
                    explain(seed, step, &pair, select);
                }
            }
        }
    }
    pair.polynya.close()
}

/// Inserts, updates and deletes rows of one table, and sometimes declares an index.
fn change(pair: &DatabasePair, random: &mut Random, next: &mut [u64; TABLES.len()]) -> Result<()> {
    let at = random.below(TABLES.len() as u64) as usize;
    let table: &'static Table = &TABLES[at];
    let scope = StatementScope { depth: 9, ..StatementScope::of(table.name, table) };
    let both = |text: String| pair.write([&text, &text]);
    if random.below(3) > 0 {
        let index = table.indexes[random.below(table.indexes.len() as u64) as usize];
        let text = format!(
            "create index if not exists {}_{} on {} ({index})",
            table.name,
            index.replace(", ", "_"),
            table.name
        );
        both(text)?;
    }
    if random.below(3) > 0 {
        let count = 1 + random.below(table.rows / 3);
        both(table.insert(random, next[at], count))?;
        next[at] += count;
    }
    if random.below(2) == 0 {
        let (column, kind) = table.columns[1 + random.below(table.columns.len() as u64 - 1) as usize];
        let (value, filter) = (kind.value(random), scope.condition(random, 1).text());
        both(format!("update {} set {column} = {value} where {filter}", table.name))?;
    }
    if random.below(2) == 0 {
        let small = scope.column_of(random, |kind| kind == Kind::Small).map_or("0".into(), |small| small.0);
        let filter = scope.condition(random, 1).text();
        both(format!("delete from {} where {filter} and {small} % 4 = {}", table.name, random.below(4)))?;
    }
    if random.below(2) == 0 {
        pair.polynya.wait_for_indexes(table.name, Duration::from_secs(60))?;
    }
    Ok(())
}

/// Reports a difference by the smallest statement that shows it.
fn explain(seed: u64, step: u64, pair: &DatabasePair, select: Select) {
    let mut smallest = select;
    loop {
        let differs = |smaller: &Select| {
            matches!(pair.compare(&smaller.text(), smaller.is_ordered()), Verdict::Different(..))
        };
        match smallest.smaller().into_iter().find(differs) {
            Some(smaller) => smallest = smaller,
            None => break,
        }
    }
    let text = smallest.text();
    println!("DIFFERENT: seed {seed}, step {step}: {text}");
    for table in TABLES.iter().filter(|table| text.contains(&format!(" {} ", table.name))) {
        println!("  {}", table.create()[0]);
    }
    if let Verdict::Different(ours, theirs) = pair.compare(&text, smallest.is_ordered()) {
        let ordered = smallest.is_ordered();
        println!("  Polynya: {}\n  SQLite: {}", shown(&ours, ordered), shown(&theirs, ordered));
    }
}

/// Returns a message without its numbers, cut to 90 characters, so that equal reasons are counted together.
fn kind_of(message: &str) -> String {
    let plain: String = message.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    plain.chars().take(90).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_of_two_worlds_have_the_answers_of_sqlite() {
        let _limit = testkit::limit(300);
        let mut tally = Tally::default();
        testkit::for_each_seed(2, |seed| world(seed, &mut tally).unwrap());
        assert!(tally.is_right(), "{} different, refused: {:?}", tally.different, tally.refused);
        assert_eq!(tally.statements, 2 * STEPS * STATEMENTS);
    }
}
