//! Makes calls to a store with a time limit, and classifies their errors.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use object_store::Error as StoreError;
use types::{Error, Kind};

use super::Objects;
use super::vended::CredentialCache;

impl Objects {
    /// Makes a call like [`Objects::call`], from a thread that may belong to another tokio runtime (a reader's).
    pub(super) fn call_from_anywhere<T, F>(
        &self,
        what: &'static str,
        name: &str,
        work: impl Fn() -> F,
    ) -> CallResult<T>
    where
        T: Send + 'static,
        F: Future<Output = object_store::Result<T>> + Send + 'static,
    {
        self.with_renewal(|| {
            let (sender, receiver) = std::sync::mpsc::sync_channel(1);
            let limited = with_time_limit(self.vended().cloned(), self.call_max, work());
            let limited = async move {
                // The receiver is gone if the program is ending.
                let _ = sender.send(limited.await);
            };
            match &self.network.0 {
                Some(runtime) => drop(runtime.spawn(limited)),
                None => drop(limited),
            }
            let outcome = receiver.recv().unwrap_or(Err(Cause::TimedOut(self.call_max)));
            outcome.map_err(|cause| self.failed(what, name, cause))
        })
    }

    pub(super) fn call<T, F>(&self, what: &'static str, name: &str, work: impl Fn() -> F) -> CallResult<T>
    where
        F: Future<Output = object_store::Result<T>>,
    {
        self.with_renewal(|| self.call_once(what, name, work()))
    }

    pub(super) fn call_once<T>(
        &self,
        what: &'static str,
        name: &str,
        work: impl Future<Output = object_store::Result<T>>,
    ) -> CallResult<T> {
        let limited = with_time_limit(self.vended().cloned(), self.call_max, work);
        let outcome = self.network.0.as_ref().map(|runtime| runtime.block_on(limited));
        outcome.unwrap_or(Err(Cause::TimedOut(self.call_max))).map_err(|cause| self.failed(what, name, cause))
    }

    /// Makes a call, and repeats it once if its credentials were refused and new ones are available.
    fn with_renewal<T>(&self, call: impl Fn() -> CallResult<T>) -> CallResult<T> {
        let Some(vended) = self.vended() else { return call() };
        let number = vended.number();
        match call() {
            Err(failed) if failed.concerns_credentials() && vended.note_refusal(number) => call(),
            outcome => outcome,
        }
    }

    fn failed(&self, what: &'static str, name: &str, cause: Cause) -> CallError {
        CallError { what, named: self.uri_of(name), cause, vended: self.vended().cloned() }
    }
}

pub(super) type CallResult<T> = std::result::Result<T, CallError>;

/// Runs a call with a time limit. Credentials are obtained before the time begins.
async fn with_time_limit<T>(
    vended: Option<Arc<CredentialCache>>,
    call_max: Duration,
    work: impl Future<Output = object_store::Result<T>>,
) -> std::result::Result<T, Cause> {
    if let Some(vended) = vended {
        vended.get().await.map_err(Cause::Credentials)?;
    }
    match tokio::time::timeout(call_max, work).await {
        Ok(outcome) => outcome.map_err(Cause::Store),
        Err(_) => Err(Cause::TimedOut(call_max)),
    }
}

/// A call that failed.
pub(super) struct CallError {
    what: &'static str,
    named: String,
    cause: Cause,
    vended: Option<Arc<CredentialCache>>,
}

pub(super) enum Cause {
    Store(StoreError),
    TimedOut(Duration),
    /// The error of a request for credentials, which came before the call.
    Credentials(Error),
}

impl CallError {
    pub fn is_missing(&self) -> bool {
        matches!(&self.cause, Cause::Store(StoreError::NotFound { .. }))
    }

    /// Returns true if new credentials could help. Amazon answers 400 to expired ones.
    fn concerns_credentials(&self) -> bool {
        match &self.cause {
            Cause::Store(StoreError::PermissionDenied { .. } | StoreError::Unauthenticated { .. }) => true,
            Cause::Store(error @ StoreError::Generic { .. }) => {
                let said = chain(error);
                ["<Code>ExpiredToken<", "<Code>InvalidToken<"].iter().any(|code| said.contains(code))
            }
            _ => false,
        }
    }

