//! Resolves the target of a link to a file of the vault.
//!
//! A file can be named by every suffix of its path (`c`, `b/c`, `a/b/c` for `a/b/c.md`), a note also by its aliases and
//! its title. Unpublished notes have names too, since a link to one must be recognised in order to be hidden (A1).
//! Names are compared in folded form.

use std::sync::Arc;

use imbl::{OrdMap, OrdSet};

use crate::body::{Link, LinkSyntax};
use crate::path;
use crate::text::fold;

/// A file, note or folder under one of its names. The order tells how well the name fits: a link means the lowest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NamedTarget {
    /// The kind of name: 0 by path, 1 by alias or as the index of a folder, 2 by title, 3 a folder, 4 a withheld note.
    rank: u8,
    depth: u16,
    pub(crate) path: Arc<str>,
    pub(crate) kind: NamedKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum NamedKind {
    Note,
    Asset,
    Folder,
    /// A note that exists but was not read.
    Withheld,
}

pub(crate) type Key = Arc<str>;

/// Returns all names of a note.
pub(crate) fn of_note(path: &Arc<str>, title: &str, aliases: &[String]) -> Vec<(Key, NamedTarget)> {
    let depth = depth_of(path);
    let named = |rank| NamedTarget { rank, depth, path: path.clone(), kind: NamedKind::Note };
    let full = fold(path::stem(path));
    let mut names: Vec<(Key, NamedTarget)> = endings(&full).map(|key| (key.into(), named(0))).collect();
    let (folder, file) = path::split(path);
    if path::index_rank(path::stem(file)).is_some() && !folder.is_empty() {
        names.push((fold(folder).into(), named(1)));
    }
    names.extend(aliases.iter().map(|alias| (fold(alias.trim()).into(), named(1))));
    names.push((fold(title.trim()).into(), named(2)));
    names.retain(|(key, _)| !key.is_empty());
    names
}

pub(crate) fn of_asset(path: &Arc<str>) -> Vec<(Key, NamedTarget)> {
    let named = NamedTarget { rank: 0, depth: depth_of(path), path: path.clone(), kind: NamedKind::Asset };
    endings(&fold(path)).map(|key| (key.into(), named.clone())).collect()
}

/// Returns the names of a withheld note. They have the last rank, so that no link to a file in the vault leads to a
/// withheld note instead.
pub(crate) fn of_withheld(path: &Arc<str>) -> Vec<(Key, NamedTarget)> {
    let named = NamedTarget { rank: 4, depth: depth_of(path), path: path.clone(), kind: NamedKind::Withheld };
    endings(&fold(path::stem(path))).map(|key| (key.into(), named.clone())).collect()
}

pub(crate) fn of_folder(path: &Arc<str>) -> (Key, NamedTarget) {
    (
        fold(path).into(),
        NamedTarget { rank: 3, depth: depth_of(path), path: path.clone(), kind: NamedKind::Folder },
    )
}

fn depth_of(path: &str) -> u16 {
    path.split('/').count().min(path::DEPTH_MAX) as u16
}

/// Returns the suffixes of a path: `a/b/c`, `b/c`, `c`.
fn endings(full: &str) -> impl Iterator<Item = &str> {
    std::iter::once(full).chain(full.match_indices('/').map(|(at, _)| &full[at + 1..]))
}

/// One attempt to resolve the target of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attempt {
    pub(crate) key: Key,
    /// The name as written, to prefer it among names that differ only in case.
    written: String,
    /// True if only a file with this full path matches.
    exact: bool,
}

