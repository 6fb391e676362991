//! Fills the holes of a note's body.

use std::fmt::Write;
use std::sync::Arc;

use crate::body::{Link, Piece, Syntax};
use crate::linked::{Linked, Target};
use crate::markdown::size_attributes;
use crate::note::Note;
use crate::path::Media;
use crate::text::{encode_part, escape, escape_into};
use crate::vault::State;

/// Notes shown in notes shown in notes …
const EMBED_DEPTH_MAX: usize = 4;
/// On one page, so that a few notes that show each other cannot make an endless one.
const EMBEDS_MAX: usize = 200;
const PAGE_BYTES_MAX: usize = 16 << 20;

pub(super) struct Filled {
    pub(super) html: String,
    /// Other notes whose text is on the page.
    pub(super) shown: Vec<Arc<str>>,
}

/// The text of a note as HTML.
pub(super) fn body(state: &State, linked: &Linked, note: &Note) -> Filled {
    let mut fill = Fill {
        state,
        page: &linked.card.path,
        out: String::new(),
        stack: Vec::new(),
        shown: Vec::new(),
        count: 0,
    };
    fill.pieces(linked, note, 0, note.body.pieces.len(), "");
    Filled { html: fill.out, shown: fill.shown }
}

struct Fill<'a> {
    state: &'a State,
    page: &'a Arc<str>,
    out: String,
    /// Notes that are being shown, outermost first.
    stack: Vec<Arc<str>>,
    shown: Vec<Arc<str>>,
    count: usize,
}

