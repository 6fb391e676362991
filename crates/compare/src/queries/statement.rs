//! Generates whole statements.

use bench::random::Random;

use super::condition::{SqlCondition, StatementScope};
use super::world::{Kind, TABLES, Table};

/// A SELECT in parts, so that a failing one can be reduced.
#[derive(Clone, Debug)]
pub struct Select {
    distinct: bool,
    items: Vec<(String, Kind)>,
    from: String,
    filter: Option<SqlCondition>,
    group: Vec<String>,
    having: Option<String>,
    /// A set operation such as `UNION`, with its other side.
    with: Option<(&'static str, Box<Select>)>,
    /// One sort order for each item, or empty.
    order: Vec<String>,
    limit: Option<(u64, u64)>,
    /// True if all items have the same name.
    one_name: bool,
}

impl Select {
    /// Returns true if the order of the rows is determined. Then all items are sort keys, so that only equal rows may change
    /// places.
    pub fn is_ordered(&self) -> bool {
        !self.order.is_empty()
    }

    pub fn text(&self) -> String {
        let mut text = self.body();
        if !self.order.is_empty() {
            text.push_str(&format!(" order by {}", self.order.join(", ")));
        }
        if let Some((limit, offset)) = self.limit {
            text.push_str(&format!(" limit {limit}"));
            if offset > 0 {
                text.push_str(&format!(" offset {offset}"));
            }
        }
        text
    }

    fn body(&self) -> String {
        let name = |at: usize| if self.one_name { 1 } else { at + 1 };
        let items: Vec<String> =
            self.items.iter().enumerate().map(|(at, (item, _))| format!("{item} as c{}", name(at))).collect();
        let distinct = if self.distinct { "distinct " } else { "" };
        let mut text = format!("select {distinct}{} from {}", items.join(", "), self.from);
        if let Some(filter) = &self.filter {
            text.push_str(&format!(" where {}", filter.text()));
        }
        if !self.group.is_empty() {
            text.push_str(&format!(" group by {}", self.group.join(", ")));
        }
        if let Some(having) = &self.having {
            text.push_str(&format!(" having {having}"));
        }
        if let Some((operator, other)) = &self.with {
            text = format!("{text} {operator} {}", other.body());
        }
        text
    }

    /// Returns statements with one part less.
    pub fn smaller(&self) -> Vec<Select> {
        let mut all = Vec::new();
        let mut less = |change: &dyn Fn(&mut Select)| {
            let mut smaller = self.clone();
            change(&mut smaller);
            all.push(smaller);
        };
        if self.limit.is_some() {
            less(&|select| select.limit = None);
        } else if !self.order.is_empty() {
            less(&|select| select.order.clear());
        }
        if let Some((_, other)) = &self.with {
            less(&|select| select.with = None);
            less(&|select| *select = (**other).clone());
            for other in other.smaller() {
                less(&|select| {
                    select.with = select.with.as_ref().map(|(by, _)| (*by, Box::new(other.clone())))
                });
            }
        }
        if self.having.is_some() {
            less(&|select| select.having = None);
        }
        if self.distinct {
            less(&|select| select.distinct = false);
        }
        if let Some(filter) = &self.filter {
            less(&|select| select.filter = None);
            for smaller in filter.smaller() {
                less(&|select| select.filter = Some(smaller.clone()));
            }
        }
        // The sort order and the set operation refer to items by position, so none is removed while there is one.
        if self.items.len() > 1 && self.order.is_empty() && self.with.is_none() {
            for at in 0..self.items.len() {
                less(&|select| drop(select.items.remove(at)));
            }
        }
        all
    }
}

/// Returns any statement over the tables.
pub fn any(random: &mut Random) -> Select {
    let mut select = match random.below(23) {
        0..=6 => plain(random),
        7..=10 => joined(random),
        11..=13 => grouped(random),
        14 => aggregated(random),
        15 | 16 => combined(random),
        17 => nested(random),
        18 | 19 => lookup(random),
        _ => chosen(random),
    };
    select.one_name = random.below(8) == 0;
    if random.below(5) < 3 {
        sort(&mut select, random);
    }
    select
}

fn sort(select: &mut Select, random: &mut Random) {
    let mut places: Vec<usize> = (1..=select.items.len()).collect();
    // The sort keys do not always go from left to right.
    if random.below(2) == 0 {
        places.reverse();
    }
    let order = places.into_iter().map(|place| {
        let way = ["asc nulls first", "asc nulls last", "desc nulls first", "desc nulls last"];
        format!("{place} {}", way[random.below(4) as usize])
    });
    select.order = order.collect();
    if random.below(2) == 0 {
        let offset = if random.below(3) == 0 { random.below(20) } else { 0 };
        select.limit = Some((random.below(25), offset));
    }
}

fn any_table(random: &mut Random) -> &'static Table {
    // The first table has columns of all kinds.
    if random.below(2) == 0 { &TABLES[0] } else { &TABLES[random.below(3) as usize] }
}

