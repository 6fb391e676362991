//! The rows of the `freeze` workload. Each row is a function of its number, so the correct answer to every query is known.

use types::Result;

use crate::peer::{Cell, Digest, PeerStatement, Session, Table, Type, hash_float, hash_int, hash_text};
use crate::random::Random;

pub(super) const TABLE: Table = Table {
    name: "products",
    columns: &[("id", Type::Int), ("category", Type::Text), ("price", Type::Float), ("stock", Type::Int)],
};

pub(super) const INDEXES: [&str; 2] = ["category", "price"];

const CATEGORIES: [&str; 5] = ["electronics", "books", "clothing", "food", "toys"];
const PRICES: u64 = 990;

/// Returns row number `n`, counted from 1.
pub(super) fn row(n: u64) -> [Cell; 4] {
    let (category, price, stock) = values(n);
    [Cell::Int(n as i64), Cell::Text(category.into()), Cell::Float(price), Cell::Int(stock)]
}

fn values(n: u64) -> (&'static str, f64, i64) {
    (CATEGORIES[(n % 5) as usize], 10.0 + (n % PRICES) as f64, (n % 100) as i64)
}

/// Adds row `n` to the digest of an expected answer.
fn add_row(n: u64, digest: &mut Digest) {
    let (category, price, stock) = values(n);
    digest.add_row_hash(hash_int(
        hash_float(hash_text(hash_int(Digest::initial_hash(), n as i64), category), price),
        stock,
    ));
}

/// A query of a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProductQuery {
    Category(u8),
    /// Lowest and highest price, both included.
    Price(u16, u16),
    Everything,
}

/// The prepared texts of the queries.
#[derive(Clone, Debug)]
pub(super) struct Statements {
    category: PeerStatement,
    price: PeerStatement,
    everything: PeerStatement,
}

impl Statements {
    pub(super) fn new() -> Statements {
        let of = |condition: &str| {
            PeerStatement::new(&format!("SELECT {} FROM {}{condition}", TABLE.column_list(), TABLE.name))
        };
        Statements {
            category: of(" WHERE category = ?"),
            price: of(" WHERE price BETWEEN ? AND ?"),
            everything: of(""),
        }
    }
}

impl ProductQuery {
    /// Picks a random query: half of them select a category, the others a hundredth to a tenth of the prices.
    pub(super) fn random(random: &mut Random) -> ProductQuery {
        if random.below(2) == 0 {
            return ProductQuery::Category(random.below(5) as u8);
        }
        let width = PRICES / 100 + random.below(PRICES / 11);
        let from = 10 + random.below(PRICES - width);
        ProductQuery::Price(from as u16, (from + width) as u16)
    }

    pub(super) fn run(
        self,
        session: &mut dyn Session,
        statements: &Statements,
        answer: &mut Digest,
    ) -> Result<()> {
        match self {
            ProductQuery::Category(category) => {
                let params = [Cell::Text(CATEGORIES[usize::from(category)].into())];
                session.select(&statements.category, &params, answer)
            }
            ProductQuery::Price(from, to) => {
                let params = [from, to].map(|price| Cell::Float(f64::from(price)));
                session.select(&statements.price, &params, answer)
            }
            ProductQuery::Everything => session.select(&statements.everything, &[], answer),
        }
    }

    fn matches(self, n: u64) -> bool {
        match self {
            ProductQuery::Category(category) => n % 5 == u64::from(category),
            ProductQuery::Price(from, to) => (u64::from(from)..=u64::from(to)).contains(&(10 + n % PRICES)),
            ProductQuery::Everything => true,
        }
    }
}

/// The digest of an answer, and the bounds on the number of rows that the table had when it was given.
#[derive(Clone, Copy, Debug)]
pub(super) struct ObservedAnswer {
    pub(super) query: ProductQuery,
    pub(super) rows: u64,
    pub(super) hash: u64,
    /// Rows that were acknowledged before the query; the answer must include all of them that match.
    pub(super) least: u64,
    /// Rows whose insertion had begun when the answer arrived; the answer must include no later row.
    pub(super) most: u64,
}

impl ObservedAnswer {
    /// Checks an answer. Rows are inserted one after the other, so any state of the table consists of the rows 1 to n. The answer
    /// must equal a scan of these rows at an n that the table had during the query.
    pub(super) fn check(&self) -> Result<(), String> {
        let mut expected = Digest::default();
        let mut n = 0;
        while expected.rows < self.rows {
            n += 1;
            if n > self.most {
                return Err(format!(
                    "{:?}: {} rows, but only {} of {} begun could be there",
                    self.query, self.rows, expected.rows, self.most
                ));
            }
            if self.query.matches(n) {
                add_row(n, &mut expected);
            }
        }
        if let Some(missing) = (n + 1..=self.least).find(|n| self.query.matches(*n)) {
            return Err(format!(
                "{:?}: {} rows; row {missing} is missing, {} were acknowledged before",
                self.query, self.rows, self.least
            ));
        }
        if expected.hash != self.hash {
            return Err(format!("{:?}: {} rows, not the first that match", self.query, self.rows));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(query: ProductQuery, rows: impl Iterator<Item = u64>, least: u64, most: u64) -> ObservedAnswer {
        let mut digest = Digest::default();
        rows.filter(|n| query.matches(*n)).for_each(|n| digest.add_row(row(n).to_vec()));
        ObservedAnswer { query, rows: digest.rows, hash: digest.hash, least, most }
    }

    #[test]
    fn any_state_between_what_was_acknowledged_and_what_was_begun_is_right() {
        for query in [ProductQuery::Category(3), ProductQuery::Price(100, 150), ProductQuery::Everything] {
            for n in [1990, 2000, 2010] {
                seen(query, 1..=n, 1990, 2010).check().unwrap();
            }
        }
    }

    #[test]
    fn a_missing_row_a_row_twice_a_stale_and_an_early_answer_are_wrong() {
        let query = ProductQuery::Category(3);
        let wrong = |rows: Vec<u64>| seen(query, rows.into_iter(), 1990, 2010).check().unwrap_err();
        assert!(wrong((1..=1900).collect()).contains("is missing"));
        assert!(wrong((1..=2100).collect()).contains("could be there"));
        assert!(wrong((1..=2000).filter(|n| *n != 3).collect()).contains("not the first"));
        assert!(wrong((1..=2000).map(|n| if n == 8 { 3 } else { n }).collect()).contains("not the first"));
        // The answer has one row too many, because one row occurs twice.
        assert!(!wrong((1..=2000).chain([3]).collect()).is_empty());
    }
}
