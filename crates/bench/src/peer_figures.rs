//! Compares several databases that did the same work.

use serde::{Deserialize, Serialize};

use crate::ab::Spread;
use crate::markdown::{ms, thousands};
use crate::report::{Claim, Sheet};

/// The figures of all databases for one kind of work.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkFigures {
    pub work: String,
    /// The unit of the values: `µs`, `rows/s` and so on.
    pub unit: String,
    pub is: FigureKind,
    /// The figures, in the order of the peers.
    pub of: Vec<Figure>,
}

/// The quantity that a figure measures, which decides whether high or low is good.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FigureKind {
    /// Time of a query, by which the peers are ranked.
    #[default]
    Time,
    /// Time of another operation.
    OtherTime,
    /// Units of work per second.
    Rate,
    /// Bytes of storage.
    Size,
}

/// The figure of one peer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    pub peer: String,
    pub value: Spread,
    /// The error in an answer, if there was one. Such a figure is not counted.
    pub wrong: Option<String>,
}

impl WorkFigures {
    fn valid_value(&self, at: usize) -> Option<&Spread> {
        self.of.get(at).filter(|figure| figure.wrong.is_none() && figure.value.median > 0.0).map(|f| &f.value)
    }

    /// Returns by how many times the first peer is better than another.
    fn ratio(&self, other: usize) -> Option<f64> {
        let (ours, theirs) = (self.valid_value(0)?.median, self.valid_value(other)?.median);
        Some(if self.is == FigureKind::Rate { ours / theirs } else { theirs / ours })
    }

    /// Returns true if the first peer is at least as good as another, or if the two spreads overlap.
    fn holds_against(&self, other: usize) -> bool {
        let Some(theirs) = self.valid_value(other) else { return true };
        let Some(ours) = self.valid_value(0) else { return false };
        if self.is == FigureKind::Rate {
            ours.highest >= theirs.lowest
        } else {
            ours.lowest <= theirs.highest
        }
    }
}

/// Renders medians with lowest and highest values, and by how many times the first peer is better.
pub(crate) fn sheet(title: &str, all: &[WorkFigures]) -> Sheet {
    let peers: Vec<&str> = all
        .first()
        .map(|first| first.of.iter().map(|figure| figure.peer.as_str()).collect())
        .unwrap_or_default();
    let mut columns = vec![String::new(), "unit".to_owned()];
    columns.extend(peers.iter().map(|peer| (*peer).to_owned()));
    columns.extend(peers.iter().skip(1).map(|peer| format!("against {peer}")));
    let line = |measured: &WorkFigures| {
        let mut line = vec![measured.work.clone(), measured.unit.clone()];
        for figure in &measured.of {
            let of = &figure.value;
            line.push(match &figure.wrong {
                Some(_) => "wrong answer".to_owned(),
                None => format!("{} ({} to {})", number(of.median), number(of.lowest), number(of.highest)),
            });
        }
        let ratios = (1..peers.len()).map(|other| measured.ratio(other));
        line.extend(ratios.map(|ratio| ratio.map_or("–".to_owned(), |ratio| format!("{ratio:.2}"))));
        line
    };
    Sheet { title: title.to_owned(), columns, rows: all.iter().map(line).collect() }
}

fn number(value: f64) -> String {
    if value >= 1000.0 { thousands(value) } else { ms(value) }
}

/// Claims that the first peer is at least as fast as every other one in each kind of work, and that the geometric mean of the
/// ratios against each peer reaches its goal.
pub(crate) fn claims(all: &[WorkFigures]) -> Vec<Claim> {
    let times: Vec<&WorkFigures> = all.iter().filter(|measured| measured.is == FigureKind::Time).collect();
    let others = times.first().map_or(1, |first| first.of.len());
    if others < 2 {
        return Vec::new();
    }
    let slower: Vec<&str> = times
        .iter()
        .filter(|measured| !(1..others).all(|other| measured.holds_against(other)))
        .map(|measured| measured.work.as_str())
        .collect();
    let mut claims = vec![Claim {
        claim: "on every time row at least as fast as the best of the others, or within the spread".into(),
        holds: slower.is_empty(),
        found: if slower.is_empty() {
            format!("{} rows", times.len())
        } else {
            format!("slower: {}", slower.join("; "))
        },
    }];
    for other in 1..others {
        let name = &times[0].of[other].peer;
        let ratios: Vec<f64> = times.iter().filter_map(|measured| measured.ratio(other)).collect();
        let mean = geometric_mean(&ratios);
        let wanted = if name == "SQLite" { 3.0 } else { 1.0 };
        claims.push(Claim {
            claim: format!("geometric mean of the time rows against {name} at least {wanted}"),
            holds: mean >= wanted,
            found: format!("{mean:.2} over {} rows", ratios.len()),
        });
    }
    claims
}

fn geometric_mean(values: &[f64]) -> f64 {
    let sum: f64 = values.iter().map(|value| value.ln()).sum();
    if values.is_empty() { 0.0 } else { (sum / values.len() as f64).exp() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(is: FigureKind, ours: [f64; 3], theirs: [f64; 3], wrong: bool) -> WorkFigures {
        let figure = |peer: &str, values: [f64; 3], wrong: bool| Figure {
            peer: peer.into(),
            value: Spread::of(values.to_vec()),
            wrong: wrong.then(|| "no".to_owned()),
        };
        let of = vec![figure("Polynya", ours, false), figure("SQLite", theirs, wrong)];
        WorkFigures { work: "w".into(), unit: "µs".into(), is, of }
    }

    #[test]
    fn a_wrong_answer_has_no_time() {
        let wrong = measured(FigureKind::Time, [5.0, 6.0, 7.0], [1.0, 1.0, 1.0], true);
        assert!(wrong.holds_against(1));
        assert_eq!(wrong.ratio(1), None);
        assert_eq!(sheet("", &[wrong]).rows[0][3], "wrong answer");
    }

    #[test]
    fn overlapping_spreads_are_a_tie_and_rates_count_the_other_way() {
        assert!(measured(FigureKind::Time, [5.0, 6.0, 7.0], [1.0, 4.0, 5.5], false).holds_against(1));
        assert!(!measured(FigureKind::Time, [5.0, 6.0, 7.0], [1.0, 3.0, 4.0], false).holds_against(1));
        assert!(measured(FigureKind::Rate, [5.0, 6.0, 7.0], [1.0, 3.0, 4.0], false).holds_against(1));
        assert_eq!(measured(FigureKind::Rate, [6.0; 3], [3.0; 3], false).ratio(1), Some(2.0));
        assert_eq!(measured(FigureKind::Time, [6.0; 3], [3.0; 3], false).ratio(1), Some(0.5));
    }

    #[test]
    fn the_geometric_mean_is_of_time_rows_alone() {
        let all = [
            measured(FigureKind::Time, [1.0; 3], [2.0; 3], false),
            measured(FigureKind::Time, [1.0; 3], [8.0; 3], false),
            measured(FigureKind::Rate, [1.0; 3], [100.0; 3], false),
        ];
        let claims = claims(&all);
        assert!(claims[0].holds && claims[1].holds);
        assert!(claims[1].found.starts_with("4.00 over 2"), "{claims:?}");
    }
}
