//! The queries of the `tables` workload: their text, their parameters and their expected answers.

use std::collections::BTreeMap;

use super::orders::{Order, Orders};
use crate::peer::{Cell, Digest, PeerStatement};
use crate::random::Random;

/// One query, which is one line of the benchmark's result.
pub(super) struct TableQuery {
    pub(super) name: &'static str,
    pub(super) statement: PeerStatement,
    /// Number of queries in each repetition.
    pub(super) operations: u64,
    /// True if the parameters are always or nearly the same. The table then grows by a row before each query, so that no result
    /// cache can answer it.
    pub(super) grows: bool,
    pub(super) compared: CompareMode,
    params: fn(&mut Random, &Orders) -> Vec<Cell>,
    expected: fn(&Orders, &[Cell]) -> Vec<Vec<Cell>>,
}

/// The way in which an answer is compared with the expected one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CompareMode {
    /// Every bit of every row, in any order of rows.
    Exactly,
    /// All values, but sums may differ in their last digits.
    Sums,
    /// One column only, because any of the rows that are equal in it may be in the answer.
    Column(usize),
}

impl TableQuery {
    pub(super) fn params(&self, random: &mut Random, orders: &Orders) -> Vec<Cell> {
        (self.params)(random, orders)
    }

    pub(super) fn expected(&self, orders: &Orders, params: &[Cell]) -> Vec<Vec<Cell>> {
        (self.expected)(orders, params)
    }

    /// Compares a complete answer with the expected rows. Returns a description of the first difference, if there is one.
    pub(super) fn difference(&self, found: Digest, expected: &[Vec<Cell>]) -> Option<String> {
        let only = |mut rows: Vec<Vec<Cell>>| {
            if let CompareMode::Column(column) = self.compared {
                rows.iter_mut().for_each(|row| *row = row.get(column).cloned().into_iter().collect());
            }
            rows.sort_by_cached_key(|row| format!("{row:?}"));
            rows
        };
        let (found, expected) = (only(found.into_rows()), only(expected.to_vec()));
        if found.len() != expected.len() {
            return Some(format!("{} rows, expected {}", found.len(), expected.len()));
        }
        let same_value = |(a, b): &(&Vec<Cell>, &Vec<Cell>)| {
            a.len() == b.len() && a.iter().zip(b.iter()).all(|(a, b)| crate::peer::same_value(a, b))
        };
        let other = found.iter().zip(&expected).find(|pair| !same_value(pair))?;
        Some(format!("{:?}, expected {:?}", other.0, other.1))
    }

    /// Compares an answer by its row count and, where rows must match exactly, by its hash.
    pub(super) fn digest_difference(&self, found: &Digest, expected: &[Vec<Cell>]) -> Option<String> {
        let mut digest = Digest::default();
        expected.iter().for_each(|row| digest.add_row(row.clone()));
        if found.rows != digest.rows {
            return Some(format!("{} rows, expected {}", found.rows, digest.rows));
        }
        (self.compared == CompareMode::Exactly && found.hash != digest.hash)
            .then(|| format!("{} rows, not the expected ones", found.rows))
    }
}

fn matching_orders(orders: &Orders, wanted: impl Fn(&Order) -> bool) -> Vec<Vec<Cell>> {
    orders.all.iter().filter(|order| wanted(order)).map(Order::cells).collect()
}

fn aggregate(orders: &Orders, wanted: impl Fn(&Order) -> bool) -> Vec<Vec<Cell>> {
    let amounts: Vec<f64> =
        orders.all.iter().filter(|order| wanted(order)).map(|order| order.amount).collect();
    let (least, most) = (f64::INFINITY, f64::NEG_INFINITY);
    vec![vec![
        Cell::Int(amounts.len() as i64),
        Cell::Float(amounts.iter().sum()),
        Cell::Float(amounts.iter().copied().fold(least, f64::min)),
        Cell::Float(amounts.iter().copied().fold(most, f64::max)),
    ]]
}

fn text(cell: &Cell) -> &str {
    if let Cell::Text(text) = cell { text } else { "" }
}

fn number(cell: &Cell) -> f64 {
    if let Cell::Float(number) = cell { *number } else { f64::NAN }
}

fn random_customer(random: &mut Random, orders: &Orders) -> Vec<Cell> {
    vec![Cell::Text(format!("cust_{}", random.below(orders.customers)))]
}

fn random_key(random: &mut Random, orders: &Orders) -> Vec<Cell> {
    vec![Cell::Int(1 + random.below(orders.all.len() as u64) as i64)]
}

/// Picks a range that holds a tenth of the amounts.
fn random_range(random: &mut Random, _: &Orders) -> Vec<Cell> {
    let from = random.below(900) as f64 + 0.05;
    vec![Cell::Float(from), Cell::Float(from + 100.0)]
}

fn no_params(_: &mut Random, _: &Orders) -> Vec<Cell> {
    Vec::new()
}

fn europe_region(_: &mut Random, _: &Orders) -> Vec<Cell> {
    vec![Cell::Text("EU".into())]
}

