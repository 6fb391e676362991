//! The vault: all notes and files of one moment, and every page made from them.

mod apply;
mod lookup;

use std::sync::Arc;

use bytes::Bytes;
use imbl::{HashMap, OrdMap, OrdSet};
use types::Result;

pub use lookup::Found;

use crate::linked::{Card, Linked};
use crate::names::{Key, Names};
use crate::note::{self, Note};
use crate::options::{Checked, Options};
use crate::page::Page;
use crate::path;
use crate::render;
use crate::theme::Theme;

/// See the crate. Cloning it is cheap; a clone never changes (S1).
#[derive(Clone)]
pub struct Vault {
    state: State,
}

/// A file of the vault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Within the vault, `/` between folders.
    pub path: String,
    pub bytes: Bytes,
    /// Seconds since 1970.
    pub modified: Option<i64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A new file, or new content of one.
    Put(File),
    /// The same, with what is known of it already.
    PutKnown(Known),
    /// There is a note of this path, which was not read: nothing shows what it is called (A1).
    Withhold(String),
    Remove(String),
}

/// A file with what is known of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    pub file: File,
    /// The note, if it was parsed of just these bytes: it is not parsed again.
    pub note: Option<Arc<Note>>,
    /// False: private, whatever the note or the options say.
    pub may_publish: bool,
}

impl From<File> for Known {
    fn from(file: File) -> Known {
        Known { file, note: None, may_publish: true }
    }
}

/// A note that a search found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hit {
    /// In the vault.
    pub path: String,
    /// HTML: escaped, the words in `<mark>`.
    pub snippet: String,
}

/// Something that an author should know, and no reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    pub path: String,
    pub message: String,
}

#[derive(Clone)]
pub(crate) struct State {
    pub(crate) site: Arc<Checked>,
    pub(crate) theme: Arc<Theme>,
    pub(crate) notes: OrdMap<Arc<str>, Arc<Entry>>,
    pub(crate) assets: OrdMap<Arc<str>, Arc<Asset>>,
    /// Notes that were not read.
    withheld: OrdSet<Arc<str>>,
    pub(crate) names: Names,
    /// Published notes, links followed.
    pub(crate) linked: OrdMap<Arc<str>, Arc<Linked>>,
    /// Published notes by the names that their links look for.
    wanted: Sets<Key>,
    /// Published notes that link to a note or show it.
    pub(crate) backlinks: Sets<Arc<str>>,
    /// Published notes that show a note in place.
    embedders: Sets<Arc<str>>,
    /// The same from the other end.
    embeds: OrdMap<Arc<str>, Vec<Arc<str>>>,
    /// Published notes that have a file.
    users: Sets<Arc<str>>,
    /// Published notes by tag.
    pub(crate) tags: Sets<Arc<str>>,
    pub(crate) folders: OrdMap<Arc<str>, Folder>,
    pages: HashMap<Arc<str>, Arc<Page>>,
    /// Addresses by what they are compared by when nothing has the exact one.
    folded: HashMap<Arc<str>, OrdSet<Arc<str>>>,
    /// Addresses of lists of everything, which come and go with their number.
    list_urls: Vec<Arc<str>>,
    not_found: Arc<Page>,
}

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) note: Arc<Note>,
    hash: blake3::Hash,
    pub(crate) modified: Option<i64>,
    pub(crate) published: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Asset {
    bytes: Bytes,
    modified: Option<i64>,
}

/// A folder with something published in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Folder {
    /// Published notes that could be its index: the first is.
    indexes: OrdSet<(u8, Arc<str>)>,
    /// Published notes directly in it.
    pub(crate) notes: OrdSet<Arc<str>>,
    pub(crate) folders: OrdSet<Arc<str>>,
}

impl Folder {
    pub(crate) fn index(&self) -> Option<&Arc<str>> {
        self.indexes.get_min().map(|(_, path)| path)
    }

    fn is_empty(&self) -> bool {
        self.notes.is_empty() && self.folders.is_empty()
    }
}