    /// Returns true if the same call would fail again.
    pub fn is_final(&self) -> bool {
        let is_refused =
            self.status().is_some_and(|(status, said)| refusal(self.what, status, &said).is_some());
        is_refused || matches!(&self.cause, Cause::Store(StoreError::InvalidPath { .. }))
    }

    /// Returns the status of a response that may be final, and the full text of the error.
    fn status(&self) -> Option<(u16, String)> {
        let Cause::Store(error) = &self.cause else { return None };
        let said = chain(error);
        let status = match error {
            StoreError::Unauthenticated { .. } => 401,
            StoreError::PermissionDenied { .. } => 403,
            StoreError::NotFound { .. } => 404,
            StoreError::NotSupported { .. } | StoreError::NotImplemented { .. } => 501,
            // The client does not export the type of this error, so that the status is taken from its text.
            StoreError::Generic { .. } => {
                let (_, rest) = said.split_once("non-2xx status code: ")?;
                let status = rest.get(..3)?.parse().ok()?;
                // All failures of listings have this form. Other calls may show a status of the service that hands out
                // credentials; only these two are the store's.
                let is_of_store = matches!(status, 400 | 501) || said.contains("performing list request");
                Some(status).filter(|_| is_of_store)?
            }
            _ => return None,
        };
        Some((status, said))
    }
}

/// Returns true if a store refused a call and will do so again until its configuration, our settings or the key change.
pub fn is_refused(error: &Error) -> bool {
    use io::ErrorKind::{InvalidInput, PermissionDenied, Unsupported};
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<io::Error>());
    source.is_some_and(|source| matches!(source.kind(), InvalidInput | PermissionDenied | Unsupported))
}

/// Returns true if a store refused a call because the credentials have expired. New ones may be available by now.
pub fn is_ended(error: &Error) -> bool {
    is_refused(error) && says_expired(error.message())
}

fn says_expired(said: &str) -> bool {
    ["ExpiredToken", "InvalidToken", "TokenRefreshRequired"]
        .iter()
        .any(|code| said.contains(&format!("<Code>{code}<")))
}

/// Returns the kind of error, its meaning and a hint for a response that will be the same next time; `None` if the next one may
/// differ.
fn refusal(what: &str, status: u16, said: &str) -> Option<(io::ErrorKind, &'static str, &'static str)> {
    use io::ErrorKind::{InvalidInput, PermissionDenied, Unsupported};
    let is_write = what == "writing";
    Some(match status {
        // The first arrives as 403 and ends once the clock is right; the second is due to a slow connection.
        _ if concerns_clock(said) || said.contains("<Code>RequestTimeout<") => return None,
        400 | 401 | 403 if says_expired(said) => {
            (PermissionDenied, "the credentials have expired", "configure credentials that are still valid")
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
            "the store does not accept the request",
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

fn concerns_clock(said: &str) -> bool {
    said.contains("<Code>RequestTimeTooSkewed<")
}

impl From<CallError> for Error {
    fn from(failed: CallError) -> Error {
        let status = failed.status();
        let CallError { what, named, cause, vended } = failed;
        let chain = |error: &StoreError| {
            let text = chain(error);
            vended.as_ref().map_or(text.clone(), |vended| vended.hide(text))
        };
        let of = |kind, text| Error::io(format!("{what} {named}"), io::Error::new(kind, text));
        let error = match cause {
            Cause::Credentials(error) => {
                return Error::new(error.kind(), format!("{what} {named} failed: {error}"));
            }
            Cause::TimedOut(after) => {
                let text = format!("no answer within {} s", after.as_secs_f32());
                return of(io::ErrorKind::TimedOut, text);
            }
            Cause::Store(error) => error,
        };
        if let Some((status, said)) = status {
            if concerns_clock(&said) {
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

/// Returns an error's text with those of its causes, each text once.
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

/// Returns true if the error says that an object does not exist.
pub(super) fn is_missing(error: &Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<io::Error>());
    source.is_some_and(|error| error.kind() == io::ErrorKind::NotFound)
}

#[cfg(test)]
mod tests;
