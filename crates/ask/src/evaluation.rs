//! Carries out a plan: asks the sources concurrently, over one view, until the deadline.

use std::time::{Duration, Instant};

use engine::View;
use futures::StreamExt;
use futures::future::join_all;
use futures::stream::FuturesUnordered;
use query::{Limits, Overflow, Search, Sql};
use tokio::sync::mpsc;
use types::{Error, Kind, Lsn, Micros, Result, Value};

use crate::answer::{Answer, Column, Consulted, Event, Section, State};
use crate::cell::{self, Cell};
use crate::sources;
use crate::task::*;
use crate::time;

/// The input common to all sources.
#[derive(Clone)]
pub(crate) struct Context {
    pub view: View,
    pub sql: Sql,
    pub search: Option<Search>,
    pub now: Micros,
    pub due: Instant,
    /// The newest commit in the tables that the asker may see; nothing is revealed of others (A1).
    pub lsn: Lsn,
    /// The time of that commit. `None` if only the time of a commit in another table is known.
    pub time: Option<Micros>,
    /// True if the asker may see every table, so that a missing table does not exist.
    pub all: bool,
}

/// The result of one source.
#[derive(Clone, Debug, Default)]
pub(crate) struct SourceResult {
    pub sections: Vec<Section>,
    /// True if the source has something to say.
    pub answered: bool,
    /// Tells whether the condition holds. `None` if the question was not one of yes or no, or cannot be decided.
    pub verdict: Option<bool>,
    /// The time of the newest data.
    pub as_of: Option<Micros>,
    pub detail: Option<String>,
}

/// The result of one part of a question.
struct PartResult {
    sections: Vec<Section>,
    verdict: Option<bool>,
    answered: bool,
    consulted: Vec<Consulted>,
    /// The reason for asking no source.
    refusal: Option<Refusal>,
    /// True if no source was late or failed.
    whole: bool,
}

/// An answer under construction.
#[derive(Default)]
struct AnswerDraft {
    texts: Vec<String>,
    sections: Vec<Section>,
    consulted: Vec<Consulted>,
    answered: bool,
    partial: bool,
}

impl AnswerDraft {
    /// Records the sources of a part with their states. The caller adds their texts.
    fn note(&mut self, done: &mut PartResult) {
        self.answered |= done.answered;
        self.partial |= !done.whole;
        for entry in done.consulted.drain(..) {
            match self
                .consulted
                .iter_mut()
                .find(|known| (&known.name, &known.kind) == (&entry.name, &entry.kind))
            {
                Some(known) => join(known, entry),
                None => self.consulted.push(entry),
            }
        }
    }

    fn add(&mut self, mut done: PartResult) {
        self.note(&mut done);
        self.texts.extend(done.refusal.map(|refusal| refusal.why().to_owned()));
        self.texts.extend(section_texts(&done.sections));
        self.sections.append(&mut done.sections);
    }
}

/// A small result of SQL.
#[derive(Clone, Debug, Default)]
pub(crate) struct ResultTable {
    pub columns: Vec<Column>,
    pub rows: Vec<Vec<Cell>>,
}

impl Context {
    /// Runs a statement and returns up to `rows_max` rows. The statement consists of names and parameters (`$1`) only.
    pub async fn rows(&self, sql: &str, params: &[Value], rows_max: usize) -> Result<ResultTable> {
        let left = self.due.saturating_duration_since(Instant::now());
        let limits =
            Limits { deadline: Some(left), rows_max: Some(rows_max as u64), overflow: Overflow::Truncate };
        let mut answer = self.sql.read(self.view.clone(), sql, params.to_vec(), limits).await?;
        let columns =
            answer.columns().into_iter().map(|c| Column { name: c.name, data_type: c.data_type }).collect();
        let mut rows = Vec::new();
        while let Some(batch) = answer.next().await {
            rows.extend(cell::rows(&batch?));
        }
        Ok(ResultTable { columns, rows })
    }

    /// Returns the time at which the newest row of a table was stored. Only the last rows of the table are searched.
    pub async fn newest(&self, table: &str) -> Result<Option<Micros>> {
        const NEAR_END: u64 = 1_000;
        let Some(snapshot) = self.view.find(table) else { return Ok(None) };
        let from = i64::try_from(snapshot.next_row().0.saturating_sub(NEAR_END)).unwrap_or(0);
        let sql = format!("SELECT max(_time) FROM {} WHERE _row_id >= $1", sources::quoted_table(table));
        let rows = self.rows(&sql, &[Value::Int64(from)], 1).await?.rows;
        Ok(rows.first().and_then(|row| row.first()?.time()))
    }

