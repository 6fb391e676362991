//! The door: questions in, answers out; equal ones share one evaluation.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use engine::{Engine, View};
use moka::future::Cache;
use query::{Search, Sql};
use tokio::sync::{Semaphore, mpsc};
use types::{Error, Kind, Lsn, Micros, Principal, Result, Scope, TableId, TableSet, name};

use crate::answer::{Answer, Event};
use crate::evaluate::{Context, Evaluated, Evaluation, milliseconds};
use crate::lexicon::{self, Lexicon};
use crate::question::Question;
use crate::sources::catalog;
use crate::task::{Plan, Task, Then, What};
use crate::time::SECOND;
use crate::understand::World;
use crate::words::normal;

/// Sources that are no tables.
const SOURCES: [&str; 5] = ["metrics", "requests", "changes", "notes", "tables"];
/// Events of a stream that wait for its reader.
const EVENTS_WAITING_MAX: usize = 64;
/// Sets of rights whose names are kept apart.
const LEXICONS_MAX: u64 = 16;
/// Questions whose last moment is known.
const MOMENTS_MAX: u64 = 10_000;
/// How often an asker tries again whose neighbour's evaluation came to nothing that can be shared.
const ATTEMPTS_MAX: u32 = 3;

/// How questions are answered.
#[derive(Clone, Debug)]
pub struct Options {
    /// When an answer is due that did not say so.
    pub deadline: Duration,
    /// The longest that may be asked for.
    pub deadline_max: Duration,
    /// Answers that are made at once; beyond, [`Kind::Busy`].
    pub running_max: usize,
    /// What kept answers may take.
    pub cache_bytes: u64,
    /// How long an answer is kept.
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
    /// Those for which sources were asked; the others shared one of these.
    pub evaluations: u64,
    /// Evaluations under way.
    pub running: usize,
    /// Answers that are kept.
    pub kept: u64,
}

/// Answers questions. Cheap to clone; all clones share what is kept.
#[derive(Clone)]
pub struct Ask(Arc<Inner>);

struct Inner {
    engine: Engine,
    sql: Sql,
    search: Option<Search>,
    options: Options,
    /// By fingerprint; principals with other rights have others.
    lexicons: Cache<u64, Arc<Lexicon>>,
    kept: Cache<Key, Arc<Answer>>,
    /// When those that depend on the time were last asked: for a second after that they are the same question.
    moments: Cache<Key, Micros>,
    running: Semaphore,
    asked: AtomicU64,
    evaluations: AtomicU64,
}

/// What makes two questions the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    /// As [`normal`] has it.
    question: String,
    sources: Vec<String>,
    deadline: Duration,
    /// What the asker may see.
    tables: Vec<String>,
    admin: bool,
    /// Definitions of the tables there are, which decide what the question means.
    names: u64,
    /// What is read, each table at its lsn (S3).
    read: Vec<(Option<TableId>, Lsn)>,
    /// When the second began for which it is kept, if the answer depends on the time.
    moment: Option<Micros>,
}

/// Why an evaluation is not kept.
#[derive(Clone)]
enum Unkept {
    /// Something is missing in it; those who waited for it get it all the same.
    Partial(Arc<Answer>),
    Failed(Error),
}

/// A question that was understood over a view.
struct Understood {
    view: View,
    plan: Plan,
    key: Key,
    now: Micros,
    /// Listed by the asker, and not what the question is about.
    unasked: Vec<String>,
}

