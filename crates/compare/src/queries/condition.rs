//! Generates conditions and expressions over the tables of a statement.

use bench::random::Random;

use super::world::{Kind, TABLES, Table};

/// A condition, kept as a tree so that a failing one can be reduced.
#[derive(Clone, Debug)]
pub enum SqlCondition {
    Leaf(String),
    Not(Box<SqlCondition>),
    And(Box<SqlCondition>, Box<SqlCondition>),
    Or(Box<SqlCondition>, Box<SqlCondition>),
}

impl SqlCondition {
    pub fn text(&self) -> String {
        match self {
            SqlCondition::Leaf(text) => text.clone(),
            SqlCondition::Not(inner) => format!("not ({})", inner.text()),
            SqlCondition::And(left, right) => format!("({} and {})", left.text(), right.text()),
            SqlCondition::Or(left, right) => format!("({} or {})", left.text(), right.text()),
        }
    }

    /// Returns smaller conditions, one of which may fail as well.
    pub fn smaller(&self) -> Vec<SqlCondition> {
        match self {
            SqlCondition::Leaf(_) => Vec::new(),
            SqlCondition::Not(inner) => {
                let mut all = vec![inner.as_ref().clone()];
                all.extend(inner.smaller().into_iter().map(|inner| SqlCondition::Not(Box::new(inner))));
                all
            }
            SqlCondition::And(left, right) | SqlCondition::Or(left, right) => {
                let is_and = matches!(self, SqlCondition::And(..));
                let join = |left: SqlCondition, right: SqlCondition| {
                    let (left, right) = (Box::new(left), Box::new(right));
                    if is_and { SqlCondition::And(left, right) } else { SqlCondition::Or(left, right) }
                };
                let mut all = vec![left.as_ref().clone(), right.as_ref().clone()];
                all.extend(left.smaller().into_iter().map(|left| join(left, right.as_ref().clone())));
                all.extend(right.smaller().into_iter().map(|right| join(left.as_ref().clone(), right)));
                all
            }
        }
    }
}

/// The tables that a statement may name.
#[derive(Clone)]
pub struct StatementScope {
    /// The tables with their names in the statement.
    pub tables: Vec<(String, &'static Table)>,
    /// The nesting depth of the statement.
    pub depth: u32,
}

impl StatementScope {
    pub fn of(name: &str, table: &'static Table) -> StatementScope {
        StatementScope { tables: vec![(name.to_owned(), table)], depth: 0 }
    }

    /// Returns a random column with its kind.
    pub fn column(&self, random: &mut Random) -> (String, Kind) {
        let (name, table) = &self.tables[random.below(self.tables.len() as u64) as usize];
        let (column, kind) = table.columns[random.below(table.columns.len() as u64) as usize];
        (format!("{name}.{column}"), kind)
    }

    /// Returns a random column of a wanted kind, if there is one.
    pub fn column_of(&self, random: &mut Random, wanted: impl Fn(Kind) -> bool) -> Option<(String, Kind)> {
        let all: Vec<(String, Kind)> = self
            .tables
            .iter()
            .flat_map(|(name, table)| {
                table.columns.iter().map(move |(column, kind)| (format!("{name}.{column}"), *kind))
            })
            .filter(|(_, kind)| wanted(*kind))
            .collect();
        if all.is_empty() { None } else { Some(all[random.below(all.len() as u64) as usize].clone()) }
    }

    /// Returns the same scope without subqueries.
    pub fn plain(&self) -> StatementScope {
        StatementScope { depth: 9, ..self.clone() }
    }

    pub fn condition(&self, random: &mut Random, size: u32) -> SqlCondition {
        if size > 0 && random.below(3) > 0 {
            let (left, right) = (self.condition(random, size - 1), self.condition(random, size - 1));
            let (left, right) = (Box::new(left), Box::new(right));
            return match random.below(5) {
                0 | 1 => SqlCondition::Or(left, right),
                2 => SqlCondition::Not(left),
                _ => SqlCondition::And(left, right),
            };
        }
        SqlCondition::Leaf(self.leaf(random))
    }

