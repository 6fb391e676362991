//! `chunked=true`: a body of any size is read as it arrives, and committed in pieces of whole rows.
//!
//! Each piece is a commit like that of a request of its own. An error ends the request. The pieces before it stay committed, in
//! order and without a gap, and the error says how many rows they have.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::response::Response;
use engine::Committed;
use query::files::{COMMITS_OF_PIECE_MAX, too_many_commits};
use serde_json::json;
use types::{Error, Kind, Lsn, Principal, RowId};
use wire::StreamOffset;
use wire::pieces::{PIECE_BYTES, Pieces, StreamFormat, StreamPiece};

use super::row_ops::{AcceptedRows, is_changed, is_created};
use super::skip::SkippedRows;
use super::{AckMode, Attempt, Condition, Head, Job, OnBadRow, Submitted};
use crate::app::Shared;
use crate::content;
use crate::failure::{Failure, Result};
use crate::routes::define::any_exists;
use crate::routes::incoming::{self, WaitingClient};
use crate::routes::json;

/// Time that a piece is retried while writers are refused because of too much load.
const BUSY_PATIENCE: Duration = Duration::from_secs(60);
/// Time between two such attempts.
const BUSY_PAUSE: Duration = Duration::from_millis(100);
/// Time that a piece is retried while other requests change the table's columns.
const CHANGE_PATIENCE: Duration = Duration::from_secs(15);

/// Maximum bytes of all smaller pieces that one piece is divided into.
const DIVIDED_BYTES_MAX: usize = 256 << 20;

/// The result of a body so far.
#[derive(Debug, Default)]
struct LoadProgress {
    /// Rows that were read, bad ones included.
    rows: usize,
    count: u64,
    commits: u64,
    first_row: Option<RowId>,
    last_row: Option<RowId>,
    lsn: Option<Lsn>,
    left_out: Option<SkippedRows>,
    repeated: Option<u64>,
}

pub(super) async fn rows(app: Shared, principal: Arc<Principal>, head: Head, body: Body) -> Result<Response> {
    check(&head)?;
    let place = app.copies.place_in().await?;
    app.telemetry.ingest_requests.fetch_add(1, Relaxed);
    let encoding = head.encoding;
    let loaded = LoadProgress {
        left_out: (head.options.on_error == OnBadRow::Skip).then(SkippedRows::default),
        ..LoadProgress::default()
    };
    let (to, head) = (app.clone(), Arc::new(head));
    let read = incoming::read(&app, body, "pn-chunks", move |input| {
        let mut load = ChunkedLoad { app: to, principal, head, client: input.client(), loaded };
        let done =
            content::reader(encoding, input).map_err(Failure::from).and_then(|source| load.run(source));
        drop(place);
        // The committed rows are reported with an error too.
        Ok::<_, Error>((done, load.loaded))
    });
    let (done, broken) = read.await?;
    let (done, loaded) = done?;
    match (done, broken) {
        (Ok(()), _) => Ok(answer(&app, &loaded)),
        // If the body broke off, its reader knows only that no more bytes come, so the reason is reported instead.
        (Err(failure), broken) => Err(broken.unwrap_or(failure).with_committed_rows(loaded.count)),
    }
}

/// Refuses options that are impossible with several commits.
fn check(head: &Head) -> Result<()> {
    let refused = |what: &str, hint: &str| Err(Error::invalid(what).hint(hint).into());
    if head.idempotency.is_some() {
        return refused(
            "a chunked body becomes several commits, but an Idempotency-Key is for one",
            "send pieces of your own, each with its key, or give the table a primary key: an upsert may be repeated",
        );
    }
    if head.ack == AckMode::Memory {
        return refused("`ack=memory` and `chunked=true` exclude each other", "leave one of them out");
    }
    if let Condition::Version(_) = head.options.condition {
        return refused("If-Match applies to one row", "leave `chunked=true` out");
    }
    Ok(())
}

