//! Applies changes to a vault, and recomputes only what they touch.
//!
//! The steps are: files are read, and names are added and removed; notes whose links may now lead elsewhere resolve
//! them again; pages that show a changed result are rendered. Each step passes sets of paths to the next, so that
//! nothing is done twice for one batch of changes. The tests check that the result equals a vault built from nothing,
//! byte for byte.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use types::Result;

use super::{Asset, Change, Entry, File, KnownFile, State};
use crate::body::Span;
use crate::linked::LinkedNote;
use crate::names::{self, Key, NamedTarget};
use crate::note::Note;
use crate::page::Page;
use crate::path;
use crate::render;

type Paths = BTreeSet<Arc<str>>;

/// Renders the pages of a vault without files.
pub(super) fn render_empty(state: State) -> Result<State> {
    let mut work = VaultUpdate::new(state);
    work.lists_dirty = true;
    work.dirty_folders.insert("".into());
    let fixed = render::fixed(&work.state);
    for (url, page) in fixed {
        work.put_page(&url, page);
    }
    work.render(&mut || Ok(()))?;
    Ok(work.state)
}

pub(super) fn apply(
    state: &State,
    changes: impl IntoIterator<Item = Change>,
    tick: &mut dyn FnMut() -> Result<()>,
) -> Result<State> {
    let mut last: BTreeMap<String, PathState> = BTreeMap::new();
    for change in changes {
        match change {
            Change::Put(file) => last.insert(file.path.clone(), PathState::File(file.into())),
            Change::PutKnown(known) => last.insert(known.file.path.clone(), PathState::File(known)),
            Change::Withhold(path) => last.insert(path, PathState::Withheld),
            Change::Remove(path) => last.insert(path, PathState::Absent),
        };
    }
    let mut work = VaultUpdate::new(state.clone());
    // Removals come first, so that they free names and addresses.
    let (gone, put): (Vec<_>, Vec<_>) =
        last.into_iter().partition(|(_, next)| matches!(next, PathState::Absent));
    for (path, next) in gone.into_iter().chain(put) {
        tick()?;
        let path: Arc<str> = path.into();
        work.set_withheld(&path, matches!(next, PathState::Withheld));
        if !path::is_valid(&path) {
            continue;
        }
        let file = match next {
            PathState::File(known) => Some(known),
            PathState::Withheld | PathState::Absent => None,
        };
        match (file, path::is_note(&path), path::content_type(&path).is_some()) {
            (Some(file), true, _) => work.put_note(&path, file),
            (None, true, _) => work.set_note(&path, None),
            (Some(known), false, true) => work.put_asset(&path, known.file),
            (None, false, true) => work.remove_asset(&path),
            (_, false, false) => {}
        }
    }
    work.follow_links();
    work.render(tick)?;
    Ok(work.state)
}

/// The state of a path after the changes.
enum PathState {
    File(KnownFile),
    Withheld,
    Absent,
}

struct VaultUpdate {
    state: State,
    /// Names whose target has changed, or has changed in a way that a link to it shows.
    touched_names: BTreeSet<Key>,
    /// Notes whose links must be resolved again.
    relink: Paths,
    /// Notes whose own text has changed.
    reworded: Paths,
    dirty_notes: Paths,
    dirty_assets: Paths,
    dirty_folders: Paths,
    dirty_tags: Paths,
    /// True if the lists of all notes, the feed and the sitemap must be rendered again.
    lists_dirty: bool,
    /// Addresses that their note no longer has. Their pages are removed unless another note takes the address.
    left_urls: BTreeSet<Arc<str>>,
}

impl VaultUpdate {
    fn new(state: State) -> VaultUpdate {
        VaultUpdate {
            state,
            touched_names: BTreeSet::new(),
            relink: Paths::new(),
            reworded: Paths::new(),
            dirty_notes: Paths::new(),
            dirty_assets: Paths::new(),
            dirty_folders: Paths::new(),
            dirty_tags: Paths::new(),
            lists_dirty: false,
            left_urls: BTreeSet::new(),
        }
    }

    fn put_note(&mut self, path: &Arc<str>, known: KnownFile) {
        let KnownFile { file, note: parsed, may_publish } = known;
        let hash = blake3::hash(&file.bytes);
        let old = self.state.notes.get(path);
        let note = match old {
            // Only the time of the file changed, so the parsed note is still right.
            Some(old) if old.hash == hash => old.note.clone(),
            _ => match parsed.filter(|note| note.path() == &**path) {
                Some(parsed) => parsed,
                None => Arc::new(Note::parse(path, &file.bytes)),
            },
        };
        let published = may_publish && self.state.site.is_published(path, note.publish());
        if old.is_some_and(|old| {
            old.hash == hash && old.modified == file.modified && old.published == published
        }) {
            return;
        }
        self.set_note(path, Some(Arc::new(Entry { note, hash, modified: file.modified, published })));
    }