/// A set for each key; none is empty.
#[derive(Clone, Debug)]
pub(crate) struct Sets<K: Ord + Clone>(OrdMap<K, OrdSet<Arc<str>>>);

impl<K: Ord + Clone> Sets<K> {
    fn new() -> Self {
        Sets(OrdMap::new())
    }

    fn insert(&mut self, key: &K, value: &Arc<str>) {
        self.0.entry(key.clone()).or_default().insert(value.clone());
    }

    fn remove(&mut self, key: &K, value: &Arc<str>) {
        let Some(set) = self.0.get_mut(key) else { return };
        set.remove(value);
        if set.is_empty() {
            self.0.remove(key);
        }
    }

    pub(crate) fn get(&self, key: &K) -> impl Iterator<Item = &Arc<str>> {
        self.0.get(key).into_iter().flat_map(|set| set.iter())
    }

    fn has(&self, key: &K) -> bool {
        self.0.contains_key(key)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &OrdSet<Arc<str>>)> {
        self.0.iter()
    }
}

impl Vault {
    /// A site without notes. Fails if the options do: a pattern or an address that is none.
    pub fn new(options: Options) -> Result<Vault> {
        let site = Arc::new(Checked::new(options)?);
        let theme = Arc::new(Theme::new(&site.options));
        let not_found = Arc::new(theme.not_found(&site.options));
        let state = State {
            site,
            theme,
            notes: OrdMap::new(),
            assets: OrdMap::new(),
            withheld: OrdSet::new(),
            names: Names::default(),
            linked: OrdMap::new(),
            wanted: Sets::new(),
            backlinks: Sets::new(),
            embedders: Sets::new(),
            embeds: OrdMap::new(),
            list_urls: Vec::new(),
            users: Sets::new(),
            tags: Sets::new(),
            folders: OrdMap::new(),
            pages: HashMap::new(),
            folded: HashMap::new(),
            not_found,
        };
        Ok(Vault { state: apply::first(state)? })
    }

    /// The vault after these changes; this one stays as it is. Only what a change touches is computed again: the note,
    /// pages that link to it or show it, pages it links to, and lists that it is in. Of several changes of one path the
    /// last counts. Paths that cannot be in a vault ([`crate::is_valid`]) and files of no known kind are passed over.
    #[must_use]
    pub fn apply(&self, changes: impl IntoIterator<Item = Change>) -> Vault {
        self.try_apply(changes, &mut || Ok(())).expect("nothing ends it")
    }

