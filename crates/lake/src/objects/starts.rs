//! Lets only the process that started last change a warehouse (decision 26).
//!
//! A copied data directory has the database id of the original, so that the mark of the place cannot tell the two apart.
//! Therefore each start puts an object with the next number and a token of its own, on the condition that no object has that
//! name, and removes the older ones. A process whose object is gone is not the last one any more and changes nothing
//! ([`Objects::look`]). The data directory records its tokens. If it does not contain the token of the last start, it is a copy
//! or an older state of the directory, and the process does not start. The start of another database is ignored here: the mark
//! tells which database owns the place.

use std::path::{Path, PathBuf};

use types::{Error, Kind, Result};
use vfs::{Env, Mutex, Rank};

use super::Objects;
use super::call::is_missing;
use crate::files;

/// The directory of the objects, relative to the place.
pub(super) const STARTS: &str = "polynya-starts";
/// The file in a data directory with a line for each of its starts that may be the last one of a warehouse.
const KNOWN_STARTS: &str = "warehouse-starts";

/// This process's start.
#[derive(Debug)]
pub(super) struct Start {
    /// The data directory. Without one, the start of any process of the same database is accepted as a predecessor.
    dir: Option<PathBuf>,
    claim: Mutex<Claim>,
}

#[derive(Debug, Default)]
struct Claim {
    /// The token, chosen once, so that a lost response does no harm.
    token: Option<String>,
    /// The name of the start's object, once it is known to exist.
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

/// A start that is recorded in the data directory.
struct KnownStart {
    number: u64,
    token: String,
    uri: String,
}

impl KnownStart {
    fn parse(line: &str) -> Option<KnownStart> {
        let (number, rest) = line.split_once(' ')?;
        let (token, uri) = rest.split_once(' ')?;
        Some(KnownStart { number: number.parse().ok()?, token: token.to_owned(), uri: uri.to_owned() })
    }

    fn line(&self) -> String {
        format!("{} {} {}\n", self.number, self.token, self.uri)
    }
}

fn name_of(number: u64) -> String {
    format!("{STARTS}/{number:012}")
}

impl Objects {
    /// Records in the data directory which starts on this warehouse were its own.
    #[must_use]
    pub fn remembered_in(self, dir: &Path) -> Objects {
        Objects { start: Start::of(Some(dir)).into(), ..self }
    }

    /// Makes this process the last one that started here. Fails with [`Kind::InUse`] if the last start is not recorded in this
    /// data directory.
    pub(super) fn claim_start(&self, env: &Env) -> Result<()> {
        let mut claim = self.start.claim.lock();
        let token = claim.token.get_or_insert_with(|| crate::create::uuid(env)).clone();
        let object = self.start_object(&token);
        let mut known = match &self.start.dir {
            Some(dir) => read_known(env, dir)?,
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
                return Err(self.superseded().hint(format!(
                    "this data directory is a copy, or an older state, of the one that did; if that is gone for good, remove the objects below `{STARTS}/` there"
                )));
            }
        }
        let number = match number {
            Some(number) => number,
            None => {
                let of_here = known.iter().filter(|k| k.uri == self.uri).map(|k| k.number);
                let number = of_here.chain(last).max().unwrap_or(0) + 1;
                // The record comes before the object becomes visible, since the next start from this directory must know the
                // token.
                if let Some(dir) = &self.start.dir {
                    known.retain(|k| k.uri != self.uri || last.is_none_or(|last| k.number >= last));
                    known.push(KnownStart { number, token: token.clone(), uri: self.uri.clone() });
                    write_known(env, dir, &known)?;
                }
                self.put_if_absent(&name_of(number), object.into()).map_err(|error| match error.kind() {
                    Kind::Exists => self.superseded().hint(COPY_HINT),
                    _ => error,
                })?;
                number
            }
        };
        // The put may have been slow. A process that started twice meanwhile has used and removed this number.
        let found = self.list(STARTS)?;
        let numbers = || found.iter().filter_map(|object| object.name.parse::<u64>().ok());
        if numbers().any(|later| later > number) {
            self.remove(&name_of(number))?;
            return Err(self.superseded().hint(COPY_HINT));
        }
        for older in numbers().filter(|older| *older < number) {
            self.remove(&name_of(older))?;
        }
        claim.name = Some(name_of(number));
        Ok(())
    }

    /// Checks that no other process has started here since; fails with [`Kind::InUse`] otherwise. To be called before a change
    /// of anything that another process may have changed. If it succeeds, files listed before it are not those of another
    /// process.
    pub fn check_last_start(&self) -> Result<()> {
        let (name, token) = {
            let claim = self.start.claim.lock();
            (claim.name.clone(), claim.token.clone())
        };
        let Some((name, token)) = name.zip(token) else { return Ok(()) };
        match self.get(&name) {
            Ok(found) if found == self.start_object(&token).as_bytes() => Ok(()),
            Err(error) if !is_missing(&error) => Err(error),
            // Numbers can repeat if somebody removed the objects.
            _ => Err(self.superseded().hint(COPY_HINT)),
        }
    }

    /// Returns the contents of a start's object: its token and the id of its database.
    fn start_object(&self, token: &str) -> String {
        format!("{token} {}", self.owner)
    }

    fn superseded(&self) -> Error {
        Error::new(
            Kind::InUse,
            format!("another server with this database's id has started on the warehouse {} since", self.uri),
        )
    }
}

const COPY_HINT: &str = "a data directory was copied: stop one of the two; a copy needs another warehouse, and another id: remove `database-id` in it";

fn read_known(env: &Env, dir: &Path) -> Result<Vec<KnownStart>> {
    let path = dir.join(KNOWN_STARTS);
    if !files::exists(env, &path)? {
        return Ok(Vec::new());
    }
    let bytes = files::read(env, &path)?;
    Ok(String::from_utf8_lossy(&bytes).lines().filter_map(KnownStart::parse).collect())
}

fn write_known(env: &Env, dir: &Path, known: &[KnownStart]) -> Result<()> {
    let text: String = known.iter().map(KnownStart::line).collect();
    files::replace(env, &dir.join(KNOWN_STARTS), text.as_bytes())?;
    files::sync_dir(env, dir)
}