    fn set_withheld(&mut self, path: &Arc<str>, is: bool) {
        let was = self.state.withheld.contains(path);
        if is && !was && path::is_withholdable(path) {
            self.state.withheld.insert(path.clone());
            self.rename(&[], &names::of_withheld(path));
        } else if was && !is {
            self.state.withheld.remove(path);
            self.rename(&names::of_withheld(path), &[]);
        }
    }

    fn set_note(&mut self, path: &Arc<str>, entry: Option<Arc<Entry>>) {
        let old = match &entry {
            Some(entry) => self.state.notes.insert(path.clone(), entry.clone()),
            None => self.state.notes.remove(path),
        };
        let was = old.as_ref().is_some_and(|old| old.published);
        let is = entry.as_ref().is_some_and(|entry| entry.published);
        let names = |entry: Option<&Arc<Entry>>| entry.map(|entry| names_of(path, entry)).unwrap_or_default();
        let (old_names, new_names) = (names(old.as_ref()), names(entry.as_ref()));
        let targets = |entry: &Option<Arc<Entry>>| {
            let note = entry.as_ref().map(|entry| entry.note.clone());
            note.map(|note| {
                note.body.targets().into_iter().map(|(a, b)| (a.to_owned(), b.to_owned())).collect::<Vec<_>>()
            })
        };
        let looks_same = was == is && old_names == new_names && targets(&old) == targets(&entry);
        if !looks_same {
            self.rename(&old_names, &new_names);
        }
        if was != is {
            self.update_folder(path, is);
        }
        if was || is {
            self.relink.insert(path.clone());
            self.reworded.insert(path.clone());
        }
    }

    fn rename(&mut self, old: &[(Key, NamedTarget)], new: &[(Key, NamedTarget)]) {
        for (key, named) in old {
            self.state.names.remove(key, named);
            self.touched_names.insert(key.clone());
        }
        for (key, named) in new {
            self.state.names.insert(key.clone(), named.clone());
            self.touched_names.insert(key.clone());
        }
    }

    /// Adds a published note to its folder or takes it out, and adds or removes the folders above accordingly.
    fn update_folder(&mut self, path: &Arc<str>, is_published: bool) {
        let (folder, file) = path::split(path);
        let folder: Arc<str> = folder.into();
        if let Some(rank) = path::index_rank(path::stem(file)) {
            // The change may make another note the index. That changes the addresses of all candidates, and of the
            // links to them.
            let others: Vec<Arc<str>> = self.indexes(&folder);
            let content = self.state.folders.entry(folder.clone()).or_default();
            if is_published {
                content.indexes.insert((rank, path.clone()))
            } else {
                content.indexes.remove(&(rank, path.clone()))
            };
            for other in others.into_iter().chain([path.clone()]) {
                if let Some(entry) = self.state.notes.get(&other) {
                    self.touched_names.extend(names_of(&other, entry).into_iter().map(|(key, _)| key));
                }
                self.relink.insert(other);
            }
        }
        let content = self.state.folders.entry(folder.clone()).or_default();
        if is_published {
            content.notes.insert(path.clone())
        } else {
            content.notes.remove(path)
        };
        self.update_parents(folder, is_published);
    }

    fn indexes(&self, folder: &Arc<str>) -> Vec<Arc<str>> {
        let content = self.state.folders.get(folder);
        content.into_iter().flat_map(|content| content.indexes.iter().map(|(_, path)| path.clone())).collect()
    }

    /// Updates a folder that gained or lost an entry, and the folders above it.
    fn update_parents(&mut self, mut folder: Arc<str>, came: bool) {
        loop {
            self.dirty_folders.insert(folder.clone());
            let is_empty = self.state.folders.get(&folder).is_none_or(super::Folder::is_empty);
            if folder.is_empty() {
                if is_empty {
                    self.state.folders.remove(&folder);
                }
                return;
            }
            let (key, named) = names::of_folder(&folder);
            self.touched_names.insert(key.clone());
            let parent: Arc<str> = path::split(&folder).0.into();
            let siblings = &mut self.state.folders.entry(parent.clone()).or_default().folders;
            match (came, is_empty) {
                (true, _) => {
                    let known = siblings.insert(folder.clone()).is_some();
                    self.state.names.insert(key, named);
                    if known {
                        return;
                    }
                }
                (false, true) => {
                    siblings.remove(&folder);
                    self.state.names.remove(&key, &named);
                    self.state.folders.remove(&folder);
                }
                (false, false) => return,
            }
            folder = parent;
        }
    }

