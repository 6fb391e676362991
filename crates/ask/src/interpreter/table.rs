//! Questions about a table: its columns and values, the aggregate, and the window of time.

use std::ops::Range;

use types::{DataType, name};

use super::negations::Negations;
use super::phrases::*;
use super::{Interpreter, PROCESSES, QuestionElements, is_duration, is_number, machine};
use crate::comparison::Comparison;
use crate::task::*;
use crate::vocabulary as v;
use crate::words::Words;

impl Interpreter<'_> {
    pub(super) fn table(&self, table: usize, words: &mut Words, elements: &QuestionElements) -> SourceTask {
        let def = self.def(table).clone();
        let whether = asks_yes_or_no(words);
        let mut negations = Negations::of(words, elements);
        let ranks: Vec<usize> = (0..words.len()).filter(|at| is_rank(words, *at)).collect();
        let counted = counted_noun(words);
        let mut aggregate = aggregate(words);
        let named = self.lexicon.columns_in(words, Some(table));
        let window = self.window(table, words, elements, &named);
        let is_ranked = |is: &[Aggregate]| aggregate.is_some_and(|aggregate| is.contains(&aggregate));
        let by_time = is_ranked(&[Aggregate::Latest, Aggregate::Oldest]);
        let by_figure = is_ranked(&[Aggregate::Highest, Aggregate::Lowest]);
        let before = |range: &Range<usize>| range.start.checked_sub(1).map_or("", |at| words.at(at));
        let place = elements.place.as_ref().filter(|_| window.is_some()).map(|place| place.range.start);
        let mut time = if window.is_some() || by_time { self.time_column(table, words, place) } else { None };
        // `the top 3 by placed`: the highest time is the newest.
        if by_figure && window.is_none() {
            let is_sorted = |range: &Range<usize>| {
                before(range) == "by" || range.start.checked_sub(1).is_some_and(|at| ranks.contains(&at))
            };
            time = self.time_column(table, words, None).filter(|(_, range)| is_sorted(range));
            if time.is_some() {
                let lowest = aggregate == Some(Aggregate::Lowest);
                aggregate = Some(if lowest { Aggregate::Oldest } else { Aggregate::Latest });
            }
        }
        if let Some((_, range)) = &time {
            words.mark(range.clone());
        }
        let time = time.map(|(column, _)| column);
        let mut group = None;
        let mut columns = Vec::new();
        let mut numbers: Vec<usize> =
            named.iter().map(|(_, column, _)| *column).filter(|column| is_number(&def, *column)).collect();
        numbers.dedup();
        for (_, column, range) in &named {
            if time == Some(*column) {
                continue;
            }
            let before = range.start.checked_sub(1).map_or("", |at| words.at(at));
            // A filler word names a column only where a phrase says so: `at`, `to`.
            let plain =
                words.list[range.clone()].iter().all(|w| !w.quoted && v::FILLERS.contains(&w.text.as_str()));
            let is_introduced =
                matches!(words.at(range.end), "is" | "=") || matches!(before, "with" | "whose");
            if plain && !is_introduced {
                continue;
            }
            // `the top 3 orders by price` gives their order, not groups.
            let orders = by_figure && before == "by" && numbers.len() == 1 && is_number(&def, *column);
            if v::GROUPED.contains(&before) && group.is_none() && !orders {
                group = Some(*column);
            } else if !columns.contains(column) {
                columns.push(*column);
            }
        }
        columns.retain(|column| group != Some(*column));
        // `the id of the order with the highest price`: the aggregated column follows the word of rank.
        if let Some(rank) = ranks.first().filter(|_| by_figure) {
            let is_behind = |range: &Range<usize>| range.start > *rank;
            let figured = named.iter().find(|(_, column, range)| {
                columns.contains(column) && is_number(&def, *column) && is_behind(range)
            });
            if let Some((_, figured, _)) = figured {
                columns.retain(|column| column != figured);
                columns.insert(0, *figured);
            }
        }
        // `which country has the most orders`.
        let is_most = |(of, range): &(usize, Range<usize>)| {
            *of == table && range.start.checked_sub(1).is_some_and(|at| words.at(at) == "most")
        };
        if let ([only], true, None) = (&columns[..], elements.tables.iter().any(is_most), group)
            && !is_number(&def, *only)
        {
            group = columns.pop();
        }
        let mut values = Vec::new();
        let mut absent: Vec<(usize, bool)> = Vec::new();
        let mut absent_to = None;
        let meant = columns.clone();
        let mut ors = free(words, &["or"]).count();
        for (_, column, range) in &named {
            if !meant.contains(column) {
                continue;
            }
            let is_name = |at: usize| named.iter().any(|(_, _, other)| other.contains(&at));
            let is_compared =
                elements.comparisons.iter().any(|c| c.before.is_some_and(|at| range.contains(&at)));
            if is_compared {
                continue;
            }
            if let Some(is_null) = null(range, words, &mut negations) {
                columns.retain(|other| other != column);
                absent.push((*column, is_null));
                continue;
            }
            let value = named_values(&def, *column, range, words, &mut negations, is_name);
            if let Some((value, ors_in)) = value {
                ors = ors.saturating_sub(ors_in);
                columns.retain(|other| other != column);
                values.push(value);
                continue;
            }
            // `no price or country`.
            let joins = |to: usize| {
                (to..range.start).all(|at| matches!(words.at(at), "or" | "and" | "nor" | "a" | "the"))
            };
            let is_joined =
                absent_to.is_some_and(joins) && absent.last().is_some_and(|(_, missing)| *missing);
            let is_missing = missing(&def, *column, range, words, &mut negations);
            if let Some(is_missing) = is_missing.or(is_joined.then_some(true)) {
                columns.retain(|other| other != column);
                absent.push((*column, is_missing));
                absent_to = Some(range.end);
            }
        }
        for at in 0..words.len() {
            if words.starts(at, &["come", "from"]) || words.starts(at, &["comes", "from"]) {
                words.mark(at..at + 1);
            }
        }
        words.take(&["rows", "row", "entries", "entry", "records", "record", "table", "exist", "exists"]);
        // The only event known of a row is its storing, so verbs of change add nothing to a window.
        if window.is_some() {
            let unsaid = ["deleted", "removed"];
            let changed: Vec<&str> =
                v::CHANGED.iter().copied().filter(|word| !unsaid.contains(word)).collect();
            words.take(&changed);
        }
        let mut window = window;
        if def.name == PROCESSES {
            machine::processes(&def, words, &mut columns, &mut group, &mut window, self.now);
        }
        // `kind = click` has no number, so no comparison took its sign.
        words.take(&["=", "equals"]);
        for (_, column, range) in &named {
            let column = *column;
            let has_values = values.iter().any(|named: &ColumnValues| named.column == column)
                || absent.iter().any(|(absent, _)| *absent == column);
            if columns.contains(&column) || group == Some(column) || has_values {
                words.mark(range.clone());
            }
        }
        // `the last order` means one row.
        let name = name::short_table_name(&def.name).to_lowercase();
        let is_one = |(of, range): &(usize, std::ops::Range<usize>)| {
            *of == table
                && range.len() == 1
                && words.at(range.start) != name
                && v::singular(&name) == words.at(range.start)
        };
        let ranked = matches!(aggregate, Some(Aggregate::Latest | Aggregate::Oldest));
        let is_one = |of: &_| group.is_none() && is_one(of);
        let limit = elements.limit.or_else(|| (ranked && elements.tables.iter().any(is_one)).then_some(1));
        let scope = RowScope { window, negated: false, aggregate, limit, not_understood: Vec::new() };
        let mut task = TableQuery {
            columns,
            comparisons: Vec::new(),
            unclear: Vec::new(),
            values,
            missing: absent,
            value_words: Vec::new(),
            join: Conjunction::All,
            group,
            time,
            when: words.any(&["when"]),
            count: None,
            distinct: None,
            whether,
            scope,
            def,
        };
        for comparison in &elements.comparisons {
            self.compare(table, words, comparison, elements, &mut negations, &mut task);
        }
        task.value_words =
            value_words(words, |at| negations.take_before(words, at, |before| before.negates_condition()));
        for bare in &task.value_words {
            ors = ors.saturating_sub(bare.words.len() - 1);
        }
        // `how many countries`. Right before the table's name it is unclear, so it does not count.
        let is_counted = |(_, column, range): &&(usize, usize, Range<usize>)| {
            Some(range.start) == counted
                && task.columns.contains(column)
                && !is_number(&task.def, *column)
                && !elements.tables.iter().any(|(of, name)| *of == table && name.start == range.end)
        };
        if task.group.is_none() && task.scope.aggregate == Some(Aggregate::Count) {
            task.distinct = named.iter().find(is_counted).map(|(_, column, _)| *column);
        }
        if task.distinct.is_some() {
            words.take(&DIFFERENT);
            task.value_words.retain(|bare| {
                !bare.words.iter().all(|word| DIFFERENT.contains(&word.to_lowercase().as_str()))
            });
        }
        task.scope.not_understood = unknown_words(words);
        task.unused(&named, words, &ranks);
        let conditions =
            task.values.len() + task.missing.len() + task.value_words.len() + task.comparisons.len();
        if ors > 0 && conditions > 1 {
            task.join =
                if free(words, &["and"]).next().is_some() { Conjunction::Unclear } else { Conjunction::Any };
        }
        // `are all orders paid` does not ask if any is.
        let is_all = |(of, range): &(usize, Range<usize>)| {
            let before = (1..=2).filter_map(|back| range.start.checked_sub(back));
            let all = before.into_iter().find(|at| matches!(words.at(*at), "all" | "every" | "each"))?;
            let asks = |at: usize| {
                matches!(
                    words.at(at),
                    "is" | "are" | "was" | "were" | "has" | "have" | "had" | "do" | "does" | "did"
                )
            };
            (*of == table && (asks(0) || asks(range.end))).then(|| words.list[all].raw.clone())
        };
        task.scope.not_understood.extend(elements.tables.iter().find_map(is_all).filter(|_| conditions > 0));
        let (nots, is_nothing) = negations.unused(words);
        task.scope.negated = is_nothing;
        task.scope.not_understood.extend(nots);
        let source = name::short_table_name(&task.def.name).to_owned();
        SourceTask { source, kind: "table", query: SourceQuery::Table(Box::new(task)) }
    }

    /// Assigns a comparison to a column: the one named before it, the counted things named after it, or the only column that
    /// fits.
    fn compare(
        &self,
        table: usize,
        words: &mut Words,
        comparison: &Comparison,
        elements: &QuestionElements,
        negations: &mut Negations,
        task: &mut TableQuery,
    ) {
        let def = task.def.clone();
        let beside = |at: Option<usize>| {
            let at = at?;
            let columns = self.lexicon.columns_in(words, Some(table));
            columns.into_iter().find(|(_, column, range)| range.contains(&at) && is_number(&def, *column))
        };
        if let Some((_, column, range)) = beside(comparison.before).or_else(|| beside(comparison.behind)) {
            let negated =
                negations.take_before(words, range.start, |before| before.negates_condition()).is_some();
            let before = range.start.checked_sub(1).map_or("", |at| words.at(at)).to_owned();
            let before = before.as_str();
            words.mark(range);
            let of_rows = negated || matches!(before, "with" | "whose" | "where" | "having");
            // `average price of orders with price above 5`: the column is averaged and compared as well.
            let columns = self.lexicon.columns_in(words, Some(table));
            let is_once = columns.iter().filter(|(_, other, _)| *other == column).count() == 1;
            let keeps = of_rows && !is_once && task.figures();
            task.columns.retain(|c| *c != column || keeps);
            task.comparisons.push((column, Comparison { negated, of_rows, ..comparison.clone() }));
            return;
        }
        // `country above 5` does not apply to another column.
        let other = comparison.before.is_some_and(|at| {
            let mut columns = self.lexicon.columns_in(words, Some(table)).into_iter();
            columns.any(|(_, column, range)| {
                range.contains(&at) && def.schema.columns[column].data_type != DataType::Bool
            })
        });
        if other && !comparison.of_time {
            return task.unclear.push(comparison.clone());
        }
        let counts = |at: Option<usize>| {
            at.is_some_and(|at| {
                matches!(words.at(at), "rows" | "row" | "entries" | "records")
                    || elements.tables.iter().any(|(of, range)| *of == table && range.contains(&at))
            })
        };
        if comparison.unit.is_none() && !comparison.of_time && counts(comparison.behind) {
            task.count = Some(comparison.clone());
            return;
        }
        // `price above 25 or below 5`.
        let joins = comparison.before.is_some_and(|at| matches!(words.at(at), "or" | "and" | "but"));
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

    /// Returns the window of the question; `None` if the date is the value of a text column.
    fn window(
        &self,
        table: usize,
        words: &mut Words,
        elements: &QuestionElements,
        named: &[(usize, usize, Range<usize>)],
    ) -> Option<crate::time::Window> {
        let columns = &self.def(table).schema.columns;
        if let Some(place) = elements.place.as_ref().filter(|place| place.is_day) {
            let is_text = |(_, column, range): &(usize, usize, Range<usize>)| {
                let is = usize::from(matches!(words.at(range.end), "is" | "=" | "equals" | "was"));
                columns[*column].data_type == DataType::String && range.end + is == place.range.start
            };
            if named.iter().any(is_text) {
                words.unmark(place.range.clone());
                return None;
            }
        }
        elements.window.clone()
    }

    /// Returns the time column that a question names: `placed`, for a column `placed` or `placed_at`. Of several, the one before
    /// `place`, the position of the time, is taken.
    pub(super) fn time_column(
        &self,
        table: usize,
        words: &Words,
        place: Option<usize>,
    ) -> Option<(usize, Range<usize>)> {
        const ENDS: [&str; 5] = ["at", "on", "time", "date", "ts"];
        let columns = &self.def(table).schema.columns;
        let is_time =
            |column: usize| matches!(columns[column].data_type, DataType::Timestamp | DataType::Date);
        let is_plain = |range: &Range<usize>| {
            let mut words = words.list[range.clone()].iter();
            words.all(|word| !word.quoted && v::FILLERS.contains(&word.text.as_str()))
        };
        let named = self.lexicon.columns_in(words, Some(table)).into_iter();
        let named = named.filter(|(_, column, range)| is_time(*column) && !is_plain(range));
        let mut named = named.map(|(_, column, range)| (column, range)).collect::<Vec<_>>();
        for column in (0..columns.len()).filter(|column| is_time(*column)) {
            let name = columns[column].name.to_lowercase();
            let Some((first, _)) = name.rsplit_once('_').filter(|(_, end)| ENDS.contains(end)) else {
                continue;
            };
            let at = (0..words.len()).find(|at| words.at(*at) == first && !is_plain(&(*at..at + 1)));
            if let Some(at) = at.filter(|at| named.iter().all(|(_, range)| !range.contains(at))) {
                named.push((column, at..at + 1));
            }
        }
        let is_before = |range: &Range<usize>| place.is_some_and(|place| range.end <= place);
        let nearest = named.iter().filter(|(_, range)| is_before(range)).max_by_key(|(_, range)| range.end);
        nearest.or(named.first()).cloned()
    }
}

