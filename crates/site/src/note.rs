//! One note: a Markdown file, read once.

pub(crate) mod comments;
pub(crate) mod date;
pub(crate) mod front;

use std::collections::BTreeSet;

use crate::body::{Body, Span, joined};
use crate::markdown;
use crate::text::{fold, shorten};

/// Larger notes stay private.
pub const NOTE_BYTES_MAX: usize = 4 << 20;

/// Each tag of a note is a page, and stands on the note's own.
pub(crate) const TAGS_MAX: usize = 1_000;

/// What a file says about itself; what others say of it is the [`crate::Vault`]'s. Depends on path and bytes alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    path: Box<str>,
    /// Front matter, else the first heading, else the name of the file.
    pub(crate) title: Vec<Span>,
    aliases: Vec<String>,
    /// Folded, sorted, each once.
    tags: Vec<String>,
    publish: Option<bool>,
    pub(crate) description: Option<Vec<Span>>,
    /// Seconds since 1970, UTC.
    created: Option<i64>,
    updated: Option<i64>,
    pub(crate) body: Body,
    warnings: Vec<String>,
    /// Something about it could not be read, so it is private whatever else it says.
    broken: bool,
}

impl Note {
    /// Reads a note. Never fails: what cannot be read is a warning, and the note stays private.
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

    /// [`Note::publish`] of a note's bytes. Its text is not read.
    pub(crate) fn said(bytes: &[u8]) -> Option<bool> {
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
            body: Body::default(),
            warnings: Vec::new(),
            broken: false,
        }
    }

    fn refuse(&mut self, why: String) {
        self.broken = true;
        self.warnings.push(format!("{why}; the note stays private"));
    }

    /// Front matter. The rest is returned, unless the note is not to be read at all.
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
            tags.take(&tag);
        }
        self.body = markdown::read(&comments::strip(text), &mut tags);
        self.warnings.append(&mut self.body.warnings);
        if tags.passed_over {
            self.warnings.push(format!("it has more than {TAGS_MAX} tags; the first {TAGS_MAX} count"));
        }
        self.tags = tags.taken.into_iter().collect();
        for said in std::iter::once(&mut self.title).chain(&mut self.description) {
            *said = self.body.named(std::mem::take(said));
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
                self.title = value.text().map(one).unwrap_or_default();
            }
            "alias" | "aliases" => self.aliases.extend(value.texts().into_iter().map(str::to_owned)),
            "tag" | "tags" => self.tags_from(value, tags),
            "description" | "summary" => self.description = value.text().map(one),
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
                // Said twice, the more careful counts.
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
                "`{key}` is not a date such as 2024-05-01 or 2024-05-01T12:00:00Z; it is passed over"
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
            match markdown::is_tag(&tag) {
                true => tags.push(tag),
                false => self.warnings.push(
                    "a tag has characters other than letters, digits, - _ and /; it is passed over"
                        .to_owned(),
                ),
            }
        }
    }

    /// Within the vault, `/` between folders.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Its title as its author sees it. A page may show less: see [`crate::Card::title`].
    pub fn title(&self) -> String {
        plain(&self.title, &self.body)
    }

    pub fn aliases(&self) -> &[String] {
        &self.aliases
    }

    /// In lower case, sorted, of front matter and text.
    pub fn tags(&self) -> &[String] {
        &self.tags
    }

    /// What its front matter says; `None` leaves it to the site's options.
    pub fn publish(&self) -> Option<bool> {
        if self.broken { Some(false) } else { self.publish }
    }

    /// Whether something about it could not be read, its front matter mostly: it is private then. Its warnings say what.
    pub fn is_unreadable(&self) -> bool {
        self.broken
    }

    /// Of its front matter.
    pub fn description(&self) -> Option<String> {
        self.description.as_ref().map(|spans| plain(spans, &self.body))
    }

    /// Seconds since 1970, UTC.
    pub fn created(&self) -> Option<i64> {
        self.created
    }

    /// Seconds since 1970, UTC.
    pub fn updated(&self) -> Option<i64> {
        self.updated
    }

    /// All of its text as its author sees it, without Markdown and comments. For readers of published notes:
    /// [`crate::Vault::text`].
    pub fn text(&self) -> String {
        plain(&self.body.text, &self.body)
    }

    /// Its title and text as everybody may see them, whatever else is in the vault: what links to other notes show is
    /// left out, since it may name one that is private. A page shows more: it knows which are.
    pub fn open_words(&self) -> (String, String) {
        let open = |spans: &[Span]| joined(spans, |_| "…".to_owned()).trim().to_owned();
        (open(&self.title), open(&self.body.text))
    }

    /// What its author should know, as sentences.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

/// The tags of a note, as they are found.
#[derive(Default)]
pub(crate) struct Tags {
    /// Folded.
    taken: BTreeSet<String>,
    passed_over: bool,
}

impl Tags {
    /// Whether it is one of the note's tags.
    pub(crate) fn take(&mut self, tag: &str) -> bool {
        let tag = fold(tag);
        if self.taken.len() < TAGS_MAX {
            self.taken.insert(tag);
            return true;
        }
        let is_known = self.taken.contains(&tag);
        self.passed_over |= !is_known;
        is_known
    }
}

fn one(text: &str) -> Vec<Span> {
    vec![Span::Text(text.to_owned())]
}

fn plain(spans: &[Span], body: &Body) -> String {
    joined(spans, |link| body.shown(link)).trim().to_owned()
}

/// Spans as one line, links through `shown`.
pub(crate) fn line(spans: &[Span], chars_max: usize, shown: impl FnMut(u32) -> String) -> String {
    let text = joined(spans, shown);
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    shorten(&text, chars_max)
}

/// The name of the file; of an `index.md`, the folder's.
fn name_of(path: &str) -> &str {
    let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
    let stem = crate::path::stem(file);
    if crate::path::index_rank(stem).is_some() && !folder.is_empty() {
        return folder.rsplit('/').next().unwrap_or(folder);
    }
    stem
}
