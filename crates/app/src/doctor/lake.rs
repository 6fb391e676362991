//! Checks the lake of each table that has rows only there, if the lake is on this machine. The lake must reach up to the last
//! of those rows. Its files must have the checksums that were recorded when they were written.

use std::path::Path;

use ::lake::reader::Reader;
use ::lake::{Store, table_dir};
use types::Kind;
use vfs::Env;

use super::Examination;

/// Checks the lakes of all tables in `examination` that have rows only there. `warehouse` is the directory of all lakes;
/// `None` if they are elsewhere or in a catalog, which is noted.
pub(super) fn check(
    env: &Env,
    dir: &Path,
    warehouse: Option<&Path>,
    progress: &mut dyn FnMut(&str),
    examination: &mut Examination,
) {
    if let Err(error) = ::lake::check_runs(env, dir) {
        examination.damage(error.to_string());
    }
    let store = Store::local(env);
    let with_rows: Vec<_> = examination.tables.iter().filter(|table| table.lake_rows > 0).cloned().collect();
    for table in with_rows {
        let name = &table.name;
        let Some(warehouse) = warehouse else {
            examination
                .note(format!("the lake of table {name} is not on this machine, and was not examined"));
            continue;
        };
        progress(&format!("the lake of {name}"));
        let reader = match Reader::open(&store, &table_dir(warehouse, name)) {
            Ok(reader) => reader,
            Err(error) => {
                let why =
                    if error.kind() == Kind::NotFound { "it is gone".into() } else { error.to_string() };
                examination.damage(format!(
                    "the lake of table {name}, which has the only copy of {} rows: {why}",
                    table.lake_rows
                ));
                continue;
            }
        };
        if reader.row.next().0 < table.hot_from {
            examination.damage(format!(
                "the lake of table {name} ends at row {}, and the rows up to {} are nowhere else: put the warehouse back as it was",
                reader.row,
                table.hot_from - 1
            ));
        }
        match reader.compare_files() {
            Ok(found) => {
                for file in found.damaged {
                    examination.damage(format!("the lake of table {name}: {file}"));
                }
                if found.unknown > 0 {
                    examination.note(format!(
                        "the lake of table {name}: {} of {} files were written before checksums were kept, and were not compared",
                        found.unknown, found.files
                    ));
                }
            }
            Err(error) => examination.damage(format!("the lake of table {name}: {error}")),
        }
    }
}
