//! Documents under a text index: each is found by a word of its own from the moment it is acknowledged, and not found once
//! it is deleted.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::{Value, json};
use types::Result;

use super::watch::{Caller, whole};
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

    fn insert(&mut self, count: usize, caller: &mut Caller<'_>) -> Result<()> {
        let first = self.next;
        let rows: Vec<Value> = (first..first + count as i64)
            .map(|id| {
                let words: Vec<&str> = (0..30).map(|_| WORDS[caller.below(WORDS.len())]).collect();
                json!({"id": id, "title": format!("Article a{id}a"), "body": words.join(" ")})
            })
            .collect();
        self.in_flight = true;
        caller.written("POST", "/v1/tables/articles/rows?mode=insert", &json!(rows))?;
        self.in_flight = false;
        self.next += count as i64;
        self.live.extend(first..self.next);
        Ok(())
    }

    fn delete(&mut self, caller: &mut Caller<'_>) -> Result<()> {
        let Some(first) = self.live.front().copied() else { return Ok(()) };
        self.in_flight = true;
        let written = caller.write("DELETE FROM articles WHERE id <= $1", json!([first + 4]))?;
        self.in_flight = false;
        let before = self.live.len();
        self.live.retain(|id| *id > first + 4);
        caller.expect(|| "deleted articles".to_owned(), &written.count, &((before - self.live.len()) as u64));
        Ok(())
    }

    fn find(&self, id: i64, caller: &mut Caller<'_>) -> Result<Vec<i64>> {
        let since = std::time::Instant::now();
        let found = caller.json("GET", &format!("/v1/tables/articles/search?q=a{id}a&fields="), None)?;
        caller.watch.took(since.elapsed(), "a search for one word");
        let hits = found["hits"].as_array().map(Vec::as_slice).unwrap_or_default();
        Ok(hits.iter().filter_map(|hit| whole(&hit["key"])).collect())
    }

    fn search(&self, caller: &mut Caller<'_>) -> Result<()> {
        if let Some(id) = self.live.get(caller.below(self.live.len())).copied() {
            let found = self.find(id, caller)?;
            caller.expect(|| format!("article {id} by its word"), &found, &vec![id]);
        }
        let first = self.live.front().copied().unwrap_or(self.next);
        if first > 1 {
            let gone = 1 + caller.below(first as usize - 1) as i64;
            let found = self.find(gone, caller)?;
            caller.expect(|| format!("deleted article {gone}"), &found, &vec![]);
        }
        Ok(())
    }

    /// A frequent word, in SQL's count and in the index.
    fn frequent(&self, caller: &mut Caller<'_>) -> Result<()> {
        let word = WORDS[caller.below(WORDS.len())];
        let found = caller.json("GET", &format!("/v1/tables/articles/search?q={word}&limit=3"), None)?;
        let counted = caller
            .numbers("SELECT count(*) FROM articles WHERE body LIKE $1", json!([format!("%{word}%")]))?;
        if found["exact"] == true {
            caller.expect(|| format!("articles with {word}"), &whole(&found["total"]), &Some(counted[0]));
        }
        Ok(())
    }
}

impl Actor for Articles {
    fn every(&self) -> Duration {
        Duration::from_millis(500)
    }

    fn prepare(&mut self, caller: &mut Caller<'_>) -> Result<()> {
        caller.write("CREATE TABLE articles (id bigint PRIMARY KEY, title text, body text)", json!([]))?;
        caller.write(INDEX, json!([]))?;
        while self.live.len() < self.size && !caller.watch.is_over() {
            self.insert(self.size.min(500), caller)?;
        }
        Ok(())
    }

    fn step(&mut self, caller: &mut Caller<'_>) -> Result<()> {
        match caller.below(200) {
            // From nothing, now and then.
            0 => {
                caller.write("DROP INDEX words ON articles", json!([]))?;
                caller.write(INDEX, json!([])).map(drop)
            }
            1..60 if self.live.len() < self.size => self.insert(5, caller),
            1..60 => self.delete(caller),
            60..80 => self.frequent(caller),
            _ => self.search(caller),
        }
    }

    fn verify(&mut self, caller: &mut Caller<'_>) -> Result<()> {
        let rows = caller.rows("SELECT id FROM articles ORDER BY id", json!([]))?;
        let found: Vec<i64> = rows.iter().filter_map(|row| whole(&row[0])).collect();
        let wanted: Vec<i64> = self.live.iter().copied().collect();
        // The kill may have come before or after the request in flight was carried out.
        let or_else = |id: &i64| {
            self.in_flight && (*id >= self.next || self.live.front().is_some_and(|first| *id <= first + 4))
        };
        let differing = found
            .iter()
            .filter(|id| !wanted.contains(id))
            .chain(wanted.iter().filter(|id| !found.contains(id)));
        for id in differing.filter(|id| !or_else(id)) {
            caller.watch.wrong(format!("article {id} after the kill: acknowledged otherwise"));
        }
        Ok(())
    }
}
