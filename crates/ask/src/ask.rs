//! The entry point: answers questions, caches the answers and shares one evaluation among equal questions.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use engine::{Engine, View};
use moka::future::Cache;
use query::{Search, Sql};
use tokio::sync::{Semaphore, mpsc};
use types::{Error, Kind, Lsn, Micros, Principal, Result, Scope, TableId, TableSet, name};

use crate::answer::{Answer, Event};
use crate::evaluation::{Context, EvaluatedAnswer, Evaluation, milliseconds};
use crate::interpreter::Interpreter;
use crate::lexicon::{self, Lexicon};
use crate::question::Question;
use crate::sources::catalog;
use crate::task::{Consequence, Plan, SourceQuery, SourceTask};
use crate::time::SECOND;
use crate::words::normal;

/// Sources other than tables.
const SOURCES: [&str; 5] = ["metrics", "requests", "changes", "notes", "tables"];
/// The capacity of a stream, in events.
const EVENTS_WAITING_MAX: usize = 64;
/// The number of cached lexicons. Each distinct set of visible definitions has its own.
const LEXICONS_MAX: u64 = 16;
/// The number of questions whose time of last evaluation is remembered.
const MOMENTS_MAX: u64 = 10_000;
/// Attempts to answer while the shared evaluation of another asker is refused as busy.
const ATTEMPTS_MAX: u32 = 3;

/// The limits of answering.
#[derive(Clone, Debug)]
pub struct Options {
    /// The default time limit of a question that names none.
    pub deadline: Duration,
    /// The longest time limit that a question may name.
    pub deadline_max: Duration,
    /// The number of concurrent evaluations. Further questions get [`Kind::Busy`].
    pub running_max: usize,
    /// Bytes that cached answers may take.
    pub cache_bytes: u64,
    /// The time for which an answer is cached.
    pub cache_time: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            deadline: Duration::from_secs(5),
            deadline_max: Duration::from_secs(30),
            running_max: 64,
            cache_bytes: 16 << 20,
            cache_time: Duration::from_secs(60),
        }
    }
}

/// Counters for `/metrics`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Questions since the start.
    pub asked: u64,
    /// Questions that were evaluated; the others shared one of these evaluations.
    pub evaluations: u64,
    /// Evaluations in progress.
    pub running: usize,
    /// Answers in the cache.
    pub kept: u64,
}

/// Answers questions. Cheap to clone; all clones share one cache.
#[derive(Clone)]
pub struct Ask(Arc<Inner>);

struct Inner {
    engine: Engine,
    sql: Sql,
    search: Option<Search>,
    options: Options,
    /// Lexicons by fingerprint. Principals that see other definitions have other fingerprints.
    lexicons: Cache<u64, Arc<Lexicon>>,
    cache: Cache<Key, Arc<Answer>>,
    /// The time at which a question that depends on the time was last evaluated. For one second the same answer serves.
    moments: Cache<Key, Micros>,
    running: Semaphore,
    asked: AtomicU64,
    evaluations: AtomicU64,
}

/// The identity of a question in the cache.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    /// The text after [`normal`].
    question: String,
    sources: Vec<String>,
    deadline: Duration,
    /// The tables that the asker may see.
    tables: Vec<String>,
    admin: bool,
    /// Fingerprint of the visible definitions, which decide the meaning of the question.
    names: u64,
    /// The tables that the plan reads, each at its lsn (S3).
    read: Vec<(Option<TableId>, Lsn)>,
    /// The beginning of the second for which the answer is valid, if it depends on the time.
    moment: Option<Micros>,
}

/// The reason for not caching an evaluation.
#[derive(Clone)]
enum UncachedResult {
    /// The answer is incomplete. Askers that waited for it receive it all the same.
    Partial(Arc<Answer>),
    Failed(Error),
}

/// A question after its analysis over a view.
struct UnderstoodQuestion {
    view: View,
    plan: Plan,
    key: Key,
    now: Micros,
    /// Sources that the asker listed and that the question is not about.
    unasked: Vec<String>,
}