    fn put_asset(&mut self, path: &Arc<str>, file: File) {
        let old = self.state.assets.get(path);
        if old.is_some_and(|old| old.bytes == file.bytes && old.modified == file.modified) {
            return;
        }
        if old.is_none() {
            self.rename(&[], &names::of_asset(path));
        }
        let asset = Asset { bytes: file.bytes, modified: file.modified };
        self.state.assets.insert(path.clone(), Arc::new(asset));
        self.dirty_assets.insert(path.clone());
    }

    fn remove_asset(&mut self, path: &Arc<str>) {
        if self.state.assets.remove(path).is_some() {
            self.rename(&names::of_asset(path), &[]);
            self.dirty_assets.insert(path.clone());
        }
    }

    fn follow_links(&mut self) {
        for key in std::mem::take(&mut self.touched_names) {
            self.relink.extend(self.state.by_link_name.get(&key).cloned());
        }
        // A note whose embedded text changed shows something else, too.
        let mut reshown = self.reworded.clone();
        for path in std::mem::take(&mut self.relink) {
            let entry = self.state.notes.get(&path).filter(|entry| entry.published).cloned();
            let new = entry
                .as_ref()
                .map(|entry| Arc::new(LinkedNote::of(&self.state, &path, &entry.note, entry.modified)));
            let old = match &new {
                Some(new) => self.state.linked.insert(path.clone(), new.clone()),
                None => self.state.linked.remove(&path),
            };
            if old != new {
                reshown.insert(path.clone());
            }
            self.update_link_indexes(&path, old.as_deref(), new.as_deref());
        }
        for path in &self.reworded.clone() {
            self.update_embeds(path);
        }
        self.mark_embedders(reshown);
    }

    /// Updates the reverse indexes of a note's links after they were resolved again, and marks the pages that show
    /// them.
    fn update_link_indexes(&mut self, path: &Arc<str>, old: Option<&LinkedNote>, new: Option<&LinkedNote>) {
        let keys = |linked: Option<&LinkedNote>| linked.map(|linked| linked.keys.clone()).unwrap_or_default();
        let notes = |linked: Option<&LinkedNote>| linked.map(LinkedNote::notes).unwrap_or_default();
        let assets = |linked: Option<&LinkedNote>| linked.map(LinkedNote::assets).unwrap_or_default();
        let tags = |linked: Option<&LinkedNote>| -> Vec<Arc<str>> {
            let tags = linked.map(|linked| linked.card.tags.as_slice()).unwrap_or_default();
            tags.iter().map(|tag| tag.as_str().into()).collect()
        };
        for key in keys(old) {
            self.state.by_link_name.remove(&key, path);
        }
        for key in keys(new) {
            self.state.by_link_name.insert(&key, path);
        }
        let (old_notes, new_notes) = (notes(old), notes(new));
        let card_changed = old.map(|old| &old.card) != new.map(|new| &new.card);
        for note in &old_notes {
            self.state.backlinks.remove(note, path);
        }
        for note in &new_notes {
            self.state.backlinks.insert(note, path);
        }
        for note in old_notes.iter().chain(&new_notes) {
            // Both lists are sorted.
            let stays = old_notes.binary_search(note).is_ok() && new_notes.binary_search(note).is_ok();
            if card_changed || !stays {
                self.dirty_notes.insert(note.clone());
            }
        }
        let (old_assets, new_assets) = (assets(old), assets(new));
        if old_assets != new_assets {
            for asset in &old_assets {
                self.state.asset_users.remove(asset, path);
            }
            for asset in &new_assets {
                self.state.asset_users.insert(asset, path);
            }
            self.dirty_assets.extend(old_assets.into_iter().chain(new_assets));
        }
        if old.map(|old| &old.card.url) != new.map(|new| &new.card.url) {
            self.left_urls.extend(old.map(|old| old.card.url.clone()));
        }
        if card_changed {
            let (old_tags, new_tags) = (tags(old), tags(new));
            for tag in &old_tags {
                self.state.tags.remove(tag, path);
            }
            for tag in &new_tags {
                self.state.tags.insert(tag, path);
            }
            self.dirty_tags.extend(old_tags.into_iter().chain(new_tags));
            self.dirty_folders.insert(path::split(path).0.into());
            self.lists_dirty = true;
        }
        self.dirty_notes.insert(path.clone());
        self.update_embeds(path);
    }

