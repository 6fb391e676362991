//! Names of namespaces, tables and views, and the rules of who may see them.

use std::fmt;

use serde::Deserialize;
use types::{Principal, TableSet, name};

use super::problem::{Problem, Result};

/// Separates the parts of a namespace in a path.
const SEPARATOR: char = '\u{1f}';
/// Maximum number of parts of a namespace.
const DEPTH_MAX: usize = 16;
const PART_CHARS_MAX: usize = 128;
const PART_BYTES_MAX: usize = 200;

/// The identifier of a table or view.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub struct Ident {
    pub namespace: Vec<String>,
    pub name: String,
}

impl fmt::Display for Ident {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", display_namespace(&self.namespace), name::printable(&self.name))
    }
}

/// Returns a namespace as messages show it.
pub fn display_namespace(namespace: &[String]) -> String {
    name::printable(&namespace.join("."))
}

/// Parses the namespace in a segment of a path, which is already percent-decoded.
pub fn namespace(part: &str) -> Vec<String> {
    part.split(SEPARATOR).map(str::to_owned).collect()
}

impl Ident {
    pub fn new(namespace: Vec<String>, name: impl Into<String>) -> Ident {
        Ident { namespace, name: name.into() }
    }

    /// Returns the name that keys and Polynya use. Parts contain no dots, so each full name belongs to one identifier.
    pub fn full_name(&self) -> String {
        format!("{}.{}", self.namespace.join("."), self.name)
    }

    /// Returns true if a table of Polynya could have this name.
    pub fn is_flat(&self) -> bool {
        self.namespace.len() == 1
    }

    pub fn is_visible(&self, principal: &Principal) -> bool {
        principal.may_see(&self.full_name())
    }

    /// Refuses an identifier that is not allowed for a new table, or that this principal may not make.
    pub fn check_new(&self, principal: &Principal) -> Result<()> {
        check_new_namespace(&self.namespace)?;
        check_part(&self.name)?;
        if self.is_visible(principal) {
            Ok(())
        } else {
            Err(Problem::forbidden(format!("the key `{}` may not make {self}", principal.name)))
        }
    }
}

/// Refuses a name that is not allowed for the namespaces of other engines.
pub fn check_new_namespace(namespace: &[String]) -> Result<()> {
    if namespace.is_empty() || namespace.len() > DEPTH_MAX {
        return Err(Problem::bad(format!("a namespace has 1 to {DEPTH_MAX} parts")));
    }
    namespace.iter().try_for_each(|part| check_part(part))?;
    if name::is_reserved(&format!("{}.", namespace[0])) {
        Err(Problem::forbidden(format!(
            "the namespace `{}` holds Polynya's own tables; choose another",
            name::RESERVED_NAMESPACE
        )))
    } else {
        Ok(())
    }
}

fn check_part(part: &str) -> Result<()> {
    let is_bad = |c: char| c.is_control() || c == '.';
    let fits = !part.is_empty()
        && part.chars().count() <= PART_CHARS_MAX
        && part.len() <= PART_BYTES_MAX
        && !part.chars().any(is_bad)
        && part.trim() == part;
    if fits {
        Ok(())
    } else {
        Err(Problem::bad(format!(
            "`{}` is not a valid name: a name has 1 to {PART_CHARS_MAX} characters, none of them a dot or a control character",
            name::printable(part)
        )))
    }
}

/// Returns true if a namespace exists for a principal: if its key allows a table in it or below it.
pub fn may_see_namespace(principal: &Principal, namespace: &[String]) -> bool {
    let TableSet::Only(tables) = &principal.tables else { return true };
    let wanted = namespace.join(".");
    let begins = |text: &str, with: &str| text.strip_prefix(with).is_some_and(|rest| rest.starts_with('.'));
    tables.iter().any(|table| {
        // `a.*` allows all of `a` and everything below it.
        let whole = table.strip_suffix(".*").is_some_and(|whole| whole == wanted || begins(&wanted, whole));
        whole || begins(table, &wanted)
    })
}
