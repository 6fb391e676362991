//! Who asks. Every read and write takes a [`Principal`]; `engine` turns it into the set of tables that exist for it.

use crate::{Error, Kind, Result};

/// What a principal may do; each includes the ones before it.
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
            _ => Err(Error::invalid(format!("`{text}` is no scope")).hint("use read, write or admin")),
        }
    }
}

/// Which tables exist for a principal, by full name (`namespace.table`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableSet {
    All,
    /// These and no others. `namespace.*` stands for a whole namespace.
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

/// Who asks, and what that may touch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// Shown in telemetry and logs: the key's name, or `local`.
    pub name: String,
    pub scope: Scope,
    pub tables: TableSet,
}

impl Principal {
    /// The owner of the process: everything is allowed.
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

    /// Fails with [`Kind::Forbidden`] unless this principal is an admin of everything: what concerns the whole process is not
    /// for one that is limited to some tables.
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

    /// Whether the table of this full name exists as far as this principal can tell (A1).
    pub fn may_see(&self, full_name: &str) -> bool {
        self.tables.contains(full_name)
    }
}