    /// Runs work outside SQL that takes a millisecond or two, as a lookup does, on another thread.
    pub async fn run_brief<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.sql.run_brief(self.due.saturating_duration_since(Instant::now()), work).await
    }

    /// Runs work outside SQL on another thread.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.sql.run_blocking(self.due.saturating_duration_since(Instant::now()), work).await
    }
}

/// An answer, and true if it may be shared and cached: no source failed or ran out of time.
pub(crate) struct EvaluatedAnswer {
    pub answer: Answer,
    pub whole: bool,
}

pub(crate) struct Evaluation<'a> {
    pub context: Context,
    pub q: &'a str,
    pub events: Option<mpsc::Sender<Event>>,
    /// Sources that the asker listed although the question is not about them.
    pub unasked: Vec<String>,
}

impl Evaluation<'_> {
    pub async fn run(self, plan: &Plan) -> EvaluatedAnswer {
        let started = Instant::now();
        // Parts run concurrently; only a consequence waits for its condition.
        let conditional = async {
            match &plan.condition {
                Some(condition) => self.conditional(condition).await,
                None => AnswerDraft::default(),
            }
        };
        let (mut draft, parts) =
            tokio::join!(conditional, join_all(plan.parts.iter().map(|part| self.part(part))));
        parts.into_iter().for_each(|done| draft.add(done));
        for name in &self.unasked {
            let detail = Some("the question is not about it".into());
            draft.consulted.push(self.entry(name, "source", State::Skipped, None, Duration::ZERO, detail));
        }
        let AnswerDraft { mut texts, sections, consulted, answered, partial } = draft;
        if !answered {
            let help = sources::catalog::help(&self.context);
            let silent: Vec<&str> = consulted
                .iter()
                .filter(|c| matches!(c.state, State::Timeout | State::Failed))
                .map(|c| c.name.as_str())
                .collect();
            let reasons: Vec<String> = consulted.iter().filter_map(reason).collect();
            let why = match silent[..] {
                [] if !reasons.is_empty() && plan.condition.is_none() => reasons.join(" "),
                [] => "Nothing here answers that.".to_owned(),
                _ => format!("Nothing here answered that; {} could not be asked.", silent.join(", ")),
            };
            texts.insert(0, why);
            texts.push(help);
        }
        texts.dedup();
        let answer = Answer {
            q: self.q.to_owned(),
            answer: texts.join("\n"),
            sections,
            sources: consulted,
            took_ms: milliseconds(started.elapsed()),
            lsn: self.context.lsn.0,
            as_of: time::rfc3339(self.context.now),
            cached: false,
        };
        EvaluatedAnswer { answer, whole: !partial }
    }

    async fn conditional(&self, condition: &Conditional) -> AnswerDraft {
        let mut draft = AnswerDraft::default();
        let parts = join_all(condition.parts.iter().map(|part| self.part(part))).await;
        let verdicts: Vec<Option<bool>> = parts.iter().map(|done| done.verdict).collect();
        let verdict = joined(condition.join, &verdicts);
        let if_text = condition.text.trim();
        // The condition of `is X Y, if so …` is a question and is repeated as one.
        let is_question = is_question(if_text);
        let that = if is_question { format!(": {if_text}?") } else { format!(" that {if_text}.") };
        let (mut found, mut sections) = (Vec::new(), Vec::new());
        for mut done in parts {
            let mut texts = section_texts(&done.sections);
            if texts.is_empty() {
                // The reason why the condition cannot be decided.
                let why = |c: &Consulted| {
                    Some(format!("{}: {}.", c.name, c.detail.as_ref()?.trim_end_matches('.')))
                };
                texts.extend(done.consulted.iter().filter_map(why));
            }
            // The verdict is given for the whole condition, so `Yes:` and `No:` of its parts are dropped.
            let plain = |text: &str| {
                let plain = text.strip_prefix("Yes: ").or_else(|| text.strip_prefix("No: "));
                sources::sentence(plain.unwrap_or(text))
            };
            found.extend(texts.iter().map(|text| plain(text)));
            draft.note(&mut done);
            sections.append(&mut done.sections);
        }
        if condition.join == Conjunction::Unclear {
            found.push("“and” together with “or” is not understood.".into());
        }
        let found = found.join(" ");
        let consequence: &[QuestionPart] =
            if let Consequence::Ask(parts) = &condition.consequence { parts } else { &[] };
        let skip = |why: &str, draft: &mut AnswerDraft| {
            for task in consequence.iter().flat_map(|part| &part.tasks) {
                if draft.consulted.iter().all(|c| c.name != task.source) {
                    let detail = Some(why.to_owned());
                    let entry =
                        self.entry(&task.source, task.kind, State::Skipped, None, Duration::ZERO, detail);
                    draft.consulted.push(entry);
                }
            }
        };
        match verdict {
            Some(true) => {
                draft.texts.push(format!("It holds{that} {found}"));
                draft.sections.append(&mut sections);
                if let Consequence::Other(what) = &condition.consequence {
                    draft.texts.push(format!("So: {what}. (Polynya answers; doing it is left to you.)"));
                }
                for done in join_all(consequence.iter().map(|part| self.part(part))).await {
                    draft.add(done);
                }
            }
            Some(false) => {
                draft.texts.push(format!("It does not hold{that} {found}"));
                // The rows that `show` asked for are left out, but the text of the check is kept.
                draft.sections.extend(sections.into_iter().map(|section| match condition.consequence {
                    Consequence::Show => Section { columns: Vec::new(), rows: Vec::new(), ..section },
                    _ => section,
                }));
                skip("the condition does not hold", &mut draft);
            }
            None => {
                let rest = match &condition.consequence {
                    Consequence::Show => "So it is left open.".to_owned(),
                    Consequence::Ask(parts) => {
                        let asked: Vec<&str> = parts.iter().map(|part| part.text.as_str()).collect();
                        format!("So this was not asked: {}.", asked.join("; "))
                    }
                    Consequence::Other(what) => format!("So it is for you to judge: {what}."),
                };
                let space = if found.is_empty() { "" } else { " " };
                let whether = if is_question {
                    format!("The data here does not answer this: {if_text}?")
                } else {
                    format!("The data here does not tell whether {if_text}.")
                };
                draft.texts.push(format!("{whether}{space}{found} {rest}"));
                draft.sections.append(&mut sections);
                skip("it is not known whether the condition holds", &mut draft);
            }
        }
        draft
    }

    /// Asks all sources of a part concurrently.
    async fn part(&self, part: &QuestionPart) -> PartResult {
        if let Some(refusal) = part.refusal {
            return self.refused(part, refusal);
        }
        let due = tokio::time::Instant::from_std(self.context.due);
        let mut running: FuturesUnordered<_> = part
            .tasks
            .iter()
            .enumerate()
            .map(|(nth, task)| async move {
                let started = Instant::now();
                let outcome = match started < self.context.due {
                    true => tokio::time::timeout_at(due, sources::run(&self.context, task)).await,
                    false => {
                        Ok(Err(Error::new(Kind::Timeout, "the answer was due before it could be asked")))
                    }
                };
                (nth, outcome, started.elapsed())
            })
            .collect();
        let mut ended = Vec::new();
        while let Some((nth, outcome, took)) = running.next().await {
            if let (Some(events), Ok(Ok(outcome))) = (&self.events, &outcome) {
                for section in &outcome.sections {
                    // A slow reader misses this event but finds the section in the final answer; others wait for the same
                    // evaluation.
                    let _ = events.try_send(Event::Section(section.clone()));
                }
            }
            ended.push((nth, outcome, took));
        }
        ended.sort_by_key(|(nth, ..)| *nth);
        let mut done = PartResult {
            sections: Vec::new(),
            verdict: None,
            answered: false,
            consulted: Vec::new(),
            refusal: None,
            whole: true,
        };
        let mut verdicts = Vec::new();
        for (nth, outcome, took) in ended {
            let task = &part.tasks[nth];
            let (state, as_of, detail) = match outcome {
                Ok(Ok(outcome)) => {
                    done.answered |= outcome.answered;
                    done.sections.extend(outcome.sections);
                    verdicts.push(outcome.verdict);
                    let state = if outcome.answered { State::Answered } else { State::Nothing };
                    (state, outcome.as_of, outcome.detail)
                }
                Ok(Err(error)) => {
                    done.whole = false;
                    let state = if error.kind() == Kind::Timeout { State::Timeout } else { State::Failed };
                    (state, None, Some(error.to_string()))
                }
                Err(_) => {
                    done.whole = false;
                    (State::Timeout, None, Some("it had not answered when the answer was due".to_owned()))
                }
            };
            done.consulted.push(self.entry(&task.source, task.kind, state, as_of, took, detail));
        }
        // A source that was late or failed might have decided otherwise.
        verdicts.resize(part.tasks.len(), None);
        done.verdict = joined(part.join, &verdicts);
        done
    }

    /// Asks no source of a refused part; lists its sources as skipped.
    fn refused(&self, part: &QuestionPart, refusal: Refusal) -> PartResult {
        let entry = |task: &SourceTask| {
            let detail = Some(refusal.why().trim_end_matches('.').to_owned());
            self.entry(&task.source, task.kind, State::Skipped, None, Duration::ZERO, detail)
        };
        PartResult {
            sections: Vec::new(),
            verdict: None,
            answered: false,
            consulted: part.tasks.iter().map(entry).collect(),
            refusal: Some(refusal),
            whole: true,
        }
    }

    fn entry(
        &self,
        name: &str,
        kind: &str,
        state: State,
        as_of: Option<Micros>,
        took: Duration,
        detail: Option<String>,
    ) -> Consulted {
        Consulted {
            name: name.to_owned(),
            kind: kind.to_owned(),
            state,
            lsn: self.context.lsn.0,
            as_of: as_of.map(time::rfc3339),
            took_ms: milliseconds(took),
            detail,
        }
    }
}

