//! The tables that are asked, and what their columns hold.
//!
//! Only what means the same in both is generated. PostgreSQL's dialect, and with it Polynya, differs from SQLite so:
//! - Types are strict. Columns of one type are compared with each other, and integers of 32 bits with floats.
//! - Integers of 32 and 64 bits overflow with an error. Sums and arithmetic are of columns whose values are small; columns with
//!   extreme values are compared, sorted and grouped.
//! - Subqueries stand in WHERE only: in what is shown, in HAVING and in ON Polynya refuses some that SQLite takes.
//! - SQLite has neither NaN nor infinities, and no integer literal for -2^63.
//! - SQLite has no type for dates, times and truth: it has them as text and as 0 and 1, which sort and compare the same.
//! - Decimals and binary strings are left out, SQLite has nothing like the first and no common literal for the second.

use bench::random::Random;

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Int,
    /// Of 64 bits, extreme values among them.
    Big,
    /// Of 64 bits, small: what may be added and multiplied.
    Small,
    Text,
    /// Sums of eighths, which are exact in any order.
    Float,
    /// Extreme ones.
    Wild,
    Bool,
    Day,
    At,
}

impl Kind {
    /// For Polynya and for SQLite.
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

    /// A value of the kind or, one time in eight, null.
    pub fn value(self, random: &mut Random) -> String {
        if random.below(8) == 0 { "null".into() } else { self.literal(random) }
    }

    /// A value of the kind.
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
            // A zero with a sign is a zero like the other.
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

/// A table; its key, if it has one, is the first column.
pub struct Table {
    pub name: &'static str,
    pub keyed: bool,
    pub columns: &'static [(&'static str, Kind)],
    /// Rows at the beginning, about.
    pub rows: u64,
    /// Indexes that it may get.
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
    /// For Polynya and for SQLite.
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

    /// Rows numbered from `first`: keys derive from the number.
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