fn select(scope: &StatementScope, from: String, random: &mut Random, filter: Option<SqlCondition>) -> Select {
    let items = (0..1 + random.below(4)).map(|_| scope.expression(random)).collect();
    let with = None;
    let (group, having, order, limit) = (Vec::new(), None, Vec::new(), None);
    let (distinct, one_name) = (random.below(5) == 0, false);
    Select { distinct, items, from, filter, group, having, with, order, limit, one_name }
}

fn plain(random: &mut Random) -> Select {
    let table = any_table(random);
    let scope = StatementScope::of("x", table);
    let filter = (random.below(8) > 0).then(|| scope.condition(random, 2));
    select(&scope, format!("{} x", table.name), random, filter)
}

/// Returns a statement that an index can serve: plain columns, one or two conditions, the first few rows.
fn lookup(random: &mut Random) -> Select {
    let table = any_table(random);
    let scope = StatementScope::of(table.name, table);
    let filter = (random.below(6) > 0).then(|| scope.condition(random, 1));
    let mut select = select(&scope, table.name.to_owned(), random, filter);
    select.distinct = false;
    select.items = table.columns.iter().map(|(column, kind)| ((*column).to_owned(), *kind)).collect();
    select
}

/// Returns the rows that match one of a few rows of another table, sometimes with a further condition.
fn chosen(random: &mut Random) -> Select {
    let table = any_table(random);
    let scope = StatementScope::of("x", table);
    let chosen = scope.chosen(random);
    let filter = match random.below(3) {
        0 => SqlCondition::And(Box::new(chosen), Box::new(scope.condition(random, 1))),
        1 => SqlCondition::And(Box::new(chosen), Box::new(scope.chosen(random))),
        _ => chosen,
    };
    select(&scope, format!("{} x", table.name), random, Some(filter))
}

fn joined(random: &mut Random) -> Select {
    let (left, right) = (any_table(random), any_table(random));
    let mut scope = StatementScope::of("x", left);
    scope.tables.push(("y".into(), right));
    let of = |name: &str, table: &'static Table| StatementScope::of(name, table);
    let (kind, mut on) = loop {
        let (column, kind) = of("x", left).column(random);
        // Booleans match too many rows; joins on times need a further condition.
        if kind == Kind::Bool {
            continue;
        }
        if let Some((other, _)) = of("y", right).column_of(random, |other| other == kind) {
            break (kind, format!("{column} = {other}"));
        }
    };
    if random.below(3) == 0 || kind == Kind::At {
        on = format!("{on} and {}", scope.plain().condition(random, 1).text());
    }
    let join = ["join", "inner join", "left join", "right join", "full join"][random.below(5) as usize];
    let mut from = format!("{} x {join} {} y on {on}", left.name, right.name);
    let filter = match random.below(5) {
        0 => None,
        // A condition on each side of an outer join, where either side may be missing.
        1 | 2 => {
            let of_left = of("x", left).condition(random, 1);
            Some(SqlCondition::And(Box::new(of_left), Box::new(of("y", right).condition(random, 1))))
        }
        _ => Some(scope.condition(random, 2)),
    };
    match random.below(4) {
        // A third relation shares a column name with the others.
        0 => from = format!("{from} cross join (select 1 as i) v"),
        1 => {
            let third = &TABLES[[0, 2][random.below(2) as usize]];
            let (key, kind) = third.columns[0];
            if let Some((column, _)) = scope.column_of(random, |other| other == kind) {
                let join = ["join", "left join", "right join"][random.below(3) as usize];
                from = format!("{from} {join} {} z on z.{key} = {column}", third.name);
                scope.tables.push(("z".into(), third));
            }
        }
        _ => {}
    }
    select(&scope, from, random, filter)
}

