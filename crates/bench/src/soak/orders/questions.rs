//! Queries over the orders, whose answers are compared with the model.

use std::collections::BTreeMap;
use std::ops::Bound;

use serde_json::{Value, json};
use types::Result;

use super::super::client::{SoakClient, whole};
use super::{ORDERS, Order, Orders, REGIONS, TOTALS, Totals, customer, note};

impl Orders {
    pub(super) fn run_random_query(&mut self, client: &mut SoakClient<'_>) -> Result<()> {
        match client.below(16) {
            0 | 1 => self.by_key(client),
            2 => self.by_key_in_sql(client),
            3 | 4 => self.by_customer(client),
            5 => self.by_amount(client),
            6 => self.least_amounts(client),
            7 => self.by_region(client),
            8 => self.customers_in_or_like(client),
            9 => self.distinct_customers(client),
            10 => self.windows(client),
            11 => self.join_customers(client),
            12 => self.extremes(client),
            13 | 14 => self.compare_with_past(client),
            _ => self.query_system_tables(client),
        }
    }

    fn by_key(&self, client: &mut SoakClient<'_>) -> Result<()> {
        // The range includes ids that were deleted or do not exist yet.
        let id = client.below(self.next as usize + 10) as i64;
        let found = client.find_row(&format!("/v1/tables/{ORDERS}/rows/{id}"))?;
        let found = found.map(|row| (whole(&row["rev"]), row["note"].as_str().map(str::to_owned)));
        let wanted = self.rows.get(&id).map(|order| (Some(order.rev), Some(note(order.origin))));
        client.expect(|| format!("order {id}"), &found, &wanted);
        Ok(())
    }

    fn by_key_in_sql(&self, client: &mut SoakClient<'_>) -> Result<()> {
        let id = self.random_id(client);
        // A literal in the text makes a new statement, which must be planned again.
        let rows = if client.below(4) == 0 {
            client.query(&format!("SELECT amount, rev, region FROM orders WHERE id = {id}"), json!([]))?
        } else {
            client.query("SELECT amount, rev, region FROM orders WHERE id = $1", json!([id]))?
        };
        let wanted: Vec<Vec<Value>> = self
            .rows
            .get(&id)
            .map(|o| vec![json!(o.amount), json!(o.rev), json!(REGIONS[o.region as usize])])
            .into_iter()
            .collect();
        client.expect(|| format!("order {id} in SQL"), &rows, &wanted);
        Ok(())
    }

    fn by_customer(&self, client: &mut SoakClient<'_>) -> Result<()> {
        let number = client.below(self.customers()) as u32;
        let rows =
            client.query("SELECT id, rev FROM orders WHERE customer = $1", json!([customer(number)]))?;
        let mut found: Vec<(i64, i64)> =
            rows.iter().map(|row| (number_at(row, 0), number_at(row, 1))).collect();
        found.sort_unstable();
        let wanted = self.rows.iter().filter(|(_, order)| order.customer == number);
        let wanted: Vec<(i64, i64)> = wanted.map(|(id, order)| (*id, order.rev)).collect();
        client.expect(|| format!("the orders of {}", customer(number)), &found, &wanted);
        Ok(())
    }

    fn by_amount(&self, client: &mut SoakClient<'_>) -> Result<()> {
        let low = client.below(20_000) as i64 - 5_000;
        let high = low + [5, 50, 2_000][client.below(3)];
        let sql = "SELECT count(*), sum(id), sum(amount) FROM orders WHERE amount BETWEEN $1 AND $2";
        let found = client.query_numbers(sql, json!([low, high]))?;
        let mut wanted = vec![0; 3];
        for (id, order) in &self.rows {
            if let Some(amount) = order.amount.filter(|amount| (low..=high).contains(amount)) {
                wanted = vec![wanted[0] + 1, wanted[1] + id, wanted[2] + amount];
            }
        }
        client.expect(|| format!("amounts from {low} to {high}"), &found, &wanted);
        Ok(())
    }