fn answer(app: &Shared, loaded: &LoadProgress) -> Response {
    let mut body = json!({
        "count": loaded.count,
        "commits": loaded.commits,
        "first_row_id": loaded.first_row.map(|row| row.0),
        "last_row_id": loaded.last_row.map(|row| row.0),
        "lsn": loaded.lsn.unwrap_or_else(|| app.engine.root().lsn()).0,
    });
    if let Some(left_out) = &loaded.left_out {
        left_out.add_to(&mut body);
    }
    if let Some(repeated) = loaded.repeated {
        body["repeated"] = json!(repeated);
    }
    json(&body)
}

struct ChunkedLoad {
    app: Shared,
    principal: Arc<Principal>,
    head: Arc<Head>,
    client: WaitingClient,
    loaded: LoadProgress,
}

impl ChunkedLoad {
    fn run(&mut self, source: impl Read) -> Result<()> {
        let mut pieces = Pieces::new(self.head.media.form(), source);
        let mut is_empty = true;
        while let Some(piece) = pieces.next()? {
            is_empty = false;
            self.piece(piece)?;
        }
        if is_empty && !pieces.is_empty_array() {
            Err(Error::invalid("the body is empty").hint("send at least one row").into())
        } else {
            Ok(())
        }
    }

    fn piece(&mut self, piece: StreamPiece) -> Result<()> {
        let (form, client) = (self.head.media.form(), self.client.clone());
        commit_divided(piece, form, &client, |piece| {
            let job = self.job(piece);
            self.commit(&job)
        })
    }

    fn job(&self, piece: &StreamPiece) -> Job {
        Job {
            app: self.app.clone(),
            principal: self.principal.clone(),
            head: self.head.clone(),
            media: self.head.media.of_lines(piece.lines),
            before: StreamOffset { rows: self.loaded.rows, ..piece.before },
            part: piece.part,
            bytes: piece.body.clone(),
        }
    }

    /// Commits a piece once. Waits as long as writers are asked to.
    fn commit(&mut self, job: &Job) -> Result<()> {
        let started = Instant::now();
        let mut last_conflict = None;
        loop {
            thread::sleep(self.app.engine.pace_of(&self.head.full_name));
            let seen = self.app.engine.root().lsn();
            let (accepted, committed) = match job.submit()? {
                Submitted::Nothing(accepted) => (accepted, None),
                Submitted::Before(_) => return Err(Error::internal("a piece has no key of its own").into()),
                Submitted::Waiting(accepted, receiver) => match receiver.blocking_recv() {
                    Ok(Ok(committed)) => (accepted, Some(committed)),
                    // Another request made the table, so this waits until it is visible. If the same error comes again then, it
                    // was not a race.
                    Ok(Err(error)) if is_created(&error) => {
                        let again = last_conflict.as_deref() == Some(error.message());
                        let tables = job.makes(&accepted);
                        while !again && !any_exists(&self.app, &tables) && started.elapsed() < CHANGE_PATIENCE
                        {
                            let seen = self.app.engine.root().lsn();
                            if !any_exists(&self.app, &tables) {
                                self.app.engine.wait_for_commit(seen, Duration::from_secs(1))?;
                            }
                        }
                        if again || !any_exists(&self.app, &tables) {
                            return Err(error.into());
                        }
                        last_conflict = Some(error.message().to_owned());
                        continue;
                    }
                    // The piece is decoded again for the new columns.
                    Ok(Err(error)) if is_changed(&error) && started.elapsed() < CHANGE_PATIENCE => {
                        self.app.engine.wait_for_commit(seen, Duration::from_secs(1))?;
                        continue;
                    }
                    Ok(Err(error)) if error.kind() == Kind::Busy && started.elapsed() < BUSY_PATIENCE => {
                        thread::sleep(BUSY_PAUSE);
                        continue;
                    }
                    Ok(Err(error)) if error.kind() == Kind::Schema => {
                        return Err(job.bad_rows(&error).unwrap_or_else(|| error.into()));
                    }
                    Ok(Err(error)) => return Err(error.into()),
                    Err(_) => return Err(Error::new(Kind::Closed, "the database is closing").into()),
                },
            };
            self.app.telemetry.rows_in.fetch_add(accepted.rows as u64, Relaxed);
            self.loaded.add(accepted, committed);
            return Ok(());
        }
    }
}

