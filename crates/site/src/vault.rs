//! The vault: all notes and files at one moment, and every page made from them.

mod apply;
mod lookup;

use std::sync::Arc;

use bytes::Bytes;
use imbl::{HashMap, OrdMap, OrdSet};
use types::Result;

pub use lookup::PageLookup;

use crate::linked::{Card, LinkedNote};
use crate::names::{Key, NameIndex};
use crate::note::{self, Note};
use crate::options::{CheckedOptions, Options};
use crate::page::Page;
use crate::path;
use crate::render;
use crate::theme::Theme;

/// All notes and files at one moment, with their pages. Cloning it is cheap, and it never changes (S1).
#[derive(Clone)]
pub struct Vault {
    state: State,
}

/// A file of the vault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Path within the vault, with `/` between folders.
    pub path: String,
    pub bytes: Bytes,
    /// Time of the last change, in seconds since 1970.
    pub modified: Option<i64>,
}

/// One change of a vault's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Adds a file, or replaces its content.
    Put(File),
    /// Adds a file or replaces its content, with data about it that the caller has already.
    PutKnown(KnownFile),
    /// Records that a note with this path exists but was not read. No page shows its name (A1).
    Withhold(String),
    /// Removes the file or note with this path.
    Remove(String),
}

/// A file with data about it that the caller has already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownFile {
    pub file: File,
    /// The parsed note, if it was parsed from exactly these bytes. It is then not parsed again.
    pub note: Option<Arc<Note>>,
    /// False makes the note private, whatever its front matter and the options say.
    pub may_publish: bool,
}

impl From<File> for KnownFile {
    fn from(file: File) -> KnownFile {
        KnownFile { file, note: None, may_publish: true }
    }
}

/// A note that a search returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hit {
    /// Path within the vault.
    pub path: String,
    /// An excerpt as escaped HTML, with the words of the query in `<mark>`.
    pub snippet: String,
}

/// A message for the author of a note. Readers do not see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    pub path: String,
    pub message: String,
}

