//! A view: a query that has a name.

use crate::codec::{Decoder, Encoder};
use crate::name::{self, printable};
use crate::{ColumnId, Error, Kind, Result, TableId};

/// A database has at most so many.
pub const VIEWS_MAX: usize = 1_000;
const QUERY_BYTES_MAX: usize = 64 << 10;
const COLUMNS_MAX: usize = 1_000;
/// Columns of tables that the query of one view may read.
const READ_MAX: usize = 10_000;

/// A query under a name. Its text is read anew wherever the view is named, with the rights of who reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewDef {
    /// `namespace.view`; no table has the same.
    pub name: String,
    /// What it selects, its tables named in full.
    pub query: String,
    /// The columns that the query had when the view was made.
    pub columns: Vec<ViewColumn>,
    /// The tables that the query names, and what its names mean. Nothing of a view that was made before this was kept: its
    /// names mean whatever has them.
    pub reads: Vec<ViewRead>,
}

/// What a view's query reads of one table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewRead {
    pub table: TableId,
    /// `namespace.table`, as the query calls it.
    pub name: String,
    /// At least the columns that the query names, and how it calls them.
    pub columns: Vec<(ColumnId, String)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewColumn {
    /// As the query calls it.
    pub from: String,
    /// As the view shows it.
    pub name: String,
}

impl ViewDef {
    /// Fails unless the definition may be stored. The name must have passed [`name::full_table_name`].
    pub fn check(&self) -> Result<()> {
        let wrong = |error: Error| error.with("view", name::short_table_name(&self.name));
        name::check_new_table(&self.name).map_err(wrong)?;
        if self.query.len() > QUERY_BYTES_MAX || self.columns.len() > COLUMNS_MAX {
            return Err(wrong(Error::new(
                Kind::TooLarge,
                format!("a view has at most {} KiB and {COLUMNS_MAX} columns", QUERY_BYTES_MAX >> 10),
            )));
        }
        if self.reads.iter().map(|read| read.columns.len()).sum::<usize>() > READ_MAX {
            let what = format!("the tables of a view have at most {READ_MAX} columns that it reads");
            return Err(wrong(Error::new(Kind::TooLarge, what).hint("name the columns instead of `*`")));
        }
        if self.columns.is_empty() {
            return Err(wrong(Error::invalid("a view needs a column")));
        }
        for (at, column) in self.columns.iter().enumerate() {
            name::check_column(&column.name).map_err(wrong)?;
            let folded = column.name.to_lowercase();
            if self.columns[..at].iter().any(|other| other.name.to_lowercase() == folded) {
                let what = format!("two columns of the view are called `{}`", printable(&column.name));
                return Err(wrong(Error::invalid(what).hint("call one of them otherwise with AS")));
            }
        }
        Ok(())
    }

    /// All but [`ViewDef::reads`].
    pub fn encode(&self, e: &mut Encoder) {
        e.str(&self.name);
        e.str(&self.query);
        e.list(&self.columns, |e, column| {
            e.str(&column.from);
            e.str(&column.name);
        });
    }

    /// Behind [`ViewDef::encode`], where the format has it.
    pub fn encode_reads(&self, e: &mut Encoder) {
        e.list(&self.reads, |e, read| {
            e.varint(read.table.0.into());
            e.str(&read.name);
            e.list(&read.columns, |e, (id, name)| {
                e.varint(id.0.into());
                e.str(name);
            });
        });
    }

    pub fn decode(d: &mut Decoder<'_>) -> Result<Self> {
        Ok(ViewDef {
            name: d.str()?.to_owned(),
            query: d.str()?.to_owned(),
            columns: d.list(|d| Ok(ViewColumn { from: d.str()?.to_owned(), name: d.str()?.to_owned() }))?,
            reads: Vec::new(),
        })
    }

    /// With [`ViewDef::reads`].
    pub fn decode_with_reads(d: &mut Decoder<'_>) -> Result<Self> {
        let view = ViewDef::decode(d)?;
        let column = |d: &mut Decoder<'_>| Ok((ColumnId(d.varint32()?), d.str()?.to_owned()));
        let reads = d.list(|d| {
            Ok(ViewRead {
                table: TableId(d.varint32()?),
                name: d.str()?.to_owned(),
                columns: d.list(column)?,
            })
        })?;
        Ok(ViewDef { reads, ..view })
    }
}
