//! A table with a key, every row of which is known: it has one writer, which keeps a model and checks all answers against it.
//!
//! The effect of a change is computed before the change is sent, as the rows that it sets and removes. After a kill during a
//! change, the table must therefore equal the model before it or the model after it.

mod questions;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use types::{Error, Result};

use super::client::{SoakClient, WriteResult};
use super::{Actor, Size};

pub(super) const ORDERS: &str = "orders";
pub(super) const REGIONS: [&str; 5] = ["EU", "US", "CN", "BR", "ZA"];
/// A query of the table's totals.
pub(super) const TOTALS: &str =
    "SELECT count(*), coalesce(sum(id), 0), coalesce(sum(amount), 0), coalesce(sum(rev), 0) FROM orders";
/// Rows of a bulk insert.
const BULK_ROWS: i64 = 400;
/// Time that the follower of the change feed may lag.
const FEED_LAG_MAX: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Order {
    customer: u32,
    amount: Option<i64>,
    region: u8,
    rev: i64,
    /// Id of the row that the note names: a copied row keeps the note of its original.
    origin: i64,
}

/// Rows that a change sets or removes.
type OrderChanges = Vec<(i64, Option<Order>)>;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub rows: i64,
    pub ids: i64,
    pub amount: i64,
    pub revs: i64,
}

impl Totals {
    pub fn of(numbers: &[i64]) -> Totals {
        let at = |index: usize| numbers.get(index).copied().unwrap_or(i64::MIN);
        Totals { rows: at(0), ids: at(1), amount: at(2), revs: at(3) }
    }

    pub fn add(&mut self, id: i64, amount: Option<i64>, rev: i64, times: i64) {
        self.rows += times;
        self.ids += times * id;
        self.amount += times * amount.unwrap_or(0);
        self.revs += times * rev;
    }
}

/// Facts about the table for the parts that do not write it.
#[derive(Debug, Default)]
pub(super) struct SharedOrders {
    /// The table's totals after each commit that is still readable, oldest first.
    history: Mutex<VecDeque<(u64, Instant, Totals)>>,
    /// The lsn up to which the change feed was followed, and the totals of its events.
    feed: Mutex<(u64, Totals)>,
}

impl SharedOrders {
    fn history(&self) -> MutexGuard<'_, VecDeque<(u64, Instant, Totals)>> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the totals at an lsn, or `None` if its history is no longer kept.
    pub fn totals_at(&self, lsn: u64) -> Option<Totals> {
        self.history().iter().rev().find(|(at, ..)| *at <= lsn).map(|(.., totals)| *totals)
    }

    pub fn set_feed_totals(&self, lsn: u64, totals: Totals) {
        *self.feed.lock().unwrap_or_else(PoisonError::into_inner) = (lsn, totals);
    }

    fn feed(&self) -> (u64, Totals) {
        *self.feed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) struct Orders {
    size: usize,
    /// Age up to which the past is queried.
    keep: Duration,
    rows: BTreeMap<i64, Order>,
    totals: Totals,
    next: i64,
    in_flight: Option<OrderChanges>,
    shared: Arc<SharedOrders>,
    steps: u64,
}

pub(super) fn note(origin: i64) -> String {
    format!(
        "order {origin:08} of a soak, with {:016x} to tell it from others",
        origin.wrapping_mul(0x9E37_79B9)
    )
}

fn customer(number: u32) -> String {
    format!("cust_{number:05}")
}

impl Orders {
    pub fn new(size: &Size, keep: Duration, shared: Arc<SharedOrders>) -> Orders {
        Orders {
            size: size.orders,
            keep,
            rows: BTreeMap::new(),
            totals: Totals::default(),
            next: 1,
            in_flight: None,
            shared,
            steps: 0,
        }
    }

    fn customers(&self) -> usize {
        (self.size / 10).max(1)
    }