    /// Updates the notes that this note embeds.
    fn update_embeds(&mut self, path: &Arc<str>) {
        let of = |state: &State| match (state.linked.get(path), state.notes.get(path)) {
            (Some(linked), Some(entry)) => linked.embeds(&entry.note),
            _ => Vec::new(),
        };
        let new = of(&self.state);
        let old: Vec<Arc<str>> = self.state.embeds.get(path).cloned().unwrap_or_default();
        if old == new {
            return;
        }
        for note in &old {
            self.state.embedders.remove(note, path);
        }
        for note in &new {
            self.state.embedders.insert(note, path);
        }
        if new.is_empty() {
            self.state.embeds.remove(path)
        } else {
            self.state.embeds.insert(path.clone(), new)
        };
    }

    /// Marks every note that embeds a changed note, directly or through other notes.
    fn mark_embedders(&mut self, reshown: Paths) {
        let mut next: Vec<Arc<str>> = reshown.into_iter().collect();
        let mut seen = Paths::new();
        while let Some(path) = next.pop() {
            if seen.insert(path.clone()) {
                next.extend(self.state.embedders.get(&path).cloned());
            }
        }
        self.dirty_notes.extend(seen);
    }

    fn render(&mut self, tick: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        // Removed pages go first, since new pages may take their addresses.
        for url in std::mem::take(&mut self.left_urls) {
            self.remove_page(&url);
        }
        let folders = std::mem::take(&mut self.dirty_folders);
        for folder in &folders {
            let taken = self.state.folders.get(folder).and_then(super::Folder::index).is_some();
            if self.state.list_url(folder).is_none() && !taken && !self.state.site.is_reserved(folder) {
                self.remove_page(&path::folder_url(folder));
            }
        }
        for folder in &folders {
            if let Some(url) = self.state.list_url(folder) {
                self.put_page(&url, render::folder(&self.state, folder));
            }
        }
        for path in std::mem::take(&mut self.dirty_notes) {
            tick()?;
            if let Some(linked) = self.state.linked.get(&path).cloned() {
                let page = render::note(&self.state, &linked);
                self.put_page(&linked.card.url, page);
            }
        }
        for path in std::mem::take(&mut self.dirty_assets) {
            let url = crate::text::encode_path(&format!("/{path}"));
            match self.state.assets.get(&path).cloned() {
                Some(asset) if self.state.asset_users.has(&path) && !self.state.site.is_reserved(&path) => {
                    if let Some((content_type, _)) = path::content_type(&path) {
                        self.put_page(&url, Page::file(content_type, asset.bytes.clone(), asset.modified));
                    }
                }
                _ if self.state.site.is_reserved(&path) => {}
                _ => self.remove_page(&url),
            }
        }
        for tag in std::mem::take(&mut self.dirty_tags) {
            let url = path::tag_url(&tag);
            if self.state.tags.has(&tag) {
                self.put_page(&url, render::tag(&self.state, &tag))
            } else {
                self.remove_page(&url)
            }
        }
        if std::mem::take(&mut self.lists_dirty) {
            let lists = render::lists(&self.state);
            let old = std::mem::replace(
                &mut self.state.list_urls,
                lists.iter().map(|(url, _)| url.as_str().into()).collect(),
            );
            for url in old {
                if lists.iter().all(|(kept, _)| **kept != *url) {
                    self.remove_page(&url);
                }
            }
            for (url, page) in lists {
                self.put_page(&url, page);
            }
        }
        Ok(())
    }

    fn put_page(&mut self, url: &str, page: Page) {
        let old = self.state.pages.get(url);
        if old.is_some_and(|old| **old == page) {
            return;
        }
        let is_new = old.is_none();
        let url: Arc<str> = url.into();
        self.state.pages.insert(url.clone(), Arc::new(page));
        if is_new && let Some(key) = folded(&url) {
            self.state.folded.entry(key).or_default().insert(url);
        }
    }

    fn remove_page(&mut self, url: &str) {
        if self.state.pages.remove(url).is_none() {
            return;
        }
        if let Some(key) = folded(url)
            && let Some(all) = self.state.folded.get_mut(&key)
        {
            all.remove(url);
            if all.is_empty() {
                self.state.folded.remove(&key);
            }
        }
    }
}

/// Returns the names by which links can find a note. A title that contains links to other notes counts only if the note
/// is private. A link to a published note would show that title, and with it the name of a note that may be private.
fn names_of(path: &Arc<str>, entry: &Entry) -> Vec<(Key, NamedTarget)> {
    let note = &entry.note;
    let hides_title = entry.published && note.title.iter().any(|span| matches!(span, Span::Link(_)));
    let title = if hides_title { String::new() } else { note.title() };
    names::of_note(path, &title, note.aliases())
}

fn folded(url: &str) -> Option<Arc<str>> {
    crate::text::decode(url).map(|decoded| path::folded_url(&decoded).into())
}
