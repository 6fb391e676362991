//! The options of a site.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use types::{Error, Result};

use crate::note::Note;
use crate::path;
use crate::text::fold;

/// The options of a site. Every page may depend on every option, so changing one requires a new [`crate::Vault`].
#[derive(Clone, Debug)]
pub struct Options {
    /// The title of the site, shown at the top of every page.
    pub title: String,
    /// The description of the site, shown in the feed and on the first page if that has no note of its own.
    pub description: String,
    /// The language of the text, as in `<html lang>`.
    pub language: String,
    /// The base address, such as `https://example.org`, without a path. The sitemap, canonical links and absolute
    /// addresses in the feed need it.
    pub base_url: Option<String>,
    /// Patterns of notes that are published even without `publish: true`, such as `**` or `blog/**`. `publish: false`
    /// in a note takes precedence.
    pub publish: Vec<String>,
    /// True if harmless HTML in notes stays HTML (`sanitize.rs`). Otherwise it is shown as text.
    pub raw_html: bool,
    /// True if a line break in a paragraph is shown as a line break, as in Obsidian. In CommonMark it is a space.
    pub line_breaks: bool,
    /// The address to which the search form sends its parameter `q`, for instance `/`. Without it there is no form. The
    /// server answers with [`crate::Vault::search_page`].
    pub search: Option<String>,
    /// First parts of addresses that belong to other parts of the server, such as `v1`.
    pub reserved: Vec<String>,
    /// The largest number of notes in the feed; it holds the newest.
    pub feed_entries_max: usize,
    pub words: ThemeWords,
}

/// The texts of the theme.
#[derive(Clone, Debug)]
pub struct ThemeWords {
    pub skip: String,
    pub home: String,
    pub all_notes: String,
    pub tags: String,
    pub feed: String,
    pub search: String,
    pub contents: String,
    pub backlinks: String,
    pub breadcrumbs: String,
    pub updated: String,
    pub folders: String,
    pub notes: String,
    pub empty: String,
    pub no_tags: String,
    pub tagged: String,
    /// Shown instead of the name of an unpublished note.
    pub withheld: String,
    pub withheld_hint: String,
    pub broken_hint: String,
    pub not_found: String,
    pub not_found_text: String,
    /// The noun after the number of search results.
    pub found: String,
    pub found_one: String,
    pub nothing_found: String,
}

impl Options {
    /// Tells whether a path of the vault would have an address that belongs to another part of the server.
    pub fn is_reserved(&self, path: &str) -> bool {
        let first = fold(path.trim_matches('/').split('/').next().unwrap_or_default());
        self.reserved.iter().any(|reserved| fold(reserved.trim_matches('/')) == first)
    }

    /// Returns the rule that decides which notes these options publish. Fails if a pattern is invalid.
    pub fn rule(&self) -> Result<PublishRule> {
        CheckedOptions::new(self.clone()).map(PublishRule)
    }
}

/// The rule that decides whether a note is published, with compiled patterns.
#[derive(Debug)]
pub struct PublishRule(CheckedOptions);

impl PublishRule {
    pub fn is_published(&self, note: &Note) -> bool {
        path::is_valid(note.path()) && self.0.is_published(note.path(), note.publish())
    }

    /// Returns [`PublishRule::is_published`] for the bytes of a note. Reads only the front matter.
    pub fn publishes(&self, path: &str, bytes: &[u8]) -> bool {
        path::is_valid(path) && self.0.is_published(path, Note::publish_setting(bytes))
    }
}

impl Default for Options {
    fn default() -> Self {
        Options {
            title: "Notes".to_owned(),
            description: String::new(),
            language: "en".to_owned(),
            base_url: None,
            publish: Vec::new(),
            raw_html: false,
            line_breaks: false,
            search: None,
            reserved: ["_", "v1", "mcp", "iceberg", "health", "ready", "metrics", "openapi.json"]
                .map(str::to_owned)
                .to_vec(),
            feed_entries_max: 50,
            words: ThemeWords::default(),
        }
    }
}

impl Default for ThemeWords {
    fn default() -> Self {
        let words = |text: &str| text.to_owned();
        ThemeWords {
            skip: words("Skip to content"),
            home: words("Home"),
            all_notes: words("All notes"),
            tags: words("Tags"),
            feed: words("Feed"),
            search: words("Search"),
            contents: words("On this page"),
            backlinks: words("Linked from"),
            breadcrumbs: words("Where this page is"),
            updated: words("Updated"),
            folders: words("Folders"),
            notes: words("Notes"),
            empty: words("Nothing is published here yet."),
            no_tags: words("No note has a tag yet."),
            tagged: words("Tagged"),
            withheld: words("(unpublished)"),
            withheld_hint: words("This note is not published"),
            broken_hint: words("There is no such page"),
            not_found: words("There is no such page"),
            not_found_text: words(
                "It may have been moved, renamed or taken back. The list of all notes may help.",
            ),
            found: words("notes"),
            found_one: words("note"),
            nothing_found: words("Nothing was found."),
        }
    }
}

/// Validated options, with compiled patterns.
#[derive(Debug)]
pub(crate) struct CheckedOptions {
    pub(crate) options: Options,
    publish: GlobSet,
    reserved: Vec<String>,
}

impl CheckedOptions {
    pub(crate) fn new(mut options: Options) -> Result<CheckedOptions> {
        let mut set = GlobSetBuilder::new();
        for pattern in &options.publish {
            let glob = GlobBuilder::new(pattern).literal_separator(true).build();
            set.add(glob.map_err(|error| {
                Error::invalid(format!("`{pattern}` is not a pattern of paths: {}", error.kind()))
                    .hint("write patterns such as `**`, `blog/**` or `*.md`")
            })?);
        }
        let publish = set.build().map_err(|error| {
            Error::invalid(format!("the patterns of published notes are too large: {error}"))
                .hint("use fewer")
        })?;
        if let Some(base) = &mut options.base_url {
            let rest = base.strip_prefix("https://").or(base.strip_prefix("http://")).unwrap_or_default();
            let host = rest.trim_end_matches('/');
            if host.is_empty() || host.contains(['/', '?', '#', '"', '<', '>', ' ']) {
                return Err(Error::invalid(format!("`{base}` is not the address of a site"))
                    .hint("write it like https://example.org, without a path"));
            }
            base.truncate(base.trim_end_matches('/').len());
        }
        let own = path::OWN.iter().map(|own| own.to_string());
        let reserved =
            own.chain(options.reserved.iter().map(|first| fold(first.trim_matches('/')))).collect();
        Ok(CheckedOptions { options, publish, reserved })
    }

    pub(crate) fn is_published(&self, path: &str, said: Option<bool>) -> bool {
        said.unwrap_or_else(|| self.publish.is_match(path))
    }

    /// Tells whether an address below the root, not encoded, is reserved, so that no note can have it. The names of the
    /// site's own pages and of the style sheet are reserved too.
    pub(crate) fn is_reserved(&self, stem: &str) -> bool {
        let first = fold(stem.split('/').next().unwrap_or_default());
        self.reserved.contains(&first) || (first.starts_with("style.") && first.ends_with(".css"))
    }

    /// Tells whether another part of the server answers at a path of the vault, so that a reader could never get a page
    /// there.
    pub(crate) fn is_of_host(&self, path: &str) -> bool {
        self.options.is_reserved(path)
    }

    pub(crate) fn absolute(&self, url: &str) -> String {
        format!("{}{url}", self.options.base_url.as_deref().unwrap_or_default())
    }
}
