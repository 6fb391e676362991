//! The error type of the core: a kind that tells the caller how to react, a message for a person, context, a source.
//!
//! All crates below the network share it. They fail in the same few ways, and a conversion between equal types at each
//! crate's border would add nothing. Only `server` maps a kind to a status.

use std::{error, fmt, io};

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The class of an error, by the reaction it asks of the caller. A new kind is added only for a new reaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The request itself is wrong: change it.
    Invalid,
    /// The data does not fit the table's schema: change the data or the schema.
    Schema,
    /// The named object does not exist.
    NotFound,
    /// The object to be created exists already.
    Exists,
    /// Another transaction was faster, or a condition of the request does not hold: read again, then retry.
    Conflict,
    /// The principal may not do this.
    Forbidden,
    /// A limit of the request was exceeded: ask for less.
    TooLarge,
    /// Too much at once: retry later.
    Busy,
    /// An index that the answer needs is still being built. Without it the answer would be late or incomplete: ask
    /// again.
    IndexBuilding,
    /// The request's deadline passed, or its client left.
    Timeout,
    /// The disk is full. Writes resume by themselves when there is room again.
    DiskFull,
    /// The log is latched after a failed write or fsync: reads go on, writes need a reopen.
    Latched,
    /// The database is closing or closed.
    Closed,
    /// Another process has the directory open.
    InUse,
    /// Bytes on disk differ from those that were written: restore that file from a backup.
    Damaged,
    /// The data was written by a newer version of Polynya: use that version.
    Newer,
    /// The machine failed to read or write.
    Io,
    /// A bug of Polynya.
    Internal,
}

impl Kind {
    /// The stable name, which is also the `code` of an HTTP answer that has no more precise one.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Invalid => "invalid",
            Kind::Schema => "schema",
            Kind::NotFound => "not_found",
            Kind::Exists => "exists",
            Kind::Conflict => "conflict",
            Kind::Forbidden => "forbidden",
            Kind::TooLarge => "too_large",
            Kind::Busy => "busy",
            Kind::IndexBuilding => "index_building",
            Kind::Timeout => "timeout",
            Kind::DiskFull => "disk_full",
            Kind::Latched => "latched",
            Kind::Closed => "closed",
            Kind::InUse => "in_use",
            Kind::Damaged => "damaged",
            Kind::Newer => "newer",
            Kind::Io => "io",
            Kind::Internal => "internal",
        }
    }
}

/// A row that cannot be inserted: its position in the request, counted from 0, the column at fault if there is one,
/// and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RejectedRow {
    pub row: usize,
    pub column: Option<String>,
    pub message: String,
}

/// An error: what was expected, what was found, what to do next.
#[derive(Clone, Debug)]
pub struct Error(Box<Inner>);

#[derive(Clone, Debug)]
struct Inner {
    kind: Kind,
    message: String,
    hint: Option<String>,
    context: Vec<(&'static str, String)>,
    source: Option<std::sync::Arc<dyn error::Error + Send + Sync>>,
}

impl Error {
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Error(Box::new(Inner {
            kind,
            message: message.into(),
            hint: None,
            context: Vec::new(),
            source: None,
        }))
    }

    pub fn invalid(message: impl Into<String>) -> Self {
        Error::new(Kind::Invalid, message)
    }

    pub fn not_found(message: impl Into<String>) -> Self {
        Error::new(Kind::NotFound, message)
    }

    pub fn conflict(message: impl Into<String>) -> Self {
        Error::new(Kind::Conflict, message)
    }

    pub fn damaged(message: impl Into<String>) -> Self {
        Error::new(Kind::Damaged, message)
    }

    pub fn internal(message: impl Into<String>) -> Self {
        Error::new(Kind::Internal, message)
    }

    /// Wraps an I/O error. `what` names the activity: "reading the manifest". A full disk or an exceeded quota becomes
    /// [`Kind::DiskFull`].
    pub fn io(what: impl fmt::Display, source: io::Error) -> Self {
        let kind = if matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
            Kind::DiskFull
        } else {
            Kind::Io
        };
        Error::new(kind, format!("{what} failed: {source}")).caused_by(source)
    }

    /// Adds a sentence on what the reader of the message can do next.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// Adds context: `("table", "main.events")`, `("lsn", 17)`. A key that is set already keeps its value, because the
    /// inner caller knew the place more exactly.
    #[must_use]
    pub fn with(mut self, key: &'static str, value: impl fmt::Display) -> Self {
        if self.0.context.iter().all(|(said, _)| *said != key) {
            self.0.context.push((key, value.to_string()));
        }
        self
    }

    #[must_use]
    pub fn caused_by(mut self, source: impl error::Error + Send + Sync + 'static) -> Self {
        self.0.source = Some(std::sync::Arc::new(source));
        self
    }

    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// The message without context and hint.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    pub fn hint_text(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    pub fn context(&self) -> &[(&'static str, String)] {
        &self.0.context
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)?;
        for (i, (key, value)) in self.0.context.iter().enumerate() {
            write!(f, "{}{key} {value}", if i == 0 { " (" } else { ", " })?;
        }
        if !self.0.context.is_empty() {
            f.write_str(")")?;
        }
        if let Some(hint) = &self.0.hint {
            write!(f, "; {hint}")?;
        }
        Ok(())
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}
