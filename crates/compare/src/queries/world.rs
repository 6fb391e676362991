//! The tables of the generated statements and the values of their columns.
//!
//! The generator uses only SQL with the same meaning in both. PostgreSQL's dialect, and with it Polynya's, differs from SQLite's
//! as follows.
//! - Types are strict. Columns of one type are compared with each other, and integers of 32 bits with floats.
//! - Integers of 32 and 64 bits overflow with an error. So sums and arithmetic use columns with small values; columns with
//!   extreme values are compared, sorted and grouped.
//! - Subqueries occur only in WHERE: in the select list, in HAVING and in ON Polynya refuses some that SQLite accepts.
//! - SQLite has neither NaN nor infinities, and no integer literal for -2^63.
//! - SQLite has no types for dates, times and booleans: it stores them as text and as 0 and 1, which sort and compare the same.
//! - Decimals and binary strings are left out: SQLite has no such decimals, and there is no common literal for binary strings.

use bench::random::Random;

/// The kind of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Int,
    /// 64-bit integers, including extreme values.
    Big,
    /// Small 64-bit integers, which may be added and multiplied.
    Small,
    Text,
    /// Sums of eighths, which are exact in any order.
    Float,
    /// Floats with extreme values.
    Wild,
    Bool,
    Day,
    At,
}

impl Kind {
    /// Returns the types of Polynya and of SQLite.
    fn sql(self) -> [&'static str; 2] {
        match self {
            Kind::Int => ["int", "integer"],
            Kind::Big | Kind::Small => ["bigint", "integer"],
            Kind::Text => ["text", "text"],
            Kind::Float | Kind::Wild => ["double precision", "real"],
            Kind::Bool => ["boolean", "integer"],
            Kind::Day => ["date", "text"],
            Kind::At => ["timestamp", "text"],
        }
    }

    /// Returns a value of the kind or, one time in eight, null.
    pub fn value(self, random: &mut Random) -> String {
        if random.below(8) == 0 { "null".into() } else { self.literal(random) }
    }

    /// Returns a value of the kind.
    pub fn literal(self, random: &mut Random) -> String {
        let pick = |random: &mut Random, of: &[&str]| of[random.below(of.len() as u64) as usize].to_owned();
        match self {
            Kind::Int if random.below(4) == 0 => pick(random, &["-2147483648", "2147483647", "-1", "0", "7"]),
            Kind::Big if random.below(4) == 0 => pick(
                random,
                &[
                    "-9223372036854775807",
                    "9223372036854775807",
                    "-9007199254740993",
                    "9007199254740993",
                    "0",
                ],
            ),
            Kind::Int | Kind::Big => (random.below(24) as i64 - 12).to_string(),
            Kind::Small => random.below(500).to_string(),
            Kind::Text => pick(
                random,
                &[
                    "''", "'a'", "'ab'", "'abc'", "'b'", "'B'", "'ba'", "'é'", "'zz'", "'A'", "' a'", "'10'",
                    "'9'", "'it''s'",
                ],
            ),
            // Zero with a negative sign equals zero.
            Kind::Float if random.below(16) == 0 => pick(random, &["-0.0", "0.0"]),
            Kind::Float => format!("{:?}", (random.below(160) as f64 - 80.0) / 8.0),
            Kind::Wild => pick(
                random,
                &[
                    "-1e300",
                    "1e300",
                    "0.0",
                    "-0.0",
                    "7.0",
                    "1e-300",
                    "-2.5",
                    "2.5",
                    "0.1",
                    "-1e15",
                    "123456789.125",
                ],
            ),
            Kind::Bool => pick(random, &["true", "false"]),
            Kind::Day => pick(
                random,
                &["'1900-01-01'", "'1969-12-31'", "'2024-02-29'", "'2024-03-01'", "'9999-12-31'"],
            ),
            Kind::At => pick(
                random,
                &[
                    "'1969-12-31 23:59:59'",
                    "'1970-01-01 00:00:00'",
                    "'2024-02-29 12:00:00'",
                    "'2026-01-01 00:00:01'",
                ],
            ),
        }
    }
}

/// A table. Its key, if it has one, is the first column.
pub struct Table {
    pub name: &'static str,
    pub keyed: bool,
    pub columns: &'static [(&'static str, Kind)],
    /// The approximate number of rows at the beginning.
    pub rows: u64,
    /// Indexes that the table may get.
    pub indexes: &'static [&'static str],
}

pub static TABLES: [Table; 3] = [
    Table {
        name: "a",
        keyed: true,
        columns: &[
            ("id", Kind::Small),
            ("i", Kind::Int),
            ("big", Kind::Big),
            ("t", Kind::Text),
            ("f", Kind::Float),
            ("g", Kind::Wild),
            ("ok", Kind::Bool),
            ("day", Kind::Day),
            ("at", Kind::At),
        ],
        rows: 250,
        indexes: &["i", "big", "t", "f", "g, i", "day", "at", "ok, t", "t, big", "id"],
    },
    Table {
        name: "b",
        keyed: false,
        columns: &[("k", Kind::Small), ("i", Kind::Int), ("t", Kind::Text), ("f", Kind::Float)],
        rows: 80,
        indexes: &["k", "i", "t, i", "f"],
    },
    Table {
        name: "c",
        keyed: true,
        columns: &[("name", Kind::Text), ("n", Kind::Small), ("i", Kind::Int), ("day", Kind::Day)],
        rows: 40,
        indexes: &["n", "i, n", "day"],
    },
];

impl Table {
    /// Returns the CREATE TABLE statements of Polynya and of SQLite.
    pub fn create(&self) -> [String; 2] {
        [0, 1].map(|side| {
            let column = |(at, (name, kind)): (usize, &(&str, Kind))| {
                let key = if self.keyed && at == 0 { " primary key" } else { "" };
                format!("{name} {}{key}", kind.sql()[side])
            };
            let columns: Vec<String> = self.columns.iter().enumerate().map(column).collect();
            format!("create table {} ({})", self.name, columns.join(", "))
        })
    }

    /// Returns an INSERT of rows numbered from `first`. Keys derive from the number.
    pub fn insert(&self, random: &mut Random, first: u64, count: u64) -> String {
        let row = |number: u64| {
            let cell = |(at, (_, kind)): (usize, &(&str, Kind))| match (self.keyed && at == 0, kind) {
                (true, Kind::Text) => format!("'name {number}'"),
                (true, _) => number.to_string(),
                _ => kind.value(random),
            };
            let cells: Vec<String> = self.columns.iter().enumerate().map(cell).collect();
            format!("({})", cells.join(", "))
        };
        let mut row = row;
        let rows: Vec<String> = (first..first + count).map(&mut row).collect();
        format!("insert into {} values {}", self.name, rows.join(", "))
    }
}