impl Ask {
    /// Creates the service. `search` finds notes and other texts; `None` leaves them out.
    pub fn new(engine: Engine, sql: Sql, search: Option<Search>, options: Options) -> Ask {
        let weigh = |key: &Key, answer: &Arc<Answer>| {
            let rows: usize =
                answer.sections.iter().map(|section| section.rows.len() * section.columns.len()).sum();
            let texts: usize = answer.sections.iter().map(|section| section.text.len() + 300).sum();
            u32::try_from(
                key.question.len() + key.read.len() * 24 + answer.answer.len() + texts + rows * 64 + 500,
            )
            .unwrap_or(u32::MAX)
        };
        let cache = Cache::builder()
            .max_capacity(options.cache_bytes)
            .weigher(weigh)
            .time_to_live(options.cache_time)
            .build();
        let moments = Cache::builder().max_capacity(MOMENTS_MAX).time_to_live(Duration::from_secs(2)).build();
        Ask(Arc::new(Inner {
            engine,
            sql,
            search,
            lexicons: Cache::new(LEXICONS_MAX),
            cache,
            moments,
            running: Semaphore::new(options.running_max.max(1)),
            asked: AtomicU64::new(0),
            evaluations: AtomicU64::new(0),
            options,
        }))
    }

    /// Answers a question. May be awaited on any runtime with a timer. Dropping the future ends the work, unless others wait for
    /// the same evaluation.
    ///
    /// Fails with [`Kind::Invalid`] for an empty question, [`Kind::NotFound`] for an unknown source and [`Kind::Busy`] while too
    /// many evaluations run. A source that fails is not an error: the answer reports it.
    pub async fn ask(&self, principal: &Principal, question: &Question) -> Result<Answer> {
        self.answer(principal, question, None).await
    }

    /// Answers like [`Ask::ask`], in pieces: each section as soon as it is ready, then the complete answer. An answer shared with
    /// an equal question sends its sections together. Dropping the receiver ends the work.
    pub fn stream(&self, principal: &Principal, question: &Question) -> mpsc::Receiver<Result<Event>> {
        let (out, stream) = mpsc::channel(EVENTS_WAITING_MAX);
        // The question may be of any size, so it is checked before it is copied.
        if let Err(error) = question.check() {
            let _ = out.try_send(Err(error));
            return stream;
        }
        let (ask, principal, question) = (self.clone(), principal.clone(), question.clone());
        tokio::spawn(async move {
            let (events, mut pieces) = mpsc::channel(EVENTS_WAITING_MAX);
            let answering = async {
                let answer = ask.answer(&principal, &question, Some(events.clone())).await;
                drop(events);
                answer
            };
            let mut sent = 0;
            let forwarding = async {
                while let Some(event) = pieces.recv().await {
                    sent += 1;
                    if out.send(Ok(event)).await.is_err() {
                        break;
                    }
                }
            };
            // The sender inside `answering` keeps the channel open while it works.
            let answer = tokio::select! {
                (answer, ()) = async { tokio::join!(answering, forwarding) } => answer,
                () = out.closed() => return,
            };
            match answer {
                Ok(answer) => {
                    if sent == 0 {
                        for section in &answer.sections {
                            let _ = out.send(Ok(Event::Section(section.clone()))).await;
                        }
                    }
                    let _ = out.send(Ok(Event::Answer(Box::new(answer)))).await;
                }
                Err(error) => drop(out.send(Err(error)).await),
            }
        });
        stream
    }

    /// Returns the counters.
    pub fn status(&self) -> Status {
        let inner = &self.0;
        Status {
            asked: inner.asked.load(Ordering::Relaxed),
            evaluations: inner.evaluations.load(Ordering::Relaxed),
            running: inner.options.running_max.max(1).saturating_sub(inner.running.available_permits()),
            kept: inner.cache.entry_count(),
        }
    }