    fn leaf(&self, random: &mut Random) -> String {
        let (column, kind) = self.column(random);
        let literal = |random: &mut Random| kind.literal(random);
        match random.below(22) {
            0 => format!("{column} is null"),
            1 => format!("{column} is not null"),
            2 => list(&column, kind, random),
            // Two lists about one column. They may have no value in common, and may contain a null.
            18 => {
                let join = if random.below(2) == 0 { "or" } else { "and" };
                format!("({} {join} {})", list(&column, kind, random), list(&column, kind, random))
            }
            // The bounds are sometimes in the wrong order; then no value is between them.
            3 | 4 => {
                let not = if random.below(4) == 0 { "not " } else { "" };
                format!("{column} {not}between {} and {}", literal(random), kind.literal(random))
            }
            5 | 6 => match self.column_of(random, |other| other == kind) {
                Some((other, _)) => format!("{column} {} {other}", comparison(random)),
                None => format!("{column} = {}", literal(random)),
            },
            7 => match self.column_of(random, |kind| kind == Kind::Text) {
                Some((text, _)) => {
                    let patterns =
                        ["a%", "%b", "_", "a_%", "%", "", "A%", "é", "%''%", "ab", "name 1%", "%1_"];
                    let not = if random.below(4) == 0 { "not " } else { "" };
                    format!("{text} {not}like '{}'", patterns[random.below(patterns.len() as u64) as usize])
                }
                None => format!("{column} <> {}", literal(random)),
            },
            8 => match self.column_of(random, |kind| kind == Kind::Small) {
                Some((small, _)) => match random.below(3) {
                    0 => format!("{small} % {} = {}", 2 + random.below(5), random.below(3)),
                    1 => format!("({small} + {}) * 2 > {}", random.below(50), random.below(600)),
                    _ => format!(
                        "{small} / {} {} {}",
                        2 + random.below(9),
                        comparison(random),
                        random.below(60)
                    ),
                },
                None => format!("{column} <> {}", literal(random)),
            },
            9 => match self.column_of(random, |kind| kind == Kind::Bool) {
                Some((truth, _)) => match random.below(4) {
                    0 => truth,
                    1 => format!("not {truth}"),
                    2 => format!("{truth} is true"),
                    _ => format!("{truth} is not false"),
                },
                None => format!("{column} is not null"),
            },
            10 => {
                let (first, second) = (self.column(random), self.column(random));
                format!(
                    "case when {} = {} then 1 when {} is null then 2 else 3 end {} 2",
                    first.0,
                    first.1.literal(random),
                    second.0,
                    comparison(random)
                )
            }
            11 => format!(
                "coalesce({column}, {}) {} {}",
                literal(random),
                comparison(random),
                kind.literal(random)
            ),
            12 => format!(
                "nullif({column}, {}) {} {}",
                literal(random),
                comparison(random),
                kind.literal(random)
            ),
            13 => match self.column_of(random, |kind| kind == Kind::Text) {
                Some((text, _)) => format!("length({text}) {} {}", comparison(random), random.below(4)),
                None => format!("{} < {column}", literal(random)),
            },
            14 => match (
                self.column_of(random, |kind| kind == Kind::Int),
                self.column_of(random, |kind| kind == Kind::Float),
            ) {
                (Some((int, _)), Some((float, _))) => format!("{int} {} {float}", comparison(random)),
                _ => format!("{column} = {}", literal(random)),
            },
            15 | 16 if self.depth < 2 => self.subquery(random),
            17 => format!("{} {} {column}", literal(random), comparison(random)),
            20 => format!("{column} is not distinct from {}", kind.value(random)),
            21 if self.depth < 2 => {
                let plain = self.plain();
                let part = |random: &mut Random| plain.condition(random, 0).text();
                let (first, second) = (part(random), part(random));
                let then = ["true", "false"][random.below(2) as usize];
                let other = match random.below(3) {
                    0 => String::new(),
                    1 => " else false".into(),
                    _ => format!(" else {}", part(random)),
                };
                format!("case when {first} then {then} when {second} then {}{other} end", part(random))
            }
            _ => format!("{column} {} {}", comparison(random), literal(random)),
        }
    }

    /// Returns a condition that selects the rows matching one of a few rows of another table.
    pub fn chosen(&self, random: &mut Random) -> SqlCondition {
        let table = &TABLES[random.below(3) as usize];
        let inner = StatementScope { depth: 9, ..StatementScope::of("few", table) };
        let (column, kind) = inner.column(random);
        let Some((outer, _)) = self.column_of(random, |other| other == kind) else {
            return self.condition(random, 1);
        };
        let filter = inner.condition(random, 1).text();
        let few = match inner.column_of(random, |kind| kind == Kind::Small) {
            Some((small, _)) if random.below(4) > 0 => {
                format!("{filter} and {small} % 9 = {}", random.below(9))
            }
            _ => filter,
        };
        let from = format!("from {} few where {few}", table.name);
        SqlCondition::Leaf(match random.below(2) {
            0 => format!("{outer} in (select {column} {from})"),
            _ => format!("exists (select 1 {from} and {column} = {outer})"),
        })
    }

