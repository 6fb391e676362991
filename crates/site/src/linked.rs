//! A published note with its links resolved: what its page shows of the rest of the vault.

use std::sync::Arc;

use crate::body::{Link, LinkSyntax, Span, join_spans};
use crate::names::{self, Attempt, Key, NamedKind};
use crate::note::{self, Note};
use crate::path::{self, Media};
use crate::text::{fold, reveals};
use crate::vault::State;

const TITLE_CHARS_MAX: usize = 300;
const DESCRIPTION_CHARS_MAX: usize = 300;

/// The data that other pages show of a published note.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    /// Path within the vault.
    pub path: Arc<str>,
    /// The address of its page, percent-encoded, without host.
    pub url: Arc<str>,
    /// The title, without text that would reveal an unpublished note.
    pub title: String,
    pub description: String,
    /// Tags in lower case, sorted.
    pub tags: Vec<String>,
    /// Time of the last update in seconds since 1970: from the front matter, else from the file.
    pub updated: Option<i64>,
    pub created: Option<i64>,
}

/// A published note with its links resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LinkedNote {
    pub(crate) card: Card,
    /// The target of each link of the body.
    pub(crate) targets: Vec<LinkTarget>,
    /// For each link: true for a real link, false for a mere name.
    are_links: Vec<bool>,
    /// All names that were looked up. A file that gains or loses one of them may change a target.
    pub(crate) keys: Vec<Key>,
    pub(crate) warnings: Vec<String>,
}

/// The resolved target of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LinkTarget {
    Note {
        path: Arc<str>,
        url: Arc<str>,
        id: Option<String>,
        /// True if the heading that it leads to names an unpublished note, so that the text of the link must leave it
        /// out.
        is_veiled: bool,
    },
    Asset {
        path: Arc<str>,
        url: String,
        media: Media,
    },
    Folder {
        url: String,
    },
    /// An address on this host that belongs to another part of the server.
    Host {
        url: String,
    },
    /// An unpublished note. `label` is true if the author's text for the link may be shown.
    Withheld {
        label: bool,
    },
    Broken,
}

impl LinkedNote {
    /// Resolves the links of a published note.
    pub(crate) fn of(state: &State, path: &Arc<str>, note: &Note, modified: Option<i64>) -> LinkedNote {
        let folder = path::split(path).0;
        let mut linked = LinkedNote {
            card: Card {
                path: path.clone(),
                url: state.url_of(path).into(),
                title: String::new(),
                description: String::new(),
                tags: note.tags().to_vec(),
                updated: note.updated().or(note.created()).or(modified),
                created: note.created(),
            },
            targets: Vec::with_capacity(note.body.links.len()),
            are_links: note.body.links.iter().map(Link::is_link).collect(),
            keys: Vec::new(),
            warnings: Vec::new(),
        };
        if !folder.is_empty() && state.site.is_of_host(path) {
            let first = path.split('/').next().unwrap_or_default();
            let message = format!(
                "addresses below `/{first}/` belong to another part of the server; rename the folder"
            );
            linked.warnings.push(message);
        }
        for link in &note.body.links {
            let attempts = names::attempts(folder, link);
            linked.keys.extend(attempts.iter().map(|attempt| attempt.key.clone()));
            let known = linked.warnings.len();
            let target = resolve(state, path, note, link, &attempts, &mut linked);
            if !link.is_link() && !matches!(target, LinkTarget::Withheld { .. }) {
                linked.warnings.truncate(known);
            }
            linked.targets.push(target);
        }
        linked.keys.sort_unstable();
        linked.keys.dedup();
        let withheld = &state.site.options.words.withheld;
        let shown = |spans: &[Span], chars_max| {
            note::one_line(spans, chars_max, |at| linked.display_text(note, at, withheld))
        };
        let title = shown(&note.title, TITLE_CHARS_MAX);
        let description = note.description.as_ref().unwrap_or(&note.body.lead);
        let description = shown(description, DESCRIPTION_CHARS_MAX);
        linked.card.title = title;
        linked.card.description = description;
        linked
    }

    /// Returns the text of a link, as far as it may be shown.
    pub(crate) fn display_text(&self, note: &Note, at: u32, withheld: &str) -> String {
        let link = &note.body.links[at as usize];
        match self.targets.get(at as usize) {
            Some(LinkTarget::Withheld { label: false }) | None => withheld.to_owned(),
            Some(LinkTarget::Note { is_veiled: true, .. }) => match link.target.as_str() {
                "" => "…".to_owned(),
                target => format!("{target} › …"),
            },
            _ => link.display_text(|inner| self.display_text(note, inner, withheld)),
        }
    }

    /// Returns the targets of real links. A note or file that is merely named gets no backlink and does not become
    /// public.
    fn followed(&self) -> impl Iterator<Item = &LinkTarget> {
        self.targets.iter().zip(&self.are_links).filter(|(_, is_link)| **is_link).map(|(target, _)| target)
    }

    /// Returns the notes that it links to or embeds, sorted and distinct, without itself.
    pub(crate) fn notes(&self) -> Vec<Arc<str>> {
        let mut notes: Vec<Arc<str>> = self
            .followed()
            .filter_map(|target| match target {
                LinkTarget::Note { path, .. } if *path != self.card.path => Some(path.clone()),
                _ => None,
            })
            .collect();
        notes.sort_unstable();
        notes.dedup();
        notes
    }

