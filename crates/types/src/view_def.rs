//! Views: named queries.

use crate::codec::{Decoder, Encoder};
use crate::name::{self, printable};
use crate::{ColumnId, Error, Kind, Result, TableId};

/// The greatest number of views in a database.
pub const VIEWS_MAX: usize = 1_000;
const QUERY_BYTES_MAX: usize = 64 << 10;
const COLUMNS_MAX: usize = 1_000;
/// The greatest number of table columns that the query of one view may read.
const READ_MAX: usize = 10_000;

/// A named query. Its text is planned again by every statement that names the view, with the rights of that
/// statement's principal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewDef {
    /// The full name, `namespace.view`. No table may have the same name.
    pub name: String,
    /// The text of the query, with the full names of its tables.
    pub query: String,
    /// The columns that the query had when the view was made.
    pub columns: Vec<ViewColumn>,
    /// The tables and columns that the query's names stood for when the view was made. Empty for a view stored before
    /// this was recorded: its names then mean whichever tables have them now.
    pub reads: Vec<ViewRead>,
}

/// The table and columns that a name in a view's query stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewRead {
    pub table: TableId,
    /// The table's name in the query, `namespace.table`.
    pub name: String,
    /// The columns that the query names, and possibly more, with their names in the query.
    pub columns: Vec<(ColumnId, String)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewColumn {
    /// The name in the query.
    pub from: String,
    /// The name that the view shows.
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
                return Err(wrong(Error::invalid(what).hint("rename one of them with AS")));
            }
        }
        Ok(())
    }

    /// Encodes everything but [`ViewDef::reads`].
    pub fn encode(&self, e: &mut Encoder) {
        e.str(&self.name);
        e.str(&self.query);
        e.list(&self.columns, |e, column| {
            e.str(&column.from);
            e.str(&column.name);
        });
    }

    /// Encodes [`ViewDef::reads`], which newer formats put after [`ViewDef::encode`].
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

    /// Decodes a definition that includes [`ViewDef::reads`].
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