/// Returns the attempts to resolve the target of a link, in order.
pub(crate) fn attempts(folder: &str, link: &Link) -> Vec<Attempt> {
    let target = link.target.trim();
    let target = path::stem(target);
    let target = target.strip_suffix('/').unwrap_or(target);
    let attempt = |text: String, exact| {
        let usable = !text.is_empty() && text.len() <= path::PATH_BYTES_MAX;
        usable.then(|| Attempt { key: fold(&text).into(), written: text, exact })
    };
    let leads_up = target.split('/').any(|part| part == "..");
    let is_relative = target.starts_with("./") || leads_up;
    let here = path::join(folder, target).and_then(|text| attempt(text, true));
    let root = || attempt(path::join("", target)?, true);
    let any = || attempt(target.trim_start_matches("./").trim_start_matches('/').to_owned(), false);
    let tries = match link.syntax {
        _ if target.starts_with('/') => [root(), any(), None],
        LinkSyntax::Wiki | LinkSyntax::WikiEmbed if !is_relative => [root(), here, any()],
        _ if leads_up => [here, None, None],
        _ => [here, root(), any()],
    };
    tries.into_iter().flatten().collect()
}

/// An index of all names of a vault.
#[derive(Clone, Debug, Default)]
pub(crate) struct NameIndex {
    by_key: OrdMap<Key, OrdSet<NamedTarget>>,
}

impl NameIndex {
    pub(crate) fn insert(&mut self, key: Key, named: NamedTarget) {
        self.by_key.entry(key).or_default().insert(named);
    }

    pub(crate) fn remove(&mut self, key: &Key, named: &NamedTarget) {
        let Some(all) = self.by_key.get_mut(key) else { return };
        all.remove(named);
        if all.is_empty() {
            self.by_key.remove(key);
        }
    }

    /// Returns the file that a link in a note of `folder` means.
    pub(crate) fn find(&self, folder: &str, attempts: &[Attempt]) -> Option<&NamedTarget> {
        attempts.iter().find_map(|attempt| {
            let all = self.by_key.get(&attempt.key)?;
            if !attempt.exact {
                return nearest(folder, all);
            }
            // Thousands of files may have the same name. Only those at the depth of the given path can match it in
            // full.
            let depth = depth_of(&attempt.key);
            let is_index = path::index_rank(path::split(&attempt.key).1).is_some();
            let at = |rank, depth| {
                let from = NamedTarget { rank, depth, path: "".into(), kind: NamedKind::Note };
                all.range(from..).take_while(move |named| named.rank == rank && named.depth == depth)
            };
            let fits = |named: &&NamedTarget| {
                named.rank == 3 || folded_path(named) == *attempt.key || is_index_of(named, &attempt.key)
            };
            at(0, depth)
                .chain(is_index.then(|| at(0, depth + 1)).into_iter().flatten())
                .chain(at(1, depth + 1))
                .chain(at(3, depth))
                .chain(at(4, depth))
                .filter(fits)
                .min_by(|a, b| self.order(folder, attempt, a).cmp(&self.order(folder, attempt, b)))
        })
    }

    fn order<'a>(
        &self,
        folder: &str,
        attempt: &Attempt,
        named: &'a NamedTarget,
    ) -> (u8, bool, bool, u16, &'a NamedTarget) {
        let elsewhere = path::split(&named.path).0 != folder;
        let full = path::stem(&named.path);
        let other_case = !full.ends_with(&*attempt.written);
        (named.rank, other_case && attempt.exact, elsewhere, named.depth, named)
    }
}

/// Returns the candidate with the best rank, preferring one in this folder.
fn nearest<'a>(folder: &str, all: &'a OrdSet<NamedTarget>) -> Option<&'a NamedTarget> {
    let first = all.get_min()?;
    let depth = if folder.is_empty() { 1 } else { depth_of(&format!("{folder}/x")) };
    let from = NamedTarget { rank: first.rank, depth, path: folder.into(), kind: NamedKind::Note };
    let mut inside = all.range(from..).take_while(|named| {
        named.rank == first.rank && named.depth == depth && named.path.starts_with(folder)
    });
    inside.find(|named| path::split(&named.path).0 == folder).or(Some(first))
}

fn folded_path(named: &NamedTarget) -> String {
    match named.kind {
        NamedKind::Note | NamedKind::Withheld => fold(path::stem(&named.path)),
        NamedKind::Asset | NamedKind::Folder => fold(&named.path),
    }
}

fn is_index_of(named: &NamedTarget, key: &str) -> bool {
    let (folder, file) = path::split(&named.path);
    named.kind == NamedKind::Note && path::index_rank(path::stem(file)).is_some() && fold(folder) == key
}
