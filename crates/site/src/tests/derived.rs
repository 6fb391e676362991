//! Tests of the site as a materializer: readers get what follows from the rows alone (M1).

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use engine::contract::ContractTest;
use sim::{Rng, SimEnv};
use table::Snapshot;
use table::materializer::{Budget, Materializer as _, MaterializerDir, Position, Progress};
use types::{Result, TableId};

use super::{everything, options};
use crate::{Materializer, Note, Options, ParsedNotes, Row, Site};

const NAMES: [&str; 6] = ["a.md", "b.md", "f/index.md", "f/c.md", "p.png", "f/B.md"];

fn materializer() -> Arc<Materializer> {
    let options = Options { publish: vec!["f/**".to_owned()], ..options() };
    Arc::new(Materializer::new(options, Arc::default()).expect("options"))
}

fn rows(rng: &mut Rng, count: usize) -> RecordBatch {
    let mut rows = BTreeMap::new();
    for _ in 0..count {
        let pick = |rng: &mut Rng| NAMES[rng.below(NAMES.len() as u64) as usize];
        let path = pick(rng).to_owned();
        let said = ["publish: true", "publish: false", "tags: [t]"][rng.below(3) as usize];
        let content = if path.ends_with(".md") {
            format!("---\n{said}\n---\n# T{}\n[[{}]] ![[{}]]\n", rng.below(3), pick(rng), pick(rng))
        } else {
            format!("{}", rng.below(5))
        };
        let words = path.ends_with(".md").then(|| Note::parse(&path, content.as_bytes()).public_words());
        let modified = (rng.below(3) > 0).then(|| 1_700_000_000_000_000 + rng.below(9) as i64 * 1_000_000);
        let published = rng.below(4) > 0;
        rows.insert(path.clone(), Row { path, words, content: content.into(), published, modified });
    }
    let rows: Vec<Row> = rows.into_values().collect();
    crate::batch(&rows).expect("a batch")
}

/// Returns every page of the site after it has taken in all rows, since readers of a site see no tail.
fn observe(table: &Arc<Snapshot>, position: &Position) -> Result<Vec<(String, Vec<u8>)>> {
    let materializer = materializer();
    let place = MaterializerDir { env: SimEnv::new(0).env(), dir: "none".into() };
    let tick: &mut dyn FnMut(u64) -> Result<()> = &mut |_| Ok(());
    let mut budget = Budget { rows: 1, urgent: true, tick };
    let from = Arc::new(position.clone());
    let position = match materializer.step(&place, table, Some(&from), &mut budget)? {
        Progress::Advanced(position) => position,
        _ => position.clone(),
    };
    let site = position.published::<Site>().expect("a site");
    Ok(everything(&site.vault))
}

#[test]
fn a_site_killed_at_any_step_ends_as_one_built_from_nothing() {
    let _limit = testkit::limit(600);
    let make = || -> Arc<dyn table::materializer::Materializer> { materializer() };
    let table = crate::definition("main.notes").expect("a definition");
    let trial =
        ContractTest { make: &make, table, rows: &rows, observe: &observe, keeps_old_positions: true };
    trial.run(testkit::seeds(25));
}

#[test]
fn a_note_that_its_row_does_not_publish_is_private_whatever_it_says() {
    let empty = crate::Vault::new(options()).expect("options");
    let file = |path: &str| crate::File {
        path: path.into(),
        bytes: "---\npublish: true\n---\nx".into(),
        modified: None,
    };
    let known = |may_publish| {
        crate::Change::PutKnown(crate::KnownFile { file: file("a.md"), note: None, may_publish })
    };
    let open = empty.apply([known(true)]);
    assert!(open.page("/a").is_some());
    let closed = open.apply([known(false)]);
    assert!(closed.page("/a").is_none());
    assert!(closed.apply([known(true)]).page("/a").is_some());
}

#[test]
fn words_for_everybody_name_no_other_note_and_hold_no_comment() {
    let note = Note::parse("a.md", b"---\nx: 1\n---\n# About [[Secret plan]]\nsee [the plan](secret.md), %%hidden%% [out](https://e.org) ok");
    let (title, text) = note.public_words();
    assert_eq!(title, "About …");
    assert!(!text.to_lowercase().contains("plan") && !text.contains("hidden"), "{text}");
    assert!(text.contains("out") && text.contains("ok"), "{text}");
}

#[test]
fn a_parsed_note_is_handed_over_once_and_only_for_its_bytes() {
    let parsed = ParsedNotes::default();
    parsed.put(Arc::new(Note::parse("a.md", b"x")), b"x");
    assert!(parsed.take("a.md", b"y").is_none());
    assert!(parsed.take("b.md", b"x").is_none());
    assert!(parsed.take("a.md", b"x").is_some());
    assert!(parsed.take("a.md", b"x").is_none());
}

#[test]
fn a_vault_table_is_as_defined_and_stays_out_of_the_lake() {
    let def = crate::definition(crate::TABLE).expect("a definition");
    assert!(crate::has_vault_columns(&def) && def.is_vault());
    assert_eq!(def.options.lake, Some(false));
    def.check_stored().expect("storable");
    assert!(!crate::has_vault_columns(&types::TableDef::new(TableId(1), "main.t")));
}