    /// [`Vault::apply`], which ends with the error of `tick`: asked after each note and page.
    pub fn try_apply(
        &self,
        changes: impl IntoIterator<Item = Change>,
        tick: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Vault> {
        Ok(Vault { state: apply::apply(&self.state, changes, tick)? })
    }

    pub fn options(&self) -> &Options {
        &self.state.site.options
    }

    /// What readers may know of the published notes, by path.
    pub fn cards(&self) -> impl Iterator<Item = &Card> {
        self.state.linked.values().map(|linked| &linked.card)
    }

    /// The card of a published note.
    pub fn card(&self, path: &str) -> Option<&Card> {
        self.state.linked.get(path).map(|linked| &linked.card)
    }

    /// The text of a published note without Markdown, for search and tools, and without what it would tell of
    /// unpublished notes (A1). What it shows in place is not in it: it is found where it is from.
    pub fn text(&self, path: &str) -> Option<String> {
        let linked = self.state.linked.get(path)?;
        let note = &self.state.notes.get(path)?.note;
        let withheld = &self.options().words.withheld;
        let mut text = String::new();
        for span in &note.body.text {
            match span {
                crate::body::Span::Text(part) => text.push_str(part),
                crate::body::Span::Link(at) => text.push_str(&linked.shown(note, *at, withheld)),
            }
        }
        Some(text.trim().to_owned())
    }

    /// All notes by path, unpublished ones too: for the author.
    pub fn notes(&self) -> impl Iterator<Item = (&Note, bool)> {
        self.state.notes.values().map(|entry| (&*entry.note, entry.published))
    }

    /// A note, unpublished or not: for the author.
    pub fn note(&self, path: &str) -> Option<&Note> {
        self.state.notes.get(path).map(|entry| &*entry.note)
    }

    /// What the authors of notes should know, by path. It names unpublished notes.
    pub fn warnings(&self) -> Vec<Warning> {
        let mut warnings = Vec::new();
        for (path, entry) in &self.state.notes {
            let of_links = self.state.linked.get(path).map(|linked| linked.warnings.as_slice());
            for message in entry.note.warnings().iter().chain(of_links.unwrap_or_default()) {
                warnings.push(Warning { path: path.to_string(), message: message.clone() });
            }
        }
        warnings
    }

    /// Of [`Vault::warnings`] what `before` did not have: one for each note, its messages in one.
    pub fn news(&self, before: &Vault) -> Vec<Warning> {
        let (state, old) = (&self.state, &before.state);
        let said = |state: &State, path: &Arc<str>| -> Vec<String> {
            let own = state.notes.get(path).map(|entry| entry.note.warnings().to_vec());
            let of_links = state.linked.get(path).map(|linked| linked.warnings.clone());
            own.into_iter().chain(of_links).flatten().collect()
        };
        let mut news = Vec::new();
        for (path, entry) in &state.notes {
            // What nothing touched is the same value.
            let (link, old_link) = (state.linked.get(path), old.linked.get(path));
            let same_links = match (link, old_link) {
                (Some(new), Some(old)) => Arc::ptr_eq(new, old),
                (new, old) => new.is_none() && old.is_none(),
            };
            if same_links && old.notes.get(path).is_some_and(|old| Arc::ptr_eq(old, entry)) {
                continue;
            }
            let known: std::collections::HashSet<String> = said(old, path).into_iter().collect();
            let mut fresh = said(state, path);
            fresh.retain(|message| !known.contains(message));
            fresh.dedup();
            if !fresh.is_empty() {
                news.push(Warning { path: path.to_string(), message: fresh.join("; ") });
            }
        }
        news
    }

    /// The page with what a search found, best first. A hit that is not published here is left out, whoever found it (A1).
    pub fn found(&self, sought: &str, total: u64, hits: &[Hit]) -> Page {
        render::found(&self.state, sought, total, hits)
    }

    /// A page that says something that no note says, such as why a search has no answer.
    pub fn notice(&self, title: &str, text: &str) -> Page {
        let html = format!("<p>{}</p>", crate::text::escape(text));
        self.state.theme.simple(&self.state.site.options, title, &html)
    }
}

impl State {
    /// The address of a published note.
    pub(crate) fn url_of(&self, path: &str) -> String {
        let (folder, file) = path::split(path);
        let is_index = path::index_rank(path::stem(file)).is_some()
            && self.folders.get(folder).and_then(Folder::index).is_some_and(|index| **index == *path);
        if is_index && (folder.is_empty() || !self.site.is_reserved(folder)) {
            return path::folder_url(folder);
        }
        path::note_url(path, &|stem| self.site.is_reserved(stem))
    }

    /// The address of the list of what is in a folder, if it has one: there is no index note, and the address is free.
    pub(crate) fn list_url(&self, folder: &str) -> Option<String> {
        let content = self.folders.get(folder);
        let is_wanted = folder.is_empty() || content.is_some();
        let is_free = content.and_then(Folder::index).is_none()
            && (folder.is_empty() || !self.site.is_reserved(folder));
        (is_wanted && is_free).then(|| path::folder_url(folder))
    }

    /// The page that stands for a folder, be it its index note or a list.
    pub(crate) fn folder_page(&self, folder: &str) -> Option<String> {
        let index = self.folders.get(folder).and_then(Folder::index);
        index.map(|index| self.url_of(index)).or_else(|| self.list_url(folder))
    }

    pub(crate) fn modified_of(&self, path: &str) -> Option<i64> {
        self.notes.get(path).and_then(|entry| entry.modified)
    }
}

/// What a reader sees of a note's text where it is a list's or feed's description.
pub(crate) fn day_of(card: &Card) -> Option<String> {
    card.updated.map(note::date::day)
}
