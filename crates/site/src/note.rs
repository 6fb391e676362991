//! A note: a Markdown file, parsed once.

pub(crate) mod comments;
pub(crate) mod date;
pub(crate) mod front;

use std::collections::BTreeSet;

use crate::body::{NoteBody, Span, join_spans};
use crate::markdown;
use crate::text::{fold, shorten};

/// The largest note that is read, in bytes. Larger notes stay private.
pub const NOTE_BYTES_MAX: usize = 4 << 20;

/// The largest number of tags of a note. Each tag has a page, and appears on the page of the note.
pub(crate) const TAGS_MAX: usize = 1_000;

/// A parsed note: what its file contains, depending only on path and bytes. The [`crate::Vault`] holds its relations to
/// other notes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    path: Box<str>,
    /// The title in the front matter, else the first heading, else the name of the file.
    pub(crate) title: Vec<Span>,
    aliases: Vec<String>,
    /// Folded, sorted and distinct.
    tags: Vec<String>,
    publish: Option<bool>,
    pub(crate) description: Option<Vec<Span>>,
    /// Time of creation according to the front matter, in seconds since 1970, UTC.
    created: Option<i64>,
    /// Time of the last update according to the front matter, in seconds since 1970, UTC.
    updated: Option<i64>,
    pub(crate) body: NoteBody,
    warnings: Vec<String>,
    /// True if a part of the note could not be read. The note is then private, whatever else it says.
    broken: bool,
}

impl Note {
    /// Parses a note. It never fails: a part that cannot be read becomes a warning, and the note stays private.
    pub fn parse(path: &str, bytes: &[u8]) -> Note {
        let mut note = Note::empty(path);
        if let Some(rest) = note.read_front(bytes) {
            note.read_body(rest);
        }
        if note.title.is_empty() {
            note.title = vec![Span::Text(name_of(path).to_owned())];
        }
        note
    }

    /// Returns [`Note::publish`] for the bytes of a note, without parsing its text.
    pub(crate) fn publish_setting(bytes: &[u8]) -> Option<bool> {
        let mut note = Note::empty("");
        note.read_front(bytes);
        note.publish()
    }

    fn empty(path: &str) -> Note {
        Note {
            path: path.into(),
            title: Vec::new(),
            aliases: Vec::new(),
            tags: Vec::new(),
            publish: None,
            description: None,
            created: None,
            updated: None,
            body: NoteBody::default(),
            warnings: Vec::new(),
            broken: false,
        }
    }

    fn refuse(&mut self, why: String) {
        self.broken = true;
        self.warnings.push(format!("{why}; the note stays private"));
    }

