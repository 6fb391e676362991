//! The files of a table's lake, where it alone has rows and lies in the data directory: they are compared with the checksums that
//! were kept when they were written.

use std::path::Path;

use ::lake::reader::Reader;
use ::lake::{Store, table_dir};
use types::Kind;
use vfs::Env;

use super::Examination;

pub(super) fn check(env: &Env, dir: &Path, progress: &mut dyn FnMut(&str), examination: &mut Examination) {
    let (store, warehouse) = (Store::local(env), dir.join("lake"));
    let with_rows = examination.tables.iter().filter(|table| table.lake_rows > 0);
    for table in with_rows.map(|table| table.name.clone()).collect::<Vec<_>>() {
        progress(&format!("the lake of {table}"));
        let opened = Reader::open(&store, &table_dir(&warehouse, &table));
        match opened.and_then(|reader| reader.compare_files()) {
            Ok(found) => {
                for file in found.damaged {
                    examination.damage(format!("the lake of table {table}: {file}"));
                }
                if found.unknown > 0 {
                    examination.note(format!(
                        "the lake of table {table}: {} of {} files were written before checksums were kept, and were not compared",
                        found.unknown, found.files
                    ));
                }
            }
            // In an object store, or a catalog has it.
            Err(error) if error.kind() == Kind::NotFound => {}
            Err(error) => examination.damage(format!("the lake of table {table}: {error}")),
        }
    }
}
