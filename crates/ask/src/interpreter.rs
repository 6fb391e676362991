//! Turns the words of a question into tasks.

mod ambiguous_values;
mod machine;
mod negations;
mod phrases;
mod requests;
mod table;

use types::{Micros, TableDef, name};

use self::phrases::*;
use crate::clauses::{conditional, masked, split_once_any};
use crate::comparison::{Comparison, comparisons};
use crate::lexicon::{Entry, Lexicon};
use crate::sources::is_user_table;
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
pub(crate) struct Interpreter<'a> {
    pub lexicon: &'a Lexicon,
    pub now: Micros,
    /// Tables listed as sources; the question need not name them again.
    pub listed: &'a [usize],
}

impl Interpreter<'_> {
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
        let consequence = self.consequence(consequence);
        let mut parts = also.map_or_else(Vec::new, |also| self.parts(also));
        parts.truncate(PARTS_MAX);
        let inner = if let Consequence::Ask(inner) = &consequence { timed(inner) } else { false };
        let timed = timed(&parts) || timed(&conditions) || inner;
        let text = trimmed(condition).to_owned();
        Plan { timed, condition: Some(Conditional { text, parts: conditions, join, consequence }), parts }
    }

    /// Splits `A and B` or `A or B` into two conditions if each can be decided by itself.
    fn conditions(&self, text: &str) -> (Vec<QuestionPart>, Conjunction) {
        for (separators, join) in [(AND, Conjunction::All), (OR, Conjunction::Any)] {
            let mut parts = Vec::new();
            self.split_into_parts(text, separators, &mut parts);
            if parts.len() > 1 {
                let mixed = conjunction_of(&Words::of(text)) == Conjunction::Unclear;
                return (parts, if mixed { Conjunction::Unclear } else { join });
            }
        }
        (vec![self.part(text)], Conjunction::Any)
    }

    fn consequence(&self, text: &str) -> Consequence {
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
            return Consequence::Show;
        }
        let parts = self.parts(text);
        let is_order = |part: &QuestionPart| part.refusal == Some(Refusal::Order);
        if !parts.is_empty() && parts.iter().all(|part| part.strong && !is_order(part)) {
            return Consequence::Ask(parts);
        }
        Consequence::Other(text.trim().trim_end_matches(['.', '!', '?', ',']).to_owned())
    }

    /// Splits a text at `?` and `;`, and at `and` where each piece is a question by itself.
    fn parts(&self, text: &str) -> Vec<QuestionPart> {
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

    fn sentence(&self, text: &str, parts: &mut Vec<QuestionPart>) {
        let before = parts.len();
        self.split_into_parts(text, AND, parts);
        if parts.len() == before + 1 {
            parts.pop();
            self.split_into_parts(text, OR, parts);
        }
    }

    /// Splits a text at the separators where both sides are questions by themselves.
    fn split_into_parts(&self, text: &str, separators: &[&str], parts: &mut Vec<QuestionPart>) {
        if parts.len() + 1 < PARTS_MAX
            && let Some((left, right)) = split_once_any(text, separators)
        {
            let (first, rest) = (self.part(left), self.part(right));
            let stands = |part: &QuestionPart| {
                part.named && part.tasks.iter().all(|task| task.not_understood().is_empty())
            };
            // `is the disk or the memory nearly full`: the predicate on one side applies to both, so the text is not split.
            let is_open = |part: &QuestionPart, text: &str| {
                let is_open = |task: &SourceTask| match &task.query {
                    SourceQuery::Metrics(query) => query.predicate.is_none(),
                    _ => false,
                };
                part.tasks.iter().any(is_open)
                    && !Words::of(text).any(&["how", "what", "which", "show", "list"])
            };
            let shared = is_open(&first, left) != is_open(&rest, right);
            if stands(&first) && stands(&rest) && !shared {
                parts.push(first);
                return self.split_into_parts(right, separators, parts);
            }
        }
        parts.push(self.part(text));
    }

    /// Interprets one question that is not split further.
    fn part(&self, text: &str) -> QuestionPart {
        let mut words = Words::of(text);
        let text = trimmed(text).to_owned();
        let mut part = QuestionPart {
            text,
            tasks: Vec::new(),
            strong: true,
            named: true,
            join: Conjunction::Any,
            refusal: None,
        };
        if words.list.iter().all(|word| {
            word.quoted
                || v::FILLERS.contains(&word.text.as_str())
                || ["tables", "table", "help", "data", "ask"].contains(&word.text.as_str())
        }) && (v::HELP.iter().any(|help| (0..words.len()).any(|at| words.starts(at, help)))
            || words.starts(0, &["help"])
            || words.any(&["tables"]))
        {
            part.tasks.push(SourceTask {
                source: "tables".into(),
                kind: "tables",
                query: SourceQuery::Catalog,
            });
            return part;
        }
        self.quote_values(&mut words);
        let (window, place) = time::window(&mut words, self.now).map_or((None, None), |found| {
            let time::FoundWindow { window, position, is_day } = found;
            (Some(window), Some(WindowPosition { range: position, is_day }))
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
        part.join = conjunction_of(&words);
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
        let elements = QuestionElements { window, place, comparisons, negations, limit, tables };
        self.tasks(&mut words, elements, &mut part);
        let is_method = |task: &SourceTask| match &task.query {
            SourceQuery::Requests(query) => !query.methods.values.is_empty(),
            _ => false,
        };
        let is_future = |task: &SourceTask| {
            task.not_understood().iter().any(|w| v::FUTURE.contains(&w.to_lowercase().as_str()))
        };
        // An order about unknown things is refused too, if its words cannot be a search (`delete all rows`).
        let is_whole = words.any(&["all", "every", "everything", "table", "rows", "row"]);
        if (part.strong || is_whole) && orders && !part.tasks.iter().any(is_method) {
            part.refusal = Some(Refusal::Order);
        } else if part.strong && part.tasks.iter().any(is_future) {
            part.refusal = Some(Refusal::Future);
        }
        part
    }

    fn tasks(&self, words: &mut Words, mut elements: QuestionElements, part: &mut QuestionPart) {
        let counting = v::COUNT.iter().any(|count| (0..words.len()).any(|at| words.starts(at, count)));
        let aggregates = [v::AVERAGE, v::SUM, v::HIGHEST, v::LOWEST].iter().any(|of| words.any(of));
        let of_notes = words.any(v::NOTES) && !aggregates;
        let of_column =
            elements.tables.iter().any(|(table, _)| self.time_column(*table, words, None).is_some());
        if words.any(v::CHANGED)
            && (of_notes || (!counting && !aggregates))
            && !of_column
            && elements.comparisons.is_empty()
        {
            return part.tasks.push(self.changes(words, elements));
        }
        let is_records = |table: &(usize, std::ops::Range<usize>), name: &str| self.def(table.0).name == name;
        if of_notes_alone(words, &elements, |table| self.def(table).is_vault()) {
            words.take(v::NOTES);
            elements.drop_bare_day(words);
            return part.tasks.push(notes(words, &elements, counting, true));
        }
        let named_requests = elements.tables.iter().any(|t| is_records(t, "polynya.requests"));
        let asks_requests = named_requests
            || words.any(v::REQUESTS)
            || (elements.tables.is_empty()
                && (words.any(v::ERRORS)
                    || words.any(v::SLOW)
                    || words.any(v::SLOWEST)
                    || words.any(v::FASTEST)
                    || elements.comparisons.iter().any(|c| c.of_time)));
        if asks_requests {
            return part.tasks.push(self.requests(words, elements));
        }
        let of_processes = elements.tables.iter().any(|t| is_records(t, PROCESSES));
        let measures = if of_processes { Vec::new() } else { machine::measures(words, &elements) };
        // Words that led to one measure count as understood for the others too.
        let used: Vec<&[&str]> = measures.iter().flat_map(|(_, used)| used).copied().collect();
        let several = measures.len() > 1;
        for (measure, _) in measures {
            let mut words = words.clone();
            for vocabulary in &used {
                words.take(vocabulary);
            }
            part.tasks.push(machine::metrics(measure, &mut words, &elements, several));
        }
        for (table, range) in &elements.tables {
            if is_records(&(*table, range.clone()), "polynya.metrics") && !part.tasks.is_empty() {
                continue;
            }
            let mut words = words.clone();
            part.tasks.push(self.table(*table, &mut words, &elements));
        }
        if !part.tasks.is_empty() {
            return;
        }
        self.guess_tasks(words, elements, part);
    }

    /// Makes tasks for a question that names no table and no measure: first columns, then words of notes and values of tables.
    fn guess_tasks(&self, words: &mut Words, mut elements: QuestionElements, part: &mut QuestionPart) {
        let content = |range: &std::ops::Range<usize>| {
            words.list[range.clone()]
                .iter()
                .any(|w| w.quoted || (!v::FILLERS.contains(&w.text.as_str()) && !w.used))
        };
        let asks_figures = !elements.comparisons.is_empty()
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
                part.tasks.push(self.table(table, &mut words, &elements));
            }
        }
        if part.tasks.is_empty() {
            // `country is DE or AT`: every table with such a column is asked.
            let mut tables: Vec<usize> = Vec::new();
            for (table, _, range) in self.lexicon.columns_in(words, None) {
                let def = self.def(table);
                let own = is_user_table(def);
                let is_introduced = matches!(words.at(range.end), "is" | "=" | "are" | "was" | "equals")
                    || range.start.checked_sub(1).is_some_and(|at| matches!(words.at(at), "with" | "whose"));
                if own
                    && is_introduced
                    && content(&range)
                    && !tables.contains(&table)
                    && tables.len() < TABLES_MAX
                {
                    tables.push(table);
                }
            }
            for table in tables {
                let task = self.table(table, &mut words.clone(), &elements);
                if matches!(&task.query, SourceQuery::Table(query) if !query.values.is_empty()) {
                    part.tasks.push(task);
                }
            }
        }
        part.named = false;
        if part.tasks.is_empty() {
            part.strong = false;
            elements.drop_bare_day(words);
            part.tasks.push(notes(words, &elements, false, false));
            let query = SourceQuery::Values(alternatives(words));
            part.tasks.push(SourceTask { source: "tables".into(), kind: "tables", query });
        }
    }

    fn changes(&self, words: &mut Words, elements: QuestionElements) -> SourceTask {
        words.take(v::CHANGED);
        words.take(v::CHANGE_NOUNS);
        let mut tables: Vec<String> =
            elements.tables.iter().map(|(table, _)| self.def(*table).name.clone()).collect();
        let named = tables.len();
        let of_notes: Vec<String> = free(words, v::NOTES).map(str::to_owned).collect();
        let is_vault = |table: &&Entry| table.def.is_vault();
        if words.take(v::NOTES) {
            tables.extend(self.lexicon.tables.iter().filter(is_vault).map(|table| table.def.name.clone()));
        }
        let unseen = !of_notes.is_empty() && !self.lexicon.tables.iter().any(|table| is_vault(&table));
        words.take(&["tables", "table", "rows", "row", "data", "database", "anything", "something"]);
        tables.dedup();
        let default_window = elements.window.is_none();
        let negated = elements.is_negated();
        // `which tables did not change` wants the other tables; notes are not listed that way.
        let which = words.any(&["which", "what", "list", "show"]) && elements.nots().next().is_some();
        let others = which && of_notes.is_empty();
        let nots =
            elements.nots().filter(|_| which && !others).map(|not| not.raw.clone()).collect::<Vec<_>>();
        let window = elements.window.unwrap_or_else(|| Window {
            from: self.now - DAY,
            to: None,
            phrase: "in the last day".into(),
        });
        let mut not_understood = unknown_words(words);
        not_understood.extend(nots);
        let unseen_notes = unseen && named == 0;
        not_understood.extend(of_notes.into_iter().filter(|_| unseen && named > 0));
        let query = SourceQuery::Changes(ChangesQuery {
            window,
            default_window,
            tables,
            negated,
            others,
            unseen_notes,
            not_understood,
        });
        SourceTask { source: "changes".into(), kind: "changes", query }
    }

    fn def(&self, table: usize) -> &std::sync::Arc<TableDef> {
        &self.lexicon.tables[table].def
    }
}