/// Returns true if a condition is written as a question.
fn is_question(text: &str) -> bool {
    const BEGIN: [&str; 9] = ["is", "are", "was", "were", "has", "have", "do", "does", "did"];
    text.split_whitespace().next().is_some_and(|first| BEGIN.contains(&first.to_lowercase().as_str()))
}

/// Combines the verdicts of several conditions. An undecided one leaves the result undecided, unless another decides it.
fn joined(join: Conjunction, verdicts: &[Option<bool>]) -> Option<bool> {
    let decides = match (join, verdicts) {
        (_, []) => return None,
        (_, [only]) => return *only,
        (Conjunction::Unclear, _) => return None,
        (Conjunction::Any, _) => true,
        (Conjunction::All, _) => false,
    };
    if verdicts.contains(&Some(decides)) {
        return Some(decides);
    }
    verdicts.iter().all(|verdict| *verdict == Some(!decides)).then_some(!decides)
}

/// Merges the results of several tasks of one source.
fn join(known: &mut Consulted, other: Consulted) {
    // A failure takes precedence over an answer.
    let weight = |state: State| match state {
        State::Failed => 4,
        State::Timeout => 3,
        State::Answered => 2,
        State::Nothing => 1,
        State::Skipped => 0,
    };
    if weight(other.state) > weight(known.state) {
        known.state = other.state;
    }
    known.took_ms = known.took_ms.max(other.took_ms);
    known.as_of = known.as_of.take().max(other.as_of);
    if let Some(detail) = other.detail.filter(|detail| known.detail.as_ref() != Some(detail)) {
        known.detail = Some(known.detail.take().map_or(detail.clone(), |first| format!("{first}; {detail}")));
    }
}

/// Returns the reason that a source gives for having nothing, if the question was about that source.
fn reason(entry: &Consulted) -> Option<String> {
    let is_meant = matches!(entry.kind.as_str(), "metrics" | "requests" | "table" | "changes");
    let detail = entry.detail.as_ref().filter(|_| is_meant && entry.state == State::Nothing)?;
    Some(format!("{}.", sources::capitalized(detail.trim_end_matches('.'))))
}

fn section_texts(sections: &[Section]) -> Vec<String> {
    sections.iter().map(|section| section.text.clone()).filter(|text| !text.is_empty()).collect()
}

pub(crate) fn milliseconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

/// Runs statements a few at a time, so that those of others also get their turn.
pub(crate) async fn few_at_once<T, F: Future<Output = T>>(work: Vec<F>) -> Vec<T> {
    const AT_ONCE: usize = 3;
    let mut results = Vec::with_capacity(work.len());
    let mut work = work.into_iter();
    loop {
        let some: Vec<F> = work.by_ref().take(AT_ONCE).collect();
        if some.is_empty() {
            return results;
        }
        results.extend(join_all(some).await);
    }
}
