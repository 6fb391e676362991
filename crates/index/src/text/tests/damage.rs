//! Tests of damage: index files and checkpoints with wrong or missing bytes.

use std::io::IoSlice;

use bytes::Bytes;
use table::materializer::{Checkpoint, Materializer};
use types::Kind;
use vfs::Access;

use super::support::{Machine, built, notes};
use crate::text::{Index, TextMaterializer};

#[test]
fn a_damaged_or_missing_piece_is_built_anew_after_a_restart() {
    let _limit = testkit::limit(120);
    for missing in [false, true] {
        let machine = Machine::new(1, notes());
        machine.insert_bodies(&["a heron", "a crane"]);
        machine.catch_up();
        let paths = machine.files();
        assert_eq!(paths.len(), 1);
        let env = machine.sim.env();
        machine.engine.close().unwrap();
        let Machine { sim, engine, text } = machine;
        drop((engine, text));
        if missing {
            env.disk.remove(&paths[0]).unwrap();
        } else {
            let file = env.disk.open(&paths[0], Access::ReadWrite).unwrap();
            file.write_at(&[IoSlice::new(b"!")], 100).unwrap();
        }
        let machine = Machine::open(sim, notes());
        assert_eq!(machine.rows("heron"), [1], "all is tail");
        machine.catch_up();
        machine.clean();
        assert_eq!(machine.position().unwrap().published::<Index>().unwrap().rows(), 2);
        assert_eq!(machine.rows("heron"), [1]);
        assert_eq!(machine.files().len(), 1, "what is of no use is removed");
    }
}

#[test]
fn no_flipped_bit_or_cut_gets_past_opening_and_none_panics() {
    let _limit = testkit::limit(300);
    let machine = Machine::new(1, notes());
    machine.insert_bodies(&["a heron in the river", "a crane on the bank of the river"]);
    let (place, position) = built(&machine.text, &machine.table(), 10, 3);
    let checkpoint = position.unwrap().checkpoint.clone();
    let path = place.dir.join("1.piece");
    let env = &place.env;
    let whole: Bytes = env.disk.open(&path, Access::Read).unwrap().map().unwrap();
    let text = TextMaterializer::new();
    let table = machine.table();
    let try_with = |bytes: &[u8]| {
        env.disk.remove(&path).unwrap();
        let file = env.disk.create(&path).unwrap();
        file.write_at(&[IoSlice::new(bytes)], 0).unwrap();
        text.open(&place, &table, &checkpoint).map(|_| ())
    };
    try_with(&whole).unwrap();
    for at in (0..whole.len()).step_by(7) {
        let mut flipped = whole.to_vec();
        flipped[at] ^= 1 << (at % 8);
        assert_eq!(try_with(&flipped).unwrap_err().kind(), Kind::Damaged, "byte {at}");
        assert!(try_with(&whole[..at]).is_err(), "cut at {at}");
    }
    try_with(&whole).unwrap();
    // The checkpoint may be damaged too, or come from a later version.
    for at in 0..checkpoint.state.len() {
        let mut state = checkpoint.state.clone();
        state[at] ^= 0x55;
        let wrong = Checkpoint { state, ..checkpoint.clone() };
        let opened = text.open(&place, &table, &wrong);
        assert!(opened.is_err() || at >= 9, "byte {at}");
        let cut = Checkpoint { state: checkpoint.state[..at].to_vec(), ..checkpoint.clone() };
        assert!(text.open(&place, &table, &cut).is_err());
    }
}

#[test]
fn a_piece_that_a_reader_holds_keeps_its_file_until_it_is_let_go() {
    let machine = Machine::new(1, notes());
    machine.insert_bodies(&["one", "two", "three"]);
    machine.catch_up();
    let held = machine.text.searcher(&machine.table(), machine.position().as_deref()).unwrap();
    let first = machine.files();
    machine.delete(vec![types::RowId(1), types::RowId(2)]);
    machine.catch_up();
    machine.insert_bodies(&["four"]);
    machine.catch_up();
    machine.clean();
    assert!(machine.files().contains(&first[0]), "a reader holds it");
    assert!(!machine.position().unwrap().published::<Index>().unwrap().pieces().iter().any(|p| p.id == 1));
    drop(held);
    machine.insert_bodies(&["five"]);
    machine.catch_up();
    machine.clean();
    assert!(!machine.files().contains(&first[0]));
}

#[test]
fn only_files_with_names_of_pieces_are_removed() {
    let machine = Machine::new(1, notes());
    machine.insert_bodies(&["one"]);
    let (place, position) = built(&machine.text, &machine.table(), 10, 3);
    for name in ["7.piece", "007.piece", "x.piece", "7.piece.bak", "notes.md"] {
        place.env.disk.create(&place.dir.join(name)).unwrap();
    }
    let text = TextMaterializer::new();
    text.open(&place, &machine.table(), &position.unwrap().checkpoint).unwrap();
    let left: Vec<String> = place.env.disk.list(&place.dir).unwrap().into_iter().map(|e| e.name).collect();
    assert_eq!(left, ["007.piece", "1.piece", "7.piece.bak", "notes.md", "x.piece"]);
}
