//! Turns the words of a question into tasks.

mod machine;
mod negations;
mod phrases;
mod places;
mod requests;
mod table;

use types::{Micros, TableDef, name};

use self::phrases::*;
use crate::compare::{Comparison, comparisons};
use crate::lexicon::{Entry, Lexicon};
use crate::sources::is_own;
use crate::split::{conditional, masked, split_once_any};
use crate::task::*;
use crate::time::{self, DAY, Window};
use crate::vocabulary as v;
use crate::words::{Word, Words};

/// The number of tables that one question may name.
const TABLES_MAX: usize = 6;
/// The number of parts of one question.
const PARTS_MAX: usize = 5;
const AND: &[&str] = &[", and also ", " and also ", ", and ", " and "];
const OR: &[&str] = &[", or ", " or "];

/// The recorder's table of the busiest and largest processes, written each second.
const PROCESSES: &str = "polynya.processes";

/// The names and the time against which a question is interpreted.
pub(crate) struct World<'a> {
    pub lexicon: &'a Lexicon,
    pub now: Micros,
    /// Tables listed as sources; the question need not name them again.
    pub listed: &'a [usize],
}

impl World<'_> {
    /// Returns the plan of a whole question.
    pub fn plan(&self, text: &str) -> Plan {
        let Some((condition, consequence)) = conditional(text) else {
            let parts = self.parts(text);
            return Plan { timed: timed(&parts), condition: None, parts };
        };
        let (conditions, join) = self.conditions(condition);
        // `…, and also X`: X is asked in any case.
        let (consequence, also) = match split_once_any(consequence, &[", and also ", " and also ", "; "]) {
            Some((consequence, also)) => (consequence, Some(also)),
            None => (consequence, None),
        };
        let then = self.then(consequence);
        let mut parts = also.map_or_else(Vec::new, |also| self.parts(also));
        parts.truncate(PARTS_MAX);
        let inner = if let Then::Ask(inner) = &then { timed(inner) } else { false };
        let timed = timed(&parts) || timed(&conditions) || inner;
        let text = trimmed(condition).to_owned();
        Plan { timed, condition: Some(Condition { text, parts: conditions, join, then }), parts }
    }

    /// Splits `A and B` or `A or B` into two conditions if each can be decided by itself.
    fn conditions(&self, text: &str) -> (Vec<Part>, Join) {
        for (separators, join) in [(AND, Join::All), (OR, Join::Any)] {
            let mut parts = Vec::new();
            self.apart(text, separators, &mut parts);
            if parts.len() > 1 {
                let mixed = join_of(&Words::of(text)) == Join::Unclear;
                return (parts, if mixed { Join::Unclear } else { join });
            }
        }
        (vec![self.part(text)], Join::Any)
    }

    fn then(&self, text: &str) -> Then {
        let words = Words::of(text);
        const SHOW: [&[&str]; 13] = [
            &["show"],
            &["show", "me"],
            &["list"],
            &["print"],
            &["display"],
            &["give"],
            &["give", "me"],
            &["tell"],
            &["tell", "me"],
            &["let", "me", "know"],
            &["say"],
            &["report"],
            &["which"],
        ];
        const PRONOUNS: [&str; 17] = [
            "it", "them", "that", "those", "this", "these", "so", "one", "ones", "please", "me", "which",
            "the", "all", "about", "to", "right",
        ];
        let is_show = SHOW.iter().any(|show| {
            words.starts(0, show)
                && (show.len()..words.len())
                    .all(|at| PRONOUNS.contains(&words.at(at)) || words.at(at) == "away")
        });
        if is_show {
            return Then::Show;
        }
        let parts = self.parts(text);
        let is_order = |part: &Part| part.refused == Some(Refused::Order);
        if !parts.is_empty() && parts.iter().all(|part| part.strong && !is_order(part)) {
            return Then::Ask(parts);
        }
        Then::Other(text.trim().trim_end_matches(['.', '!', '?', ',']).to_owned())
    }

    /// Splits a text at `?` and `;`, and at `and` where each piece is a question by itself.
    fn parts(&self, text: &str) -> Vec<Part> {
        let mut parts = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let end = masked(rest).find(['?', ';']).map_or(rest.len(), |at| at + 1);
            let sentence;
            (sentence, rest) = rest.split_at(end);
            if Words::of(sentence).len() > 0 && parts.len() < PARTS_MAX {
                self.sentence(sentence, &mut parts);
            }
        }
        parts
    }

    fn sentence(&self, text: &str, parts: &mut Vec<Part>) {
        let before = parts.len();
        self.apart(text, AND, parts);
        if parts.len() == before + 1 {
            parts.pop();
            self.apart(text, OR, parts);
        }
    }

    /// Splits a text at the separators where both sides are questions by themselves.
    fn apart(&self, text: &str, separators: &[&str], parts: &mut Vec<Part>) {
        if parts.len() + 1 < PARTS_MAX
            && let Some((left, right)) = split_once_any(text, separators)
        {
            let (first, rest) = (self.part(left), self.part(right));
            let stands = |part: &Part| part.named && part.tasks.iter().all(|task| task.left().is_empty());
            // `is the disk or the memory nearly full`: the predicate on one side applies to both, so the text is not split.
            let is_open = |part: &Part, text: &str| {
                let is_open =
                    |task: &Task| matches!(&task.what, What::Metrics(asked) if asked.predicate.is_none());
                part.tasks.iter().any(is_open)
                    && !Words::of(text).any(&["how", "what", "which", "show", "list"])
            };
            let shared = is_open(&first, left) != is_open(&rest, right);
            if stands(&first) && stands(&rest) && !shared {
                parts.push(first);
                return self.apart(right, separators, parts);
            }
        }
        parts.push(self.part(text));
    }

    /// Interprets one question that is not split further.
    fn part(&self, text: &str) -> Part {
        let mut words = Words::of(text);
        let text = trimmed(text).to_owned();
        let mut part =
            Part { text, tasks: Vec::new(), strong: true, named: true, join: Join::Any, refused: None };
        if words.list.iter().all(|word| {
            word.quoted
                || v::FILLERS.contains(&word.text.as_str())
                || ["tables", "table", "help", "data", "ask"].contains(&word.text.as_str())
        }) && (v::HELP.iter().any(|help| (0..words.len()).any(|at| words.starts(at, help)))
            || words.starts(0, &["help"])
            || words.any(&["tables"]))
        {
            part.tasks.push(Task { source: "tables".into(), kind: "tables", what: What::Catalog });
            return part;
        }
        self.quote_values(&mut words);
        let (window, place) = time::window(&mut words, self.now).map_or((None, None), |found| {
            let time::Found { window, place, is_day } = found;
            (Some(window), Some(Place { range: place, is_day }))
        });
        let comparisons = comparisons(&mut words);
        // Negations inside a comparison, as in `not above`, are already marked.
        let mut negations = Vec::new();
        for at in (0..words.len()).filter(|at| is_negation(&words, *at)).collect::<Vec<_>>() {
            let Word { text, raw, .. } = &words.list[at];
            negations.push(Negation { at, text: text.clone(), raw: raw.clone() });
            words.mark(at..at + 1);
        }
        let orders = is_order(&words);
        part.join = join_of(&words);
        let limit = limit(&mut words);
        let mut tables = self.lexicon.tables_in(&words);
        for (_, range) in &tables {
            words.mark(range.clone());
        }
        for listed in self.listed {
            if tables.iter().all(|(table, _)| table != listed) {
                tables.push((*listed, 0..0));
            }
        }
        tables.truncate(TABLES_MAX);
        let orders = orders && !tables.iter().any(|(_, range)| range.contains(&0));
        let found = Found { window, place, comparisons, negations, limit, tables };
        self.tasks(&mut words, found, &mut part);
        let is_method =
            |task: &Task| matches!(&task.what, What::Requests(asked) if !asked.methods.values.is_empty());
        let is_future =
            |task: &Task| task.left().iter().any(|w| v::FUTURE.contains(&w.to_lowercase().as_str()));
        // An order about unknown things is refused too, if its words cannot be a search (`delete all rows`).
        let is_whole = words.any(&["all", "every", "everything", "table", "rows", "row"]);
        if (part.strong || is_whole) && orders && !part.tasks.iter().any(is_method) {
            part.refused = Some(Refused::Order);
        } else if part.strong && part.tasks.iter().any(is_future) {
            part.refused = Some(Refused::Future);
        }
        part
    }

    fn tasks(&self, words: &mut Words, mut found: Found, part: &mut Part) {
        let counting = v::COUNT.iter().any(|count| (0..words.len()).any(|at| words.starts(at, count)));
        let aggregates = [v::AVERAGE, v::SUM, v::HIGHEST, v::LOWEST].iter().any(|of| words.any(of));
        let of_notes = words.any(v::NOTES) && !aggregates;
        let of_column = found.tables.iter().any(|(table, _)| self.time_column(*table, words, None).is_some());
        if words.any(v::CHANGED)
            && (of_notes || (!counting && !aggregates))
            && !of_column
            && found.comparisons.is_empty()
        {
            return part.tasks.push(self.changes(words, found));
        }
        let is_records = |table: &(usize, std::ops::Range<usize>), name: &str| self.def(table.0).name == name;
        if of_notes_alone(words, &found, |table| self.def(table).is_vault()) {
            words.take(v::NOTES);
            found.unday(words);
            return part.tasks.push(notes(words, &found, counting, true));
        }
        let named_requests = found.tables.iter().any(|t| is_records(t, "polynya.requests"));
        let asks_requests = named_requests
            || words.any(v::REQUESTS)
            || (found.tables.is_empty()
                && (words.any(v::ERRORS)
                    || words.any(v::SLOW)
                    || words.any(v::SLOWEST)
                    || words.any(v::FASTEST)
                    || found.comparisons.iter().any(|c| c.of_time)));
        if asks_requests {
            return part.tasks.push(self.requests(words, found));
        }
        let of_processes = found.tables.iter().any(|t| is_records(t, PROCESSES));
        let measures = if of_processes { Vec::new() } else { machine::measures(words, &found) };
        // Words that led to one measure count as understood for the others too.
        let used: Vec<&[&str]> = measures.iter().flat_map(|(_, used)| used).copied().collect();
        let several = measures.len() > 1;
        for (measure, _) in measures {
            let mut words = words.clone();
            for vocabulary in &used {
                words.take(vocabulary);
            }
            part.tasks.push(machine::metrics(measure, &mut words, &found, several));
        }
        for (table, range) in &found.tables {
            if is_records(&(*table, range.clone()), "polynya.metrics") && !part.tasks.is_empty() {
                continue;
            }
            let mut words = words.clone();
            part.tasks.push(self.table(*table, &mut words, &found));
        }
        if !part.tasks.is_empty() {
            return;
        }
        self.weak(words, found, part);
    }

    /// Makes tasks for a question that names no table and no measure: first columns, then words of notes and values of tables.
    fn weak(&self, words: &mut Words, mut found: Found, part: &mut Part) {
        let content = |range: &std::ops::Range<usize>| {
            words.list[range.clone()]
                .iter()
                .any(|w| w.quoted || (!v::FILLERS.contains(&w.text.as_str()) && !w.used))
        };
        let asks_figures = !found.comparisons.is_empty()
            || [v::AVERAGE, v::SUM, v::HIGHEST, v::LOWEST, v::LATEST, v::OLDEST]
                .iter()
                .any(|of| words.any(of))
            || v::COUNT.iter().any(|count| (0..words.len()).any(|at| words.starts(at, count)));
        if asks_figures {
            let mut tables: Vec<usize> = Vec::new();
            for (table, _, range) in self.lexicon.columns_in(words, None) {
                let own = !name::is_reserved(&self.def(table).name);
                if own && content(&range) && !tables.contains(&table) && tables.len() < TABLES_MAX {
                    tables.push(table);
                }
            }
            for table in tables {
                let mut words = words.clone();
                part.tasks.push(self.table(table, &mut words, &found));
            }
        }
        if part.tasks.is_empty() {
            // `country is DE or AT`: every table with such a column is asked.
            let mut tables: Vec<usize> = Vec::new();
            for (table, _, range) in self.lexicon.columns_in(words, None) {
                let def = self.def(table);
                let own = is_own(def);
                let said = matches!(words.at(range.end), "is" | "=" | "are" | "was" | "equals")
                    || range.start.checked_sub(1).is_some_and(|at| matches!(words.at(at), "with" | "whose"));
                if own && said && content(&range) && !tables.contains(&table) && tables.len() < TABLES_MAX {
                    tables.push(table);
                }
            }
            for table in tables {
                let task = self.table(table, &mut words.clone(), &found);
                if matches!(&task.what, What::Table(asked) if !asked.values.is_empty()) {
                    part.tasks.push(task);
                }
            }
        }
        part.named = false;
        if part.tasks.is_empty() {
            part.strong = false;
            found.unday(words);
            part.tasks.push(notes(words, &found, false, false));
            let what = What::Values(alternatives(words));
            part.tasks.push(Task { source: "tables".into(), kind: "tables", what });
        }
    }

    fn changes(&self, words: &mut Words, found: Found) -> Task {
        words.take(v::CHANGED);
        words.take(v::CHANGE_NOUNS);
        let mut tables: Vec<String> =
            found.tables.iter().map(|(table, _)| self.def(*table).name.clone()).collect();
        let named = tables.len();
        let of_notes: Vec<String> = free(words, v::NOTES).map(str::to_owned).collect();
        let is_vault = |table: &&Entry| table.def.is_vault();
        if words.take(v::NOTES) {
            tables.extend(self.lexicon.tables.iter().filter(is_vault).map(|table| table.def.name.clone()));
        }
        let unseen = !of_notes.is_empty() && !self.lexicon.tables.iter().any(|table| is_vault(&table));
        words.take(&["tables", "table", "rows", "row", "data", "database", "anything", "something"]);
        tables.dedup();
        let default_window = found.window.is_none();
        let negated = found.is_negated();
        // `which tables did not change` wants the other tables; notes are not listed that way.
        let which = words.any(&["which", "what", "list", "show"]) && found.nots().next().is_some();
        let others = which && of_notes.is_empty();
        let nots = found.nots().filter(|_| which && !others).map(|not| not.raw.clone()).collect::<Vec<_>>();
        let window = found.window.unwrap_or_else(|| Window {
            from: self.now - DAY,
            to: None,
            said: "in the last day".into(),
        });
        let mut left = left(words);
        left.extend(nots);
        let unseen_notes = unseen && named == 0;
        left.extend(of_notes.into_iter().filter(|_| unseen && named > 0));
        let what =
            What::Changes(Changes { window, default_window, tables, negated, others, unseen_notes, left });
        Task { source: "changes".into(), kind: "changes", what }
    }

    fn def(&self, table: usize) -> &std::sync::Arc<TableDef> {
        &self.lexicon.tables[table].def
    }
}