fn grouped(random: &mut Random) -> Select {
    let table = any_table(random);
    let scope = StatementScope::of("x", table);
    let filter = (random.below(2) > 0).then(|| scope.condition(random, 1));
    let mut select = select(&scope, format!("{} x", table.name), random, filter);
    select.distinct = false;
    let mut keys = vec![scope.column(random)];
    if random.below(3) == 0 {
        keys.push(scope.column(random));
    }
    select.group = keys.iter().map(|(column, _)| column.clone()).collect();
    select.items = keys;
    select.items.extend((0..1 + random.below(3)).map(|_| scope.aggregate(random)));
    select.having = (random.below(3) == 0).then(|| match random.below(3) {
        0 => format!("count(*) > {}", random.below(5)),
        1 => format!("min({}) is not null", table.columns[1].0),
        _ => format!("count(distinct {}) <= {}", table.columns[1].0, random.below(5)),
    });
    select
}

fn aggregated(random: &mut Random) -> Select {
    let mut select = plain(random);
    let scope = StatementScope::of(
        "x",
        TABLES.iter().find(|table| select.from == format!("{} x", table.name)).unwrap_or(&TABLES[0]),
    );
    select.distinct = false;
    select.items = (0..1 + random.below(4)).map(|_| scope.aggregate(random)).collect();
    select
}

fn combined(random: &mut Random) -> Select {
    let mut left = plain(random);
    let operator = ["union", "union all", "intersect", "except"][random.below(4) as usize];
    // The other side needs columns of the same kinds.
    for _ in 0..50 {
        let table = any_table(random);
        let scope = StatementScope::of("x", table);
        let items: Option<Vec<(String, Kind)>> =
            left.items.iter().map(|(_, kind)| scope.column_of(random, |other| other == *kind)).collect();
        let Some(items) = items else { continue };
        let filter = (random.below(4) > 0).then(|| scope.condition(random, 1));
        let mut right = select(&scope, format!("{} x", table.name), random, filter);
        right.items = items;
        left.with = Some((operator, Box::new(right)));
        break;
    }
    left
}

/// Returns a statement with a subquery in FROM or in WITH.
fn nested(random: &mut Random) -> Select {
    let mut inner = if random.below(2) == 0 { plain(random) } else { grouped(random) };
    if random.below(3) == 0 {
        sort(&mut inner, random);
    }
    let kinds: Vec<Kind> = inner.items.iter().map(|(_, kind)| *kind).collect();
    let names: Vec<String> = (1..=kinds.len()).map(|place| format!("q.c{place}")).collect();
    let at = random.below(names.len() as u64) as usize;
    let filter = match random.below(3) {
        0 => SqlCondition::Leaf(format!("{} is not null", names[at])),
        1 => SqlCondition::Leaf(format!("{} >= {}", names[at], kinds[at].literal(random))),
        _ => SqlCondition::Leaf(format!(
            "{} in ({}, {})",
            names[at],
            kinds[at].literal(random),
            kinds[at].literal(random)
        )),
    };
    Select {
        distinct: random.below(2) == 0,
        items: names.into_iter().zip(kinds).collect(),
        from: format!("({}) q", inner.text()),
        filter: Some(filter),
        group: Vec::new(),
        having: None,
        with: None,
        order: Vec::new(),
        limit: None,
        one_name: false,
    }
}