    async fn answer(
        &self,
        principal: &Principal,
        question: &Question,
        events: Option<mpsc::Sender<Event>>,
    ) -> Result<Answer> {
        let started = Instant::now();
        let inner = &self.0;
        inner.asked.fetch_add(1, Ordering::Relaxed);
        question.check()?;
        let mut attempt = 0;
        loop {
            attempt += 1;
            let UnderstoodQuestion { view, plan, key, now, unasked } =
                self.understand(principal, question).await?;
            let due = started + key.deadline;
            let made_here = AtomicBool::new(false);
            let make = async {
                made_here.store(true, Ordering::Relaxed);
                let _permit = inner.running.try_acquire().map_err(|_| {
                    let error = Error::new(Kind::Busy, "too many questions are being answered");
                    UncachedResult::Failed(error.hint("ask again a little later"))
                })?;
                inner.evaluations.fetch_add(1, Ordering::Relaxed);
                let all = sees_everything(&view, principal);
                let context = Context {
                    lsn: if all { view.lsn() } else { newest_lsn(&view) },
                    time: all.then(|| view.time()),
                    all: principal.tables == TableSet::All,
                    view: view.clone(),
                    sql: inner.sql.clone(),
                    search: inner.search.clone(),
                    now,
                    due,
                };
                let evaluation = Evaluation {
                    context,
                    q: question.text.trim(),
                    events: events.clone(),
                    unasked: unasked.clone(),
                };
                let EvaluatedAnswer { answer, whole } = evaluation.run(&plan).await;
                if whole { Ok(Arc::new(answer)) } else { Err(UncachedResult::Partial(Arc::new(answer))) }
            };
            let evaluation = inner.cache.try_get_with(key, make);
            // The evaluation may belong to another asker who began at another time, so this asker applies its own deadline.
            let result = match tokio::time::timeout_at((due + GRACE).into(), evaluation).await {
                Ok(result) => result.map_err(|uncached| UncachedResult::clone(&uncached)),
                Err(_) => {
                    return Err(Error::new(Kind::Timeout, "the answer was not ready when it was due")
                        .hint("ask again, or give it a longer deadline"));
                }
            };
            let cached = !made_here.load(Ordering::Relaxed);
            let answer = match result {
                Ok(answer) => answer,
                Err(UncachedResult::Partial(answer)) => answer,
                // The failure belongs to another asker; there may be room by now.
                Err(UncachedResult::Failed(error))
                    if cached && error.kind() == Kind::Busy && attempt < ATTEMPTS_MAX =>
                {
                    continue;
                }
                Err(UncachedResult::Failed(error)) => return Err(error),
            };
            return Ok(Answer {
                q: question.text.trim().to_owned(),
                took_ms: milliseconds(started.elapsed()),
                cached,
                ..Answer::clone(&answer)
            });
        }
    }

    async fn understand(&self, principal: &Principal, question: &Question) -> Result<UnderstoodQuestion> {
        let inner = &self.0;
        let view = inner.engine.view(principal)?;
        let lexicon = self.lexicon(&view).await;
        let now = inner.engine.env().clock.now();
        let (mut sources, mut listed) = (Vec::new(), Vec::new());
        for wanted in &question.sources {
            if SOURCES.contains(&wanted.as_str()) {
                sources.push(wanted.clone());
                continue;
            }
            let full_name = name::full_table_name(wanted)?;
            let table = view.find(&full_name).ok_or_else(|| unknown_source(wanted, &view))?;
            let at = lexicon.tables.iter().position(|entry| entry.def.name == table.def().name);
            listed.extend(at);
            sources.push(name::short_table_name(&table.def().name).to_owned());
        }
        sources.sort();
        sources.dedup();
        let interpreter = Interpreter { lexicon: &lexicon, now, listed: &listed };
        let mut plan = interpreter.plan(&question.text);
        let unasked = restrict(&mut plan, &sources);
        let deadline = question.deadline.unwrap_or(inner.options.deadline).min(inner.options.deadline_max);
        let tables = match &principal.tables {
            TableSet::All => vec!["*".to_owned()],
            TableSet::Only(names) => {
                let mut names = names.clone();
                names.sort();
                names.dedup();
                names
            }
        };
        let mut key = Key {
            question: normal(&question.text),
            sources,
            deadline,
            tables,
            admin: principal.scope >= Scope::Admin,
            names: lexicon.fingerprint,
            read: tables_read(&view, &plan),
            moment: None,
        };
        if plan.timed {
            let is_over = |moment: &Micros| !(*moment..moment.saturating_add(SECOND)).contains(&now);
            let moment = inner.moments.entry(key.clone()).or_insert_with_if(async { now }, is_over).await;
            key.moment = Some(moment.into_value());
        }
        Ok(UnderstoodQuestion { view, plan, key, now, unasked })
    }

