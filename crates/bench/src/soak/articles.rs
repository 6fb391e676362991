//! Documents under a text index: each must be found by a word of its own once it is acknowledged, and must not be found once it
//! is deleted.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::{Value, json};
use types::Result;

use super::client::{SoakClient, whole};
use super::{Actor, Size};

const WORDS: [&str; 12] =
    ["ice", "water", "wind", "sea", "cold", "north", "light", "ship", "stone", "bird", "salt", "night"];
const INDEX: &str = "CREATE INDEX words ON articles USING text (title, body)";

pub(super) struct Articles {
    size: usize,
    live: VecDeque<i64>,
    next: i64,
    in_flight: bool,
}

impl Articles {
    pub fn new(size: &Size) -> Articles {
        Articles { size: size.articles, live: VecDeque::new(), next: 1, in_flight: false }
    }

    fn insert(&mut self, count: usize, client: &mut SoakClient<'_>) -> Result<()> {
        let first = self.next;
        let rows: Vec<Value> = (first..first + count as i64)
            .map(|id| {
                let words: Vec<&str> = (0..30).map(|_| WORDS[client.below(WORDS.len())]).collect();
                json!({"id": id, "title": format!("Article a{id}a"), "body": words.join(" ")})
            })
            .collect();
        self.in_flight = true;
        client.send_write("POST", "/v1/tables/articles/rows?mode=insert", &json!(rows))?;
        self.in_flight = false;
        self.next += count as i64;
        self.live.extend(first..self.next);
        Ok(())
    }

    fn delete(&mut self, client: &mut SoakClient<'_>) -> Result<()> {
        let Some(first) = self.live.front().copied() else { return Ok(()) };
        self.in_flight = true;
        let written = client.execute("DELETE FROM articles WHERE id <= $1", json!([first + 4]))?;
        self.in_flight = false;
        let before = self.live.len();
        self.live.retain(|id| *id > first + 4);
        client.expect(|| "deleted articles".to_owned(), &written.count, &((before - self.live.len()) as u64));
        Ok(())
    }

    fn find(&self, id: i64, client: &mut SoakClient<'_>) -> Result<Vec<i64>> {
        let since = std::time::Instant::now();
        let found =
            client.request_json("GET", &format!("/v1/tables/articles/search?q=a{id}a&fields="), None)?;
        client.state.record_read(since.elapsed(), "a search for one word");
        let hits = found["hits"].as_array().map(Vec::as_slice).unwrap_or_default();
        Ok(hits.iter().filter_map(|hit| whole(&hit["key"])).collect())
    }

    fn search(&self, client: &mut SoakClient<'_>) -> Result<()> {
        if let Some(id) = self.live.get(client.below(self.live.len())).copied() {
            let found = self.find(id, client)?;
            client.expect(|| format!("article {id} by its word"), &found, &vec![id]);
        }
        let first = self.live.front().copied().unwrap_or(self.next);
        if first > 1 {
            let gone = 1 + client.below(first as usize - 1) as i64;
            let found = self.find(gone, client)?;
            client.expect(|| format!("deleted article {gone}"), &found, &vec![]);
        }
        Ok(())
    }

    /// Compares the number of hits of a frequent word with SQL's count.
    fn frequent(&self, client: &mut SoakClient<'_>) -> Result<()> {
        let word = WORDS[client.below(WORDS.len())];
        let found =
            client.request_json("GET", &format!("/v1/tables/articles/search?q={word}&limit=3"), None)?;
        let counted = client.query_numbers(
            "SELECT count(*) FROM articles WHERE body LIKE $1",
            json!([format!("%{word}%")]),
        )?;
        if found["exact"] == true {
            client.expect(|| format!("articles with {word}"), &whole(&found["total"]), &Some(counted[0]));
        }
        Ok(())
    }
}

impl Actor for Articles {
    fn every(&self) -> Duration {
        Duration::from_millis(500)
    }

    fn prepare(&mut self, client: &mut SoakClient<'_>) -> Result<()> {
        client.execute("CREATE TABLE articles (id bigint PRIMARY KEY, title text, body text)", json!([]))?;
        client.execute(INDEX, json!([]))?;
        while self.live.len() < self.size && !client.state.is_over() {
            self.insert(self.size.min(500), client)?;
        }
        Ok(())
    }

    fn step(&mut self, client: &mut SoakClient<'_>) -> Result<()> {
        match client.below(200) {
            // From time to time the index is rebuilt from nothing.
            0 => {
                client.execute("DROP INDEX words ON articles", json!([]))?;
                client.execute(INDEX, json!([])).map(drop)
            }
            1..60 if self.live.len() < self.size => self.insert(5, client),
            1..60 => self.delete(client),
            60..80 => self.frequent(client),
            _ => self.search(client),
        }
    }

    fn verify(&mut self, client: &mut SoakClient<'_>) -> Result<()> {
        let rows = client.query("SELECT id FROM articles ORDER BY id", json!([]))?;
        let found: Vec<i64> = rows.iter().filter_map(|row| whole(&row[0])).collect();
        let wanted: Vec<i64> = self.live.iter().copied().collect();
        // The kill may have come before or after the request in flight was carried out.
        let is_excused = |id: &i64| {
            self.in_flight && (*id >= self.next || self.live.front().is_some_and(|first| *id <= first + 4))
        };
        let differing = found
            .iter()
            .filter(|id| !wanted.contains(id))
            .chain(wanted.iter().filter(|id| !found.contains(id)));
        for id in differing.filter(|id| !is_excused(id)) {
            client.state.report_wrong(format!("article {id} after the kill: acknowledged otherwise"));
        }
        Ok(())
    }
}
