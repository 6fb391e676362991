//! Questions about requests: their method, route and status, their duration and number.

use super::negations::Negations;
use super::phrases::*;
use super::{Interpreter, QuestionElements};
use crate::comparison::Unit;
use crate::task::*;
use crate::vocabulary as v;
use crate::words::{METHODS, Words};

impl Interpreter<'_> {
    pub(super) fn requests(&self, words: &mut Words, elements: QuestionElements) -> SourceTask {
        let mut query = RequestsQuery::default();
        words.take(v::REQUESTS);
        query.whether = asks_yes_or_no(words);
        let server_side = words.take(&["5xx"]) | (words.any(v::ERRORS) && words.any(&["server", "internal"]));
        let client_side = words.take(&["4xx"]) | (words.any(v::ERRORS) && words.any(&["client"]));
        let errors = words.take(v::ERRORS);
        query.status = match (server_side, client_side, errors) {
            (true, false, _) => Some((500, 599)),
            (false, true, _) => Some((400, 499)),
            (_, _, true) | (true, true, _) => Some((400, 599)),
            _ => None,
        };
        words.take(&["internal", "client", "code", "codes"]);
        let mut negations = Negations::of(words, &elements);
        let mut before = false;
        for at in 0..words.len() {
            let word = &words.list[at];
            // `not GET or POST` excludes both.
            let goes_on =
                at >= 2 && matches!(words.at(at - 1), "or" | "nor" | "and") && words.list[at - 2].used;
            if word.used || word.quoted {
                continue;
            }
            let (raw, number) = (word.raw.clone(), word.text.trim_end_matches('s').parse::<i64>());
            let status = number.ok().filter(|status| (100..600).contains(status));
            if status.is_none() && !METHODS.contains(&raw.as_str()) && !raw.starts_with('/') {
                continue;
            }
            let negated = is_negated(words, at, &mut negations) || (goes_on && before);
            before = negated;
            let fits = match status {
                Some(status) => query.statuses.add(status, negated),
                None if raw.starts_with('/') => query.routes.add(raw, negated),
                None => query.methods.add(raw, negated),
            };
            if fits {
                words.mark(at..at + 1);
            }
        }
        // The noun of the chosen values: `a method other than POST`.
        if !query.methods.values.is_empty() {
            words.take(&["method", "methods"]);
        }
        if !query.routes.values.is_empty() {
            words.take(&["route", "routes", "path", "paths", "url", "urls"]);
        }
        let other = elements
            .tables
            .iter()
            .map(|(table, _)| &self.def(*table).name)
            .find(|name| *name != "polynya.requests");
        query.table = other.cloned();
        query.group = group_column(words);
        query.slow = words.take(v::SLOW);
        let slowest = words.take(v::SLOWEST);
        let fastest = words.take(v::FASTEST);
        let (nots, is_nothing) = negations.unused(words);
        for comparison in elements.comparisons {
            // `status above 400`.
            let named = comparison.before.map_or("", |at| words.at(at));
            if matches!(named, "status" | "code" | "codes") && comparison.unit.is_none() {
                query.status_bounds.push(comparison);
                continue;
            }
            let of_time = comparison.of_time || matches!(comparison.unit, Some(Unit::Time(_)));
            match of_time {
                true => query.duration.push(comparison),
                false if comparison.unit.is_none() && query.count.is_none() => query.count = Some(comparison),
                // Requests have no bytes or shares to compare.
                false => query.scope.not_understood.push(comparison.phrase),
            }
        }
        query.scope.aggregate = aggregate(words);
        if slowest {
            query.scope.aggregate = Some(Aggregate::Highest);
        } else if fastest {
            query.scope.aggregate = Some(Aggregate::Lowest);
        }
        words.take(&[
            "took",
            "take",
            "takes",
            "taking",
            "lasted",
            "duration",
            "durations",
            "answered",
            "served",
            "made",
            "there",
            "response",
            "latency",
        ]);
        query.scope.window = elements.window;
        query.scope.limit = elements.limit;
        query.scope.not_understood.extend(unknown_words(words));
        let states = usize::from(query.status.is_some())
            + usize::from(!query.statuses.values.is_empty())
            + query.status_bounds.len();
        let conditions = query.duration.len() + usize::from(query.slow) + states;
        if words.any(&["or"]) && conditions > 1 {
            query.scope.not_understood.push("or".into());
        }
        // `did requests not fail` asks if none failed. `did any not fail`, and how many did not, is something else.
        let is_turned = query.whether
            && conditions > 0
            && nots.len() == 1
            && !words.any(&["any", "some", "all", "every"]);
        query.scope.negated = is_nothing != is_turned;
        if !is_turned {
            query.scope.not_understood.extend(nots);
        }
        SourceTask { source: "requests".into(), kind: "requests", query: SourceQuery::Requests(query) }
    }
}

/// Returns true if a method, a route or a status is excluded: `not POST`, `status other than 404`, `method != GET`.
fn is_negated(words: &Words, at: usize, negations: &mut Negations) -> bool {
    const NAMES: [&str; 7] = ["status", "code", "codes", "method", "route", "path", "url"];
    let Some(before) = at.checked_sub(1) else { return false };
    let sign = matches!(words.at(before), "!=" | "<>");
    // `no status 404`, and `a status of not 404`.
    let name = NAMES.contains(&words.at(before)).then_some(before);
    let places = [Some(at), name].into_iter().flatten();
    let taken = places
        .filter(|at| negations.take_before(words, *at, |not| not.negates_condition()).is_some())
        .count();
    sign != (taken % 2 == 1)
}