/// The elements that every kind of question may contain.
struct QuestionElements {
    window: Option<Window>,
    /// The position of the window's words.
    place: Option<WindowPosition>,
    comparisons: Vec<Comparison>,
    /// Negations such as `not` and `no`.
    negations: Vec<Negation>,
    limit: Option<usize>,
    tables: Vec<(usize, std::ops::Range<usize>)>,
}

/// The position of the words of a time.
struct WindowPosition {
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

impl QuestionElements {
    fn is_negated(&self) -> bool {
        !self.negations.is_empty()
    }

    /// Returns the negations that need a word after them.
    fn nots(&self) -> impl Iterator<Item = &Negation> {
        self.negations.iter().filter(|not| v::NOT.contains(&not.text.as_str()))
    }

    /// Drops a window that is a date by itself. In a search for texts it is a text like others.
    fn drop_bare_day(&mut self, words: &mut Words) {
        if let Some(place) = self.place.take_if(|place| place.is_day) {
            words.unmark(place.range);
            self.window = None;
        }
    }
}

impl SourceTask {
    /// Returns the words of the task that were not understood.
    pub fn not_understood(&self) -> &[String] {
        match &self.query {
            SourceQuery::Metrics(task) => &task.scope.not_understood,
            SourceQuery::Requests(task) => &task.scope.not_understood,
            SourceQuery::Table(task) => &task.scope.not_understood,
            SourceQuery::Changes(task) => &task.not_understood,
            SourceQuery::Notes(task) => &task.not_understood,
            SourceQuery::Values(_) | SourceQuery::Catalog => &[],
        }
    }