impl Ask {
    /// `search` finds notes and other texts; without it they are not asked.
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
        let kept = Cache::builder()
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
            kept,
            moments,
            running: Semaphore::new(options.running_max.max(1)),
            asked: AtomicU64::new(0),
            evaluations: AtomicU64::new(0),
            options,
        }))
    }

    /// Answers. May be awaited on any runtime with a timer; dropping the future ends the work, unless others wait for it too.
    ///
    /// [`Kind::Invalid`] for an empty question, [`Kind::NotFound`] for a source that is not there, [`Kind::Busy`] while too
    /// many answers are being made. A source that fails is no failure: the answer says so.
    pub async fn ask(&self, principal: &Principal, question: &Question) -> Result<Answer> {
        self.answer(principal, question, None).await
    }

    /// The same in pieces: each section when it is there, then the whole. Where the answer is shared with an equal question,
    /// the sections come together. Dropping the receiver ends it.
    pub fn stream(&self, principal: &Principal, question: &Question) -> mpsc::Receiver<Result<Event>> {
        let (out, stream) = mpsc::channel(EVENTS_WAITING_MAX);
        // Before it is copied: it may be of any size.
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
            // The sender inside `answering` keeps the channel open as long as it works.
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

    /// Counters.
    pub fn status(&self) -> Status {
        let inner = &self.0;
        Status {
            asked: inner.asked.load(Ordering::Relaxed),
            evaluations: inner.evaluations.load(Ordering::Relaxed),
            running: inner.options.running_max.max(1).saturating_sub(inner.running.available_permits()),
            kept: inner.kept.entry_count(),
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
            let Understood { view, plan, key, now, unasked } = self.understand(principal, question).await?;
            let due = started + key.deadline;
            let made_here = AtomicBool::new(false);
            let make = async {
                made_here.store(true, Ordering::Relaxed);
                let _permit = inner.running.try_acquire().map_err(|_| {
                    let error = Error::new(Kind::Busy, "too many questions are being answered");
                    Unkept::Failed(error.hint("ask again a little later"))
                })?;
                inner.evaluations.fetch_add(1, Ordering::Relaxed);
                let all = is_whole(&view, principal);
                let context = Context {
                    lsn: if all { view.lsn() } else { newest(&view) },
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
                let Evaluated { answer, whole } = evaluation.run(&plan).await;
                if whole { Ok(Arc::new(answer)) } else { Err(Unkept::Partial(Arc::new(answer))) }
            };
            let kept = inner.kept.try_get_with(key, make);
            // Whoever waits for an equal question's evaluation has a deadline of their own.
            let result = match tokio::time::timeout_at((due + GRACE).into(), kept).await {
                Ok(result) => result.map_err(|unkept| Unkept::clone(&unkept)),
                Err(_) => {
                    return Err(Error::new(Kind::Timeout, "the answer was not ready when it was due")
                        .hint("ask again, or give it a longer deadline"));
                }
            };
            let cached = !made_here.load(Ordering::Relaxed);
            let answer = match result {
                Ok(answer) => answer,
                Err(Unkept::Partial(answer)) => answer,
                // Somebody else's failure: perhaps there is room by now.
                Err(Unkept::Failed(error))
                    if cached && error.kind() == Kind::Busy && attempt < ATTEMPTS_MAX =>
                {
                    continue;
                }
                Err(Unkept::Failed(error)) => return Err(error),
            };
            return Ok(Answer {
                q: question.text.trim().to_owned(),
                took_ms: milliseconds(started.elapsed()),
                cached,
                ..Answer::clone(&answer)
            });
        }
    }

    async fn understand(&self, principal: &Principal, question: &Question) -> Result<Understood> {
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
            let table = view.find(&full_name).ok_or_else(|| unknown(wanted, &view))?;
            let at = lexicon.tables.iter().position(|entry| entry.def.name == table.def().name);
            listed.extend(at);
            sources.push(name::short_table_name(&table.def().name).to_owned());
        }
        sources.sort();
        sources.dedup();
        let world = World { lexicon: &lexicon, now, listed: &listed };
        let mut plan = world.plan(&question.text);
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
            read: read(&view, &plan),
            moment: None,
        };
        if plan.timed {
            let is_over = |moment: &Micros| !(*moment..moment.saturating_add(SECOND)).contains(&now);
            let moment = inner.moments.entry(key.clone()).or_insert_with_if(async { now }, is_over).await;
            key.moment = Some(moment.into_value());
        }
        Ok(Understood { view, plan, key, now, unasked })
    }

    /// Names are taken apart once for each change of a definition and each set of rights (O1).
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

/// What putting an answer together may take beyond its deadline.
const GRACE: Duration = Duration::from_millis(250);

fn unknown(wanted: &str, view: &View) -> Error {
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

/// Leaves out what the asker does not want to be asked; returns what was listed and is not asked.
fn restrict(plan: &mut Plan, sources: &[String]) -> Vec<String> {
    if sources.is_empty() {
        return Vec::new();
    }
    let wants = |task: &Task| {
        sources.contains(&task.source)
            || (task.kind == "table" && sources.iter().any(|source| source == "tables"))
    };
    let mut asked: Vec<String> = Vec::new();
    let mut keep = |tasks: &mut Vec<Task>| {
        tasks.retain(wants);
        asked.extend(tasks.iter().map(|task| task.source.clone()));
        if tasks.iter().any(|task| task.kind == "table") {
            asked.push("tables".into());
        }
    };
    if let Some(condition) = &mut plan.condition {
        condition.parts.iter_mut().for_each(|part| keep(&mut part.tasks));
        if let Then::Ask(parts) = &mut condition.then {
            parts.iter_mut().for_each(|part| keep(&mut part.tasks));
        }
    }
    plan.parts.iter_mut().for_each(|part| keep(&mut part.tasks));
    sources.iter().filter(|source| !asked.contains(source)).cloned().collect()
}

/// Whether nothing is hidden from a principal, so that every commit may be known to it.
fn is_whole(view: &View, principal: &Principal) -> bool {
    principal.tables == TableSet::All && view.tables().len() == view.searchables().len()
}

/// The newest commit in the tables that may be seen. What was dropped since shows in their names.
fn newest(view: &View) -> Lsn {
    view.tables().iter().map(|table| table.lsn()).max().unwrap_or(Lsn(0))
}

/// What a plan reads, as it is now: while that is the same, so is the answer.
fn read(view: &View, plan: &Plan) -> Vec<(Option<TableId>, Lsn)> {
    let mut read = Vec::new();
    let inner = plan.condition.iter().flat_map(|condition| match &condition.then {
        Then::Ask(parts) => parts.as_slice(),
        _ => &[],
    });
    let conditions = plan.condition.iter().flat_map(|condition| &condition.parts);
    let parts = conditions.chain(inner).chain(&plan.parts);
    for task in parts.flat_map(|part| &part.tasks) {
        let names: &[&str] = match &task.what {
            What::Metrics(_) => &["polynya.metrics"],
            What::Requests(_) => &["polynya.requests"],
            What::Table(table) => &[table.def.name.as_str()],
            What::Notes(_) => {
                // Those it may search, which may be more than it sees.
                for table in view.searchables().iter().filter(|table| catalog::has_text(table.def())) {
                    read.push((Some(table.def().id), table.lsn()));
                }
                continue;
            }
            // Any table.
            What::Changes(_) | What::Values(_) | What::Catalog => {
                read.push((None, newest(view)));
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
