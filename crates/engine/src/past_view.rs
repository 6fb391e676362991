//! Views of the past: the same root, read as it was at an earlier lsn.
//!
//! Tables have the names and columns that they had then. A principal sees a table only if it may see it under both of its
//! names, the old one and the present one: a name that went from one table to another opens neither.

use std::sync::Arc;

use table::Snapshot;
use types::{Error, Lsn, Micros, Result, name};

use crate::view::View;

/// The earliest point at which a table can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PastExtent {
    pub lsn: Lsn,
    /// Time of that commit, if it is still known.
    pub time: Option<Micros>,
    /// Bytes of the files that hold deleted rows of the table.
    pub bytes: u64,
}

impl View {
    /// Returns a view of this root at an earlier lsn. Some tables may not be readable that far back, which shows only when
    /// they are read.
    ///
    /// Fails with [`types::Kind::Invalid`] for an lsn that is yet to come.
    pub fn at(&self, lsn: Lsn) -> Result<View> {
        let newest = self.root().lsn();
        if lsn > newest {
            return Err(Error::invalid(format!("lsn {lsn} is yet to come; the newest is {newest}")));
        }
        Ok(self.at_lsn(lsn))
    }

    /// Returns the last commit at or before a time, to the millisecond. Fails with [`types::Kind::NotFound`] if it is no
    /// longer known.
    pub fn lsn_at(&self, time: Micros) -> Result<Lsn> {
        let times = &self.root().times;
        times.at(time).map(|lsn| lsn.min(self.root().lsn())).ok_or_else(|| {
            let oldest = times.first().map_or_else(String::new, text);
            Error::not_found(format!("the past is known since {oldest}, not at {}", text(time)))
                .hint("`history` in the settings says how long it is kept; an lsn may reach further back")
        })
    }

    /// The lsn at which this view reads, if it is a view of the past.
    pub fn as_of(&self) -> Option<Lsn> {
        self.past_lsn()
    }

    /// Returns the earliest point at which a table of this view can be read.
    pub fn past_extent(&self, table: &Snapshot) -> PastExtent {
        let lsn = table.past_floor();
        PastExtent { lsn, time: self.root().times.of(lsn), bytes: table.past_bytes() }
    }

    pub(crate) fn tables_at(&self, lsn: Lsn) -> Vec<Arc<Snapshot>> {
        let mut tables: Vec<_> = self.visible_at(lsn).filter_map(|table| table.at(lsn).ok()).collect();
        tables.sort_by(|a, b| a.def().name.cmp(&b.def().name));
        tables
    }

    /// Returns the table that had this full name: the exact one, or the only one that differs by case.
    pub(crate) fn table_at(&self, full_name: &str, lsn: Lsn) -> Result<Arc<Snapshot>> {
        let names = || self.visible_at(lsn).map(|table| table.def_at(lsn).name.as_str());
        let Some(table) = name::resolve(full_name, names()).and_then(|at| self.visible_at(lsn).nth(at))
        else {
            return Err(self.missing_at(full_name, lsn));
        };
        if lsn < table.past_floor() {
            let reach = self.past_extent(table);
            let when = reach.time.map_or_else(String::new, |time| format!(" ({})", text(time)));
            return Err(Error::not_found(format!(
                "`{}` can be read back to lsn {}{when}, not at lsn {lsn}",
                name::short_table_name(&table.def().name),
                reach.lsn
            ))
            .hint("`history` in the settings says how long rows are kept that were changed or deleted"));
        }
        table.at(lsn)
    }

    fn visible_at(&self, lsn: Lsn) -> impl Iterator<Item = &Arc<Snapshot>> {
        let seen = move |table: &&Arc<Snapshot>| {
            table.created() <= lsn && self.sees(table.def()) && self.sees(table.def_at(lsn))
        };
        self.root().tables().filter(seen)
    }

    fn missing_at(&self, full_name: &str, lsn: Lsn) -> Error {
        let seen = |def: &types::TableDef| self.sees(def);
        let short = name::printable(name::short_table_name(full_name));
        match self.root().table(full_name).filter(|table| self.sees(table.def())) {
            Some(table) if table.created() > lsn => {
                Error::not_found(format!("`{short}` did not exist at lsn {lsn}"))
                    .hint(format!("it was made at lsn {}", table.created()))
            }
            Some(_) => Error::not_found(format!("no table was called `{short}` at lsn {lsn}")),
            None => self.missing(full_name, &seen),
        }
    }
}

fn text(time: Micros) -> String {
    match arrow::temporal_conversions::timestamp_us_to_datetime(time) {
        Some(at) => at.format("%Y-%m-%dT%H:%M:%S%.3fZ").to_string(),
        None => format!("{time} µs"),
    }
}
