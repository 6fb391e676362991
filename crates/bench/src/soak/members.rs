//! A table with a key and a unique index that is dropped and rebuilt: no two members ever share an address.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use types::Result;

use super::client::{SoakClient, whole};
use super::{Actor, Size};

type MemberChanges = Vec<(i64, Option<String>)>;

pub(super) struct Members {
    size: usize,
    rows: BTreeMap<i64, String>,
    next: i64,
    in_flight: Option<MemberChanges>,
    has_index: bool,
}

const ADDRESSES_ARE_UNIQUE: &str = "CREATE UNIQUE INDEX addresses ON members (email)";

impl Members {
    pub fn new(size: &Size) -> Members {
        Members { size: size.members, rows: BTreeMap::new(), next: 1, in_flight: None, has_index: true }
    }

    fn random_member(&self, client: &mut SoakClient<'_>) -> Option<(i64, String)> {
        let at = client.below(self.rows.len());
        self.rows.iter().nth(at).map(|(id, email)| (*id, email.clone()))
    }

    fn new_member(&mut self) -> (i64, String) {
        self.next += 1;
        (self.next, format!("member{}@example.org", self.next))
    }

    fn change(
        &mut self,
        change: MemberChanges,
        sql: &str,
        params: Value,
        client: &mut SoakClient<'_>,
    ) -> Result<()> {
        self.in_flight = Some(change);
        let written = client.execute(sql, params)?;
        let change = self.in_flight.take().unwrap_or_default();
        client.expect(|| format!("rows of {sql}"), &written.count, &(change.len() as u64));
        self.apply(change);
        Ok(())
    }

    fn apply(&mut self, change: MemberChanges) {
        for (id, email) in change {
            match email {
                Some(email) => drop(self.rows.insert(id, email)),
                None => drop(self.rows.remove(&id)),
            }
        }
    }

    fn make_random_step(&mut self, client: &mut SoakClient<'_>) -> Result<()> {
        let Some((id, email)) = self.random_member(client) else { return self.insert(client) };
        match client.below(8) {
            0 | 1 if self.rows.len() < self.size => self.insert(client),
            0 | 1 => self.change(vec![(id, None)], "DELETE FROM members WHERE id = $1", json!([id]), client),
            2 if self.has_index => {
                let (fresh, _) = self.new_member();
                let sql = "INSERT INTO members (id, email) VALUES ($1, $2)";
                let (status, said) = client.statement_status(sql, json!([fresh, email]))?;
                client.expect(|| format!("a second member with {email} ({said})"), &status, &409);
                Ok(())
            }
            3 => {
                let (_, email) = self.new_member();
                let sql = "UPDATE members SET email = $2 WHERE id = $1";
                self.change(vec![(id, Some(email.clone()))], sql, json!([id, email]), client)
            }
            4 => {
                let Some((other, theirs)) = self.random_member(client).filter(|(other, _)| *other != id)
                else {
                    return Ok(());
                };
                let sql =
                    "UPDATE members SET email = CASE WHEN id = $1 THEN $4 ELSE $3 END WHERE id IN ($1, $2)";
                let params = json!([id, other, email, theirs]);
                self.change(
                    vec![(id, Some(theirs.clone())), (other, Some(email.clone()))],
                    sql,
                    params,
                    client,
                )
            }
            5 if self.has_index => {
                // The row with this address stays and gets another one.
                let (fresh, moved) = self.new_member();
                let sql = "INSERT INTO members (id, email) VALUES ($1, $2) ON CONFLICT (email) DO UPDATE SET email = $3";
                self.change(vec![(id, Some(moved.clone()))], sql, json!([fresh, email, moved]), client)
            }
            6 => {
                let sql =
                    if self.has_index { "DROP INDEX addresses ON members" } else { ADDRESSES_ARE_UNIQUE };
                // The outcome stays unknown if the kill comes before the answer.
                client.execute(sql, json!([]))?;
                self.has_index = !self.has_index;
                Ok(())
            }
            _ => self.check_member(client),
        }
    }

    fn insert(&mut self, client: &mut SoakClient<'_>) -> Result<()> {
        let rows: Vec<(i64, String)> = (0..3).map(|_| self.new_member()).collect();
        let sql = "INSERT INTO members (id, email) VALUES ($1, $2), ($3, $4), ($5, $6)";
        let params: Vec<Value> = rows.iter().flat_map(|(id, email)| [json!(id), json!(email)]).collect();
        let change = rows.into_iter().map(|(id, email)| (id, Some(email))).collect();
        self.change(change, sql, json!(params), client)
    }

    fn check_member(&self, client: &mut SoakClient<'_>) -> Result<()> {
        let Some((id, email)) = self.random_member(client) else { return Ok(()) };
        let rows = client.query("SELECT id FROM members WHERE email = $1", json!([email]))?;
        client.expect(|| format!("the member with {email}"), &rows, &vec![vec![json!(id)]]);
        let found = client
            .query_numbers("SELECT count(*), count(DISTINCT email), sum(id) FROM members", json!([]))?;
        let count = self.rows.len() as i64;
        client.expect(|| "members".to_owned(), &found, &vec![count, count, self.rows.keys().sum()]);
        Ok(())
    }
}

impl Actor for Members {
    fn every(&self) -> Duration {
        Duration::from_millis(500)
    }

    fn prepare(&mut self, client: &mut SoakClient<'_>) -> Result<()> {
        client.execute("CREATE TABLE members (id bigint PRIMARY KEY, email text NOT NULL)", json!([]))?;
        client.execute(ADDRESSES_ARE_UNIQUE, json!([]))?;
        while self.rows.len() < self.size && !client.state.is_over() {
            self.insert(client)?;
        }
        Ok(())
    }

    fn step(&mut self, client: &mut SoakClient<'_>) -> Result<()> {
        self.make_random_step(client)
    }

    fn verify(&mut self, client: &mut SoakClient<'_>) -> Result<()> {
        let rows = client.query("SELECT id, email FROM members", json!([]))?;
        let found: BTreeMap<i64, String> = rows
            .iter()
            .map(|row| (whole(&row[0]).unwrap_or(-1), row[1].as_str().unwrap_or_default().to_owned()))
            .collect();
        if found != self.rows
            && let Some(change) = self.in_flight.take()
        {
            self.apply(change);
        }
        client.expect(|| "members after the kill".to_owned(), &found, &self.rows);
        client.expect(|| "members after the kill, once each".to_owned(), &rows.len(), &self.rows.len());
        Ok(())
    }
}