    /// Reads the front matter. Returns the rest of the note, or `None` if it must not be read.
    fn read_front<'a>(&mut self, bytes: &'a [u8]) -> Option<&'a str> {
        if bytes.len() > NOTE_BYTES_MAX {
            self.refuse(format!("it has {} bytes; notes up to {NOTE_BYTES_MAX} bytes are read", bytes.len()));
            return None;
        }
        let text = match std::str::from_utf8(bytes) {
            Ok(text) => text.strip_prefix('\u{feff}').unwrap_or(text),
            Err(error) => {
                self.refuse(format!("it is not UTF-8 at byte {}; save it as UTF-8", error.valid_up_to()));
                return None;
            }
        };
        let (yaml, front, text) = match front::split(text) {
            Ok((Some(yaml), rest)) => (yaml, front::parse(yaml), rest),
            Ok((None, rest)) => ("", Ok(Vec::new()), rest),
            Err(error) => (text, Err(error), text),
        };
        let mut tags = Vec::new();
        match front {
            Ok(front) => {
                for (key, value) in &front {
                    self.key(key, value, &mut tags);
                }
            }
            Err(error) => {
                self.refuse(error);
                self.aliases = front::guess_names(yaml);
            }
        }
        self.tags = tags;
        Some(text)
    }

    fn read_body(&mut self, text: &str) {
        let mut tags = Tags::default();
        for tag in std::mem::take(&mut self.tags) {
            tags.add(&tag);
        }
        self.body = markdown::read(&comments::strip(text), &mut tags);
        self.warnings.append(&mut self.body.warnings);
        if tags.has_dropped {
            self.warnings.push(format!("it has more than {TAGS_MAX} tags; only the first {TAGS_MAX} count"));
        }
        self.tags = tags.taken.into_iter().collect();
        for said in std::iter::once(&mut self.title).chain(&mut self.description) {
            *said = self.body.split_names(std::mem::take(said));
        }
        if self.title.is_empty()
            && let Some(heading) = self.body.headings.first()
        {
            self.title.clone_from(&heading.text);
        }
    }

    fn key(&mut self, key: &str, value: &front::Value, tags: &mut Vec<String>) {
        match key {
            "title" => {
                self.title = value.text().map(text_span).unwrap_or_default();
            }
            "alias" | "aliases" => self.aliases.extend(value.texts().into_iter().map(str::to_owned)),
            "tag" | "tags" => self.tags_from(value, tags),
            "description" | "summary" => self.description = value.text().map(text_span),
            "publish" => {
                let yes = value.text().map(|text| matches!(&*text.to_lowercase(), "true" | "yes" | "on"));
                let said = yes.is_some_and(|yes| yes);
                let clear = value.text().is_none_or(|text| {
                    matches!(&*text.to_lowercase(), "true" | "yes" | "on" | "false" | "no" | "off")
                });
                if !clear {
                    self.warnings
                        .push("`publish` is neither true nor false; the note stays private".to_owned());
                }
                // If the key occurs twice, false wins.
                self.publish = Some(said && self.publish != Some(false));
            }
            "draft" | "private" if value.text().is_some_and(|text| text.eq_ignore_ascii_case("true")) => {
                self.publish = Some(false);
            }
            "date" | "created" | "created_at" => self.created = self.date(key, value).or(self.created),
            "updated" | "modified" | "updated_at" | "lastmod" => {
                self.updated = self.date(key, value).or(self.updated)
            }
            _ => {}
        }
    }

    fn date(&mut self, key: &str, value: &front::Value) -> Option<i64> {
        let text = value.text()?;
        let date = date::parse(text);
        if date.is_none() {
            self.warnings.push(format!(
                "`{key}` is not a date such as 2024-05-01 or 2024-05-01T12:00:00Z; it is ignored"
            ));
        }
        date
    }

    fn tags_from(&mut self, value: &front::Value, tags: &mut Vec<String>) {
        let parts = value.texts();
        let single = matches!(value, front::Value::Text(_));
        for part in parts.iter().flat_map(|part| part.split(move |c: char| c == ',' || (single && c == ' ')))
        {
            let tag = part.trim().trim_start_matches('#').replace(' ', "-");
            if tag.is_empty() {
                continue;
            }
            if markdown::is_tag(&tag) {
                tags.push(tag)
            } else {
                self.warnings.push(
                    "a tag has characters other than letters, digits, - _ and /; it is ignored".to_owned(),
                )
            }
        }
    }

    /// Returns the path within the vault, with `/` between folders.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the title as the author sees it. A page may show less: see [`crate::Card::title`].
    pub fn title(&self) -> String {
        plain_text(&self.title, &self.body)
    }

    pub fn aliases(&self) -> &[String] {
        &self.aliases
    }

    /// Returns the tags of front matter and text, in lower case and sorted.
    pub fn tags(&self) -> &[String] {
        &self.tags
    }

    /// Returns what the front matter says about publishing; `None` leaves it to the options of the site. A note that
    /// could not be read is never published.
    pub fn publish(&self) -> Option<bool> {
        if self.broken { Some(false) } else { self.publish }
    }

    /// Tells whether a part of the note, usually its front matter, could not be read. Such a note is private, and its
    /// warnings name the part.
    pub fn is_unreadable(&self) -> bool {
        self.broken
    }

    /// Returns the description in the front matter.
    pub fn description(&self) -> Option<String> {
        self.description.as_ref().map(|spans| plain_text(spans, &self.body))
    }

    /// Returns the time of creation according to the front matter, in seconds since 1970, UTC.
    pub fn created(&self) -> Option<i64> {
        self.created
    }

    /// Returns the time of the last update according to the front matter, in seconds since 1970, UTC.
    pub fn updated(&self) -> Option<i64> {
        self.updated
    }

    /// Returns the whole text as the author sees it, without Markdown and comments. Readers of published notes get
    /// [`crate::Vault::text`] instead.
    pub fn text(&self) -> String {
        plain_text(&self.body.text, &self.body)
    }

    /// Returns title and text as everybody may see them, whatever the rest of the vault contains. The text of links to
    /// other notes is left out, since it may name a private note. A page shows more, because it knows which notes are
    /// private.
    pub fn public_words(&self) -> (String, String) {
        let open = |spans: &[Span]| join_spans(spans, |_| "…".to_owned()).trim().to_owned();
        (open(&self.title), open(&self.body.text))
    }

    /// Returns the warnings for the author, as sentences.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

/// Collects the tags of a note.
#[derive(Default)]
pub(crate) struct Tags {
    /// The tags, folded.
    taken: BTreeSet<String>,
    has_dropped: bool,
}

impl Tags {
    /// Adds a tag. Returns false if the note has [`TAGS_MAX`] other tags already.
    pub(crate) fn add(&mut self, tag: &str) -> bool {
        let tag = fold(tag);
        if self.taken.len() < TAGS_MAX {
            self.taken.insert(tag);
            return true;
        }
        let is_known = self.taken.contains(&tag);
        self.has_dropped |= !is_known;
        is_known
    }
}

fn text_span(text: &str) -> Vec<Span> {
    vec![Span::Text(text.to_owned())]
}

fn plain_text(spans: &[Span], body: &NoteBody) -> String {
    join_spans(spans, |link| body.display_text(link)).trim().to_owned()
}

/// Joins spans to one line of at most `chars_max` characters. `link_text` gives the text of a link.
pub(crate) fn one_line(spans: &[Span], chars_max: usize, link_text: impl FnMut(u32) -> String) -> String {
    let text = join_spans(spans, link_text);
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    shorten(&text, chars_max)
}

/// Returns the name of a note by its file, or by its folder for an index note.
fn name_of(path: &str) -> &str {
    let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
    let stem = crate::path::stem(file);
    if crate::path::index_rank(stem).is_some() && !folder.is_empty() {
        return folder.rsplit('/').next().unwrap_or(folder);
    }
    stem
}
