//! Calls of a store: each ends in time, and tells what went wrong.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use object_store::Error as StoreError;
use types::{Error, Kind};

use super::Objects;
use super::vended::Vended;

impl Objects {
    /// [`Objects::call`] of a thread that may belong to a runtime of its own: readers'.
    pub(super) fn call_from_anywhere<T, F>(
        &self,
        what: &'static str,
        name: &str,
        work: impl Fn() -> F,
    ) -> Outcome<T>
    where
        T: Send + 'static,
        F: Future<Output = object_store::Result<T>> + Send + 'static,
    {
        self.again(|| {
            let (sender, receiver) = std::sync::mpsc::sync_channel(1);
            let limited = limited(self.vended().cloned(), self.call_max, work());
            let limited = async move {
                // Nobody listens any more where the program ends.
                let _ = sender.send(limited.await);
            };
            match &self.network.0 {
                Some(runtime) => drop(runtime.spawn(limited)),
                None => drop(limited),
            }
            let outcome = receiver.recv().unwrap_or(Err(Cause::Late(self.call_max)));
            outcome.map_err(|cause| self.failed(what, name, cause))
        })
    }

    pub(super) fn call<T, F>(&self, what: &'static str, name: &str, work: impl Fn() -> F) -> Outcome<T>
    where
        F: Future<Output = object_store::Result<T>>,
    {
        self.again(|| self.call_once(what, name, work()))
    }

    pub(super) fn call_once<T>(
        &self,
        what: &'static str,
        name: &str,
        work: impl Future<Output = object_store::Result<T>>,
    ) -> Outcome<T> {
        let limited = limited(self.vended().cloned(), self.call_max, work);
        let outcome = self.network.0.as_ref().map(|runtime| runtime.block_on(limited));
        outcome.unwrap_or(Err(Cause::Late(self.call_max))).map_err(|cause| self.failed(what, name, cause))
    }

    /// Makes a call, and once more where credentials were refused and others are to be had.
    fn again<T>(&self, call: impl Fn() -> Outcome<T>) -> Outcome<T> {
        let Some(vended) = self.vended() else { return call() };
        let number = vended.number();
        match call() {
            Err(failed) if failed.is_of_credentials() && vended.is_refused(number) => call(),
            outcome => outcome,
        }
    }

    fn failed(&self, what: &'static str, name: &str, cause: Cause) -> Failed {
        Failed { what, named: self.named(name), cause, vended: self.vended().cloned() }
    }
}

pub(super) type Outcome<T> = std::result::Result<T, Failed>;

/// A call that ends in time, with credentials that are had before it begins.
async fn limited<T>(
    vended: Option<Arc<Vended>>,
    call_max: Duration,
    work: impl Future<Output = object_store::Result<T>>,
) -> std::result::Result<T, Cause> {
    if let Some(vended) = vended {
        vended.get().await.map_err(Cause::Credentials)?;
    }
    match tokio::time::timeout(call_max, work).await {
        Ok(outcome) => outcome.map_err(Cause::Store),
        Err(_) => Err(Cause::Late(call_max)),
    }
}

/// A call that did not do what it should.
pub(super) struct Failed {
    what: &'static str,
    named: String,
    cause: Cause,
    vended: Option<Arc<Vended>>,
}

pub(super) enum Cause {
    Store(StoreError),
    Late(Duration),
    /// There are none.
    Credentials(Error),
}

impl Failed {
    pub fn is_missing(&self) -> bool {
        matches!(&self.cause, Cause::Store(StoreError::NotFound { .. }))
    }

    /// Whether others' credentials could help. What has ended is answered with 400 by Amazon.
    fn is_of_credentials(&self) -> bool {
        match &self.cause {
            Cause::Store(StoreError::PermissionDenied { .. } | StoreError::Unauthenticated { .. }) => true,
            Cause::Store(error @ StoreError::Generic { .. }) => {
                let said = chain(error);
                ["<Code>ExpiredToken<", "<Code>InvalidToken<"].iter().any(|code| said.contains(code))
            }
            _ => false,
        }
    }

    /// Whether the same call would fail again.
    pub fn is_final(&self) -> bool {
        let is_refused =
            self.status().is_some_and(|(status, said)| refusal(self.what, status, &said).is_some());
        is_refused || matches!(&self.cause, Cause::Store(StoreError::InvalidPath { .. }))
    }

