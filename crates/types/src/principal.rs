//! The caller of a request. Every read and write takes a [`Principal`]; `engine` turns it into the set of tables that
//! the caller can see.

use crate::{Error, Kind, Result};

/// The rights of a principal; each scope includes the ones before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    Read,
    Write,
    Admin,
}

impl Scope {
    pub fn name(self) -> &'static str {
        match self {
            Scope::Read => "read",
            Scope::Write => "write",
            Scope::Admin => "admin",
        }
    }

    pub fn parse(text: &str) -> Result<Self> {
        match text {
            "read" => Ok(Scope::Read),
            "write" => Ok(Scope::Write),
            "admin" => Ok(Scope::Admin),
            _ => Err(Error::invalid(format!("`{text}` is not a scope")).hint("use read, write or admin")),
        }
    }
}

/// The tables that a principal can see, by full name (`namespace.table`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableSet {
    All,
    /// The listed tables and no others. `namespace.*` stands for a whole namespace.
    Only(Vec<String>),
}

impl TableSet {
    pub fn contains(&self, full_name: &str) -> bool {
        match self {
            TableSet::All => true,
            TableSet::Only(names) => names.iter().any(|name| match name.strip_suffix(".*") {
                Some(namespace) => {
                    full_name.strip_prefix(namespace).is_some_and(|rest| rest.starts_with('.'))
                }
                None => name == full_name,
            }),
        }
    }
}

/// The caller of a request, with its rights and tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// The name shown in telemetry and logs: the key's name, or `local`.
    pub name: String,
    pub scope: Scope,
    pub tables: TableSet,
}

impl Principal {
    /// The owner of the process, with all rights.
    pub fn local() -> Self {
        Principal { name: "local".into(), scope: Scope::Admin, tables: TableSet::All }
    }

    /// Fails with [`Kind::Forbidden`] unless this principal has at least `scope`.
    pub fn require(&self, scope: Scope) -> Result<()> {
        if self.scope >= scope {
            return Ok(());
        }
        Err(Error::new(
            Kind::Forbidden,
            format!("this needs {} rights; key `{}` has {}", scope.name(), self.name, self.scope.name()),
        )
        .hint(format!("make a key with `polynya key create NAME --scope {}`", scope.name())))
    }

    /// Fails with [`Kind::Forbidden`] unless this principal is an admin of all tables. Matters of the whole process
    /// need this.
    pub fn require_unlimited(&self) -> Result<()> {
        self.require(Scope::Admin)?;
        match self.tables {
            TableSet::All => Ok(()),
            TableSet::Only(_) => Err(Error::new(
                Kind::Forbidden,
                format!("this needs a key for all tables; key `{}` is limited to some", self.name),
            )
            .hint("make a key with `polynya key create NAME --scope admin`, without --tables")),
        }
    }

    /// Returns true if the table of this full name is visible to this principal (A1).
    pub fn may_see(&self, full_name: &str) -> bool {
        self.tables.contains(full_name)
    }
}
