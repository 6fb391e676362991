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
        matches!(
            &self.cause,
            Cause::Store(
                StoreError::PermissionDenied { .. }
                    | StoreError::Unauthenticated { .. }
                    | StoreError::InvalidPath { .. }
                    | StoreError::NotSupported { .. }
                    | StoreError::NotImplemented { .. }
            )
        )
    }
}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Error {
        let Failed { what, named, cause, vended } = failed;
        let chain = |error: &StoreError| {
            let text = chain(error);
            vended.as_ref().map_or(text.clone(), |vended| vended.hide(text))
        };
        let (kind, text) = match &cause {
            Cause::Credentials(error) => {
                return Error::new(error.kind(), format!("{what} {named} failed: {error}"));
            }
            Cause::Late(after) => {
                (io::ErrorKind::TimedOut, format!("no answer within {} s", after.as_secs_f32()))
            }
            Cause::Store(StoreError::NotFound { .. }) => {
                (io::ErrorKind::NotFound, "there is none".to_owned())
            }
            Cause::Store(
                error @ (StoreError::PermissionDenied { .. } | StoreError::Unauthenticated { .. }),
            ) => (io::ErrorKind::PermissionDenied, chain(error)),
            Cause::Store(error @ StoreError::AlreadyExists { .. }) => {
                return Error::new(Kind::Exists, format!("{what} {named}: {}", chain(error)));
            }
            Cause::Store(error) => (io::ErrorKind::Other, chain(error)),
        };
        let error = Error::io(format!("{what} {named}"), io::Error::new(kind, text));
        match kind {
            io::ErrorKind::PermissionDenied if vended.is_some() => error.hint(
                "the catalog handed out these credentials: check what it lets this user do with the table's files: read, write, list and delete",
            ),
            io::ErrorKind::PermissionDenied => {
                error.hint("check the store's key and what it may do: read, write, list and delete")
            }
            _ => error,
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