    /// Returns a random existing id, or 0 if the table is empty.
    fn random_id(&self, client: &mut SoakClient<'_>) -> i64 {
        let (Some((first, _)), Some((last, _))) = (self.rows.first_key_value(), self.rows.last_key_value())
        else {
            return 0;
        };
        let from = first + client.below((last - first + 1) as usize) as i64;
        self.rows.range(from..).next().map_or(*last, |(id, _)| *id)
    }

    fn new_order(&mut self, client: &mut SoakClient<'_>) -> (i64, Order) {
        let id = self.next;
        self.next += 1;
        let amount = (client.below(20) > 0).then(|| client.below(20_001) as i64 - 5_000);
        let order = Order {
            customer: client.below(self.customers()) as u32,
            amount,
            region: client.below(REGIONS.len()) as u8,
            rev: 0,
            origin: id,
        };
        (id, order)
    }

    /// Sends a change, and applies it to the model once it is acknowledged.
    fn commit(
        &mut self,
        change: OrderChanges,
        client: &mut SoakClient<'_>,
        send: impl FnOnce(&mut SoakClient<'_>) -> Result<WriteResult>,
    ) -> Result<WriteResult> {
        self.in_flight = Some(change);
        let written = send(client)?;
        let change = self.in_flight.take().unwrap_or_default();
        if written.lsn > 0 {
            self.apply(change);
            self.remember(written.lsn);
        } else if !change.is_empty() {
            client
                .state
                .report_wrong(format!("a change of {} rows was acknowledged without a commit", change.len()));
        }
        Ok(written)
    }

    fn apply(&mut self, change: OrderChanges) {
        for (id, row) in change {
            let before = match &row {
                Some(row) => self.rows.insert(id, row.clone()),
                None => self.rows.remove(&id),
            };
            if let Some(before) = before {
                self.totals.add(id, before.amount, before.rev, -1);
            }
            if let Some(row) = row {
                self.totals.add(id, row.amount, row.rev, 1);
            }
        }
    }

    fn remember(&self, lsn: u64) {
        let mut history = self.shared.history();
        history.push_back((lsn, Instant::now(), self.totals));
        // One older entry must stay: it holds at the start of the readable past.
        while history.get(1).is_some_and(|(_, at, _)| at.elapsed() > self.keep) {
            history.pop_front();
        }
    }

    /// Runs a statement whose effect is `change`, and checks that it counts that many rows.
    fn execute(
        &mut self,
        change: OrderChanges,
        sql: &str,
        params: Value,
        client: &mut SoakClient<'_>,
    ) -> Result<WriteResult> {
        let wanted = change.len() as u64;
        let written = self.commit(change, client, |client| client.execute(sql, params))?;
        client.expect(|| format!("rows of {sql}"), &written.count, &wanted);
        Ok(written)
    }

    fn make_random_change(&mut self, client: &mut SoakClient<'_>) -> Result<()> {
        // Keeps the row count near the target. Most rows come from bulk inserts, so their number depends on the row count.
        if self.rows.len() < self.size {
            match client.below(4) {
                0 => return self.insert_rows(BULK_ROWS.min(self.size as i64 / 4).max(1), client),
                1 => return self.insert_one(client),
                2 => return self.insert_copies(client),
                _ => {}
            }
        } else {
            match client.below(3) {
                0 => return self.delete_range(client),
                1 => return self.delete_one(client),
                _ => {}
            }
        }
        match client.below(6) {
            0 => self.update_customer(client),
            1 => self.update_from(client),
            2 => self.upsert(client),
            3 => self.on_conflict(client),
            4 => self.update_and_insert(client),
            _ => self.insert_existing_key(client),
        }
    }

    fn insert_rows(&mut self, count: i64, client: &mut SoakClient<'_>) -> Result<()> {
        let rows: Vec<(i64, Order)> = (0..count).map(|_| self.new_order(client)).collect();
        let body = json!(rows.iter().map(|(id, order)| as_json(*id, order)).collect::<Vec<_>>());
        let change = rows.into_iter().map(|(id, order)| (id, Some(order))).collect();
        let path = format!("/v1/tables/{ORDERS}/rows?mode=insert");
        let written = self.commit(change, client, |client| client.send_write("POST", &path, &body))?;
        client.expect(|| "rows of a bulk insert".to_owned(), &written.count, &(count as u64));
        Ok(())
    }

    fn insert_one(&mut self, client: &mut SoakClient<'_>) -> Result<()> {
        let (id, order) = self.new_order(client);
        let params = json!([
            id,
            customer(order.customer),
            order.amount,
            REGIONS[order.region as usize],
            order.rev,
            note(order.origin)
        ]);
        let sql =
            "INSERT INTO orders (id, customer, amount, region, rev, note) VALUES ($1, $2, $3, $4, $5, $6)";
        self.execute(vec![(id, Some(order))], sql, params, client).map(drop)
    }

    fn insert_copies(&mut self, client: &mut SoakClient<'_>) -> Result<()> {
        let from = self.random_id(client);
        let shift = self.next - from;
        let copies: OrderChanges = self
            .rows
            .range(from..from + 60)
            .map(|(id, order)| (id + shift, Some(Order { rev: order.rev + 1, ..order.clone() })))
            .collect();
        self.next = from + 60 + shift;
        let sql = "INSERT INTO orders (id, customer, amount, region, rev, note) \
                   SELECT id + $1, customer, amount, region, rev + 1, note FROM orders WHERE id >= $2 AND id < $3";
        self.execute(copies, sql, json!([shift, from, from + 60]), client).map(drop)
    }

    fn delete_range(&mut self, client: &mut SoakClient<'_>) -> Result<()> {
        // The oldest rows are deleted more often than others, because they lie in merged segments.
        let from = if client.below(3) == 0 {
            self.random_id(client)
        } else {
            self.rows.first_key_value().map_or(0, |(id, _)| *id)
        };
        let gone: OrderChanges =
            self.rows.range(from..).take(BULK_ROWS as usize).map(|(id, _)| (*id, None)).collect();
        let to = gone.last().map_or(from, |(id, _)| *id);
        let mut wanted: Vec<i64> = gone.iter().map(|(id, _)| *id).collect();
        let sql = "DELETE FROM orders WHERE id BETWEEN $1 AND $2 RETURNING id";
        let count = gone.len() as u64;
        let written = self.commit(gone, client, |client| client.execute_returning(sql, json!([from, to])))?;
        client.expect(|| format!("rows of {sql}"), &written.count, &count);
        let mut found: Vec<i64> =
            written.rows.iter().filter_map(|row| super::client::whole(row.first()?)).collect();
        found.sort_unstable();
        wanted.sort_unstable();
        client.expect(|| "ids that DELETE returned".to_owned(), &found, &wanted);
        Ok(())
    }

    fn delete_one(&mut self, client: &mut SoakClient<'_>) -> Result<()> {
        let id = self.random_id(client);
        let path = format!("/v1/tables/{ORDERS}/rows/{id}");
        self.commit(vec![(id, None)], client, |client| client.send_write("DELETE", &path, &Value::Null))
            .map(drop)
    }

    fn update_customer(&mut self, client: &mut SoakClient<'_>) -> Result<()> {
        let number = client.below(self.customers()) as u32;
        let change = self.raise_where(|order| order.customer == number, 3);
        let sql = "UPDATE orders SET amount = amount + 3, rev = rev + 1 WHERE customer = $1";
        self.execute(change, sql, json!([customer(number)]), client).map(drop)
    }

    /// Computes the effect of an UPDATE that adds `more` to the selected rows.
    fn raise_where(&self, which: impl Fn(&Order) -> bool, more: i64) -> OrderChanges {
        let rows = self.rows.iter().filter(|(_, order)| which(order));
        rows.map(|(id, order)| (*id, Some(raised(order, more)))).collect()
    }

    fn update_from(&mut self, client: &mut SoakClient<'_>) -> Result<()> {
        let mut change = OrderChanges::new();
        let mut values = Vec::new();
        for _ in 0..5 {
            let (id, more) = (self.random_id(client), client.below(100) as i64);
            if let Some(order) = self.rows.get(&id)
                && change.iter().all(|(chosen, _)| *chosen != id)
            {
                change.push((id, Some(raised(order, more))));
                values.push(format!("({id}, {more})"));
            }
        }
        if values.is_empty() {
            return Ok(());
        }
        let sql = format!(
            "UPDATE orders SET amount = amount + v.more, rev = rev + 1 FROM (VALUES {}) v(id, more) WHERE orders.id = v.id",
            values.join(", ")
        );
        self.execute(change, &sql, json!([]), client).map(drop)
    }

    /// Replaces some rows and adds others, over HTTP.
    fn upsert(&mut self, client: &mut SoakClient<'_>) -> Result<()> {
        let mut rows = BTreeMap::new();
        for _ in 0..10 {
            let (fresh, order) = self.new_order(client);
            let id =
                if client.below(5) > 0 && !self.rows.is_empty() { self.random_id(client) } else { fresh };
            rows.insert(id, Order { rev: 1, origin: id, ..order });
        }
        let body = json!(rows.iter().map(|(id, order)| as_json(*id, order)).collect::<Vec<_>>());
        let change = rows.into_iter().map(|(id, order)| (id, Some(order))).collect();
        let path = format!("/v1/tables/{ORDERS}/rows?mode=upsert");
        self.commit(change, client, |client| client.send_write("POST", &path, &body)).map(drop)
    }

    fn on_conflict(&mut self, client: &mut SoakClient<'_>) -> Result<()> {
        let (fresh, mut order) = self.new_order(client);
        let id = if client.below(2) == 0 { self.random_id(client).max(1) } else { fresh };
        order.origin = id;
        let params = json!([
            id,
            customer(order.customer),
            order.amount,
            REGIONS[order.region as usize],
            note(order.origin)
        ]);
        let after = match self.rows.get(&id) {
            Some(there) => Order { amount: order.amount, rev: there.rev + 1, ..there.clone() },
            None => order,
        };
        let sql = "INSERT INTO orders (id, customer, amount, region, rev, note) VALUES ($1, $2, $3, $4, 0, $5) \
                   ON CONFLICT (id) DO UPDATE SET amount = excluded.amount, rev = orders.rev + 1";
        self.execute(vec![(id, Some(after))], sql, params, client).map(drop)
    }

    /// Commits several statements together; each sees the effects of those before it.
    fn update_and_insert(&mut self, client: &mut SoakClient<'_>) -> Result<()> {
        let id = self.random_id(client);
        let Some(order) = self.rows.get(&id).cloned() else { return Ok(()) };
        let (fresh, added) = self.new_order(client);
        let ops = json!([
            {"op": "sql", "sql": "UPDATE orders SET rev = rev + 1 WHERE id = $1", "params": [id]},
            {"op": "sql", "sql": "UPDATE orders SET amount = amount + rev, rev = rev + 1 WHERE id = $1", "params": [id]},
            {"op": "insert", "table": ORDERS, "rows": [as_json(fresh, &added)]},
        ]);
        let after =
            Order { amount: order.amount.map(|amount| amount + order.rev + 1), rev: order.rev + 2, ..order };
        self.commit(vec![(id, Some(after)), (fresh, Some(added))], client, |client| {
            Ok(WriteResult { lsn: client.commit_operations(&ops)?, ..WriteResult::default() })
        })
        .map(drop)
    }

    /// Sends an insert that must change nothing: the second of its rows has an existing key.
    fn insert_existing_key(&mut self, client: &mut SoakClient<'_>) -> Result<()> {
        let id = self.random_id(client);
        if id == 0 {
            return Ok(());
        }
        let (status, said) = client.statement_status(
            "INSERT INTO orders (id, customer, region, rev) VALUES ($1, 'x', 'EU', 0), ($2, 'x', 'EU', 0)",
            json!([self.next, id]),
        )?;
        client.expect(|| format!("the status of a second row with id {id} ({said})"), &status, &409);
        Ok(())
    }

    /// Waits until the change feed has delivered every commit, and compares its totals with the model.
    fn check_change_feed(&self, client: &mut SoakClient<'_>) -> Result<()> {
        let Some(last) = self.shared.history().back().map(|(lsn, ..)| *lsn) else { return Ok(()) };
        let since = Instant::now();
        while self.shared.feed().0 < last && !client.state.is_over() {
            if since.elapsed() > FEED_LAG_MAX {
                return Err(Error::invalid(format!(
                    "the change feed of {ORDERS} has not come to lsn {last} within {FEED_LAG_MAX:?}, only to {}",
                    self.shared.feed().0
                )));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let (lsn, found) = self.shared.feed();
        if lsn >= last {
            client.expect(|| format!("what the change feed told up to lsn {lsn}"), &found, &self.totals);
        }
        Ok(())
    }
}

fn raised(order: &Order, more: i64) -> Order {
    Order { amount: order.amount.map(|amount| amount + more), rev: order.rev + 1, ..order.clone() }
}

fn as_json(id: i64, order: &Order) -> Value {
    json!({
        "id": id,
        "customer": customer(order.customer),
        "amount": order.amount,
        "region": REGIONS[order.region as usize],
        "rev": order.rev,
        "note": note(order.origin),
    })
}

impl Actor for Orders {
    fn every(&self) -> Duration {
        Duration::from_millis(150)
    }

    fn prepare(&mut self, client: &mut SoakClient<'_>) -> Result<()> {
        let written = client.execute(
            "CREATE TABLE orders (id bigint PRIMARY KEY, customer text NOT NULL, amount bigint, region text NOT NULL, \
             rev bigint NOT NULL, note text)",
            json!([]),
        )?;
        self.shared.set_feed_totals(written.lsn, Totals::default());
        self.remember(written.lsn);
        while self.rows.len() < self.size && !client.state.is_over() {
            let bulk = (self.size as i64).min(2_000);
            self.insert_rows(bulk, client)?;
        }
        Ok(())
    }

    fn step(&mut self, client: &mut SoakClient<'_>) -> Result<()> {
        self.steps += 1;
        if self.steps.is_multiple_of(100) {
            return self.check_change_feed(client);
        }
        if self.steps.is_multiple_of(3) {
            self.make_random_change(client)
        } else {
            self.run_random_query(client)
        }
    }

    /// Compares all rows one by one: the table must equal the model, with or without the change in flight.
    fn verify(&mut self, client: &mut SoakClient<'_>) -> Result<()> {
        let mut found = BTreeMap::new();
        let mut from = i64::MIN;
        loop {
            let sql = "SELECT id, customer, amount, region, rev, note FROM orders WHERE id > $1 ORDER BY id LIMIT 20000";
            let rows = client.query(sql, json!([from]))?;
            let Some(last) = rows.last() else { break };
            from = last.first().and_then(super::client::whole).unwrap_or(i64::MAX);
            for row in rows {
                let id = row.first().and_then(super::client::whole).unwrap_or_default();
                found.insert(id, row);
            }
        }
        let differs = |rows: &BTreeMap<i64, Order>| {
            let wanted = |id: &i64, order: &Order| {
                let row = as_json(*id, order);
                vec![
                    row["id"].clone(),
                    row["customer"].clone(),
                    row["amount"].clone(),
                    row["region"].clone(),
                    row["rev"].clone(),
                    row["note"].clone(),
                ]
            };
            let lost = rows.iter().find(|(id, order)| found.get(id) != Some(&wanted(id, order)));
            let lost = lost
                .map(|(id, order)| format!("{:?} expected, {:?} found", wanted(id, order), found.get(id)));
            lost.or_else(|| {
                let more = found.keys().find(|id| !rows.contains_key(id));
                more.map(|id| format!("row {id} was deleted and is there"))
            })
        };
        let Some(why) = differs(&self.rows) else { return Ok(()) };
        if let Some(change) = self.in_flight.take() {
            self.apply(change);
            if differs(&self.rows).is_none() {
                return Ok(());
            }
        }
        client.state.report_wrong(format!("{ORDERS} after the kill: {why}"));
        Ok(())
    }
}
