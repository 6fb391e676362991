//! The rows of the `tables` workload, each a function of its number.

use crate::peer::{Cell, ColumnBatch, ColumnValues, Table, Type};

const COLUMNS: &[(&str, Type)] =
    &[("id", Type::Int), ("customer", Type::Text), ("amount", Type::Float), ("region", Type::Text)];
pub(super) const ORDERS: Table = Table { name: "orders", columns: COLUMNS };
/// A table with the same columns and without indexes, for single inserts.
pub(super) const SINGLES: Table = Table { name: "singles", columns: COLUMNS };

pub(super) const INDEXES: [&str; 2] = ["customer", "region"];

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Order {
    pub(super) id: i64,
    pub(super) customer: String,
    pub(super) amount: f64,
    pub(super) region: &'static str,
}

impl Order {
    /// Returns order number `i`, counted from 1.
    pub(super) fn new(i: u64, customers: u64) -> Order {
        Order {
            id: i as i64,
            customer: format!("cust_{}", i % customers),
            amount: (i as f64 * 1.7 + 42.0) % 1000.0,
            region: if i.is_multiple_of(3) { "US" } else { "EU" },
        }
    }

    pub(super) fn cells(&self) -> Vec<Cell> {
        let text = |text: &str| Cell::Text(text.to_owned());
        vec![Cell::Int(self.id), text(&self.customer), Cell::Float(self.amount), text(self.region)]
    }
}

/// A model of the table, which holds the orders 1 to n.
#[derive(Clone, Debug)]
pub(super) struct Orders {
    pub(super) customers: u64,
    pub(super) all: Vec<Order>,
}

impl Orders {
    /// Creates the model with ten orders per customer.
    pub(super) fn new(rows: u64) -> Orders {
        let customers = (rows / 10).max(1);
        Orders { customers, all: (1..=rows).map(|i| Order::new(i, customers)).collect() }
    }

    /// Adds one more order and returns it.
    pub(super) fn grow(&mut self) -> Order {
        let order = Order::new(self.all.len() as u64 + 1, self.customers);
        self.all.push(order.clone());
        order
    }
}

/// Converts orders to columns for loading.
pub(super) fn columns(orders: &[Order]) -> ColumnBatch {
    ColumnBatch(vec![
        ColumnValues::Ints(orders.iter().map(|order| order.id).collect()),
        ColumnValues::Texts(orders.iter().map(|order| order.customer.clone()).collect()),
        ColumnValues::Floats(orders.iter().map(|order| order.amount).collect()),
        ColumnValues::Texts(orders.iter().map(|order| order.region.to_owned()).collect()),
    ])
}