/// The elements that every kind of question may contain.
struct Found {
    window: Option<Window>,
    /// The position of the window's words.
    place: Option<Place>,
    comparisons: Vec<Comparison>,
    /// Negations such as `not` and `no`.
    negations: Vec<Negation>,
    limit: Option<usize>,
    tables: Vec<(usize, std::ops::Range<usize>)>,
}

/// The position of the words of a time.
struct Place {
    range: std::ops::Range<usize>,
    /// True for a date by itself, which may be a text too.
    is_day: bool,
}

/// A negating word.
struct Negation {
    at: usize,
    text: String,
    /// The word as written.
    raw: String,
}

impl Found {
    fn is_negated(&self) -> bool {
        !self.negations.is_empty()
    }

    /// Returns the negations that need a word after them.
    fn nots(&self) -> impl Iterator<Item = &Negation> {
        self.negations.iter().filter(|not| v::NOT.contains(&not.text.as_str()))
    }

    /// Drops a window that is a date by itself. In a search for texts it is a text like others.
    fn unday(&mut self, words: &mut Words) {
        if let Some(place) = self.place.take_if(|place| place.is_day) {
            words.unmark(place.range);
            self.window = None;
        }
    }
}

impl Task {
    /// Returns the words of the task that were not understood.
    pub fn left(&self) -> &[String] {
        match &self.what {
            What::Metrics(task) => &task.scope.left,
            What::Requests(task) => &task.scope.left,
            What::Table(task) => &task.scope.left,
            What::Changes(task) => &task.left,
            What::Notes(task) => &task.left,
            What::Values(_) | What::Catalog => &[],
        }
    }