    /// Returns the lexicon of a view. It is built once for each change of a definition and each set of rights (O1).
    async fn lexicon(&self, view: &View) -> Arc<Lexicon> {
        let fingerprint = lexicon::fingerprint(view);
        self.0.lexicons.get_with(fingerprint, async { Arc::new(Lexicon::new(view, fingerprint)) }).await
    }
}

impl std::fmt::Debug for Ask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ask").field("status", &self.status()).finish()
    }
}

/// Time beyond its deadline that an answer may take to be assembled.
const GRACE: Duration = Duration::from_millis(250);

fn unknown_source(wanted: &str, view: &View) -> Error {
    let tables: Vec<String> = view
        .tables()
        .iter()
        .map(|table| name::short_table_name(&table.def().name).to_owned())
        .take(20)
        .collect();
    let error = Error::not_found(format!("there is no source `{}`", name::printable(wanted)));
    let tables =
        if tables.is_empty() { String::new() } else { format!(", or a table: {}", tables.join(", ")) };
    error.hint(format!("sources are {}{tables}", SOURCES.join(", ")))
}

/// Removes the tasks of sources that the asker did not list. Returns the listed sources that have no task.
fn restrict(plan: &mut Plan, sources: &[String]) -> Vec<String> {
    if sources.is_empty() {
        return Vec::new();
    }
    let wants = |task: &SourceTask| {
        sources.contains(&task.source)
            || (task.kind == "table" && sources.iter().any(|source| source == "tables"))
    };
    let mut asked: Vec<String> = Vec::new();
    let mut keep = |tasks: &mut Vec<SourceTask>| {
        tasks.retain(wants);
        asked.extend(tasks.iter().map(|task| task.source.clone()));
        if tasks.iter().any(|task| task.kind == "table") {
            asked.push("tables".into());
        }
    };
    if let Some(condition) = &mut plan.condition {
        condition.parts.iter_mut().for_each(|part| keep(&mut part.tasks));
        if let Consequence::Ask(parts) = &mut condition.consequence {
            parts.iter_mut().for_each(|part| keep(&mut part.tasks));
        }
    }
    plan.parts.iter_mut().for_each(|part| keep(&mut part.tasks));
    sources.iter().filter(|source| !asked.contains(source)).cloned().collect()
}

/// Returns true if nothing is hidden from the principal, so that it may learn of every commit.
fn sees_everything(view: &View, principal: &Principal) -> bool {
    principal.tables == TableSet::All && view.tables().len() == view.searchables().len()
}

/// Returns the newest commit in the visible tables. A table dropped since is missing in the key's names.
fn newest_lsn(view: &View) -> Lsn {
    view.tables().iter().map(|table| table.lsn()).max().unwrap_or(Lsn(0))
}

/// Returns the tables that a plan reads with their current lsns. While these are equal, the answer is the same.
fn tables_read(view: &View, plan: &Plan) -> Vec<(Option<TableId>, Lsn)> {
    let mut read = Vec::new();
    let inner = plan.condition.iter().flat_map(|condition| match &condition.consequence {
        Consequence::Ask(parts) => parts.as_slice(),
        _ => &[],
    });
    let conditions = plan.condition.iter().flat_map(|condition| &condition.parts);
    let parts = conditions.chain(inner).chain(&plan.parts);
    for task in parts.flat_map(|part| &part.tasks) {
        let names: &[&str] = match &task.query {
            SourceQuery::Metrics(_) => &["polynya.metrics"],
            SourceQuery::Requests(_) => &["polynya.requests"],
            SourceQuery::Table(table) => &[table.def.name.as_str()],
            SourceQuery::Notes(_) => {
                // The searchable tables may be more than the visible ones.
                for table in view.searchables().iter().filter(|table| catalog::has_text(table.def())) {
                    read.push((Some(table.def().id), table.lsn()));
                }
                continue;
            }
            // These may read any table.
            SourceQuery::Changes(_) | SourceQuery::Values(_) | SourceQuery::Catalog => {
                read.push((None, newest_lsn(view)));
                continue;
            }
        };
        for name in names {
            let found = view.find(name);
            read.extend(found.map(|table| (Some(table.def().id), table.lsn())));
        }
    }
    read.sort_unstable();
    read.dedup();
    read
}