impl TableQuery {
    /// Returns the comparisons with the aggregate rather than with each row: `is the average price above 10`.
    pub fn compared(&self) -> impl Iterator<Item = &(usize, Comparison)> {
        let figured = self.figures() && self.group.is_none();
        let named = self.columns.iter().copied().find(|column| is_number(&self.def, *column));
        let first = self.comparisons.iter().find(|(_, comparison)| !comparison.of_rows);
        let column = named.or(first.map(|(column, _)| *column)).filter(|_| figured);
        self.comparisons.iter().filter(move |(of, comparison)| Some(*of) == column && !comparison.of_rows)
    }

    /// Returns true if an aggregate of a column is asked for.
    pub fn figures(&self) -> bool {
        use Aggregate::{Average, Highest, Lowest, Sum};
        matches!(self.scope.aggregate, Some(Average | Sum | Highest | Lowest))
    }

    /// Adds the words about columns that have no part in the answer to those not understood.
    fn unused(&mut self, named: &[(usize, usize, Range<usize>)], words: &Words, ranks: &[usize]) {
        let (aggregate, def) = (self.scope.aggregate, &self.def);
        let is_number = |column: &usize| is_number(def, *column);
        let figures = self.figures();
        let ranked = matches!(aggregate, Some(Aggregate::Latest | Aggregate::Oldest));
        let figured = match self.compared().next() {
            Some((compared, _)) => self.columns.iter().position(|column| column == compared),
            None => self.columns.iter().position(is_number),
        };
        let figured = figured.filter(|_| figures);
        let shows_rows = matches!(aggregate, Some(Aggregate::Highest | Aggregate::Lowest));
        for (nth, column) in self.columns.iter().enumerate() {
            let range = named.iter().find(|(_, of, _)| of == column).map(|(_, _, range)| range.clone());
            let before = range.as_ref().and_then(|range| range.start.checked_sub(1));
            // `the highest country` does not rank by another column.
            let is_ranked = !is_number(column) && before.is_some_and(|at| ranks.contains(&at));
            // A count shows no rows.
            let is_counted = aggregate == Some(Aggregate::Count) && self.distinct != Some(*column);
            let is_shown = self.group.is_none() && !is_counted && (!figures || (shows_rows && !is_ranked));
            if Some(nth) == figured || is_shown {
                continue;
            }
            let raw = |at: usize| words.list[at].raw.as_str();
            let words_of_name = range.map(|range| range.map(raw).collect::<Vec<_>>().join(" "));
            self.scope.not_understood.extend(words_of_name);
        }
        if self.group.is_some() {
            // The newest row of each group is not shown.
            if ranked {
                self.scope.not_understood.extend(ranks.first().map(|at| words.list[*at].raw.clone()));
            }
            if figured.is_some() || ranked {
                self.scope.not_understood.extend(self.scope.limit.map(|limit| limit.to_string()));
            }
        }
    }
}

/// Words between `how many` and the counted noun: `how many different countries`.
const DIFFERENT: [&str; 3] = ["different", "distinct", "unique"];

/// Returns the position of the counted noun, after `how many`.
fn counted_noun(words: &Words) -> Option<usize> {
    let behind =
        |at: usize| v::COUNT.iter().find(|count| words.starts(at, count)).map(|count| at + count.len());
    let at = (0..words.len()).find_map(behind)?;
    Some(at + usize::from(DIFFERENT.contains(&words.at(at))))
}

/// Returns true if a word orders the rows.
fn is_rank(words: &Words, at: usize) -> bool {
    !words.list[at].used
        && [v::HIGHEST, v::LOWEST, v::LATEST, v::OLDEST].iter().any(|list| list.contains(&words.at(at)))
}