    fn is_timed(&self) -> bool {
        match &self.what {
            // The answer states the age of the reading.
            What::Metrics(_) => true,
            What::Requests(task) => task.scope.window.is_some(),
            What::Table(task) => task.scope.window.is_some(),
            What::Changes(_) => true,
            What::Notes(_) | What::Values(_) | What::Catalog => false,
        }
    }
}

fn timed(parts: &[Part]) -> bool {
    parts.iter().flat_map(|part| &part.tasks).any(Task::is_timed)
}

pub(crate) fn is_number(def: &TableDef, column: usize) -> bool {
    use types::DataType::{Decimal, Float32, Float64, Int32, Int64};
    matches!(def.schema.columns[column].data_type, Int32 | Int64 | Float32 | Float64 | Decimal { .. })
}

/// Returns true for a column that, by its name, holds a duration.
pub(crate) fn is_duration(column: &str) -> bool {
    let name = column.to_lowercase();
    ["duration", "latency", "elapsed", "took", "delay", "runtime", "response_time"]
        .iter()
        .any(|part| name.contains(part))
}

/// Returns true if the question is about notes. It is not in `orders with no note`, nor where a table is called `pages`.
fn of_notes_alone(words: &Words, found: &Found, is_vault: impl Fn(usize) -> bool) -> bool {
    let is_table = |at: usize| {
        let mut tables = found.tables.iter().filter(|(table, _)| !is_vault(*table));
        tables.any(|(_, range)| !range.is_empty() && range.start <= at)
    };
    (0..words.len()).find(|at| v::NOTES.contains(&words.at(*at))).is_some_and(|at| !is_table(at))
}

/// Returns true if the text orders an action instead of asking.
fn is_order(words: &Words) -> bool {
    const POLITE: [&str; 6] = ["please", "can", "could", "would", "will", "you"];
    let first = (0..words.len()).find(|at| !POLITE.contains(&words.at(*at)));
    first.is_some_and(|at| v::ORDERS.contains(&words.at(at)))
}

fn notes(words: &Words, found: &Found, count: bool, named: bool) -> Task {
    let times = found.window.iter().map(|window| window.said.clone());
    let nots = found.nots().take(1).map(|not| not.raw.clone());
    let left = if named { times.chain(nots).collect() } else { nots.collect() };
    let asked = Notes { words: sought(words), named, count, left };
    Task { source: "notes".into(), kind: "notes", what: What::Notes(asked) }
}