    fn least_amounts(&self, client: &mut SoakClient<'_>) -> Result<()> {
        let region = client.below(REGIONS.len()) as u8;
        let rows = client.query(
            "SELECT id, amount FROM orders WHERE region = $1 ORDER BY amount NULLS LAST, id LIMIT 10",
            json!([REGIONS[region as usize]]),
        )?;
        let found: Vec<i64> = rows.iter().map(|row| number_at(row, 0)).collect();
        let mut wanted: Vec<(bool, Option<i64>, i64)> = self
            .rows
            .iter()
            .filter(|(_, order)| order.region == region)
            .map(|(id, order)| (order.amount.is_none(), order.amount, *id))
            .collect();
        wanted.sort_unstable();
        let wanted: Vec<i64> = wanted.into_iter().take(10).map(|(.., id)| id).collect();
        client.expect(|| format!("the least amounts of {}", REGIONS[region as usize]), &found, &wanted);
        Ok(())
    }

    fn by_region(&self, client: &mut SoakClient<'_>) -> Result<()> {
        let rows = client.query(
            "SELECT region, count(*), sum(rev), count(amount) FROM orders GROUP BY region ORDER BY region",
            json!([]),
        )?;
        let found: Vec<(String, [i64; 3])> = rows
            .iter()
            .map(|row| (text_at(row, 0), [number_at(row, 1), number_at(row, 2), number_at(row, 3)]))
            .collect();
        let mut wanted: BTreeMap<String, [i64; 3]> = BTreeMap::new();
        for order in self.rows.values() {
            let group = wanted.entry(REGIONS[order.region as usize].to_owned()).or_default();
            group[0] += 1;
            group[1] += order.rev;
            group[2] += i64::from(order.amount.is_some());
        }
        client.expect(|| "figures by region".to_owned(), &found, &wanted.into_iter().collect());
        Ok(())
    }

    fn customers_in_or_like(&self, client: &mut SoakClient<'_>) -> Result<()> {
        let [one, two] = [(); 2].map(|()| client.below(self.customers()) as u32);
        let prefix = &customer(one)[..9];
        let sql = "SELECT count(*), sum(id) FROM orders WHERE customer IN ($1, $2) OR customer LIKE $3";
        let found = client.query_numbers(sql, json!([customer(one), customer(two), format!("{prefix}%")]))?;
        let is_one = |order: &&Order| {
            [one, two].contains(&order.customer) || customer(order.customer).starts_with(prefix)
        };
        let ids: Vec<i64> = self.rows.iter().filter(|(_, order)| is_one(order)).map(|(id, _)| *id).collect();
        let wanted = vec![ids.len() as i64, ids.iter().sum()];
        client.expect(|| format!("customers {one}, {two} and {prefix}…"), &found, &wanted);
        Ok(())
    }

    fn distinct_customers(&self, client: &mut SoakClient<'_>) -> Result<()> {
        let found = client.query_numbers("SELECT count(DISTINCT customer) FROM orders", json!([]))?;
        let customers: std::collections::BTreeSet<u32> =
            self.rows.values().map(|order| order.customer).collect();
        client.expect(|| "customers".to_owned(), &found, &vec![customers.len() as i64]);
        Ok(())
    }

    /// Sorts the whole table and computes running totals.
    fn windows(&self, client: &mut SoakClient<'_>) -> Result<()> {
        let id = self.random_id(client);
        let found = client.query_numbers(
            "WITH placed AS (SELECT id, row_number() OVER (ORDER BY id DESC) AS place, \
             sum(rev) OVER (ORDER BY id) AS revs FROM orders) SELECT place, revs FROM placed WHERE id = $1",
            json!([id]),
        );
        if !self.rows.contains_key(&id) {
            return Ok(());
        }
        let place = self.rows.range((Bound::Included(id), Bound::Unbounded)).count() as i64;
        let revs = self.rows.range(..=id).map(|(_, order)| order.rev).sum();
        client.expect(|| format!("the place of order {id}"), &found?, &vec![place, revs]);
        Ok(())
    }