    /// The status of an answer that may be one for good, and all that was said.
    fn status(&self) -> Option<(u16, String)> {
        let Cause::Store(error) = &self.cause else { return None };
        let said = chain(error);
        let status = match error {
            StoreError::Unauthenticated { .. } => 401,
            StoreError::PermissionDenied { .. } => 403,
            StoreError::NotFound { .. } => 404,
            StoreError::NotSupported { .. } | StoreError::NotImplemented { .. } => 501,
            // The client keeps its type to itself; this is how it reads.
            StoreError::Generic { .. } => {
                let (_, rest) = said.split_once("non-2xx status code: ")?;
                let status = rest.get(..3)?.parse().ok()?;
                // Of listings all are told so. Others may also be of what hands out the credentials.
                let is_of_store = matches!(status, 400 | 501) || said.contains("performing list request");
                Some(status).filter(|_| is_of_store)?
            }
            _ => return None,
        };
        Some((status, said))
    }
}

/// Whether a store answered, and would answer the same until somebody changes it, the settings or the key.
pub fn is_refused(error: &Error) -> bool {
    use io::ErrorKind::{InvalidInput, PermissionDenied, Unsupported};
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<io::Error>());
    source.is_some_and(|source| matches!(source.kind(), InvalidInput | PermissionDenied | Unsupported))
}

/// Whether it was refused because credentials have ended, of which others may be had meanwhile.
pub fn is_ended(error: &Error) -> bool {
    is_refused(error) && says_ended(error.message())
}

fn says_ended(said: &str) -> bool {
    ["ExpiredToken", "InvalidToken", "TokenRefreshRequired"]
        .iter()
        .any(|code| said.contains(&format!("<Code>{code}<")))
}

/// What an answer means that will be the same the next time, and what to do; `None` if it may be another one.
fn refusal(what: &str, status: u16, said: &str) -> Option<(io::ErrorKind, &'static str, &'static str)> {
    use io::ErrorKind::{InvalidInput, PermissionDenied, Unsupported};
    let is_write = what == "writing";
    Some(match status {
        // The first is told as 403, and ends when the clock is right; the second is a connection that was too slow.
        _ if is_of_clock(said) || said.contains("<Code>RequestTimeout<") => return None,
        400 | 401 | 403 if says_ended(said) => {
            (PermissionDenied, "the credentials have ended", "give it others that are still good")
        }
        401 | 403 => (
            PermissionDenied,
            "the key is wrong, or may not do this",
            "check the store's key and what it may do: read, write, list and delete",
        ),
        404 if is_write || what == "listing" => (
            InvalidInput,
            "there is no such bucket",
            "make the bucket, or correct its name, the store's endpoint or its region",
        ),
        400 => (
            InvalidInput,
            "the store does not take the request",
            "check its endpoint and region; it has to know conditional writes (If-None-Match)",
        ),
        501 => (
            Unsupported,
            "the store cannot do this",
            "use one with conditional writes (If-None-Match), or a folder of this machine",
        ),
        _ => return None,
    })
}

fn is_of_clock(said: &str) -> bool {
    said.contains("<Code>RequestTimeTooSkewed<")
}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Error {
        let status = failed.status();
        let Failed { what, named, cause, vended } = failed;
        let chain = |error: &StoreError| {
            let text = chain(error);
            vended.as_ref().map_or(text.clone(), |vended| vended.hide(text))
        };
        let of = |kind, text| Error::io(format!("{what} {named}"), io::Error::new(kind, text));
        let error = match cause {
            Cause::Credentials(error) => {
                return Error::new(error.kind(), format!("{what} {named} failed: {error}"));
            }
            Cause::Late(after) => {
                let text = format!("no answer within {} s", after.as_secs_f32());
                return of(io::ErrorKind::TimedOut, text);
            }
            Cause::Store(error) => error,
        };
        if let Some((status, said)) = status {
            if is_of_clock(&said) {
                return of(io::ErrorKind::Other, chain(&error))
                    .hint("set this machine's clock: it differs too much from the store's");
            }
            if let Some((kind, means, hint)) = refusal(what, status, &said) {
                let hint = match kind {
                    io::ErrorKind::PermissionDenied if vended.is_some() => {
                        "the catalog handed out these credentials: check what it lets this user do with the table's files: read, write, list and delete"
                    }
                    _ => hint,
                };
                return of(kind, format!("{means}: {}", chain(&error))).hint(hint);
            }
        }
        match &error {
            StoreError::NotFound { .. } => of(io::ErrorKind::NotFound, "there is none".to_owned()),
            StoreError::AlreadyExists { .. } => {
                Error::new(Kind::Exists, format!("{what} {named}: {}", chain(&error)))
            }
            error => of(io::ErrorKind::Other, chain(error)),
        }
    }
}

/// An error with what caused it, once each.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let said = cause.to_string();
        if !text.contains(&said) {
            text += &format!(": {said}");
        }
        source = cause.source();
    }
    text
}

/// Whether an error is of an object that is not there.
pub(super) fn is_missing(error: &Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<io::Error>());
    source.is_some_and(|error| error.kind() == io::ErrorKind::NotFound)
}

#[cfg(test)]
mod tests;