#[derive(Clone)]
pub(crate) struct State {
    pub(crate) site: Arc<CheckedOptions>,
    pub(crate) theme: Arc<Theme>,
    pub(crate) notes: OrdMap<Arc<str>, Arc<Entry>>,
    pub(crate) assets: OrdMap<Arc<str>, Arc<Asset>>,
    /// Paths of notes that exist but were not read.
    withheld: OrdSet<Arc<str>>,
    pub(crate) names: NameIndex,
    /// Published notes with their links resolved.
    pub(crate) linked: OrdMap<Arc<str>, Arc<LinkedNote>>,
    /// Published notes, by the names that their links look up.
    by_link_name: PathSets<Key>,
    /// Published notes that link to or embed a note, by the path of that note.
    pub(crate) backlinks: PathSets<Arc<str>>,
    /// Published notes that embed a note, by the path of that note.
    embedders: PathSets<Arc<str>>,
    /// Notes that a published note embeds, by the path of the published note.
    embeds: OrdMap<Arc<str>, Vec<Arc<str>>>,
    /// Published notes that link to or show a file, by the path of that file.
    asset_users: PathSets<Arc<str>>,
    /// Published notes, by tag.
    pub(crate) tags: PathSets<Arc<str>>,
    pub(crate) folders: OrdMap<Arc<str>, Folder>,
    pages: HashMap<Arc<str>, Arc<Page>>,
    /// Addresses by their folded form, for requests that match no address exactly.
    folded: HashMap<Arc<str>, OrdSet<Arc<str>>>,
    /// Addresses of the lists of all notes. Their number varies: a large site has several sitemaps.
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

/// A folder that contains a published note.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Folder {
    /// Published notes that could be its index, by rank. The first one is the index.
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

/// A set of paths for each key. Empty sets are removed.
#[derive(Clone, Debug)]
pub(crate) struct PathSets<K: Ord + Clone>(OrdMap<K, OrdSet<Arc<str>>>);

impl<K: Ord + Clone> PathSets<K> {
    fn new() -> Self {
        PathSets(OrdMap::new())
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
    /// Makes a site without notes. Fails if a pattern or the base address in the options is invalid.
    pub fn new(options: Options) -> Result<Vault> {
        let site = Arc::new(CheckedOptions::new(options)?);
        let theme = Arc::new(Theme::new(&site.options));
        let not_found = Arc::new(theme.not_found(&site.options));
        let state = State {
            site,
            theme,
            notes: OrdMap::new(),
            assets: OrdMap::new(),
            withheld: OrdSet::new(),
            names: NameIndex::default(),
            linked: OrdMap::new(),
            by_link_name: PathSets::new(),
            backlinks: PathSets::new(),
            embedders: PathSets::new(),
            embeds: OrdMap::new(),
            list_urls: Vec::new(),
            asset_users: PathSets::new(),
            tags: PathSets::new(),
            folders: OrdMap::new(),
            pages: HashMap::new(),
            folded: HashMap::new(),
            not_found,
        };
        Ok(Vault { state: apply::render_empty(state)? })
    }

    /// Returns the vault after these changes; this vault stays as it is. Recomputes only the pages that a change
    /// touches: the note itself, pages that link to it or embed it, pages that it links to, and lists that contain it.
    /// If several changes have the same path, the last one counts. Ignores invalid paths ([`crate::is_valid`]) and
    /// files of unknown kinds.
    #[must_use]
    pub fn apply(&self, changes: impl IntoIterator<Item = Change>) -> Vault {
        self.try_apply(changes, &mut || Ok(())).expect("nothing ends it")
    }

    /// Does the same as [`Vault::apply`], but calls `tick` after each note and page, and fails if `tick` does.
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

    /// Returns the cards of the published notes, by path. They hold only what readers may know.
    pub fn cards(&self) -> impl Iterator<Item = &Card> {
        self.state.linked.values().map(|linked| &linked.card)
    }

    /// Returns the card of a published note.
    pub fn card(&self, path: &str) -> Option<&Card> {
        self.state.linked.get(path).map(|linked| &linked.card)
    }

    /// Returns the text of a published note without Markdown, for search and tools. It leaves out everything that would
    /// reveal unpublished notes (A1). Embedded text is not in it, since a search finds that text in the note that it
    /// comes from.
    pub fn text(&self, path: &str) -> Option<String> {
        let linked = self.state.linked.get(path)?;
        let note = &self.state.notes.get(path)?.note;
        let withheld = &self.options().words.withheld;
        let mut text = String::new();
        for span in &note.body.text {
            match span {
                crate::body::Span::Text(part) => text.push_str(part),
                crate::body::Span::Link(at) => text.push_str(&linked.display_text(note, *at, withheld)),
            }
        }
        Some(text.trim().to_owned())
    }

    /// Returns all notes by path, including unpublished ones, each with a flag that says whether it is published. For
    /// the author.
    pub fn notes(&self) -> impl Iterator<Item = (&Note, bool)> {
        self.state.notes.values().map(|entry| (&*entry.note, entry.published))
    }

    /// Returns a note, published or not. For the author.
    pub fn note(&self, path: &str) -> Option<&Note> {
        self.state.notes.get(path).map(|entry| &*entry.note)
    }

    /// Returns the warnings for authors, by path. They name unpublished notes.
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

    /// Returns the warnings that are new since `before`: one for each note, with its messages joined.
    pub fn new_warnings(&self, before: &Vault) -> Vec<Warning> {
        let (state, old) = (&self.state, &before.state);
        let said = |state: &State, path: &Arc<str>| -> Vec<String> {
            let own = state.notes.get(path).map(|entry| entry.note.warnings().to_vec());
            let of_links = state.linked.get(path).map(|linked| linked.warnings.clone());
            own.into_iter().chain(of_links).flatten().collect()
        };
        let mut news = Vec::new();
        for (path, entry) in &state.notes {
            // An untouched note is the same value in memory.
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

    /// Renders the results of a search, best first. Leaves out hits that are not published here, whatever the search
    /// returned (A1).
    pub fn search_page(&self, sought: &str, total: u64, hits: &[Hit]) -> Page {
        render::search_results(&self.state, sought, total, hits)
    }

    /// Renders a page with a message of the site itself, such as the reason why a search failed.
    pub fn notice_page(&self, title: &str, text: &str) -> Page {
        let html = format!("<p>{}</p>", crate::text::escape(text));
        self.state.theme.simple(&self.state.site.options, title, &html)
    }
}

impl State {
    /// Returns the address of a published note.
    pub(crate) fn url_of(&self, path: &str) -> String {
        let (folder, file) = path::split(path);
        let is_index = path::index_rank(path::stem(file)).is_some()
            && self.folders.get(folder).and_then(Folder::index).is_some_and(|index| **index == *path);
        if is_index && (folder.is_empty() || !self.site.is_reserved(folder)) {
            return path::folder_url(folder);
        }
        path::note_url(path, &|stem| self.site.is_reserved(stem))
    }

    /// Returns the address of the list of a folder's notes, if the folder has one. It has one if it has no index note
    /// and its address is not reserved.
    pub(crate) fn list_url(&self, folder: &str) -> Option<String> {
        let content = self.folders.get(folder);
        let is_wanted = folder.is_empty() || content.is_some();
        let is_free = content.and_then(Folder::index).is_none()
            && (folder.is_empty() || !self.site.is_reserved(folder));
        (is_wanted && is_free).then(|| path::folder_url(folder))
    }

    /// Returns the address of the page that stands for a folder: its index note or a list.
    pub(crate) fn folder_page(&self, folder: &str) -> Option<String> {
        let index = self.folders.get(folder).and_then(Folder::index);
        index.map(|index| self.url_of(index)).or_else(|| self.list_url(folder))
    }

    pub(crate) fn modified_of(&self, path: &str) -> Option<i64> {
        self.notes.get(path).and_then(|entry| entry.modified)
    }
}

/// Returns the day on which a note was last updated, for lists.
pub(crate) fn day_of(card: &Card) -> Option<String> {
    card.updated.map(note::date::day)
}