    /// Returns the notes that it embeds, sorted and distinct.
    pub(crate) fn embeds(&self, note: &Note) -> Vec<Arc<str>> {
        let links = note.body.links.iter().zip(&self.targets);
        let mut notes: Vec<Arc<str>> = links
            .filter(|(link, _)| link.is_shown_in_place())
            .filter_map(|(_, target)| match target {
                LinkTarget::Note { path, .. } => Some(path.clone()),
                _ => None,
            })
            .collect();
        notes.sort_unstable();
        notes.dedup();
        notes
    }

    pub(crate) fn assets(&self) -> Vec<Arc<str>> {
        let mut assets: Vec<Arc<str>> = self
            .followed()
            .filter_map(|target| match target {
                LinkTarget::Asset { path, .. } => Some(path.clone()),
                _ => None,
            })
            .collect();
        assets.sort_unstable();
        assets.dedup();
        assets
    }
}

fn resolve(
    state: &State,
    from: &Arc<str>,
    note: &Note,
    link: &Link,
    attempts: &[Attempt],
    linked: &mut LinkedNote,
) -> LinkTarget {
    let warnings = &mut linked.warnings;
    let (path, kind) = if link.target.trim().is_empty() {
        (from.clone(), NamedKind::Note)
    } else {
        match state.names.find(path::split(from).0, attempts) {
            Some(named) => (named.path.clone(), named.kind),
            None if is_of_host(state, link) => {
                return LinkTarget::Host { url: crate::text::encode_path(&link.target) };
            }
            None => {
                warnings.push(format!("`{}` is linked to and does not exist", link.target));
                return LinkTarget::Broken;
            }
        }
    };
    match kind {
        NamedKind::Folder => {
            state.folder_page(&path).map_or(LinkTarget::Broken, |url| LinkTarget::Folder { url })
        }
        NamedKind::Asset if state.site.is_reserved(&path) => {
            warnings.push(format!("`{path}` has an address that belongs to another part of the server"));
            LinkTarget::Broken
        }
        NamedKind::Asset => match path::content_type(&path) {
            Some((_, media)) => {
                LinkTarget::Asset { url: format!("/{}", crate::text::encode_path(&path)), path, media }
            }
            None => LinkTarget::Broken,
        },
        NamedKind::Withheld => {
            warnings.push(format!("`{path}` is linked to and was skipped; the link is plain text"));
            LinkTarget::Withheld { label: may_show_label(note, link, &path, std::iter::empty()) }
        }
        NamedKind::Note => {
            let own = *path == **from;
            let Some(entry) = state.notes.get(&path) else { return LinkTarget::Broken };
            if !own && !entry.published {
                warnings.push(format!("`{path}` is linked to and not published; the link is plain text"));
                let title = entry.note.title();
                let names =
                    [title.as_str()].into_iter().chain(entry.note.aliases().iter().map(String::as_str));
                return LinkTarget::Withheld { label: may_show_label(note, link, &path, names) };
            }
            let body = if own { &note.body } else { &entry.note.body };
            let id = link.fragment.as_deref().and_then(|fragment| body.id_of(fragment));
            if let (Some(fragment), None) = (&link.fragment, &id) {
                warnings.push(format!(
                    "`{path}` has no heading or block `{fragment}`; the link leads to its top"
                ));
            }
            let is_veiled = link.label.is_none()
                && link.fragment.as_deref().is_some_and(|fragment| {
                    let links = body.links_of(fragment);
                    links.filter(|link| is_private(state, &path, link, &mut linked.keys)).count() > 0
                });
            LinkTarget::Note { url: state.url_of(&path).into(), path, id, is_veiled }
        }
    }
}

/// Tells whether a link of the note at `path` leads to an unpublished note. Adds the names on which the answer depends
/// to `keys`.
fn is_private(state: &State, path: &Arc<str>, link: &Link, keys: &mut Vec<Key>) -> bool {
    let folder = path::split(path).0;
    let attempts = names::attempts(folder, link);
    keys.extend(attempts.iter().map(|attempt| attempt.key.clone()));
    let found = state.names.find(folder, &attempts);
    found.is_some_and(|named| match named.kind {
        NamedKind::Withheld => true,
        NamedKind::Note => state.notes.get(&named.path).is_some_and(|entry| !entry.published),
        NamedKind::Asset | NamedKind::Folder => false,
    })
}

/// Tells whether a link is an address from the root that belongs to another part of this server.
fn is_of_host(state: &State, link: &Link) -> bool {
    link.target.starts_with('/') && !link.is_shown_in_place() && state.site.is_reserved(&link.target[1..])
}

/// Tells whether the author's text for a link to a private note may be shown. It may, unless it reveals the name of
/// that note or of its folder.
fn may_show_label<'a>(
    note: &Note,
    link: &'a Link,
    path: &'a str,
    names: impl Iterator<Item = &'a str>,
) -> bool {
    let Some(label) = &link.label else { return false };
    if link.syntax == LinkSyntax::Quoted {
        return false;
    }
    let label = fold(&join_spans(label, |inner| note.body.display_text(inner)));
    let (folder, file) = path::split(path);
    let in_folder = format!("{folder}/");
    let has_folder = !folder.is_empty() && label.contains(&fold(&in_folder));
    let mut names = names.chain([path::stem(file), link.target.trim()]);
    !has_folder && !names.any(|name| reveals(&label, &fold(name.trim())))
}