impl Fill<'_> {
    fn pieces(&mut self, linked: &Linked, note: &Note, start: usize, end: usize, prefix: &str) {
        self.stack.push(linked.card.path.clone());
        let options = &self.state.site.options;
        let mut skip_until = None;
        for piece in note.body.pieces.get(start..end).unwrap_or_default() {
            if let Some(link) = skip_until {
                if *piece == Piece::Close(link) {
                    skip_until = None;
                }
                continue;
            }
            match piece {
                Piece::Html(html) => {
                    match html.strip_prefix("</p>\n").filter(|_| self.out.ends_with("</div></div>\n<p>")) {
                        // Nothing followed the embed in its paragraph.
                        Some(rest) => {
                            self.out.truncate(self.out.len() - "<p>".len());
                            self.out.push_str(rest);
                        }
                        None => self.out.push_str(html),
                    }
                }
                Piece::Raw(html) if options.raw_html => crate::raw::keep_into(&mut self.out, html),
                Piece::Raw(html) => escape_into(&mut self.out, html),
                Piece::Id(id) => {
                    // In `href`, `#` stands before: browsers decode before they compare.
                    let is_reference = self.out.ends_with('#');
                    let id = format!("{prefix}{id}");
                    let id = if is_reference { encode_part(&id) } else { escape(&id) };
                    self.out.push_str(&id);
                }
                Piece::Break => self.out.push_str(if options.line_breaks { "<br>\n" } else { "\n" }),
                Piece::Open(at) => {
                    if !self.open(linked, note, *at) {
                        skip_until = Some(*at);
                    }
                }
                Piece::Close(at) => self.out.push_str(closing(target(linked, *at))),
                Piece::Show(at) => self.show(linked, note, *at),
            }
        }
        self.stack.pop();
    }

    /// Whether what the link says is to be shown.
    fn open(&mut self, linked: &Linked, note: &Note, at: u32) -> bool {
        let link = &note.body.links[at as usize];
        let words = &self.state.site.options.words;
        let target = target(linked, at);
        match target {
            Target::Withheld { label: true } => return true,
            Target::Withheld { label: false } => {
                let (hint, text) = (escape(&words.withheld_hint), escape(&words.withheld));
                let _ = write!(self.out, "<span class=\"withheld\" title=\"{hint}\">{text}</span>");
                return false;
            }
            Target::Broken => {
                let _ = write!(self.out, "<span class=\"broken\" title=\"{}\">", escape(&words.broken_hint));
                return true;
            }
            _ => {}
        }
        self.out.push_str("<a href=\"");
        let address = self.address(target);
        escape_into(&mut self.out, &address);
        self.out.push('"');
        if let Some(title) = &link.title {
            let _ = write!(self.out, " title=\"{}\"", escape(title));
        }
        self.out.push('>');
        true
    }

    fn address(&self, target: &Target) -> String {
        match target {
            Target::Note { path, url, id } => {
                let fragment = id.as_ref().map(|id| format!("#{}", encode_part(id)));
                match fragment {
                    Some(fragment) if path == self.page => fragment,
                    Some(fragment) => format!("{url}{fragment}"),
                    None => url.to_string(),
                }
            }
            Target::Asset { url, .. } | Target::Folder { url } | Target::Host { url } => url.clone(),
            Target::Withheld { .. } | Target::Broken => String::new(),
        }
    }

    fn show(&mut self, linked: &Linked, note: &Note, at: u32) {
        let link = &note.body.links[at as usize];
        let words = &self.state.site.options.words;
        match target(linked, at) {
            Target::Asset { url, media, .. } => self.asset(link, url, *media),
            Target::Note { path, url, .. } => self.embed(link, path, url),
            Target::Folder { url } | Target::Host { url } => {
                let _ = write!(self.out, "<a href=\"{}\">{}</a>", escape(url), escape(&link.shown()));
            }
            Target::Withheld { .. } => {
                let (hint, text) = (escape(&words.withheld_hint), escape(&words.withheld));
                let _ = write!(self.out, "<span class=\"withheld\" title=\"{hint}\">{text}</span>");
            }
            Target::Broken => {
                let hint = escape(&words.broken_hint);
                let _ = write!(
                    self.out,
                    "<span class=\"broken\" title=\"{hint}\">{}</span>",
                    escape(&link.shown())
                );
            }
        }
    }

    fn asset(&mut self, link: &Link, url: &str, media: Media) {
        let url = escape(url);
        let name = link.target.rsplit('/').next().unwrap_or(&link.target);
        // A name of a file says nothing to who cannot see the picture; no text at all says that it adorns.
        let alt = match link.syntax {
            Syntax::WikiEmbed => link.label.as_deref().unwrap_or(name),
            _ => link.label.as_deref().unwrap_or_default(),
        };
        let (label, size) = (escape(alt), size_attributes(link.size));
        let title =
            link.title.as_ref().map_or(String::new(), |title| format!(" title=\"{}\"", escape(title)));
        let _ = match media {
            Media::Image => {
                write!(self.out, "<img src=\"{url}\" alt=\"{label}\"{title}{size} loading=\"lazy\">")
            }
            Media::Audio => write!(
                self.out,
                "<audio controls preload=\"none\" src=\"{url}\" aria-label=\"{label}\"></audio>"
            ),
            Media::Video => write!(
                self.out,
                "<video controls preload=\"metadata\" src=\"{url}\"{size} aria-label=\"{label}\"></video>"
            ),
            Media::Document => {
                let text = if alt.is_empty() { escape(name) } else { label };
                write!(self.out, "<a class=\"file\" href=\"{url}\"{title}>{text}</a>")
            }
        };
    }

    fn embed(&mut self, link: &Link, path: &Arc<str>, url: &str) {
        let found = self.state.linked.get(path).zip(self.state.notes.get(path));
        let too_much =
            self.stack.len() > EMBED_DEPTH_MAX || self.count >= EMBEDS_MAX || self.out.len() > PAGE_BYTES_MAX;
        let Some((inner, entry)) = found.filter(|_| !too_much && !self.stack.contains(path)) else {
            // What shows itself, or too much, is linked to.
            let _ = write!(self.out, "<a href=\"{}\">{}</a>", escape(url), escape(&link.shown()));
            return;
        };
        self.count += 1;
        self.shown.push(path.clone());
        let body = &entry.note.body;
        let all = (0, body.pieces.len());
        let (start, end) =
            link.fragment.as_deref().and_then(|fragment| body.section_of(fragment)).unwrap_or(all);
        let (inner, note) = (inner.clone(), entry.note.clone());
        // An embed may stand within a paragraph, where no block element can: `<p>` ends there, and its rest is text.
        let closes = self.out.ends_with("<p>");
        if closes {
            self.out.truncate(self.out.len() - "<p>".len());
        }
        let _ = write!(
            self.out,
            "<div class=\"embed\"><p class=\"from\"><a href=\"{}\">{}</a></p>\n<div class=\"body\">\n",
            escape(url),
            escape(&inner.card.title)
        );
        let prefix = format!("embed:{}:", self.count);
        self.pieces(&inner, &note, start, end, &prefix);
        self.out.push_str("</div></div>\n");
        if closes {
            self.out.push_str("<p>");
        }
    }
}

fn target(linked: &Linked, at: u32) -> &Target {
    linked.targets.get(at as usize).unwrap_or(&Target::Broken)
}

fn closing(target: &Target) -> &'static str {
    match target {
        Target::Broken => "</span>",
        Target::Withheld { .. } => "",
        _ => "</a>",
    }
}