    fn is_timed(&self) -> bool {
        match &self.query {
            // The answer states the age of the reading.
            SourceQuery::Metrics(_) => true,
            SourceQuery::Requests(task) => task.scope.window.is_some(),
            SourceQuery::Table(task) => task.scope.window.is_some(),
            SourceQuery::Changes(_) => true,
            SourceQuery::Notes(_) | SourceQuery::Values(_) | SourceQuery::Catalog => false,
        }
    }
}

fn timed(parts: &[QuestionPart]) -> bool {
    parts.iter().flat_map(|part| &part.tasks).any(SourceTask::is_timed)
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
fn of_notes_alone(words: &Words, elements: &QuestionElements, is_vault: impl Fn(usize) -> bool) -> bool {
    let is_table = |at: usize| {
        let mut tables = elements.tables.iter().filter(|(table, _)| !is_vault(*table));
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

fn notes(words: &Words, elements: &QuestionElements, count: bool, named: bool) -> SourceTask {
    let times = elements.window.iter().map(|window| window.phrase.clone());
    let nots = elements.nots().take(1).map(|not| not.raw.clone());
    let not_understood = if named { times.chain(nots).collect() } else { nots.collect() };
    let query = NotesQuery { words: search_terms(words), named, count, not_understood };
    SourceTask { source: "notes".into(), kind: "notes", query: SourceQuery::Notes(query) }
}
