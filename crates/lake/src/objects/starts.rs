//! Which process may change a warehouse: the one that started last (decision 26).
//!
//! A data directory that was copied has the id of the one that it was copied from, so the mark of the place cannot tell them
//! apart. Therefore each start leaves an object of the next number with a token of its own, on the condition that none of its
//! name is there, and removes the older ones. A process whose object is gone is not the last one any more and changes nothing
//! ([`Objects::look`]). The data directory remembers its tokens: one that does not know the last start's is a copy, or an older
//! state of the directory, and does not start there. A start of another database is no obstacle: whose the place is the mark
//! says.

use std::path::{Path, PathBuf};

use types::{Error, Kind, Result};
use vfs::{Env, Mutex, Rank};

use super::Objects;
use super::call::is_missing;
use crate::files;

/// Where the objects are, below the place.
pub(super) const STARTS: &str = "polynya-starts";
/// In a data directory: a line for each of its starts that may be the last one of a warehouse.
const MEMORY: &str = "warehouse-starts";

/// This process's start.
#[derive(Debug)]
pub(super) struct Start {
    /// The data directory; without one any start of the same database may be followed.
    dir: Option<PathBuf>,
    claim: Mutex<Claim>,
}

#[derive(Debug, Default)]
struct Claim {
    /// Chosen once, so that an answer that was lost does no harm.
    token: Option<String>,
    /// The object, once it is known to be there.
    name: Option<String>,
}

impl Default for Start {
    fn default() -> Start {
        Start::of(None)
    }
}

impl Start {
    pub fn of(dir: Option<&Path>) -> Start {
        let claim = Mutex::new(Rank::new(78, "warehouse start"), Claim::default());
        Start { dir: dir.map(Path::to_owned), claim }
    }
}

/// A start that the data directory knows of.
struct Known {
    number: u64,
    token: String,
    uri: String,
}

impl Known {
    fn parse(line: &str) -> Option<Known> {
        let (number, rest) = line.split_once(' ')?;
        let (token, uri) = rest.split_once(' ')?;
        Some(Known { number: number.parse().ok()?, token: token.to_owned(), uri: uri.to_owned() })
    }

    fn line(&self) -> String {
        format!("{} {} {}\n", self.number, self.token, self.uri)
    }
}

fn name_of(number: u64) -> String {
    format!("{STARTS}/{number:012}")
}

impl Objects {
    /// Remembers in the data directory which start of this warehouse was its own.
    #[must_use]
    pub fn remembered_in(self, dir: &Path) -> Objects {
        Objects { start: Start::of(Some(dir)).into(), ..self }
    }

    /// Makes this process the last one that started here. [`Kind::InUse`] if one did that this data directory does not know.
    pub(super) fn claim_start(&self, env: &Env) -> Result<()> {
        let mut claim = self.start.claim.lock();
        let token = claim.token.get_or_insert_with(|| crate::create::uuid(env)).clone();
        let object = self.start_object(&token);
        let mut known = match &self.start.dir {
            Some(dir) => remembered(env, dir)?,
            None => Vec::new(),
        };
        let found = self.list(STARTS)?;
        let numbers = || found.iter().filter_map(|object| object.name.parse::<u64>().ok());
        let last = numbers().max();
        let is_known = |token: &str| known.iter().any(|k| k.uri == self.uri && k.token == token);
        let mut number = None;
        if let Some(last) = last {
            let of_last = self.get(&name_of(last))?;
            let of_last = String::from_utf8_lossy(&of_last);
            let (of_last, database) = of_last.split_once(' ').unwrap_or((&of_last, ""));
            let is_ours = database.is_empty() || database == &*self.owner;
            if of_last == token {
                number = Some(last);
            } else if self.start.dir.is_some() && is_ours && !is_known(of_last) {
                return Err(self.has_passed().hint(format!(
                    "this data directory is a copy, or an older state, of the one that did; if that is gone for good, remove the objects below `{STARTS}/` there"
                )));
            }
        }
        let number = match number {
            Some(number) => number,
            None => {
                let of_here = known.iter().filter(|k| k.uri == self.uri).map(|k| k.number);
                let number = of_here.chain(last).max().unwrap_or(0) + 1;
                // Before anybody can find it: whoever starts here next must know it.
                if let Some(dir) = &self.start.dir {
                    known.retain(|k| k.uri != self.uri || last.is_none_or(|last| k.number >= last));
                    known.push(Known { number, token: token.clone(), uri: self.uri.clone() });
                    remember(env, dir, &known)?;
                }
                self.put_if_absent(&name_of(number), object.into()).map_err(|error| match error.kind() {
                    Kind::Exists => self.has_passed().hint(TWO),
                    _ => error,
                })?;
                number
            }
        };
        // A put may take its time. Who started twice meanwhile has had this number, and has removed it.
        let found = self.list(STARTS)?;
        let numbers = || found.iter().filter_map(|object| object.name.parse::<u64>().ok());
        if numbers().any(|later| later > number) {
            self.remove(&name_of(number))?;
            return Err(self.has_passed().hint(TWO));
        }
        for older in numbers().filter(|older| *older < number) {
            self.remove(&name_of(older))?;
        }
        claim.name = Some(name_of(number));
        Ok(())
    }

    /// Before anything is changed that another process may have changed: whether none started here since. [`Kind::InUse`] if one
    /// did. Whatever was listed before this is none of its files.
    pub fn look(&self) -> Result<()> {
        let (name, token) = {
            let claim = self.start.claim.lock();
            (claim.name.clone(), claim.token.clone())
        };
        let Some((name, token)) = name.zip(token) else { return Ok(()) };
        match self.get(&name) {
            Ok(found) if found == self.start_object(&token).as_bytes() => Ok(()),
            Err(error) if !is_missing(&error) => Err(error),
            // Numbers may come again where somebody removed the objects.
            _ => Err(self.has_passed().hint(TWO)),
        }
    }

    /// What the object of a start has in it: its token, and which database's it is.
    fn start_object(&self, token: &str) -> String {
        format!("{token} {}", self.owner)
    }

    fn has_passed(&self) -> Error {
        Error::new(
            Kind::InUse,
            format!("another server with this database's id has started on the warehouse {} since", self.uri),
        )
    }
}

const TWO: &str = "a data directory was copied: stop one of the two; a copy needs another warehouse, and another id: remove `database-id` in it";

fn remembered(env: &Env, dir: &Path) -> Result<Vec<Known>> {
    let path = dir.join(MEMORY);
    if !files::exists(env, &path)? {
        return Ok(Vec::new());
    }
    let bytes = files::read(env, &path)?;
    Ok(String::from_utf8_lossy(&bytes).lines().filter_map(Known::parse).collect())
}

fn remember(env: &Env, dir: &Path, known: &[Known]) -> Result<()> {
    let text: String = known.iter().map(Known::line).collect();
    files::replace(env, &dir.join(MEMORY), text.as_bytes())?;
    files::sync_dir(env, dir)
}