    /// Returns a condition with a subquery; half of them refer to the outer row.
    fn subquery(&self, random: &mut Random) -> String {
        let table = &TABLES[random.below(3) as usize];
        let name = format!("s{}", self.depth);
        let mut inner = StatementScope::of(&name, table);
        // Subqueries nest up to two levels deep.
        inner.depth = self.depth + 1;
        let filter = inner.condition(random, 1).text();
        let from = format!("from {} {name} where {filter}", table.name);
        let (column, kind) = inner.column(random);
        let outer = self.column_of(random, |other| other == kind);
        let linked = outer.clone().map(|(outer, _)| format!(" and {column} = {outer}"));
        let not = if random.below(3) == 0 { "not " } else { "" };
        match (random.below(5), outer) {
            (0 | 1, Some((outer, _))) => {
                // The subquery may be correlated by another column than the compared one.
                let other = inner.column(random);
                let link = self.column_of(random, |kind| kind == other.1).filter(|_| random.below(4) == 0);
                let link = link.map(|(outer, _)| format!(" and {} = {outer}", other.0)).unwrap_or_default();
                format!("{outer} {not}in (select {column} {from}{link})")
            }
            (2, _) => format!("{not}exists (select 1 {from}{})", linked.unwrap_or_default()),
            (3, Some((outer, kind))) if kind != Kind::Bool => {
                let aggregate = if random.below(2) == 0 { "min" } else { "max" };
                format!("{outer} {} (select {aggregate}({column}) {from})", comparison(random))
            }
            _ => {
                let linked = linked.filter(|_| random.below(2) == 0).unwrap_or_default();
                format!("(select count(*) {from}{linked}) {} {}", comparison(random), random.below(6))
            }
        }
    }

    /// Returns an expression for the select list, with its kind.
    pub fn expression(&self, random: &mut Random) -> (String, Kind) {
        let (column, kind) = self.column(random);
        match random.below(14) {
            0 => (format!("coalesce({column}, {})", kind.literal(random)), kind),
            1 => {
                let when = self.plain().condition(random, 1).text();
                let other =
                    self.column_of(random, |other| other == kind).map_or("null".into(), |other| other.0);
                (format!("case when {when} then {column} else {other} end"), kind)
            }
            2 => match self.column_of(random, |kind| kind == Kind::Text) {
                Some((text, _)) => match random.below(3) {
                    0 => (format!("{text} || '-' || {text}"), Kind::Text),
                    1 => (format!("substr({text}, 1, 2)"), Kind::Text),
                    _ => (format!("length({text})"), Kind::Small),
                },
                None => (column, kind),
            },
            3 => match self.column_of(random, |kind| kind == Kind::Small) {
                Some((small, _)) => match random.below(4) {
                    0 => (format!("{small} * 2 - 7"), Kind::Small),
                    1 => (format!("{small} % 5"), Kind::Small),
                    2 => (format!("abs({small} - 100) / 3"), Kind::Small),
                    _ => (format!("cast({small} as text)"), Kind::Text),
                },
                None => (column, kind),
            },
            4 => (format!("({})", self.plain().condition(random, 1).text()), Kind::Bool),
            5 => (format!("nullif({column}, {})", kind.literal(random)), kind),
            _ => (column, kind),
        }
    }

    /// Returns an aggregate with its kind.
    pub fn aggregate(&self, random: &mut Random) -> (String, Kind) {
        let (column, kind) = self.column(random);
        let distinct = if random.below(3) == 0 { "distinct " } else { "" };
        let summable = |kind| matches!(kind, Kind::Small | Kind::Float | Kind::Int);
        match random.below(8) {
            0 | 1 => ("count(*)".into(), Kind::Small),
            2 => (format!("count({distinct}{column})"), Kind::Small),
            3 | 4 if kind != Kind::Bool => {
                (format!("{}({column})", if random.below(2) == 0 { "min" } else { "max" }), kind)
            }
            5 => {
                let when = self.plain().condition(random, 1).text();
                (format!("sum(case when {when} then 1 else 0 end)"), Kind::Small)
            }
            _ => match self.column_of(random, summable) {
                Some((column, _)) if random.below(3) == 0 => (format!("avg({column})"), Kind::Float),
                Some((column, Kind::Float)) => (format!("sum({distinct}{column})"), Kind::Float),
                Some((column, _)) => (format!("sum({distinct}{column})"), Kind::Small),
                None => (format!("count({column})"), Kind::Small),
            },
        }
    }
}

pub fn comparison(random: &mut Random) -> &'static str {
    ["=", "=", "<>", "<", "<=", ">", ">="][random.below(7) as usize]
}

/// Returns `column in (…)` or its negation, with one to four values and sometimes a null.
fn list(column: &str, kind: Kind, random: &mut Random) -> String {
    let mut items: Vec<String> = (0..1 + random.below(4)).map(|_| kind.literal(random)).collect();
    if random.below(5) == 0 {
        items.push("null".into());
    }
    let not = if random.below(2) == 0 { "not " } else { "" };
    format!("{column} {not}in ({})", items.join(", "))
}