/// Lists all queries. A query that finds few rows is repeated `lookups` times or a quarter of that.
pub(super) fn queries(lookups: u64) -> Vec<TableQuery> {
    const ALL: &str = "SELECT id, customer, amount, region FROM orders";
    let query = |name, text: String, params, expected| TableQuery {
        name,
        statement: PeerStatement::new(&text),
        operations: 1,
        grows: true,
        compared: CompareMode::Exactly,
        params,
        expected,
    };
    vec![
        TableQuery {
            operations: lookups,
            grows: false,
            ..query("key lookup", format!("{ALL} WHERE id = ?"), random_key, |orders, params| {
                let Cell::Int(id) = params[0] else { return Vec::new() };
                vec![orders.all[id as usize - 1].cells()]
            })
        },
        TableQuery {
            operations: lookups.div_ceil(4),
            grows: false,
            ..query(
                "10 hits by customer",
                format!("{ALL} WHERE customer = ?"),
                random_customer,
                |orders, params| {
                    // The orders of a customer are `orders.customers` numbers apart, which avoids a scan of all orders for each
                    // lookup.
                    let named = |order: &&Order| order.customer == text(&params[0]);
                    let first =
                        orders.all.iter().take(orders.customers as usize).position(|order| named(&order));
                    let from_there = orders.all.iter().skip(first.unwrap_or(orders.all.len()));
                    from_there.step_by(orders.customers as usize).filter(named).map(Order::cells).collect()
                },
            )
        },
        query("two thirds by region", format!("{ALL} WHERE region = ?"), europe_region, |orders, params| {
            matching_orders(orders, |order| order.region == text(&params[0]))
        }),
        TableQuery {
            operations: 3,
            grows: false,
            ..query(
                "a tenth by amount BETWEEN, no index",
                format!("{ALL} WHERE amount BETWEEN ? AND ?"),
                random_range,
                |orders, params| {
                    let range = number(&params[0])..=number(&params[1]);
                    matching_orders(orders, |order| range.contains(&order.amount))
                },
            )
        },
        TableQuery {
            compared: CompareMode::Column(2),
            ..query(
                "ORDER BY amount LIMIT 10",
                format!("{ALL} ORDER BY amount DESC LIMIT 10"),
                no_params,
                |orders, _| {
                    let mut all: Vec<&Order> = orders.all.iter().collect();
                    all.sort_by(|a, b| b.amount.total_cmp(&a.amount));
                    all.into_iter().take(10).map(Order::cells).collect()
                },
            )
        },
        TableQuery {
            compared: CompareMode::Sums,
            ..query(
                "COUNT, SUM, MIN, MAX by region",
                "SELECT COUNT(*), SUM(amount), MIN(amount), MAX(amount) FROM orders WHERE region = ?".into(),
                europe_region,
                |orders, params| aggregate(orders, |order| order.region == text(&params[0])),
            )
        },
        TableQuery {
            operations: 3,
            grows: false,
            compared: CompareMode::Sums,
            ..query(
                "COUNT, SUM, MIN, MAX by amount, no index",
                "SELECT COUNT(*), SUM(amount), MIN(amount), MAX(amount) FROM orders WHERE amount > ?".into(),
                |random, _| vec![Cell::Float(random.below(900) as f64 + 0.05)],
                |orders, params| aggregate(orders, |order| order.amount > number(&params[0])),
            )
        },
        TableQuery {
            compared: CompareMode::Sums,
            ..query(
                "GROUP BY customer",
                "SELECT customer, COUNT(*), SUM(amount) FROM orders GROUP BY customer".into(),
                no_params,
                |orders, _| {
                    let mut groups: BTreeMap<&str, (i64, f64)> = BTreeMap::new();
                    for order in &orders.all {
                        let group = groups.entry(&order.customer).or_default();
                        *group = (group.0 + 1, group.1 + order.amount);
                    }
                    let row = |(name, (count, sum)): (&str, (i64, f64))| {
                        vec![Cell::Text(name.to_owned()), Cell::Int(count), Cell::Float(sum)]
                    };
                    groups.into_iter().map(row).collect()
                },
            )
        },
        query("DISTINCT customer", "SELECT DISTINCT customer FROM orders".into(), no_params, |orders, _| {
            let names: std::collections::BTreeSet<&str> =
                orders.all.iter().map(|order| order.customer.as_str()).collect();
            names.into_iter().map(|name| vec![Cell::Text(name.to_owned())]).collect()
        }),
        query(
            "LIKE 'cust_1%'",
            format!("{ALL} WHERE customer LIKE ?"),
            |random, _| vec![Cell::Text(format!("cust_{}%", 1 + random.below(2)))],
            |orders, params| {
                let prefix = text(&params[0]).trim_end_matches('%');
                matching_orders(orders, |order| order.customer.starts_with(prefix))
            },
        ),
        query("full scan", ALL.into(), no_params, |orders, _| matching_orders(orders, |_| true)),
    ]
}