/// Commits a piece, divided into smaller ones if its rows exceed the bounds of a commit: a row of few bytes may have many columns
/// in its table. A refused commit leaves nothing behind. Fails once the client is gone.
fn commit_divided(
    piece: StreamPiece,
    form: StreamFormat,
    client: &WaitingClient,
    mut commit: impl FnMut(&StreamPiece) -> Result<()>,
) -> Result<()> {
    let (mut pieces, mut commits, mut is_divided) = (vec![piece], 0, false);
    while let Some(piece) = pieces.pop() {
        if is_divided {
            client.check()?;
        }
        if commits == COMMITS_OF_PIECE_MAX {
            return Err(too_many_commits(PIECE_BYTES).into());
        }
        let Err(failure) = commit(&piece) else {
            commits += 1;
            continue;
        };
        if !failure.is_too_large() {
            return Err(failure);
        }
        is_divided = true;
        let smaller = piece.divided(form)?;
        // Each smaller piece has its own copy of the column names or dictionary.
        let held: usize = pieces.iter().chain(&smaller).map(own_bytes).sum();
        if smaller.len() < 2 || held > DIVIDED_BYTES_MAX {
            return Err(failure);
        }
        pieces.extend(smaller.into_iter().rev());
    }
    Ok(())
}

/// Returns the bytes that a piece does not share with others.
fn own_bytes(piece: &StreamPiece) -> usize {
    if piece.part.is_some() { 0 } else { piece.body.len() }
}

impl LoadProgress {
    fn add(&mut self, accepted: AcceptedRows, committed: Option<Committed>) {
        let skipped = accepted.left_out.as_ref().map_or(0, |left_out| left_out.count);
        self.rows += accepted.rows + skipped;
        if let (Some(all), Some(left_out)) = (&mut self.left_out, &accepted.left_out) {
            all.add(left_out.clone());
        }
        let Some(committed) = committed else { return };
        let count = committed.count.saturating_sub(skipped as u64);
        if let Some(repeated) = accepted.repeated(count) {
            *self.repeated.get_or_insert(0) += repeated;
        }
        self.commits += 1;
        self.count += count;
        self.lsn = Some(committed.lsn);
        if count > 0 {
            self.first_row = self.first_row.or(committed.first_row);
            self.last_row = committed.last_row;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A few bytes of a row may become any number of bytes in its table.
    #[test]
    fn a_piece_becomes_so_many_commits_and_ends_with_who_asked() {
        const LINES: StreamFormat = StreamFormat::Json { lines: true };
        let body = "{}\n".repeat(100);
        let piece = || Pieces::new(LINES, body.as_bytes()).next().unwrap().unwrap();
        let mut here = Some(Arc::new(()));
        let client = WaitingClient::of(here.as_ref().unwrap());
        // Each commit accepts `lines` lines, and the client leaves after `leaves_after` commits.
        let mut write = |lines: usize, leaves_after: usize| {
            let mut commits = Vec::new();
            let done = commit_divided(piece(), LINES, &client, |piece| {
                let rows = piece.body.len() / 3;
                if rows > lines {
                    return Err(Error::new(Kind::TooLarge, "too many rows").into());
                }
                commits.push(rows);
                if commits.len() == leaves_after {
                    here = None;
                }
                Ok(())
            });
            (commits, done.map_err(|failure| failure.message().to_owned()))
        };
        assert_eq!(write(100, 0), (vec![100], Ok(())));
        let (commits, done) = write(2, 0);
        assert_eq!((commits.iter().sum::<usize>(), done), (100, Ok(())));
        let (commits, done) = write(1, 0);
        assert_eq!(commits, [1; COMMITS_OF_PIECE_MAX]);
        let said = "16 MiB of rows or less become more than 64 commits in this table";
        assert_eq!(done, Err(said.to_owned()));
        let (commits, done) = write(2, 3);
        assert_eq!((commits.len(), done), (3, Err("the client that sent the body is gone".to_owned())));
    }
}