    fn join_customers(&self, client: &mut SoakClient<'_>) -> Result<()> {
        let [one, two] = [(); 2].map(|()| client.below(self.customers()) as u32);
        let found = client.query_numbers(
            "SELECT count(*), sum(o.id * few.n) FROM (VALUES ($1, 1), ($2, 10)) few(customer, n) \
             JOIN orders o ON o.customer = few.customer",
            json!([customer(one), customer(two)]),
        )?;
        let mut wanted = vec![0, 0];
        for (number, times) in [(one, 1), (two, 10)] {
            for (id, _) in self.rows.iter().filter(|(_, order)| order.customer == number) {
                wanted = vec![wanted[0] + 1, wanted[1] + id * times];
            }
        }
        client.expect(|| format!("a join with customers {one} and {two}"), &found, &wanted);
        Ok(())
    }

    fn extremes(&self, client: &mut SoakClient<'_>) -> Result<()> {
        let found = client
            .query_numbers("SELECT min(amount), max(amount), min(id), max(id) FROM orders", json!([]))?;
        let amounts = || self.rows.values().filter_map(|order| order.amount);
        let id = |id: Option<(&i64, &Order)>| id.map_or(0, |(id, _)| *id);
        let wanted = vec![
            amounts().min().unwrap_or_default(),
            amounts().max().unwrap_or_default(),
            id(self.rows.first_key_value()),
            id(self.rows.last_key_value()),
        ];
        client.expect(|| "the least and the greatest".to_owned(), &found, &wanted);
        Ok(())
    }

    /// Compares the totals after a random commit that is still readable, and the current totals.
    fn compare_with_past(&self, client: &mut SoakClient<'_>) -> Result<()> {
        let point = {
            let history = self.shared.history();
            // The oldest commits could become unreadable while the query runs.
            let young: Vec<_> = history.iter().filter(|(_, at, _)| at.elapsed() < self.keep / 2).collect();
            if young.is_empty() { None } else { Some(*young[client.below(young.len())]) }
        };
        if let Some((lsn, _, wanted)) = point {
            let found = Totals::of(&client.query_numbers(&format!("{TOTALS} AS OF LSN {lsn}"), json!([]))?);
            client.expect(|| format!("{ORDERS} as of lsn {lsn}"), &found, &wanted);
        }
        let found = Totals::of(&client.query_numbers(TOTALS, json!([]))?);
        client.expect(|| ORDERS.to_owned(), &found, &self.totals);
        Ok(())
    }

    /// Queries the system tables. There is no answer to compare, but the work must leave no resources behind.
    fn query_system_tables(&self, client: &mut SoakClient<'_>) -> Result<()> {
        let sql = [
            "SELECT index_name, state, missing_rows FROM polynya.indexes",
            "SELECT columns, queries FROM polynya.advice",
            "SELECT table_name, oldest_lsn, bytes FROM polynya.history",
            "SELECT count(*) FROM information_schema.columns",
            "EXPLAIN ANALYZE SELECT count(*) FROM orders WHERE customer = 'cust_00007' OR amount < 0",
        ];
        let sql = sql[client.below(sql.len())];
        if client.query(sql, json!([]))?.is_empty() && sql.starts_with("EXPLAIN") {
            client.state.report_wrong(format!("{sql}: nothing"));
        }
        Ok(())
    }
}

fn number_at(row: &[Value], at: usize) -> i64 {
    row.get(at).and_then(whole).unwrap_or(i64::MIN)
}

fn text_at(row: &[Value], at: usize) -> String {
    row.get(at).and_then(Value::as_str).unwrap_or_default().to_owned()
}
