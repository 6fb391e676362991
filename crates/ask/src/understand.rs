//! From words to tasks.

mod machine;
mod phrases;

use types::{Micros, TableDef, name};

use self::phrases::*;
use crate::compare::{Comparison, Unit, comparisons};
use crate::lexicon::Lexicon;
use crate::split::{conditional, masked, split_once_any};
use crate::task::*;
use crate::time::{self, DAY, Window};
use crate::vocabulary as v;
use crate::words::{METHODS, Words};

/// Tables that one question may name.
const TABLES_MAX: usize = 6;
/// Parts of one question.
const PARTS_MAX: usize = 5;
const AND: &[&str] = &[", and also ", " and also ", ", and ", " and "];
const OR: &[&str] = &[", or ", " or "];

/// The recorder's table of the busiest and largest processes, written each second.
const PROCESSES: &str = "polynya.processes";

/// What is known of the asker's world.
pub(crate) struct World<'a> {
    pub lexicon: &'a Lexicon,
    pub now: Micros,
    /// Tables listed as sources, which need not be named again.
    pub listed: &'a [usize],
}

impl World<'_> {
    /// The whole question.
    pub fn plan(&self, text: &str) -> Plan {
        let Some((condition, consequence)) = conditional(text) else {
            let parts = self.parts(text);
            return Plan { timed: timed(&parts), condition: None, parts };
        };
        let (conditions, join) = self.conditions(condition);
        // `…, and also X`: asked in any case.
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

    /// `A and B` is two conditions where each can be decided by itself; `A or B` likewise.
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

    /// Taken apart at `?`, `;` and `and` where each piece is a question by itself.
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

    /// Takes a text apart where both sides are questions by themselves.
    fn apart(&self, text: &str, separators: &[&str], parts: &mut Vec<Part>) {
        if parts.len() + 1 < PARTS_MAX
            && let Some((left, right)) = split_once_any(text, separators)
        {
            let (first, rest) = (self.part(left), self.part(right));
            let stands = |part: &Part| part.named && part.tasks.iter().all(|task| task.left().is_empty());
            // `is the disk or the memory nearly full`: what is asked of one side is asked of both.
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

    /// One question by itself.
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
        let window = time::window(&mut words, self.now);
        let comparisons = comparisons(&mut words);
        // Those of a comparison, as in `not above`, are taken by now.
        let mut negations = Vec::new();
        for at in (0..words.len()).filter(|at| is_negation(&words, *at)).collect::<Vec<_>>() {
            negations.push(words.at(at).to_owned());
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
        let found = Found { window, comparisons, negations, limit, tables };
        self.tasks(&mut words, found, &mut part);
        let is_method = |task: &Task| matches!(&task.what, What::Requests(asked) if asked.method.is_some());
        let is_future =
            |task: &Task| task.left().iter().any(|w| v::FUTURE.contains(&w.to_lowercase().as_str()));
        // Of what is not here all the same, where it cannot be words to look for.
        let is_whole = words.any(&["all", "every", "everything", "table", "rows", "row"]);
        if (part.strong || is_whole) && orders && !part.tasks.iter().any(is_method) {
            part.refused = Some(Refused::Order);
        } else if part.strong && part.tasks.iter().any(is_future) {
            part.refused = Some(Refused::Future);
        }
        part
    }

    fn tasks(&self, words: &mut Words, found: Found, part: &mut Part) {
        let counting = v::COUNT.iter().any(|count| (0..words.len()).any(|at| words.starts(at, count)));
        let aggregates = [v::AVERAGE, v::SUM, v::HIGHEST, v::LOWEST].iter().any(|of| words.any(of));
        let of_notes = words.any(v::NOTES) && !aggregates;
        let of_column = found.tables.iter().any(|(table, _)| self.time_column(*table, words).is_some());
        if words.any(v::CHANGED)
            && (of_notes || (!counting && !aggregates))
            && !of_column
            && found.comparisons.is_empty()
        {
            return part.tasks.push(self.changes(words, found));
        }
        let is_records = |table: &(usize, std::ops::Range<usize>), name: &str| self.def(table.0).name == name;
        if words.any(v::NOTES) {
            words.take(v::NOTES);
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
        // Words that led to one measure are understood beside the others too.
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
        self.weak(words, &found, part);
    }

    /// Nothing was named: columns, then words of notes and values of tables.
    fn weak(&self, words: &mut Words, found: &Found, part: &mut Part) {
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
                let own = !self.def(table).name.starts_with("polynya.");
                if own && content(&range) && !tables.contains(&table) && tables.len() < TABLES_MAX {
                    tables.push(table);
                }
            }
            for table in tables {
                let mut words = words.clone();
                part.tasks.push(self.table(table, &mut words, found));
            }
        }
        if part.tasks.is_empty() {
            // `country is DE or AT`: whatever table has such a column.
            let mut tables: Vec<usize> = Vec::new();
            for (table, _, range) in self.lexicon.columns_in(words, None) {
                let def = self.def(table);
                let own = !def.name.starts_with("polynya.") && !def.is_vault();
                let said = matches!(words.at(range.end), "is" | "=" | "are" | "was" | "equals")
                    || range.start.checked_sub(1).is_some_and(|at| matches!(words.at(at), "with" | "whose"));
                if own && said && content(&range) && !tables.contains(&table) && tables.len() < TABLES_MAX {
                    tables.push(table);
                }
            }
            for table in tables {
                let task = self.table(table, &mut words.clone(), found);
                if matches!(&task.what, What::Table(asked) if !asked.values.is_empty()) {
                    part.tasks.push(task);
                }
            }
        }
        part.named = false;
        if part.tasks.is_empty() {
            part.strong = false;
            part.tasks.push(notes(words, found, false, false));
            let what = What::Values(alternatives(words));
            part.tasks.push(Task { source: "tables".into(), kind: "tables", what });
        }
    }

    fn changes(&self, words: &mut Words, found: Found) -> Task {
        words.take(v::CHANGED);
        words.take(v::CHANGE_NOUNS);
        let mut tables: Vec<String> =
            found.tables.iter().map(|(table, _)| self.def(*table).name.clone()).collect();
        if words.take(v::NOTES) {
            tables
                .extend(self.lexicon.tables.iter().filter(|t| t.def.is_vault()).map(|t| t.def.name.clone()));
        }
        words.take(&["tables", "table", "rows", "row", "data", "database", "anything", "something"]);
        tables.dedup();
        let default_window = found.window.is_none();
        let negated = found.is_negated();
        let window = found.window.unwrap_or_else(|| Window {
            from: self.now - DAY,
            to: None,
            said: "in the last day".into(),
        });
        let left = left(words);
        let what = What::Changes(Changes { window, default_window, tables, negated, left });
        Task { source: "changes".into(), kind: "changes", what }
    }

    fn requests(&self, words: &mut Words, found: Found) -> Task {
        let mut asked = Requests::default();
        words.take(v::REQUESTS);
        asked.whether = is_whether(words);
        let server_side = words.take(&["5xx"]) | (words.any(v::ERRORS) && words.any(&["server", "internal"]));
        let client_side = words.take(&["4xx"]) | (words.any(v::ERRORS) && words.any(&["client"]));
        let errors = words.take(v::ERRORS);
        asked.status = match (server_side, client_side, errors) {
            (true, false, _) => Some((500, 599)),
            (false, true, _) => Some((400, 499)),
            (_, _, true) | (true, true, _) => Some((400, 599)),
            _ => None,
        };
        words.take(&["internal", "client", "code", "codes"]);
        for word in words.list.iter_mut().filter(|word| !word.used) {
            let status =
                word.text.trim_end_matches('s').parse::<i64>().ok().filter(|s| (100..600).contains(s));
            if let Some(status) = status {
                asked.status = Some((status, status));
                word.used = true;
            } else if METHODS.contains(&word.raw.as_str()) {
                asked.method = Some(word.raw.clone());
                word.used = true;
            } else if word.raw.starts_with('/') {
                asked.route = Some(word.raw.clone());
                word.used = true;
            }
        }
        let other = found
            .tables
            .iter()
            .map(|(table, _)| &self.def(*table).name)
            .find(|name| *name != "polynya.requests");
        asked.table = other.cloned();
        asked.group = grouped(words);
        asked.slow = words.take(v::SLOW);
        let slowest = words.take(v::SLOWEST);
        let fastest = words.take(v::FASTEST);
        let nots = found.nots();
        for comparison in found.comparisons {
            let of_time = comparison.of_time || matches!(comparison.unit, Some(Unit::Time(_)));
            match of_time {
                true => asked.duration.push(comparison),
                false if comparison.unit.is_none() && asked.count.is_none() => asked.count = Some(comparison),
                // Bytes and shares of requests are not compared.
                false => asked.scope.left.push(comparison.said),
            }
        }
        asked.scope.aggregate = aggregate(words);
        if slowest {
            asked.scope.aggregate = Some(Aggregate::Highest);
        } else if fastest {
            asked.scope.aggregate = Some(Aggregate::Lowest);
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
        asked.scope.window = found.window;
        asked.scope.negated = !found.negations.is_empty();
        asked.scope.limit = found.limit;
        asked.scope.left.extend(left(words));
        let conditions = asked.duration.len() + usize::from(asked.slow) + usize::from(asked.status.is_some());
        if words.any(&["or"]) && conditions > 1 {
            asked.scope.left.push("or".into());
        }
        // `how many requests did not fail` wants the others counted, which is not what happens.
        if nots > 0 && !asked.whether && conditions > 0 {
            asked.scope.left.push("not".into());
        }
        Task { source: "requests".into(), kind: "requests", what: What::Requests(asked) }
    }

    fn table(&self, table: usize, words: &mut Words, found: &Found) -> Task {
        let def = self.def(table).clone();
        let whether = is_whether(words);
        let aggregate = aggregate(words);
        words.take(&["rows", "row", "entries", "entry", "records", "record", "table", "exist", "exists"]);
        words.take(v::CHANGED);
        let named = self.lexicon.columns_in(words, Some(table));
        let mut group = None;
        let mut columns = Vec::new();
        let time = found.window.as_ref().and_then(|_| self.time_column(table, words));
        if let Some((_, range)) = &time {
            words.mark(range.clone());
        }
        let time = time.map(|(column, _)| column);
        for (_, column, range) in &named {
            if time == Some(*column) {
                continue;
            }
            let before = range.start.checked_sub(1).map_or("", |at| words.at(at));
            // A filler alone names no column: `at`, `to`.
            let plain =
                words.list[range.clone()].iter().all(|w| !w.quoted && v::FILLERS.contains(&w.text.as_str()));
            let said = matches!(words.at(range.end), "is" | "=") || matches!(before, "with" | "whose");
            if plain && !said {
                continue;
            }
            if v::GROUPED.contains(&before) && group.is_none() {
                group = Some(*column);
            } else if !columns.contains(column) {
                columns.push(*column);
            }
        }
        let mut values = Vec::new();
        let mut ors = free(words, &["or"]).count();
        let mut nots = found.nots();
        for (_, column, range) in &named {
            if group == Some(*column) || !columns.contains(column) {
                continue;
            }
            let is_name = |at: usize| named.iter().any(|(_, _, other)| other.contains(&at));
            let found = named_values(&def, *column, range, words, is_name);
            if let Some((value, ors_in)) = found {
                ors = ors.saturating_sub(ors_in);
                nots = nots.saturating_sub(usize::from(value.negated));
                columns.retain(|other| other != column);
                values.push(value);
            }
        }
        let mut window = found.window.clone();
        if def.name == PROCESSES {
            machine::processes(&def, words, &mut columns, &mut group, &mut window, self.now);
        }
        // `kind = click` has no number, so nobody has taken its sign.
        words.take(&["=", "equals"]);
        for (_, column, range) in named {
            let has_values = values.iter().any(|named: &Named| named.column == column);
            if columns.contains(&column) || group == Some(column) || has_values {
                words.mark(range);
            }
        }
        // `the last order` is one.
        let name = name::short_table_name(&def.name).to_lowercase();
        let is_one = |(of, range): &(usize, std::ops::Range<usize>)| {
            *of == table
                && range.len() == 1
                && words.at(range.start) != name
                && v::singular(&name) == words.at(range.start)
        };
        let ranked = matches!(aggregate, Some(Aggregate::Latest | Aggregate::Oldest));
        let limit = found.limit.or_else(|| (ranked && found.tables.iter().any(is_one)).then_some(1));
        let scope = Scope { window, negated: false, aggregate, limit, left: Vec::new() };
        let mut task = Table {
            columns,
            comparisons: Vec::new(),
            unclear: Vec::new(),
            values,
            bare: Vec::new(),
            join: Join::All,
            group,
            time,
            count: None,
            whether,
            scope,
            def,
        };
        for comparison in &found.comparisons {
            self.compare(table, words, comparison, found, &mut task);
        }
        task.bare = bare(words);
        for bare in &task.bare {
            ors = ors.saturating_sub(bare.words.len() - 1);
            nots = nots.saturating_sub(usize::from(bare.negated));
        }
        task.scope.left = left(words);
        let conditions = task.values.len() + task.bare.len() + task.comparisons.len();
        if ors > 0 && conditions > 1 {
            task.join = if free(words, &["and"]).next().is_some() { Join::Unclear } else { Join::Any };
        }
        // What is left of the negations says that there is nothing, except for those that want something before them.
        task.scope.negated = found.negations.len() > found.nots();
        if nots > 0 {
            task.scope.left.push("not".into());
        }
        let source = name::short_table_name(&task.def.name).to_owned();
        Task { source, kind: "table", what: What::Table(Box::new(task)) }
    }

    /// Finds what a number is compared with: the column named before it, what is counted behind it, or the only column that
    /// it can be.
    fn compare(
        &self,
        table: usize,
        words: &mut Words,
        comparison: &Comparison,
        found: &Found,
        task: &mut Table,
    ) {
        let def = task.def.clone();
        let beside = |at: Option<usize>| {
            let at = at?;
            let columns = self.lexicon.columns_in(words, Some(table));
            columns.into_iter().find(|(_, column, range)| range.contains(&at) && is_number(&def, *column))
        };
        if let Some((_, column, range)) = beside(comparison.before).or_else(|| beside(comparison.behind)) {
            words.mark(range);
            task.columns.retain(|c| *c != column);
            task.comparisons.push((column, comparison.clone()));
            return;
        }
        let counts = |at: Option<usize>| {
            at.is_some_and(|at| {
                matches!(words.at(at), "rows" | "row" | "entries" | "records")
                    || found.tables.iter().any(|(of, range)| *of == table && range.contains(&at))
            })
        };
        if comparison.unit.is_none() && !comparison.of_time && counts(comparison.behind) {
            task.count = Some(comparison.clone());
            return;
        }
        // `price above 25 or below 5`.
        let joins = comparison.before.is_some_and(|at| matches!(words.at(at), "or" | "and"));
        if let (true, Some((column, _))) = (joins, task.comparisons.last()) {
            task.comparisons.push((*column, comparison.clone()));
            return;
        }
        let fits = |column: &usize| {
            is_number(&def, *column)
                && (!comparison.of_time || is_duration(&def.schema.columns[*column].name))
        };
        let mut candidates: Vec<usize> = task.columns.iter().copied().filter(fits).collect();
        if candidates.is_empty() {
            candidates = (0..def.schema.columns.len()).filter(fits).collect();
        }
        match candidates[..] {
            [only] => task.comparisons.push((only, comparison.clone())),
            _ => task.unclear.push(comparison.clone()),
        }
    }

    /// The column of times that a question names: `placed`, for a column `placed` or `placed_at`.
    fn time_column(&self, table: usize, words: &Words) -> Option<(usize, std::ops::Range<usize>)> {
        const ENDS: [&str; 5] = ["at", "on", "time", "date", "ts"];
        let columns = &self.def(table).schema.columns;
        let is_time = |column: usize| {
            matches!(columns[column].data_type, types::DataType::Timestamp | types::DataType::Date)
        };
        let is_plain = |range: &std::ops::Range<usize>| {
            let mut words = words.list[range.clone()].iter();
            words.all(|word| !word.quoted && v::FILLERS.contains(&word.text.as_str()))
        };
        let named = self.lexicon.columns_in(words, Some(table));
        let whole = named.into_iter().find(|(_, column, range)| is_time(*column) && !is_plain(range));
        if let Some((_, column, range)) = whole {
            return Some((column, range));
        }
        (0..columns.len()).filter(|column| is_time(*column)).find_map(|column| {
            let name = columns[column].name.to_lowercase();
            let (first, end) = name.rsplit_once('_').filter(|(_, end)| ENDS.contains(end))?;
            let at = (0..words.len()).find(|at| words.at(*at) == first && !is_plain(&(*at..at + 1)))?;
            debug_assert!(!end.is_empty());
            Some((column, at..at + 1))
        })
    }

    fn def(&self, table: usize) -> &std::sync::Arc<TableDef> {
        &self.lexicon.tables[table].def
    }
}

/// What every kind of question may contain.
struct Found {
    window: Option<Window>,
    comparisons: Vec<Comparison>,
    /// `not`, `no`.
    negations: Vec<String>,
    limit: Option<usize>,
    tables: Vec<(usize, std::ops::Range<usize>)>,
}

impl Found {
    fn is_negated(&self) -> bool {
        !self.negations.is_empty()
    }

    /// Those that want something behind them.
    fn nots(&self) -> usize {
        self.negations.iter().filter(|word| v::NOT.contains(&word.as_str())).count()
    }
}

impl Task {
    /// Words of it that nobody understood.
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
            // It says how old a reading is.
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

/// A column that holds how long something took.
pub(crate) fn is_duration(column: &str) -> bool {
    let name = column.to_lowercase();
    ["duration", "latency", "elapsed", "took", "delay", "runtime", "response_time"]
        .iter()
        .any(|part| name.contains(part))
}

/// Whether something is to be done rather than told.
fn is_order(words: &Words) -> bool {
    const POLITE: [&str; 6] = ["please", "can", "could", "would", "will", "you"];
    let first = (0..words.len()).find(|at| !POLITE.contains(&words.at(*at)));
    first.is_some_and(|at| v::ORDERS.contains(&words.at(at)))
}

fn notes(words: &Words, found: &Found, count: bool, named: bool) -> Task {
    let times = found.window.iter().map(|window| window.said.clone());
    let nots = found.negations.iter().filter(|word| v::NOT.contains(&word.as_str())).take(1).cloned();
    let left = if named { times.chain(nots).collect() } else { nots.collect() };
    let asked = Notes { words: sought(words), named, count, left };
    Task { source: "notes".into(), kind: "notes", what: What::Notes(asked) }
}
